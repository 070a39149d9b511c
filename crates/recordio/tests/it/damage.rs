//! Damage of every kind is reported, and the data around it is still read.

use paddlecloud_recordio::{Compressor, Fault, LostRecords, Policy, ReadError, SkipBound};

use crate::samples::*;

const EVERY: [Compressor; 4] = Compressor::ALL;

struct Skipped {
    records: Records,
    lost: Vec<(u64, u64, LostRecords)>,
}

fn skip(bytes: &[u8]) -> Skipped {
    let file = open(bytes, SKIP).unwrap();
    let mut reader = file.records();
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push(record.to_vec());
    }
    let ranges = reader.damage().ranges().iter();
    Skipped {
        records,
        lost: ranges.map(|r| (r.bytes.start, r.bytes.end, r.records)).collect(),
    }
}

/// What remains of `records` when chunk `n` of `bytes` is gone, and the account of it.
fn without_chunk(bytes: &[u8], records: &[Vec<u8>], n: usize) -> (Records, (u64, u64, LostRecords)) {
    let chunk = index_of(bytes).chunks()[n];
    let gone = chunk.records();
    let kept = |(i, _): &(usize, &Vec<u8>)| !gone.contains(&(*i as u64));
    let left = records.iter().enumerate().filter(kept).map(|(_, r)| r.clone());
    let count = LostRecords::Known(gone.end - gone.start);
    (left.collect(), (chunk.bytes().start, chunk.bytes().end, count))
}

#[test]
fn every_flipped_bit_is_noticed_by_every_strict_reader() {
    let all = records(12);
    for compressor in EVERY {
        let good = write(&all, options(compressor, 300));
        for bit in 0..good.len() * 8 {
            let bad = flipped(&good, bit);
            let (before, result) = read_stream(&bad);
            assert!(result.is_err(), "{compressor}: bit {bit} went unnoticed");
            assert_eq!(
                before,
                all[..before.len()],
                "{compressor}: bit {bit} changed a record"
            );
            assert!(read_slice(&bad).1.is_err());
            assert!(read_strict(&bad).is_err());
        }
    }
}

#[test]
fn one_flipped_bit_costs_one_chunk_and_the_account_is_exact() {
    let all = records(40);
    for compressor in EVERY {
        let good = write(&all, options(compressor, 700));
        let chunks = index_of(&good).chunks().to_vec();
        for (n, chunk) in chunks.iter().enumerate() {
            let (left, lost) = without_chunk(&good, &all, n);
            let bits = chunk.bytes().start as usize * 8..chunk.bytes().end as usize * 8;
            for bit in bits.step_by(7) {
                let skipped = skip(&flipped(&good, bit));
                assert_eq!(skipped.records, left, "{compressor}: bit {bit}");
                let [(start, end, count)] = skipped.lost[..] else {
                    panic!("{compressor}: bit {bit}: {:?}", skipped.lost);
                };
                assert_eq!((start, end), (lost.0, lost.1), "{compressor}: bit {bit}");
                assert!(
                    count == lost.2 || count == LostRecords::Unknown,
                    "{compressor}: bit {bit}: lost {count}, not {}",
                    lost.2
                );
            }
        }
    }
}

#[test]
fn the_records_lost_are_counted_wherever_one_field_is_hit() {
    let all = records(40);
    for compressor in EVERY {
        let good = write(&all, options(compressor, 700));
        let chunk = index_of(&good).chunks()[1];
        let (left, lost) = without_chunk(&good, &all, 1);
        for byte in 0..20 {
            let skipped = skip(&flipped(&good, (chunk.offset as usize + byte) * 8));
            assert_eq!(skipped.records, left, "{compressor}: header byte {byte}");
            assert_eq!(skipped.lost, [lost], "{compressor}: header byte {byte}");
        }
    }
}

#[test]
fn every_cut_is_noticed_unless_it_is_between_two_chunks() {
    let all = records(12);
    for compressor in EVERY {
        let good = write(&all, options(compressor, 300));
        let index = index_of(&good);
        let ends: Vec<u64> = index.chunks().iter().map(|chunk| chunk.bytes().end).collect();
        for len in 1..good.len() {
            let (before, result) = read_stream(&good[..len]);
            let between = ends.contains(&(len as u64));
            assert_eq!(result.is_ok(), between, "{compressor}: cut to {len}");
            assert_eq!(before, all[..before.len()]);
            assert_eq!(read_strict(&good[..len]).is_ok(), between);
            let skipped = skip(&good[..len]);
            assert_eq!(skipped.records, before);
            let whole = ends
                .iter()
                .rev()
                .find(|end| **end <= len as u64)
                .copied()
                .unwrap_or(0);
            let lost: Vec<_> = skipped.lost.iter().map(|lost| (lost.0, lost.1)).collect();
            let expected = if between {
                vec![]
            } else {
                vec![(whole, len as u64)]
            };
            assert_eq!(lost, expected, "{compressor}: cut to {len}");
        }
    }
}

