//! Reads records of an open file in order.

use std::fs::File;
use std::num::NonZeroUsize;
use std::ops::Range;

use crate::batch::Batch;
use crate::chunk::{Chunk, LoadError, Records};
use crate::damage::{DamageReport, LostRange, Policy};
use crate::error::ReadError;
use crate::fault::Fault;
use crate::file::RecordFile;
use crate::index::Index;
use crate::pool::OrderedPool;
use crate::source::ReadAt;

/// Read at once if chunks are smaller.
const READ_AHEAD: usize = 256 << 10;

/// How often a reader repairs its index. Needing it once takes bad luck; a file crafted to need it all the time must
/// not cost a new index for every chunk.
const MAX_DIVISIONS: usize = 64;

/// Returns the records of a range one by one, chunk by chunk or in batches.
///
/// With [`Policy::Skip`], [`RangeReader::damage`] returns at the end what was skipped.
pub struct RangeReader<S: ReadAt = File> {
    file: RecordFile<S>,
    loader: Loader,
    chunks: Range<usize>,
    gaps: Range<usize>,
    /// records of the range not yet given or passed over
    left: Range<u64>,
    /// records of the loaded chunk not yet given
    unread: Range<usize>,
    damage: DamageReport,
    divisions: usize,
}

impl<S: ReadAt> RangeReader<S> {
    /// `records` must be in the file.
    pub(crate) fn new(file: RecordFile<S>, records: Range<u64>) -> Self {
        let index = file.index();
        let (from_first, to_last) = (records.start == 0, records.end == index.record_count());
        let chunk_of = |record| index.chunk_of(record).unwrap_or(index.chunks().len());
        let first = if from_first { 0 } else { chunk_of(records.start) };
        let end = match to_last {
            true => index.chunks().len(),
            false if records.is_empty() => first,
            false => chunk_of(records.end - 1) + 1,
        };
        // A gap belongs to the range if the range continues beyond it or the file has nothing there.
        let gaps = index.gaps();
        let first_gap = gaps.partition_point(|gap| gap.chunks_before <= first && !from_first);
        let end_gap = gaps.partition_point(|gap| gap.chunks_before < end || to_last);
        Self {
            loader: Loader::Here(Chunk::default()),
            chunks: first..end,
            gaps: first_gap..end_gap.max(first_gap),
            left: records,
            unread: 0..0,
            damage: DamageReport::default(),
            divisions: 0,
            file,
        }
    }

    pub(crate) fn parallel(
        file: RecordFile<S>,
        records: Range<u64>,
        threads: NonZeroUsize,
    ) -> Result<Self, ReadError> {
        let loader = Loader::start(&file, threads)?;
        Ok(Self {
            loader,
            ..Self::new(file, records)
        })
    }

