//! How fast records are read and written, in MB per second of processor time, compared with the targets.
//!
//! `cargo xtask bench recordio [RECORD_BYTES] [ROUNDS]` (1024 and 7). Records are half compressible; files are new when
//! they are written and in the page cache when they are read; every read counts records and bytes. The processor time
//! of all threads is measured, because it hardly depends on the load of the machine. Rows take turns, round after
//! round, so that a busy moment affects all of them alike. The first rows are what the machine itself can do; reading
//! an uncompressed file cannot be faster than page cache and checksum together.

mod peers;

use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use paddlecloud_recordio::{Batch, Compressor, MappedFile, RecordFile, StreamReader, WriteOptions, Writer};
use rustix::time::{ClockId, clock_gettime};

type Outcome = Result<(), Box<dyn Error>>;

const TOTAL: usize = 128 << 20;
const ROUNDS: usize = 7;
const MIB: u64 = 1 << 20;
/// Small enough for the processor's own cache.
const SMALL: usize = 256 << 10;
const PAGE: usize = 4096;

/// The figures of the original, written in Go, with records of 1 KiB: snappy in its own chunks of 32 MiB, and
/// uncompressed (MB per cpu-second).
const GO_READ_SNAPPY: f64 = 540.0;
const GO_READ_NONE: f64 = 1_142.0;
const GO_WRITE_SNAPPY: f64 = 695.0;

fn main() -> Outcome {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse().ok());
    let record_len = numbers.next().unwrap_or(1024);
    let rounds = numbers.next().unwrap_or(ROUNDS).max(1);
    let folder = tempfile::tempdir()?;
    let bench = Bench::new(folder.path(), record_len)?;
    let mut rows = bench.rows();
    for _ in 0..rounds {
        for row in &mut rows {
            row.measure(&bench)?;
        }
    }
    println!(
        "records of {record_len} bytes, {} MB, {rounds} rounds; MB per cpu-second\n",
        bench.bytes / 1_000_000
    );
    println!("{:44} {:>8} {:>8}   to reach", "", "best", "median");
    let floor = rows[0].rates(&bench).0;
    rows.iter().for_each(|row| row.print(&bench, floor));
    bench.random_rows(rounds)
}

/// What a row does.
#[derive(Clone, Copy)]
enum Work {
    /// only the file's bytes into one warm buffer: what the machine can do
    PageCache,
    /// the same through a buffer that stays in the processor's cache
    PageCacheSmall,
    /// a byte of every page of the mapped file
    MapTouch,
    /// the checksum of the mapped file: no reader that verifies can do better
    MapChecksum,
    /// the checksum of as many bytes, all of them in the processor's cache
    Checksum,
    /// page cache and a copy of every byte: the cost of owning the bytes
    Copy,
    Write,
    Read,
    ReadMap,
    ReadBatches,
    ReadStream,
    ReadTwoThreads,
    /// Parquet in batches, by the crate `parquet`
    Parquet,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::PageCache => "page cache, 1 MiB",
            Self::PageCacheSmall => "page cache, 256 KiB",
            Self::MapTouch => "page cache, mapped",
            Self::MapChecksum => "mapped and CRC-32",
            Self::Checksum => "CRC-32 alone",
            Self::Copy => "page cache and a copy",
            Self::Write => "write",
            Self::Read => "read",
            Self::ReadMap => "read, mapped",
            Self::ReadBatches => "read, batches of 1000",
            Self::ReadStream => "read, stream",
            Self::ReadTwoThreads => "read, 2 threads",
            Self::Parquet => "Parquet, batches",
        }
    }
}

struct Row {
    work: Work,
    compressor: Compressor,
    chunk_size: u64,
    /// the original's figure and the target as a multiple of it
    goal: Option<(f64, f64)>,
    seconds: Vec<f64>,
}

impl Row {
    fn measure(&mut self, bench: &Bench) -> Outcome {
        let path = bench.file(self.compressor, self.chunk_size);
        let target = path.with_extension("new");
        let _ = fs::remove_file(&target);
        let start = cpu_seconds();
        match self.work {
            Work::PageCache => bench.page_cache(&path, 1 << 20)?,
            Work::PageCacheSmall => bench.page_cache(&path, SMALL)?,
            Work::MapTouch => bench.map_touch(&path)?,
            Work::MapChecksum => bench.map_checksum(&path)?,
            Work::Checksum => bench.checksum(),
            Work::Copy => bench.copy(&path)?,
            Work::Write => bench.write(&target, self.options())?,
            Work::Read => bench.read(&path)?,
            Work::ReadMap => bench.read_map(&path)?,
            Work::ReadBatches => bench.read_batches(&path)?,
            Work::ReadStream => bench.read_stream(&path)?,
            Work::ReadTwoThreads => bench.read_two_threads(&path)?,
            Work::Parquet => bench.check(peers::read(&bench.parquet(self.compressor))?)?,
        }
        self.seconds.push(cpu_seconds() - start);
        Ok(())
    }