#[test]
fn appended_zeros_are_named_and_cost_no_record() {
    let all = records(30);
    let good = write(&all, options(Compressor::Snappy, 500));
    for zeros in [1, 3, 4, 19, 20, 21, 24, 512, 4096] {
        let mut bad = good.clone();
        bad.resize(good.len() + zeros, 0);
        let (before, result) = read_stream(&bad);
        assert_eq!(before, all);
        let Err(ReadError::Damaged { offset, fault, .. }) = result else {
            panic!("{zeros} zeros went unnoticed");
        };
        assert_eq!(
            (offset, fault),
            (good.len() as u64, Fault::NotAChunk { found: 0 })
        );
        let skipped = skip(&bad);
        assert_eq!(skipped.records, all);
        let end = bad.len() as u64;
        assert_eq!(skipped.lost, [(good.len() as u64, end, LostRecords::Unknown)]);
    }
}

#[test]
fn an_error_says_where_and_what() {
    let good = write(&records(12), options(Compressor::None, 300));
    let second = index_of(&good).chunks()[1].offset as usize;
    let message = |bytes: &[u8]| read_strict(bytes).unwrap_err().to_string();
    assert_eq!(
        message(&flipped(&good, second * 8)),
        format!(
            "`sample.rio` is damaged at offset {second}: no chunk starts here (found 0x01020305, a chunk starts with 0x01020304)"
        )
    );
    assert_eq!(
        message(&good[..second + 30]),
        format!(
            "`sample.rio` is damaged at offset {second}: the chunk is truncated: it needs {} bytes and 30 are left",
            index_of(&good).chunks()[1].header.chunk_len()
        )
    );
}

#[test]
fn a_wrong_size_is_reported_at_its_own_offset() {
    let good = write(&records(30), options(Compressor::Snappy, 500));
    let second = index_of(&good).chunks()[1].offset;
    let bad = flipped(&good, (second as usize + 12) * 8 + 3);
    let Err(ReadError::Damaged { offset, fault, .. }) = read_strict(&bad) else {
        panic!("the damage went unnoticed");
    };
    assert_eq!(offset, second);
    assert!(matches!(fault, Fault::Checksum { .. }), "{fault}");
}

#[test]
fn damage_in_many_places_is_skipped() {
    let all = records(60);
    let good = write(&all, options(Compressor::Gzip, 500));
    let chunks = index_of(&good).chunks().to_vec();
    assert!(chunks.len() > 8);
    let mut bad = good.clone();
    bad[chunks[0].offset as usize] ^= 1; // magic
    bad[chunks[2].offset as usize + 8] ^= 4; // compressor
    bad[chunks[4].offset as usize + 30] ^= 1; // payload
    bad[chunks[6].offset as usize + 4] ^= 1; // checksum
    let skipped = skip(&bad);
    let lost: Vec<_> = [0, 2, 4, 6].map(|n| without_chunk(&good, &all, n).1).to_vec();
    assert_eq!(skipped.lost, lost);
    let kept = |i: u64| {
        [1, 3, 5]
            .into_iter()
            .chain(7..chunks.len())
            .any(|n| chunks[n].records().contains(&i))
    };
    let left: Records = (0..all.len())
        .filter(|i| kept(*i as u64))
        .map(|i| all[i].clone())
        .collect();
    assert_eq!(skipped.records, left);
}

#[test]
fn skipping_ends_at_its_bound() {
    let good = write(&records(60), options(Compressor::Snappy, 500));
    let chunks = index_of(&good).chunks().to_vec();
    let mut bad = good.clone();
    bad[chunks[1].offset as usize + 25] ^= 1;
    bad[chunks[3].offset as usize + 25] ^= 1;
    let lost = chunks[1].header.chunk_len() + chunks[3].header.chunk_len();
    let read = |max_ranges, max_bytes| {
        let policy = Policy::Skip(SkipBound {
            max_bytes,
            max_ranges,
        });
        let file = open(&bad, policy).unwrap();
        let mut reader = file.records();
        while reader.next_record()?.is_some() {}
        Ok(reader.damage().lost_bytes())
    };
    assert_eq!(read(2, lost).unwrap(), lost);
    let too_much = |result| matches!(result, Err(ReadError::TooMuchDamage { .. }));
    assert!(too_much(read(1, lost)));
    assert!(too_much(read(2, lost - 1)));
}

