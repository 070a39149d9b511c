//! Builds an index by reading a file's headers, and recovers from damage in them.
//!
//! Payloads are read only next to damage. `resync` finds the next chunk.

use crate::chunk::{Chunk, Limits, LoadError};
use crate::damage::{LossTotal, LostRange, LostRecords, Policy, SkipBound};
use crate::error::ReadError;
use crate::fault::Fault;
use crate::index::{ChunkList, Gap, Index};
use crate::layout::{HEADER_LEN, Layout};
use crate::loss;
use crate::peek::Peek;
use crate::resync::{Resume, Resync};
use crate::source::{ReadAt, SizedSource};

/// Reads all headers of `source`.
pub(crate) fn scan<S: ReadAt>(
    source: &SizedSource<S>,
    policy: Policy,
    limits: &Limits,
) -> Result<Index, ReadError> {
    let mut scan = Scan {
        source,
        limits: *limits,
        layout: None,
        chunks: ChunkList::default(),
        gaps: Vec::new(),
        tally: LossTotal::default(),
        resync: Resync::new(source, *limits),
    };
    scan.run(policy)?;
    let layout = scan.layout.unwrap_or(Layout::Cloud);
    Ok(Index::new(
        layout,
        source.len(),
        scan.chunks.into_chunks(),
        scan.gaps,
    ))
}

struct Scan<'a, S> {
    source: &'a SizedSource<S>,
    limits: Limits,
    layout: Option<Layout>,
    chunks: ChunkList,
    gaps: Vec<Gap>,
    tally: LossTotal,
    resync: Resync<'a, S>,
}

impl<S: ReadAt> Scan<'_, S> {
    fn run(&mut self, policy: Policy) -> Result<(), ReadError> {
        let mut headers = Peek::new(self.source);
        let mut at = 0;
        while at < self.source.len() {
            match headers.header(at, self.layout)? {
                Ok((header, layout)) => {
                    self.layout = layout;
                    self.chunks.push(at, header);
                    at += header.chunk_len();
                }
                Err(fault) => {
                    let (start, fault) = self.blame(at, fault)?;
                    at = match policy {
                        Policy::Strict => return Err(self.source.damaged(start, fault)),
                        Policy::Skip(bound) => self.skip(start, fault, bound)?,
                    };
                }
            }
        }
        Ok(())
    }

    /// Finds where the damage before a missing header begins.
    ///
    /// The previous header may be the cause, with a wrong size: chunks are dropped until one is valid, which proves
    /// where it ends.
    fn blame(&mut self, at: u64, fault: Fault) -> Result<(u64, Fault), ReadError> {
        let settled = self.gaps.last().map_or(0, |gap| gap.chunks_before);
        let mut blamed = (at, fault);
        let mut chunk = Chunk::default();
        while self.chunks.len() > settled {
            let last = *self
                .chunks
                .last()
                .expect("there are more chunks than the settled ones");
            let layout = self.layout.unwrap_or(Layout::Cloud);
            match chunk.load(self.source, &last, layout, &self.limits, 0) {
                Ok(()) => return Ok(blamed),
                Err(LoadError::Fatal(error)) => return Err(error),
                Err(LoadError::Fault(fault)) => blamed = (last.offset, fault),
            }
            self.chunks.pop();
        }
        if self.chunks.len() == 0 {
            self.layout = None;
        }
        Ok(blamed)
    }

    /// Records the gap that begins at `start` and returns where it ends.
    fn skip(&mut self, start: u64, fault: Fault, bound: SkipBound) -> Result<u64, ReadError> {
        let allowed = bound.max_bytes.saturating_sub(self.tally.bytes);
        let search_end = start.saturating_add(allowed).saturating_add(HEADER_LEN as u64);
        let found = self.resync.resume(start, self.layout, search_end)?;
        let end = match found {
            Resume::At(end) => end,
            Resume::NotFound => search_end.min(self.source.len()),
        };
        let records = self.count_lost(start, end)?;
        self.add_gap(LostRange {
            bytes: start..end,
            records,
            fault,
        });
        self.tally.ranges = self.gaps.len() as u64;
        self.tally.bytes += end - start;
        bound.check(self.tally, self.source.name(), end)?;
        Ok(end)
    }

    fn count_lost(&self, start: u64, end: u64) -> Result<LostRecords, ReadError> {
        let len = end - start;
        if len > self.limits.unpacked() as u64 + HEADER_LEN as u64 {
            return Ok(LostRecords::Unknown);
        }
        let mut lost = vec![0; len as usize];
        self.source.read(&mut lost, start)?;
        Ok(loss::in_gap(&lost, self.layout, &self.limits))
    }

    /// Damage that continues right after a gap belongs to it.
    fn add_gap(&mut self, lost: LostRange) {
        match self.gaps.last_mut() {
            Some(gap) if gap.lost.bytes.end == lost.bytes.start => {
                gap.lost.bytes.end = lost.bytes.end;
                gap.lost.records = gap.lost.records.plus(lost.records);
            }
            _ => self.gaps.push(Gap {
                chunks_before: self.chunks.len(),
                lost,
            }),
        }
    }
}
