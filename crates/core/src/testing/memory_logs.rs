//! Logs in memory. Only `trim` deletes anything, and clones share the same logs. Tests can let all writes fail.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::names::JobId;
use crate::ports::{AttemptKey, Chunk, Follower, Gap, LogError, LogMark, LogReader, LogStore, Piece};

#[derive(Default)]
struct Log {
    chunks: Vec<Chunk>,
    end: u64,
    grows: bool,
    /// How often it changed.
    version: u64,
    waiting: Vec<Waker>,
}

impl Log {
    fn mark(&self) -> LogMark {
        LogMark {
            length: self.end,
            complete: !self.grows,
        }
    }

    fn changed(&mut self) {
        self.version += 1;
        self.waiting.drain(..).for_each(Waker::wake);
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = 0;
        let gap = |from: u64, to: u64| (from < to).then_some(Piece::Gap(Gap { from, to }));
        for chunk in &self.chunks {
            pieces.extend(gap(at, chunk.offset));
            pieces.push(Piece::Chunk(chunk.clone()));
            at = chunk.offset + chunk.bytes.len() as u64;
        }
        pieces.extend(gap(at, self.end));
        pieces
    }
}

type Logs = BTreeMap<AttemptKey, Log>;

/// See the module.
#[derive(Clone, Default)]
pub struct MemoryLogs {
    logs: Arc<Mutex<Logs>>,
    is_broken: Arc<AtomicBool>,
}

impl MemoryLogs {
    /// Sets whether nothing can be written, as on a full disk.
    pub fn set_broken(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::Relaxed);
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogStore for MemoryLogs {
    fn begin(&self, attempt: &AttemptKey) -> Result<u64, LogError> {
        let mut logs = self.lock();
        let log = logs.entry(attempt.clone()).or_default();
        log.grows = true;
        Ok(log.end)
    }

    fn append(&self, attempt: &AttemptKey, chunk: &Chunk) -> Result<u64, LogError> {
        self.begin(attempt)?;
        let mut logs = self.lock();
        let log = logs.get_mut(attempt).expect("it was just begun");
        let known = usize::try_from(log.end.saturating_sub(chunk.offset)).unwrap_or(usize::MAX);
        let fresh = &chunk.bytes[known.min(chunk.bytes.len())..];
        if fresh.is_empty() || self.is_broken() {
            return Ok(log.end);
        }
        let fresh = Chunk {
            offset: chunk.offset.max(log.end),
            bytes: fresh.to_vec(),
            ..*chunk
        };
        log.end = fresh.offset + fresh.bytes.len() as u64;
        log.chunks.push(fresh);
        log.changed();
        Ok(log.end)
    }

    fn close(&self, attempt: &AttemptKey, end: u64) -> Result<(), LogError> {
        if self.is_broken() {
            return Err(LogError {
                what: "write",
                job: attempt.job.clone(),
                source: io::ErrorKind::StorageFull.into(),
            });
        }
        let mut logs = self.lock();
        let log = logs.entry(attempt.clone()).or_default();
        log.end = log.end.max(end);
        log.grows = false;
        log.changed();
        Ok(())
    }

    fn reader(&self, attempt: &AttemptKey) -> Box<dyn LogReader> {
        Box::new(Reader {
            logs: self.clone(),
            attempt: attempt.clone(),
        })
    }

    fn follow(&self, attempt: &AttemptKey) -> Option<Box<dyn Follower>> {
        let logs = self.lock();
        let log = logs.get(attempt).filter(|log| log.grows)?;
        Some(Box::new(Waiting {
            logs: self.clone(),
            attempt: attempt.clone(),
            seen: log.version,
        }))
    }

    fn jobs(&self) -> io::Result<Vec<JobId>> {
        let mut jobs: Vec<JobId> = self.lock().keys().map(|attempt| attempt.job.clone()).collect();
        jobs.dedup();
        Ok(jobs)
    }

    fn occupied(&self, job: &JobId) -> u64 {
        let logs = self.lock();
        let of_job = logs.iter().filter(|(attempt, _)| attempt.job == *job);
        let chunks = of_job.flat_map(|(_, log)| &log.chunks);
        chunks.map(|chunk| chunk.bytes.len() as u64).sum()
    }

    fn trim(&self, jobs: &[JobId], most: u64) -> u64 {
        let mut stored: u64 = jobs.iter().map(|job| self.occupied(job)).sum();
        let before = stored;
        let mut logs = self.lock();
        while stored > most {
            let of_jobs = logs.iter_mut().filter(|(attempt, _)| jobs.contains(&attempt.job));
            // The latest chunk of each log stays.
            let longer = of_jobs.filter(|(_, log)| log.chunks.len() > 1);
            let Some((_, oldest)) = longer.min_by_key(|(_, log)| log.chunks[0].stamp) else {
                break;
            };
            stored -= oldest.chunks.remove(0).bytes.len() as u64;
        }
        before - stored
    }

    fn discard(&self, job: &JobId) -> Result<(), LogError> {
        self.lock().retain(|attempt, _| attempt.job != *job);
        Ok(())
    }
}

struct Reader {
    logs: MemoryLogs,
    attempt: AttemptKey,
}

impl Reader {
    fn pieces(&self) -> Vec<Piece> {
        self.logs
            .lock()
            .get(&self.attempt)
            .map(Log::pieces)
            .unwrap_or_default()
    }
}

impl LogReader for Reader {
    fn length(&self) -> Result<u64, LogError> {
        Ok(self.logs.lock().get(&self.attempt).map_or(0, |log| log.end))
    }