#[test]
fn a_reader_past_its_bound_keeps_failing() {
    let good = write(&records(60), options(Compressor::Snappy, 500));
    let second = index_of(&good).chunks()[1].offset as usize;
    let bound = SkipBound {
        max_bytes: 0,
        max_ranges: 0,
    };
    let file = open(&flipped(&good, (second + 25) * 8), Policy::Skip(bound)).unwrap();
    let mut reader = file.records();
    while let Ok(record) = reader.next_record() {
        assert!(record.is_some(), "the damage was passed over");
    }
    assert!(matches!(
        reader.next_record(),
        Err(ReadError::TooMuchDamage { .. })
    ));
}

#[test]
fn a_search_for_the_next_chunk_stops_at_the_bound() {
    let mut bad = write(&records(10), options(Compressor::None, 500));
    let good_len = bad.len();
    bad.resize(good_len + 100_000, 0xaa);
    let bound = SkipBound {
        max_bytes: 99_999,
        max_ranges: 9,
    };
    let result = open(&bad, Policy::Skip(bound)).map(|_| ());
    assert!(
        matches!(result, Err(ReadError::TooMuchDamage { .. })),
        "{result:?}"
    );
}

#[test]
fn nothing_but_garbage_is_one_lost_range() {
    let garbage: Vec<u8> = (0..5000u32).map(|i| ((i * i) >> 3) as u8 | 0x80).collect();
    assert!(read_strict(&garbage).is_err());
    let skipped = skip(&garbage);
    assert!(skipped.records.is_empty());
    assert_eq!(skipped.lost, [(0, 5000, LostRecords::Unknown)]);
}

#[test]
fn verify_sees_what_skipping_sees() {
    let all = records(60);
    let good = write(&all, options(Compressor::Snappy, 500));
    let clean = open(&good, Policy::Strict).unwrap().verify().unwrap();
    assert_eq!((clean.records, clean.damage.is_empty()), (60, true));
    assert_eq!(
        clean.record_bytes,
        all.iter().map(|r| r.len() as u64).sum::<u64>()
    );

    let chunk = index_of(&good).chunks()[2];
    let bad = flipped(&good, (chunk.offset as usize + 40) * 8);
    let found = open(&bad, SKIP).unwrap().verify().unwrap();
    assert_eq!(found.damage.ranges()[0].bytes, chunk.bytes());
    assert_eq!(found.records, 60 - u64::from(chunk.header.records));
}

#[test]
fn a_size_that_leads_to_a_later_chunk_by_luck_costs_only_its_own() {
    // Chunks of 32 bytes each: a bit of the size is worth one chunk, or two, or four.
    let all: Records = (0..20u8).map(|i| vec![i; 8]).collect();
    let good = write(&all, options(Compressor::None, 8));
    for n in 0..16 {
        for bit in 5..8 {
            let chunk = index_of(&good).chunks()[n];
            let bad = flipped(&good, (chunk.offset as usize + 12) * 8 + bit);
            let (left, lost) = without_chunk(&good, &all, n);
            let skipped = skip(&bad);
            assert_eq!(
                (skipped.records, skipped.lost),
                (left.clone(), vec![lost]),
                "chunk {n}, bit {bit}"
            );
            let file = open(&bad, SKIP).unwrap();
            let mut ahead = file.range_parallel(0..file.len(), threads(2)).unwrap();
            for record in &left {
                assert_eq!(ahead.next_record().unwrap().unwrap(), record);
            }
            assert!(ahead.next_record().unwrap().is_none());
        }
    }
}

#[test]
fn a_wrong_size_and_a_cut_tail_together_cost_two_chunks() {
    let all = records(40);
    for compressor in EVERY {
        let good = write(&all, options(compressor, 700));
        let chunks = index_of(&good).chunks().to_vec();
        let cut = flipped(&good[..good.len() - 5], (chunks[1].offset as usize + 14) * 8);
        let (_, lost) = without_chunk(&good, &all, 1);
        let last = chunks.last().unwrap().offset;
        assert_eq!(
            skip(&cut).lost,
            [lost, (last, cut.len() as u64, LostRecords::Unknown)],
            "{compressor}"
        );
    }
}