    fn options(&self) -> WriteOptions {
        WriteOptions::new()
            .compressor(self.compressor)
            .chunk_size(self.chunk_size)
    }

    /// Best and median.
    fn rates(&self, bench: &Bench) -> (f64, f64) {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        let rate = |seconds: f64| bench.bytes as f64 / 1e6 / seconds;
        (rate(seconds[0]), rate(seconds[seconds.len() / 2]))
    }

    /// `floor` is what the page cache gives: reading an uncompressed file cannot be much faster.
    fn print(&self, bench: &Bench, floor: f64) {
        let (best, median) = self.rates(bench);
        let name = format!(
            "{:22} {:7} {:2} MiB chunks",
            self.work.name(),
            self.compressor.to_string(),
            self.chunk_size / MIB
        );
        let share = match (self.work, self.compressor) {
            (Work::Read | Work::ReadMap | Work::ReadStream, Compressor::None) => {
                format!("{:3.0} % of the page cache  ", 100.0 * best / floor)
            }
            _ => String::new(),
        };
        let goal = match self.goal.filter(|_| bench.is_like_the_reference()) {
            Some((original, times)) => {
                let reached = if best >= original * times {
                    "reached"
                } else {
                    "missed"
                };
                format!(
                    "{:6.0} = {times} x {original:.0} of the original: {reached}",
                    original * times
                )
            }
            None => String::new(),
        };
        println!("{name:44} {best:8.0} {median:8.0}   {share}{goal}");
    }
}

struct Bench {
    folder: PathBuf,
    records: Vec<Vec<u8>>,
    bytes: usize,
    record_len: usize,
}

const FILES: [(Compressor, u64); 6] = [
    (Compressor::None, MIB),
    (Compressor::Snappy, MIB),
    (Compressor::None, 32 * MIB),
    (Compressor::Snappy, 32 * MIB),
    (Compressor::Gzip, MIB),
    (Compressor::Zstd, MIB),
];

impl Bench {
    fn new(folder: &Path, record_len: usize) -> Result<Self, Box<dyn Error>> {
        let count = TOTAL / record_len.max(1);
        let mut noise = Noise(1);
        let records: Vec<_> = (0..count).map(|_| noise.record(record_len)).collect();
        let bench = Self {
            folder: folder.to_owned(),
            bytes: count * record_len,
            records,
            record_len,
        };
        for (compressor, chunk_size) in FILES {
            let options = WriteOptions::new().compressor(compressor).chunk_size(chunk_size);
            bench.write(&bench.file(compressor, chunk_size), options)?;
        }
        for compressor in [Compressor::None, Compressor::Snappy] {
            let path = bench.parquet(compressor);
            peers::write(&path, &bench.records, compressor, MIB as usize)?;
        }
        Ok(bench)
    }

    fn rows(&self) -> Vec<Row> {
        let row = |work, (compressor, chunk_size)| Row {
            work,
            compressor,
            chunk_size,
            goal: goal(work, compressor, chunk_size),
            seconds: Vec::new(),
        };
        let machine = [
            Work::PageCache,
            Work::PageCacheSmall,
            Work::MapTouch,
            Work::MapChecksum,
            Work::Checksum,
            Work::Copy,
            Work::ReadMap,
        ];
        let mut rows: Vec<Row> = machine.map(|work| row(work, FILES[0])).into();
        for (n, file) in FILES.into_iter().enumerate() {
            rows.push(row(Work::Write, file));
            rows.push(row(Work::Read, file));
            if n < 4 {
                let more = [Work::ReadBatches, Work::ReadStream, Work::ReadTwoThreads];
                rows.extend(more.map(|work| row(work, file)));
            }
            if n < 2 {
                rows.push(row(Work::Parquet, file));
            }
        }
        rows
    }

    /// The targets are for records of 1 KiB.
    fn is_like_the_reference(&self) -> bool {
        self.record_len == 1024
    }

    fn file(&self, compressor: Compressor, chunk_size: u64) -> PathBuf {
        self.folder.join(format!("{compressor}-{chunk_size}.rio"))
    }

    fn parquet(&self, compressor: Compressor) -> PathBuf {
        self.folder.join(format!("{compressor}.parquet"))
    }

    fn write(&self, path: &Path, options: WriteOptions) -> Outcome {
        let mut writer = Writer::new(File::create(path)?, options)?;
        for record in &self.records {
            writer.write(record)?;
        }
        writer.finish()?;
        Ok(())
    }

    fn page_cache(&self, path: &Path, buffer_len: usize) -> Outcome {
        let mut buffer = vec![0; buffer_len];
        let mut file = File::open(path)?;
        while file.read(black_box(&mut buffer))? > 0 {}
        Ok(())
    }

