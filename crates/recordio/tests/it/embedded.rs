//! A RecordIO file inside a record is data, whatever happens to the surrounding chunk.

use paddlecloud_recordio::{Compressor, LostRecords};

use crate::samples::*;

fn skipped_records(bytes: &[u8]) -> (Records, u64) {
    let file = open(bytes, SKIP).unwrap();
    let mut reader = file.records();
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push(record.to_vec());
    }
    let lost = reader.damage().lost_bytes();
    let (streamed, report) = skim_stream(bytes);
    assert_eq!((&streamed, report.lost_bytes()), (&records, lost), "as a stream");
    (records, lost)
}

/// An outer file of several chunks, whose records are files themselves.
fn outer(compressor: Compressor, prefix: &[u8]) -> (Records, Vec<u8>) {
    let inner: Records = records(60)
        .into_iter()
        .filter(|record| record.len() > 150)
        .collect();
    let file = |from: usize| {
        let inner_file = write(&inner[from..from + 6], options(Compressor::None, 200));
        [prefix, &inner_file].concat()
    };
    let all: Records = (0..6).map(file).collect();
    let bytes = write(&all, options(compressor, all[0].len() as u64 * 2));
    (all, bytes)
}

#[test]
fn an_inner_file_is_never_taken_for_chunks() {
    for compressor in Compressor::ALL {
        for prefix in [&b""[..], b"a header of its own"] {
            let (all, good) = outer(compressor, prefix);
            for chunk in index_of(&good).chunks() {
                for bit in 0..160 {
                    let (left, _) = skipped_records(&flipped(&good, chunk.offset as usize * 8 + bit));
                    for record in &left {
                        assert!(
                            all.contains(record),
                            "{compressor}: header bit {bit} let inner records out"
                        );
                    }
                    assert!(left.len() >= all.len() - chunk.header.records as usize);
                }
            }
        }
    }
}

#[test]
fn an_inner_file_at_the_very_end_stays_inside() {
    let inner = write(&records(20), options(Compressor::None, 400));
    let good = write(std::slice::from_ref(&inner), options(Compressor::None, 1 << 20));
    for byte in 0..20 {
        let bad = flipped(&good, byte * 8);
        assert_eq!(
            skipped_records(&bad),
            (vec![], good.len() as u64),
            "header byte {byte}"
        );
    }
    // Not even the length of the preceding record is left, only the header's size.
    let mut bad = good.clone();
    bad[0] ^= 1;
    bad[20] ^= 1;
    assert_eq!(skipped_records(&bad), (vec![], good.len() as u64));
}

#[test]
fn a_destroyed_header_before_an_inner_file_loses_just_its_chunk() {
    let inner = write(&records(20), options(Compressor::None, 400));
    let all = vec![b"first".to_vec(), inner.clone(), b"last".to_vec()];
    let good = write(&all, options(Compressor::None, 10));
    let middle = index_of(&good).chunks()[1];
    let mut bad = good.clone();
    bad[middle.offset as usize..middle.offset as usize + 20].fill(0xee);
    let (left, lost) = skipped_records(&bad);
    assert_eq!(left, [all[0].clone(), all[2].clone()]);
    assert_eq!(lost, middle.header.chunk_len());
    let file = open(&bad, SKIP).unwrap();
    let ranges: Vec<_> = file.index().lost().collect();
    assert_eq!((ranges.len(), ranges[0].records), (1, LostRecords::Unknown));
}
