//! How fast records are read and written, in MB per second of processor time.
//!
//! `cargo bench -p paddlecloud-recordio [-- RECORD_BYTES]` (1024 by default). Records are half
//! compressible; files are in the page cache; every read counts records and bytes. Processor time of all
//! threads is what is measured, since it hardly depends on what else the machine does.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use paddlecloud_recordio::{Batch, Compressor, MappedFile, RecordFile, StreamReader, WriteOptions, Writer};
use rustix::time::{ClockId, clock_gettime};

const TOTAL: usize = 128 << 20;
const REPEATS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let record_len = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(1024);
    let folder = tempfile::tempdir()?;
    let bench = Bench::new(folder.path(), record_len);
    println!(
        "records of {record_len} bytes, {} MB; MB per cpu-second, best of {REPEATS}",
        bench.bytes / 1_000_000
    );
    bench.page_cache_row()?;
    bench.map_row()?;
    for chunk_size in [1 << 20, 32 << 20] {
        bench.file_rows(Compressor::None, chunk_size)?;
        bench.file_rows(Compressor::Snappy, chunk_size)?;
    }
    bench.file_rows(Compressor::Gzip, 1 << 20)?;
    bench.file_rows(Compressor::Zstd, 1 << 20)?;
    bench.random_rows()
}

struct Bench {
    path: PathBuf,
    records: Vec<Vec<u8>>,
    bytes: usize,
}

impl Bench {
    fn new(folder: &Path, record_len: usize) -> Self {
        let count = TOTAL / record_len.max(1);
        let mut noise = Noise(1);
        let records: Vec<_> = (0..count).map(|_| noise.record(record_len)).collect();
        Self {
            path: folder.join("data"),
            bytes: count * record_len,
            records,
        }
    }

    fn file_rows(&self, compressor: Compressor, chunk_size: u64) -> Result<(), Box<dyn std::error::Error>> {
        let options = WriteOptions::new().compressor(compressor).chunk_size(chunk_size);
        let name = format!("{compressor:6} {:2} MiB chunks", chunk_size >> 20);
        self.row(&format!("write          {name}"), || self.write(options))?;
        let file = RecordFile::open(&self.path)?;
        self.row(&format!("read           {name}"), || {
            let mut reader = file.records();
            let mut seen = 0;
            while let Some(record) = reader.next_record()? {
                seen += black_box(record).len();
            }
            self.check(seen)
        })?;
        self.row(&format!("read batches   {name}"), || {
            let mut reader = file.records();
            let (mut batch, mut seen) = (Batch::new(), 0);
            while reader.read_batch(1000, &mut batch)? > 0 {
                seen += black_box(&batch).data().len();
                batch.clear();
            }
            self.check(seen)
        })?;
        self.row(&format!("read stream    {name}"), || {
            let mut reader = StreamReader::new(File::open(&self.path)?);
            let mut seen = 0;
            while let Some(record) = reader.next_record()? {
                seen += black_box(record).len();
            }
            self.check(seen)
        })?;
        self.row(&format!("read 2 threads {name}"), || {
            let two = NonZeroUsize::MIN.saturating_add(1);
            let mut reader = file.range_parallel(0..file.len(), two)?;
            let mut seen = 0;
            while let Some(record) = reader.next_record()? {
                seen += black_box(record).len();
            }
            self.check(seen)
        })
    }

    fn write(&self, options: WriteOptions) -> Result<(), Box<dyn std::error::Error>> {
        let mut writer = Writer::new(File::create(&self.path)?, options)?;
        for record in &self.records {
            writer.write(record)?;
        }
        writer.finish()?;
        Ok(())
    }

    /// What the machine can do: the file's bytes into one warm buffer, and nothing else.
    fn page_cache_row(&self) -> Result<(), Box<dyn std::error::Error>> {
        self.write(WriteOptions::new().compressor(Compressor::None))?;
        let mut buffer = vec![0; 1 << 20];
        self.row("page cache     read(2) of 1 MiB    ", || {
            let mut file = File::open(&self.path)?;
            while file.read(black_box(&mut buffer))? > 0 {}
            Ok(())
        })
    }

    fn map_row(&self) -> Result<(), Box<dyn std::error::Error>> {
        self.write(WriteOptions::new().compressor(Compressor::None))?;
        let file = File::open(&self.path)?;
        self.row("read map       none    1 MiB chunks", || {
            // SAFETY: the file is this program's own and nobody writes to it.
            let map = unsafe { MappedFile::map(&file, &self.path) }?;
            let mut reader = map.reader(Default::default());
            let mut seen = 0;
            while let Some(record) = reader.next_record()? {
                seen += black_box(record).len();
            }
            self.check(seen)
        })
    }

    fn random_rows(&self) -> Result<(), Box<dyn std::error::Error>> {
        const BATCHES: usize = 100;
        for compressor in [Compressor::None, Compressor::Snappy] {
            self.write(WriteOptions::new().compressor(compressor))?;
            let file = RecordFile::open(&self.path)?;
            let mut noise = Noise(7);
            let mut random = file.random(1 << 30);
            let mut batch = Batch::new();
            let mut best = f64::MAX;
            for _ in 0..REPEATS {
                let start = cpu_seconds();
                for _ in 0..BATCHES {
                    let wanted: Vec<u64> = (0..1000).map(|_| noise.next() % file.len()).collect();
                    batch.clear();
                    random.get_many(&wanted, &mut batch)?;
                    assert_eq!(black_box(&batch).len(), 1000);
                }
                best = best.min(cpu_seconds() - start);
            }
            let rate = (BATCHES * 1000) as f64 / best;
            println!("random 1000    {compressor:6}  1 MiB chunks  {rate:9.0} records per cpu-second");
        }
        Ok(())
    }

    fn check(&self, seen: usize) -> Result<(), Box<dyn std::error::Error>> {
        match seen == self.bytes {
            true => Ok(()),
            false => Err(format!("{seen} bytes were read, {} written", self.bytes).into()),
        }
    }

    fn row(
        &self,
        name: &str,
        mut work: impl FnMut() -> Result<(), Box<dyn std::error::Error>>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut best = f64::MAX;
        for _ in 0..REPEATS {
            let start = cpu_seconds();
            work()?;
            best = best.min(cpu_seconds() - start);
        }
        println!("{name}  {:9.0}", self.bytes as f64 / 1e6 / best);
        Ok(())
    }
}

/// Processor time of all threads of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A small generator (xorshift): the bytes are the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Half compressible: 50 random bytes, twice, per 100.
    fn record(&mut self, len: usize) -> Vec<u8> {
        let mut record = Vec::with_capacity(len + 100);
        while record.len() < len {
            let half: Vec<u8> = (0..50).map(|_| self.next() as u8).collect();
            record.extend_from_slice(&half);
            record.extend_from_slice(&half);
        }
        record.truncate(len);
        record
    }
}
