//! Threads change the speed, not the records.

use paddlecloud_recordio::{Compressor, Policy, ReadError};

use crate::samples::*;

fn drain(mut reader: paddlecloud_recordio::RangeReader<Vec<u8>>) -> (Records, usize) {
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push(record.to_vec());
    }
    (records, reader.damage().ranges().len())
}

#[test]
fn parallel_reading_keeps_the_order() {
    let all = records(300);
    for compressor in Compressor::ALL {
        let bytes = write(&all, options(compressor, 400));
        let file = open(&bytes, Policy::Strict).unwrap();
        assert_eq!(drain(file.range_parallel(0..300, threads(4)).unwrap()).0, all);
        assert_eq!(
            drain(file.range_parallel(77..201, threads(2)).unwrap()).0,
            all[77..201]
        );
    }
}

#[test]
fn parallel_skipping_loses_the_same_as_reading_here() {
    let good = write(&records(300), options(Compressor::Snappy, 400));
    let chunks = index_of(&good).chunks().to_vec();
    let mut bad = good.clone();
    for n in [0, 7, 8, 30] {
        bad[chunks[n].offset as usize + 33] ^= 1;
    }
    let file = open(&bad, SKIP).unwrap();
    let here = drain(file.records());
    assert_eq!(here.1, 4);
    assert_eq!(
        drain(file.range_parallel(0..file.len(), threads(3)).unwrap()),
        here
    );
}

#[test]
fn a_parallel_reader_gives_all_records_before_the_damage_and_repeats_its_error() {
    let all = records(300);
    let good = write(&all, options(Compressor::Snappy, 400));
    let chunk = index_of(&good).chunks()[9];
    let file = open(&flipped(&good, (chunk.offset as usize + 33) * 8), Policy::Strict).unwrap();
    let mut reader = file.range_parallel(0..300, threads(3)).unwrap();
    for record in &all[..chunk.first_record as usize] {
        assert_eq!(reader.next_record().unwrap().unwrap(), record);
    }
    for _ in 0..3 {
        let error = reader.next_record().unwrap_err();
        assert!(matches!(error, ReadError::Damaged { offset, .. } if offset == chunk.offset));
    }
}

#[test]
fn a_parallel_reader_can_be_dropped_halfway() {
    let file = open(
        &write(&records(300), options(Compressor::Gzip, 400)),
        Policy::Strict,
    )
    .unwrap();
    let mut reader = file.range_parallel(0..300, threads(3)).unwrap();
    assert!(reader.next_record().unwrap().is_some());
}
