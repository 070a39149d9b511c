//! Runs without folders: records which were prepared, and refuses those whose command says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::job::{Job, WorkerKey};
use crate::names::JobId;
use crate::ports::{PrepareError, PreparedRun, RunPreparer};

use super::samples;

/// The command of a trainer whose run cannot be prepared.
pub const UNPREPARED: &str = "pretend no folder";

/// See the module.
#[derive(Clone, Default)]
pub struct PretendRuns(Arc<Mutex<BTreeMap<JobId, usize>>>);

impl PretendRuns {
    /// How many workers of this run were prepared; `None` before the first one and after its removal.
    pub fn prepared(&self, job: &JobId) -> Option<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(job)
            .copied()
    }
}

impl RunPreparer for PretendRuns {
    fn prepare(&self, job: &Job, _worker: WorkerKey) -> Result<PreparedRun, PrepareError> {
        if job.spec.entry == UNPREPARED {
            return Err(PrepareError::Failed("its folder cannot be prepared".into()));
        }
        *self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(job.id.clone())
            .or_default() += 1;
        Ok(samples::prepared(&job.id))
    }

    fn discard(&self, job: &JobId) -> Result<(), PrepareError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
        Ok(())
    }
}
