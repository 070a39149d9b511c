//! Counts what a transfer does and reports it to its observer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Failure, Outcome, Progress, Summary, TransferError};

/// The running totals of one transfer, shared by all its parts.
pub(super) struct Tally<'a> {
    progress: &'a dyn Progress,
    summary: Mutex<Summary>,
    over: AtomicBool,
}

impl<'a> Tally<'a> {
    pub(super) fn new(progress: &'a dyn Progress) -> Tally<'a> {
        Tally {
            progress,
            summary: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }

    pub(super) fn planned(&self, files: u64, bytes: u64) {
        self.progress.planned(files, bytes);
    }

    /// Counts the bytes of one request that carries this much content.
    pub(super) fn flow(&self, content: u64) -> Flow<'_> {
        Flow {
            tally: self,
            content,
            reported: 0,
        }
    }

    fn moved(&self, bytes: u64) {
        self.lock().moved += bytes;
        self.progress.moved(bytes);
    }

    /// This many moved bytes were wasted.
    pub(super) fn again(&self, bytes: u64) {
        {
            let mut summary = self.lock();
            summary.moved -= bytes;
            summary.again += bytes;
        }
        self.progress.again(bytes);
    }

    pub(super) fn reused(&self, bytes: u64) {
        self.progress.reused(bytes);
    }

    pub(super) fn finished(&self, path: &str, outcome: Outcome, bytes: u64) {
        {
            let mut summary = self.lock();
            match outcome {
                Outcome::Transferred => {
                    summary.transferred += 1;
                    summary.bytes += bytes;
                }
                Outcome::Unchanged => summary.unchanged += 1,
                Outcome::Kept => summary.kept += 1,
            }
        }
        self.progress.finished(path, outcome);
    }

    pub(super) fn failed(&self, path: String, error: TransferError) {
        if error.ends_everything() {
            self.over.store(true, Ordering::Relaxed);
        }
        let failure = Failure { path, error };
        self.progress.failed(&failure);
        self.lock().failures.push(failure);
    }

    /// Whether nothing more can succeed: the server is unreachable or rejects the login.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(super) fn into_summary(self) -> Summary {
        self.summary.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Summary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The progress of one request. It never exceeds the content, because names and digests on the wire do not count, and bytes that
/// must be sent again are subtracted.
pub(super) struct Flow<'a> {
    tally: &'a Tally<'a>,
    content: u64,
    reported: u64,
}

impl Flow<'_> {
    /// This many bytes have passed since the start.
    pub(super) fn passed(&mut self, bytes: u64) {
        let now = bytes.min(self.content);
        if now > self.reported {
            self.tally.moved(now - self.reported);
            self.reported = now;
        }
    }

    /// The request failed: only this many bytes of content are kept.
    pub(super) fn broke_but(self, stay: u64) {
        if self.reported > stay {
            self.tally.again(self.reported - stay);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_counted_once_however_often_it_is_sent() {
        let tally = Tally::new(&());
        let mut broken = tally.flow(100);
        broken.passed(30);
        broken.passed(60);
        broken.broke_but(40);
        let mut whole = tally.flow(60);
        // Framing passes too.
        whole.passed(75);
        let summary = tally.into_summary();
        assert_eq!((summary.moved, summary.again), (100, 20));
    }
}