    fn read(&mut self, offset: u64, most: usize) -> Result<Vec<Piece>, LogError> {
        let mut left = most;
        let mut found = Vec::new();
        for piece in self.pieces().into_iter().filter(|piece| piece.end() > offset) {
            match piece {
                _ if left == 0 => break,
                Piece::Gap(gap) => found.push(Piece::Gap(Gap {
                    from: gap.from.max(offset),
                    to: gap.to,
                })),
                Piece::Chunk(chunk) => {
                    let skipped = offset.saturating_sub(chunk.offset) as usize;
                    let bytes: Vec<u8> = chunk.bytes.iter().skip(skipped).take(left).copied().collect();
                    left -= bytes.len();
                    found.push(Piece::Chunk(Chunk {
                        offset: chunk.offset + skipped as u64,
                        bytes,
                        ..chunk
                    }));
                }
            }
        }
        Ok(found)
    }

    fn seek_time(&self, stamp: u64) -> Result<u64, LogError> {
        let late = |piece: &Piece| match piece {
            Piece::Chunk(chunk) if chunk.stamp >= stamp => Some(chunk.offset),
            _ => None,
        };
        match self.pieces().iter().find_map(late) {
            Some(offset) => Ok(offset),
            None => self.length(),
        }
    }

    fn tail_lines(&self, lines: usize) -> Result<u64, LogError> {
        let bytes = self.pieces().into_iter().flat_map(|piece| match piece {
            Piece::Chunk(chunk) => (chunk.offset..).zip(chunk.bytes).collect(),
            Piece::Gap(_) => Vec::new(),
        });
        let bytes: Vec<(u64, u8)> = bytes.collect();
        let mut begins: Vec<u64> = bytes.first().map(|(at, _)| *at).into_iter().collect();
        begins.extend(
            bytes
                .windows(2)
                .filter(|pair| pair[0].1 == b'\n')
                .map(|pair| pair[1].0),
        );
        match lines {
            0 => self.length(),
            _ => Ok(begins
                .get(begins.len().saturating_sub(lines))
                .copied()
                .unwrap_or(0)),
        }
    }
}

struct Waiting {
    logs: MemoryLogs,
    attempt: AttemptKey,
    seen: u64,
}

impl Follower for Waiting {
    fn changed(&mut self) -> Pin<Box<dyn Future<Output = Option<LogMark>> + Send + '_>> {
        Box::pin(poll_fn(|context| {
            let mut logs = self.logs.lock();
            let Some(log) = logs.get_mut(&self.attempt) else {
                return Poll::Ready(None);
            };
            if log.version == self.seen {
                log.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            self.seen = log.version;
            Poll::Ready(Some(log.mark()))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;
    use crate::testing::log_suite::{Shelf, log_suite};

    impl Shelf for MemoryLogs {
        fn store(&self) -> Arc<dyn LogStore> {
            Arc::new(self.clone())
        }

        fn set_broken(&self, _: &AttemptKey, is_broken: bool) {
            self.set_broken(is_broken);
        }
    }

    #[test]
    fn logs_in_memory_pass_the_suite_of_their_port() {
        block_on(log_suite(&MemoryLogs::default()));
    }
}
