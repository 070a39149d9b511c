//! Reading a part of a file returns exactly that part.

use paddlecloud_recordio::{
    Batch, Compressor, FileWriter, Policy, RandomReader, RangeReader, ReadError, RecordFile, StreamReader,
};

use crate::samples::*;

fn read_range(bytes: &[u8], range: std::ops::Range<u64>) -> Records {
    let file = open(bytes, Policy::Strict).unwrap();
    let mut reader = file.range(range).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push(record.to_vec());
    }
    records
}

#[test]
fn every_range_gives_its_records() {
    let all = records(25);
    let bytes = write(&all, options(Compressor::Snappy, 500));
    for start in 0..=25 {
        for end in start..=25 {
            assert_eq!(read_range(&bytes, start as u64..end as u64), all[start..end]);
        }
    }
}

#[test]
fn a_range_beyond_the_file_names_the_record() {
    let file = open(
        &write(&records(5), options(Compressor::None, 100)),
        Policy::Strict,
    )
    .unwrap();
    let result = file.range(3..6).map(|_| ());
    assert!(
        matches!(
            result,
            Err(ReadError::NoSuchRecord {
                record: 5,
                len: 5,
                ..
            })
        ),
        "{result:?}"
    );
}

#[test]
fn one_by_one_by_chunk_and_in_batches_give_the_same() {
    let all = records(50);
    let bytes = write(&all, options(Compressor::Gzip, 700));
    let file = open(&bytes, Policy::Strict).unwrap();
    let mut reader = file.records();
    assert_eq!(reader.next_record().unwrap().unwrap(), all[0]);
    assert_eq!(reader.position(), 1);
    let rest = reader.next_chunk().unwrap().unwrap();
    let mut read: Records = rest.iter().map(<[u8]>::to_vec).collect();
    assert_eq!(rest.len(), file.index().chunks()[0].header.records as usize - 1);
    let mut batch = Batch::new();
    while reader.read_batch(7, &mut batch).unwrap() > 0 {
        assert!(batch.len() <= 7);
        read.extend(to_vecs(&batch));
        batch.clear();
    }
    assert_eq!(read, all[1..]);
    assert_eq!(reader.position(), 50);
}

#[test]
fn a_stream_gives_batches_too() {
    let all = records(50);
    let bytes = write(&all, options(Compressor::Snappy, 700));
    let mut reader = StreamReader::new(&bytes[..]);
    let mut batch = Batch::new();
    assert_eq!(reader.read_batch(33, &mut batch).unwrap(), 33);
    assert_eq!(reader.read_batch(33, &mut batch).unwrap(), 17);
    assert_eq!(reader.read_batch(33, &mut batch).unwrap(), 0);
    assert_eq!(to_vecs(&batch), all);
    let (data, offsets) = batch.into_parts();
    assert_eq!((offsets.len(), offsets[50]), (51, data.len() as u64));
}

#[test]
fn an_empty_file_has_no_records() {
    assert!(read_range(b"", 0..0).is_empty());
    assert!(read_stream(b"").0.is_empty());
}

#[test]
fn a_range_accounts_only_for_damage_inside_it() {
    let good = write(&records(60), options(Compressor::Snappy, 500));
    let chunks = index_of(&good).chunks().to_vec();
    let mut bad = good.clone();
    bad[chunks[1].offset as usize] ^= 1; // header: no longer an indexed chunk
    bad[chunks[4].offset as usize + 30] ^= 1; // payload
    let file = open(&bad, SKIP).unwrap();
    let lost = |range| {
        let mut reader = file.range(range).unwrap();
        while reader.next_record().unwrap().is_some() {}
        reader.damage().ranges().len()
    };
    let first = u64::from(chunks[0].header.records);
    assert_eq!(lost(0..first), 0);
    assert_eq!(lost(0..first + 1), 1);
    assert_eq!(lost(first..first + 1), 0);
    assert_eq!(lost(0..file.len()), 2);
}

#[test]
fn readers_and_writers_can_move_to_another_thread() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync + Clone>() {}
    is_shared::<RecordFile>();
    is_send::<RangeReader>();
    is_send::<RandomReader>();
    is_send::<StreamReader<std::fs::File>>();
    is_send::<FileWriter>();
    is_send::<Batch>();
}
