//! A stream that skips damage: what a pipe allows, without guessing.

use std::io::{self, Read};

use paddlecloud_recordio::{Compressor, HEADER_LEN, LostRecords, Policy, ReadError, SkipBound, StreamReader};

use crate::samples::*;

/// More than a reader searches ahead for a chunk of unknown position.
const BEYOND_SIGHT: u64 = 80 << 20;

/// `head`, then `chunk` repeatedly, so that the end is out of reach.
fn endless(head: &[u8], chunk: Vec<u8>) -> impl Read {
    struct Over {
        chunk: Vec<u8>,
        at: usize,
    }
    impl Read for Over {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let rest = &self.chunk[self.at..];
            let len = rest.len().min(buf.len());
            buf[..len].copy_from_slice(&rest[..len]);
            self.at = (self.at + len) % self.chunk.len();
            Ok(len)
        }
    }
    let end = BEYOND_SIGHT / chunk.len() as u64 * chunk.len() as u64;
    io::Cursor::new(head.to_vec()).chain(Over { chunk, at: 0 }.take(end))
}

/// Three chunks of four records and what each of them takes.
fn three_chunks(compressor: Compressor) -> (Records, Vec<u8>, u64) {
    let all: Records = (1..13u8).map(|i| vec![i; 100]).collect();
    let bytes = write(&all, options(compressor, 400));
    let first = index_of(&bytes).chunks()[0].header.chunk_len();
    (all, bytes, first)
}

#[test]
fn a_stream_resumes_where_the_damaged_chunk_ends() {
    for compressor in Compressor::ALL {
        let (all, good, second) = three_chunks(compressor);
        // A bit of the size, the number of records, the payload: each leaves the size or the checksum as evidence.
        for byte in [12, 16, HEADER_LEN + 30] {
            let bad = flipped(&good, (second as usize + byte) * 8);
            let mut reader = StreamReader::new(endless(&bad, good.clone())).policy(SKIP);
            let mut read = Vec::new();
            for _ in 0..all.len() {
                read.push(reader.next_record().unwrap().unwrap().to_vec());
            }
            let expected = [&all[..4], &all[8..], &all[..4]].concat();
            assert_eq!(read, expected, "{compressor}: byte {byte}");
            let [lost] = reader.damage().ranges() else {
                panic!("{compressor}: byte {byte}: {:?}", reader.damage());
            };
            assert_eq!(lost.bytes.start, second, "{compressor}: byte {byte}");
        }
    }
}

#[test]
fn a_stream_stops_when_no_next_chunk_is_found() {
    let (all, mut bad, second) = three_chunks(Compressor::None);
    let good = bad.clone();
    bad[second as usize..second as usize + HEADER_LEN].fill(0xee);
    let mut reader = StreamReader::new(endless(&bad, good)).policy(SKIP);
    for record in &all[..4] {
        assert_eq!(reader.next_record().unwrap().unwrap(), record);
    }
    let error = reader.next_record().unwrap_err();
    assert!(
        matches!(error, ReadError::LostInStream { offset, searched, .. } if offset == second && searched > 0),
        "{error}"
    );
    assert!(matches!(
        reader.next_record(),
        Err(ReadError::AlreadyFailed { .. })
    ));

    // With the end within reach the chain of headers proves the position.
    let (left, report) = skim_stream(&bad);
    assert_eq!(left, [&all[..4], &all[8..]].concat());
    assert_eq!(report.ranges()[0].bytes, second..second * 2);
}

#[test]
fn losses_are_bounded_and_numbers_stay() {
    let (_, good, second) = three_chunks(Compressor::None);
    let bad = flipped(&good, (second as usize + HEADER_LEN + 30) * 8);
    let policy = |max_bytes| {
        Policy::Skip(SkipBound {
            max_bytes,
            max_ranges: 1,
        })
    };
    let mut enough = StreamReader::new(&bad[..]).policy(policy(second));
    for _ in 0..5 {
        enough.next_record().unwrap().unwrap();
    }
    assert_eq!(enough.position(), 9, "the fifth that is left is number 8");
    assert_eq!(enough.damage().lost_records(), LostRecords::Known(4));

    let mut too_little = StreamReader::new(&bad[..]).policy(policy(second - 1));
    let error = loop {
        if let Err(error) = too_little.next_record() {
            break error;
        }
    };
    assert!(matches!(error, ReadError::TooMuchDamage { .. }), "{error}");
}

#[test]
fn damage_in_every_chunk_is_skipped() {
    const CHUNKS: usize = 20_000;
    let mut bytes = write(&vec![b"x".to_vec(); CHUNKS], options(Compressor::None, 0));
    bytes.chunks_mut(25).for_each(|chunk| chunk[24] ^= 1);
    let (left, report) = skim_stream(&bytes);
    assert_eq!((left.len(), report.lost_bytes()), (0, bytes.len() as u64));
    assert_eq!(report.lost_records(), LostRecords::Known(CHUNKS as u64));
}