    /// The next record, or `None` at the end. After an error it returns that error again.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, ReadError> {
        if !self.has_record()? {
            return Ok(None);
        }
        let record = self.unread.start;
        self.take_to(record + 1);
        Ok(Some(self.loader.chunk().records().get(record)))
    }

    /// The unread records of the current chunk, otherwise those of the next.
    pub fn next_chunk(&mut self) -> Result<Option<Records<'_>>, ReadError> {
        if !self.has_record()? {
            return Ok(None);
        }
        let unread = self.unread.clone();
        self.take_to(unread.end);
        Ok(Some(
            self.loader.chunk().records().slice(unread.start, unread.end),
        ))
    }

    /// Adds up to `max` records to `batch` and returns how many; 0 means the end.
    ///
    /// After an error the records added before stay in the batch.
    pub fn read_batch(&mut self, max: usize, batch: &mut Batch) -> Result<usize, ReadError> {
        let mut added = 0;
        while added < max && self.has_record()? {
            let from = self.unread.start;
            let to = self.unread.end.min(from.saturating_add(max - added));
            batch.extend(self.loader.chunk().records(), from, to);
            self.take_to(to);
            added += to - from;
        }
        Ok(added)
    }

    /// The number of the next record, unless damage is found before it.
    pub fn position(&self) -> u64 {
        self.left.start
    }

    /// The file's index, repaired if damage had made the scan see one chunk for several.
    pub fn index(&self) -> &Index {
        self.file.index()
    }

    /// What has been skipped so far.
    pub fn damage(&self) -> &DamageReport {
        &self.damage
    }

    fn take_to(&mut self, record: usize) {
        self.left.start += (record - self.unread.start) as u64;
        self.unread.start = record;
    }

    fn has_record(&mut self) -> Result<bool, ReadError> {
        while self.unread.is_empty() {
            if !self.advance()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Loads the next chunk, or skips it; returns whether there was one.
    fn advance(&mut self) -> Result<bool, ReadError> {
        self.check_bound()?;
        self.pass_gaps()?;
        let n = self.chunks.start;
        if n == self.chunks.end {
            return Ok(false);
        }
        match self.loader.load(&self.file, self.chunks.clone()) {
            Ok(()) => self.enter(n),
            Err(LoadError::Fatal(error)) => {
                self.loader.rewind();
                return Err(error);
            }
            Err(LoadError::Fault(fault)) => {
                if self.divide(n, &fault)? {
                    return Ok(true);
                }
                let lost = self.file.lost_chunk(self.loader.chunk(), n, fault);
                self.lose(lost)?;
                self.left.start = self.left.end.min(self.file.index().chunks()[n].records().end);
            }
        }
        self.chunks.start += 1;
        Ok(true)
    }

    /// Repairs the index if chunk `n` is really several; reading then continues with the new one.
    ///
    /// Only a range to the file's end can do this: in others it would change which records are meant.
    fn divide(&mut self, n: usize, fault: &Fault) -> Result<bool, ReadError> {
        let index = self.file.index();
        let to_last = self.left.end == index.record_count();
        if !to_last || self.divisions == MAX_DIVISIONS || self.file.policy() == Policy::Strict {
            return Ok(false);
        }
        let Some(file) = self.file.divided(n, self.loader.chunk(), fault)? else {
            return Ok(false);
        };
        self.divisions += 1;
        self.chunks.end = file.index().chunks().len();
        self.gaps.end = file.index().gaps().len();
        self.left.end = file.len();
        self.loader.restart(&file)?;
        self.file = file;
        Ok(true)
    }

    fn enter(&mut self, n: usize) {
        let records = self.file.index().chunks()[n].records();
        let from = self.left.start.max(records.start) - records.start;
        let to = self.left.end.min(records.end) - records.start;
        self.left.start = records.start + from;
        self.unread = from as usize..(to as usize).max(from as usize);
        debug_assert!(
            to as usize <= self.loader.chunk().len(),
            "a loaded chunk has its header's records"
        );
    }

    fn pass_gaps(&mut self) -> Result<(), ReadError> {
        while let Some(gap) = self.file.index().gaps().get(self.gaps.start) {
            if self.gaps.is_empty() || gap.chunks_before > self.chunks.start {
                break;
            }
            let lost = gap.lost.clone();
            self.gaps.start += 1;
            self.lose(lost)?;
        }
        Ok(())
    }

    /// Records damage, or fails if the policy allows none.
    fn lose(&mut self, lost: LostRange) -> Result<(), ReadError> {
        if self.file.policy() == Policy::Strict {
            self.loader.rewind();
            return Err(self.file.source().damaged(lost.bytes.start, lost.fault));
        }
        self.damage.push(lost);
        self.check_bound()
    }

    fn check_bound(&self) -> Result<(), ReadError> {
        let Policy::Skip(bound) = self.file.policy() else {
            return Ok(());
        };
        let reached = self.damage.ranges().last().map_or(0, |last| last.bytes.end);
        bound.check(self.damage.tally(), self.file.path(), reached)
    }
}

/// Loads chunks in order, here or ahead on threads.
enum Loader {
    Here(Chunk),
    Ahead(Ahead),
}

struct Ahead {
    pool: OrderedPool<Job, (Chunk, Result<(), LoadError>)>,
    threads: NonZeroUsize,
    /// the next chunk to be asked for
    next: Option<usize>,
    current: Chunk,
    spare: Vec<Chunk>,
}

struct Job {
    chunk: Chunk,
    n: usize,
}

impl Loader {
    fn start<S: ReadAt>(file: &RecordFile<S>, threads: NonZeroUsize) -> Result<Self, ReadError> {
        let worker = || {
            let file = file.clone();
            move |mut job: Job| {
                let result = file.load_chunk(&mut job.chunk, job.n, 0);
                (job.chunk, result)
            }
        };
        let pool = OrderedPool::start(threads.get(), "recordio-load", worker);
        Ok(Self::Ahead(Ahead {
            pool: pool.map_err(|e| ReadError::io(file.path(), e))?,
            threads,
            next: None,
            current: Chunk::default(),
            spare: Vec::new(),
        }))
    }

    fn chunk(&self) -> &Chunk {
        match self {
            Self::Here(chunk) => chunk,
            Self::Ahead(ahead) => &ahead.current,
        }
    }

    /// Loads the first of `chunks`; the others will be requested next.
    fn load<S: ReadAt>(&mut self, file: &RecordFile<S>, chunks: Range<usize>) -> Result<(), LoadError> {
        match self {
            Self::Here(chunk) => file.load_chunk(chunk, chunks.start, READ_AHEAD),
            Self::Ahead(ahead) => ahead.load(chunks),
        }
    }

    /// Continues with another index of the same file.
    fn restart<S: ReadAt>(&mut self, file: &RecordFile<S>) -> Result<(), ReadError> {
        if let Self::Ahead(ahead) = self {
            *self = Self::start(file, ahead.threads)?;
        }
        Ok(())
    }

    /// Drops what was loaded ahead, so that the same chunk can be requested again.
    fn rewind(&mut self) {
        if let Self::Ahead(ahead) = self {
            while let Some((chunk, _)) = ahead.pool.next() {
                ahead.spare.push(chunk);
            }
            ahead.next = None;
        }
    }
}

impl Ahead {
    fn load(&mut self, chunks: Range<usize>) -> Result<(), LoadError> {
        let mut next = self.next.unwrap_or(chunks.start);
        while next < chunks.end && !self.pool.is_full() {
            let chunk = self.spare.pop().unwrap_or_default();
            self.pool.submit(Job { chunk, n: next });
            next += 1;
        }
        self.next = Some(next);
        let (chunk, result) = self.pool.next().expect("the chunk asked for was submitted");
        self.spare.push(std::mem::replace(&mut self.current, chunk));
        result
    }
}
