//! Remote files: read alike, and no more of them than necessary.

use std::fs;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use paddlecloud_dataprep::{DataError, Dataset, Format, Origin, ReadOptions};
use paddlecloud_recordio::{Compressor, Policy, ReadAt, SkipBound, WriteOptions, Writer, index_path};

use crate::workbench::Workbench;

/// Bytes that count how many of them were requested.
struct Counted {
    bytes: Vec<u8>,
    asked: Arc<AtomicU64>,
}

impl ReadAt for Counted {
    fn len(&self) -> io::Result<u64> {
        ReadAt::len(&self.bytes)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.asked.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.bytes.read_exact_at(buf, offset)
    }
}

struct Far {
    data: Dataset,
    asked: Arc<AtomicU64>,
}

impl Far {
    fn new(name: &str, bytes: Vec<u8>, index: Option<Vec<u8>>, policy: Policy) -> Self {
        let asked = Arc::new(AtomicU64::new(0));
        let counted = |bytes| Counted {
            bytes,
            asked: Arc::clone(&asked),
        };
        let index = index.map(|bytes| Arc::new(counted(bytes)) as Arc<dyn ReadAt>);
        let origin = Origin::elsewhere(name, Arc::new(counted(bytes)), index);
        let options = ReadOptions {
            policy,
            ..ReadOptions::default()
        };
        let data = Dataset::open(origin, options).unwrap();
        Self { data, asked }
    }

    fn records(&self, range: Range<u64>) -> Result<Vec<(u64, Vec<u8>)>, DataError> {
        let mut records = Vec::new();
        self.data.each_in(range, &mut |seen| {
            records.push((seen.number, seen.bytes.to_vec()));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(records)
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

fn record(number: u64) -> Vec<u8> {
    format!("record {number} ").into_bytes().repeat(60)
}

/// 20,000 records in chunks of 64 KiB.
fn large_file() -> Vec<u8> {
    let options = WriteOptions::new()
        .compressor(Compressor::None)
        .chunk_size(64 << 10);
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    for number in 0..20_000 {
        writer.write(&record(number)).unwrap();
    }
    writer.finish().unwrap().0
}

#[test]
fn the_first_records_read_only_the_first_chunk() {
    let bytes = large_file();
    let len = bytes.len() as u64;
    let far = Far::new("far.rio", bytes, None, Policy::Strict);
    let expected: Vec<_> = (0..3).map(|number| (number, record(number))).collect();
    assert_eq!(far.records(0..3).unwrap(), expected);
    assert!(
        far.asked() < 2 << 20,
        "{} of {len} bytes were asked for",
        far.asked()
    );
}

#[test]
fn records_in_the_middle_read_the_headers_and_their_chunk() {
    let bytes = large_file();
    let far = Far::new("far.rio", bytes, None, Policy::Strict);
    assert_eq!(far.records(15_000..15_001).unwrap(), [(15_000, record(15_000))]);
    assert!(far.asked() < 3 << 20, "{} bytes were asked for", far.asked());
}

#[test]
fn an_index_file_reveals_a_missing_end() {
    let bench = Workbench::new();
    bench.write("a.rio", large_file());
    let index = paddlecloud_recordio::RecordFile::open(bench.path("a.rio")).unwrap();
    paddlecloud_recordio::store_index(&bench.path("a.rio"), index.index()).unwrap();
    let stored = fs::read(index_path(&bench.path("a.rio"))).unwrap();
    let cut = index.index().chunks()[3].offset as usize;
    let bytes = fs::read(bench.path("a.rio")).unwrap();
    let whole = Far::new("far.rio", bytes.clone(), Some(stored.clone()), Policy::Strict);
    assert_eq!(whole.records(0..u64::MAX).unwrap().len(), 20_000);
    let short = Far::new("far.rio", bytes[..cut].to_vec(), Some(stored), Policy::Strict);
    let problem = short.records(0..u64::MAX).unwrap_err().to_string();
    assert!(problem.contains("its stored index says"), "{problem}");
}

#[test]
fn every_format_is_read_remotely_as_locally() {
    let bench = Workbench::new();
    bench.write("a.jsonl", "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n");
    for name in ["b.csv", "b.csv.gz", "b.parquet", "b.rio", "b.jsonl.gz"] {
        bench.convert("a.jsonl", name).unwrap();
        let far = Far::new(name, fs::read(bench.path(name)).unwrap(), None, Policy::Strict);
        let records: Vec<_> = far.records(0..u64::MAX).unwrap();
        let records: Vec<Vec<u8>> = records.into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(records, bench.records(name), "{name}");
    }
}

#[test]
fn damage_inside_gzip_can_be_skipped() {
    let bench = Workbench::new();
    let mut bytes = large_file();
    bytes[100] ^= 1;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    bench.write("a.rio.gz", gzip.finish().unwrap());
    let open = |policy| {
        let options = ReadOptions {
            policy,
            ..ReadOptions::default()
        };
        Dataset::open(bench.path("a.rio.gz"), options).unwrap()
    };
    let strict = open(Policy::Strict);
    assert_eq!(strict.format(), Format::RecordIo);
    let problem = strict.each(&mut |_| Ok(ControlFlow::Continue(()))).unwrap_err();
    assert!(problem.to_string().contains("damaged at offset 0"), "{problem}");
    let (mut count, mut first) = (0u64, None);
    let report = open(Policy::Skip(SkipBound::UNLIMITED))
        .each(&mut |seen| {
            count += 1;
            first.get_or_insert((seen.number, seen.bytes.to_vec()));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    let [lost] = report.ranges() else {
        panic!("{report:?}");
    };
    assert_eq!(lost.bytes.start, 0);
    assert_eq!(
        first,
        Some((20_000 - count, record(20_000 - count))),
        "numbers stay"
    );
}