    fn map_touch(&self, path: &Path) -> Outcome {
        let file = File::open(path)?;
        // SAFETY: the file is this program's own and nobody writes to it.
        let map = unsafe { MappedFile::map(&file, path) }?;
        let touched: u64 = map
            .bytes()
            .iter()
            .step_by(PAGE)
            .map(|byte| u64::from(*byte))
            .sum();
        black_box(touched);
        Ok(())
    }

    fn map_checksum(&self, path: &Path) -> Outcome {
        let file = File::open(path)?;
        // SAFETY: the file is this program's own and nobody writes to it.
        let map = unsafe { MappedFile::map(&file, path) }?;
        black_box(crc32fast::hash(map.bytes()));
        Ok(())
    }

    fn checksum(&self) {
        let hot = vec![7; SMALL];
        for _ in 0..self.bytes / SMALL {
            black_box(crc32fast::hash(black_box(&hot)));
        }
    }

    fn copy(&self, path: &Path) -> Outcome {
        let (mut buffer, mut owned) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        let mut file = File::open(path)?;
        loop {
            let len = file.read(black_box(&mut buffer))?;
            if len == 0 {
                return Ok(());
            }
            black_box(&mut owned)[..len].copy_from_slice(&buffer[..len]);
        }
    }

    fn read(&self, path: &Path) -> Outcome {
        let mut reader = RecordFile::open(path)?.records();
        let mut seen = 0;
        while let Some(record) = reader.next_record()? {
            seen += black_box(record).len();
        }
        self.check(seen)
    }

    fn read_map(&self, path: &Path) -> Outcome {
        let file = File::open(path)?;
        // SAFETY: the file is this program's own and nobody writes to it.
        let map = unsafe { MappedFile::map(&file, path) }?;
        let mut reader = map.reader(Default::default());
        let mut seen = 0;
        while let Some(record) = reader.next_record()? {
            seen += black_box(record).len();
        }
        self.check(seen)
    }

    fn read_batches(&self, path: &Path) -> Outcome {
        let mut reader = RecordFile::open(path)?.records();
        let (mut batch, mut seen) = (Batch::new(), 0);
        while reader.read_batch(1000, &mut batch)? > 0 {
            seen += black_box(&batch).data().len();
            batch.clear();
        }
        self.check(seen)
    }

    fn read_stream(&self, path: &Path) -> Outcome {
        let mut reader = StreamReader::new(File::open(path)?);
        let mut seen = 0;
        while let Some(record) = reader.next_record()? {
            seen += black_box(record).len();
        }
        self.check(seen)
    }

    fn read_two_threads(&self, path: &Path) -> Outcome {
        let two = NonZeroUsize::MIN.saturating_add(1);
        let file = RecordFile::open(path)?;
        let mut reader = file.range_parallel(0..file.len(), two)?;
        let mut seen = 0;
        while let Some(record) = reader.next_record()? {
            seen += black_box(record).len();
        }
        self.check(seen)
    }

    fn random_rows(&self, rounds: usize) -> Outcome {
        const BATCHES: usize = 100;
        println!();
        for compressor in [Compressor::None, Compressor::Snappy] {
            let file = RecordFile::open(self.file(compressor, MIB))?;
            let mut noise = Noise(7);
            let mut random = file.random(1 << 30);
            let mut batch = Batch::new();
            let mut best = f64::MAX;
            for _ in 0..rounds {
                let start = cpu_seconds();
                for _ in 0..BATCHES {
                    let numbers: Vec<u64> = (0..1000).map(|_| noise.next() % file.len()).collect();
                    batch.clear();
                    random.get_many(&numbers, &mut batch)?;
                    assert_eq!(black_box(&batch).len(), 1000);
                }
                best = best.min(cpu_seconds() - start);
            }
            let rate = (BATCHES * 1000) as f64 / best;
            let name = format!("by number, batches of 1000, {compressor}");
            println!("{name:44} {rate:8.0} records per cpu-second");
        }
        Ok(())
    }

    fn check(&self, seen: usize) -> Outcome {
        match seen == self.bytes {
            true => Ok(()),
            false => Err(format!("{seen} bytes were read, {} written", self.bytes).into()),
        }
    }
}

fn goal(work: Work, compressor: Compressor, chunk_size: u64) -> Option<(f64, f64)> {
    match (work, compressor, chunk_size / MIB) {
        (Work::Read, Compressor::Snappy, 1) => Some((GO_READ_SNAPPY, 5.0)),
        (Work::Read, Compressor::Snappy, 32) => Some((GO_READ_SNAPPY, 3.5)),
        (Work::Read | Work::ReadMap, Compressor::None, 1) => Some((GO_READ_NONE, 10.0)),
        (Work::Write, Compressor::Snappy, 1) => Some((GO_WRITE_SNAPPY, 1.3)),
        _ => None,
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
