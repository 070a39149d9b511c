//! Write, damage, read: whatever the records and whatever the damage.

use paddlecloud_recordio::{ChunkInfo, Compressor, DamageReport, Index, LostRecords};
use proptest::prelude::*;

use crate::samples::*;

#[derive(Debug, Clone)]
enum Damage {
    Flip(prop::sample::Index),
    Cut(prop::sample::Index),
    Zeros(usize),
    Overwrite(prop::sample::Index, Vec<u8>),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
}

impl Damage {
    fn apply(&self, good: &[u8]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        match self {
            Self::Flip(at) => return flipped(good, at.index(good.len() * 8)),
            Self::Cut(at) => bytes.truncate(at.index(good.len())),
            Self::Zeros(count) => bytes.resize(good.len() + count, 0),
            Self::Overwrite(at, with) => {
                let at = at.index(good.len());
                bytes
                    .iter_mut()
                    .skip(at)
                    .zip(with)
                    .for_each(|(to, from)| *to = *from);
            }
            Self::Insert(at, what) => {
                let at = at.index(good.len() + 1);
                bytes.splice(at..at, what.iter().copied());
            }
            Self::Remove(at, count) => {
                let at = at.index(good.len());
                bytes.drain(at..good.len().min(at + count));
            }
        }
        bytes
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    let bytes = || prop::collection::vec(any::<u8>(), 1..60);
    prop_oneof![
        index().prop_map(Damage::Flip),
        index().prop_map(Damage::Cut),
        (1..5000usize).prop_map(Damage::Zeros),
        (index(), bytes()).prop_map(|(at, with)| Damage::Overwrite(at, with)),
        (index(), bytes()).prop_map(|(at, what)| Damage::Insert(at, what)),
        (index(), 1..200usize).prop_map(|(at, count)| Damage::Remove(at, count)),
    ]
}

fn any_records() -> impl Strategy<Value = Records> {
    let noise = prop::collection::vec(any::<u8>(), 0..120);
    let plain = (any::<u8>(), 0..300usize).prop_map(|(byte, len)| vec![byte; len]);
    prop::collection::vec(prop_oneof![noise, plain], 1..40)
}

fn any_compressor() -> impl Strategy<Value = Compressor> {
    prop::sample::select(&Compressor::ALL[..])
}

/// The chunks of a good file: where each lies, and its records.
fn chunks(good: &[u8], records: &[Vec<u8>]) -> Vec<(std::ops::Range<u64>, Records)> {
    let index = index_of(good);
    let chunk = |chunk: &ChunkInfo| {
        let numbers = chunk.records();
        (
            chunk.bytes(),
            records[numbers.start as usize..numbers.end as usize].to_vec(),
        )
    };
    index.chunks().iter().map(chunk).collect()
}

fn is_subsequence(part: &[Vec<u8>], whole: &[Vec<u8>]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|record| rest.any(|other| other == record))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn written_records_are_read_back(
        records in any_records(), compressor in any_compressor(), chunk_size in 0..2000u64,
    ) {
        let bytes = write(&records, options(compressor, chunk_size));
        let (streamed, result) = read_stream(&bytes);
        prop_assert!(result.is_ok());
        prop_assert_eq!(&streamed, &records);
        prop_assert_eq!(&read_slice(&bytes).0, &records);
        prop_assert_eq!(&read_strict(&bytes).unwrap(), &records);
    }

    #[test]
    fn strict_readers_never_return_a_wrong_record_or_end_silently(
        records in any_records(), compressor in any_compressor(), chunk_size in 0..2000u64, damage in damage(),
    ) {
        let good = write(&records, options(compressor, chunk_size));
        let bad = damage.apply(&good);
        prop_assume!(bad != good);
        // Whole chunks may be missing at the end or, when bytes are removed, in between; nothing else.
        let explained = chunks_alone_explain(&good, &bad);
        for (read, result) in [read_stream(&bad), read_slice(&bad)] {
            prop_assert!(is_subsequence(&read, &records));
            prop_assert_eq!(result.is_ok(), explained);
        }
        prop_assert_eq!(read_strict(&bad).is_ok(), explained);
    }

    #[test]
    fn skipping_gives_only_true_records_and_accounts_for_the_rest(
        records in any_records(), compressor in any_compressor(), chunk_size in 0..2000u64, damage in damage(),
    ) {
        let good = write(&records, options(compressor, chunk_size));
        let bad = damage.apply(&good);
        let file = open(&bad, SKIP).unwrap();
        let mut reader = file.records();
        let mut read = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            read.push(record.to_vec());
        }
        prop_assert!(is_subsequence(&read, &records));
        let report = reader.damage();
        if !chunks_alone_explain(&good, &bad) {
            prop_assert!(!report.is_empty());
        }
        // Every byte is in a chunk that was read or in a lost range.
        prop_assert_eq!(kept_bytes(reader.index(), report) + report.lost_bytes(), bad.len() as u64);

        let (streamed, report) = skim_stream(&bad);
        prop_assert!(is_subsequence(&streamed, &records));
        prop_assert!(streamed.starts_with(&read_stream(&bad).0));
        prop_assert_eq!(report.is_empty(), read_stream(&bad).1.is_ok());
    }

    #[test]
    fn one_flipped_bit_costs_its_own_chunk_at_most(
        records in any_records(), compressor in any_compressor(), chunk_size in 0..2000u64,
        bit in any::<prop::sample::Index>(),
    ) {
        let good = write(&records, options(compressor, chunk_size));
        let bit = bit.index(good.len() * 8);
        let (left, lost): (Vec<_>, Vec<_>) =
            chunks(&good, &records).into_iter().partition(|(bytes, _)| !bytes.contains(&(bit as u64 / 8)));
        let left: Records = left.into_iter().flat_map(|(_, records)| records).collect();

        let file = open(&flipped(&good, bit), SKIP).unwrap();
        let mut reader = file.records();
        let mut read = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            read.push(record.to_vec());
        }
        prop_assert_eq!(&read, &left);
        let (streamed, report) = skim_stream(&flipped(&good, bit));
        prop_assert_eq!(&streamed, &left);
        let [range] = report.ranges() else { panic!("{report:?}") };
        prop_assert_eq!(&range.bytes, &lost[0].0);
        let [(bytes, gone)] = &lost[..] else { panic!("a bit is in one chunk") };
        let [range] = reader.damage().ranges() else { panic!("{:?}", reader.damage()) };
        prop_assert_eq!(&range.bytes, bytes);
        let known = LostRecords::Known(gone.len() as u64);
        prop_assert!(range.records == known || range.records == LostRecords::Unknown);
    }
}

/// Whether `bad` is `good` with nothing but whole chunks taken out: what no reader can notice.
fn chunks_alone_explain(good: &[u8], bad: &[u8]) -> bool {
    let mut rest = bad;
    for chunk in index_of(good).chunks() {
        let bytes = chunk.bytes();
        let chunk = &good[bytes.start as usize..bytes.end as usize];
        rest = rest.strip_prefix(chunk).unwrap_or(rest);
    }
    rest.is_empty()
}

/// The bytes of all chunks that are in the index and not in the report.
fn kept_bytes(index: &Index, report: &DamageReport) -> u64 {
    let is_lost = |at: u64| report.ranges().iter().any(|lost| lost.bytes.contains(&at));
    let kept = index.chunks().iter().filter(|chunk| !is_lost(chunk.offset));
    kept.map(|chunk| chunk.header.chunk_len()).sum()
}
