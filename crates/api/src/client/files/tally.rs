//! Counts what a transfer does and tells whoever watches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Failure, Outcome, Progress, Summary, TransferError};

/// The running account of one transfer, shared by all its parts.
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

    pub(super) fn started(&self, path: &str) {
        self.progress.started(path);
    }

    pub(super) fn moved(&self, bytes: u64) {
        self.lock().moved += bytes;
        self.progress.moved(bytes);
    }

    pub(super) fn spared(&self, bytes: u64) {
        self.progress.spared(bytes);
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

    /// Whether nothing more can succeed: the server is gone for good.
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
