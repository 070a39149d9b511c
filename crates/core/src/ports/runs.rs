//! The port for run folders: what is prepared for a run before the engine launches it.

use crate::job::{Job, WorkerKey};
use crate::names::JobId;

/// A run whose folders exist.
///
/// Paths are relative, separated by `/`, and below the user's home unless noted otherwise. Each engine decides how a
/// worker sees the home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedRun {
    /// `.paddlecloud/runs/<id>`.
    pub folder: String,
    /// The working directory of the program: the run's copy, or the package in place.
    pub workdir: WorkDir,
    /// Where the user sees an uploaded package, if that path points to the latest run. A worker that has `own_latest`
    /// mounted over `.paddlecloud/latest` finds its own copy there.
    pub shown: Option<String>,
    pub output: String,
    /// A folder that all workers of the run see and nothing else uses.
    pub rendezvous: String,
    /// Mounted for workers over `.paddlecloud/latest`.
    pub own_latest: String,
}

/// Where the program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkDir {
    Home(String),
    /// Below the public folder.
    Public(String),
}

impl PreparedRun {
    /// Where the plain log of the trainer or parameter server with this index is stored.
    pub fn node(&self, index: u32) -> String {
        format!("{}/node_{index}", self.output)
    }
}

/// Why a run's folders cannot be created, for the owner of the job.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("{0}")]
    Failed(String),
    /// The server lacks something, such as disk space; a retry may succeed.
    #[error("{0}")]
    Shortage(String),
}

/// Creates and removes the folders of runs. Its methods block on the disk.
pub trait RunPreparer: Send + Sync {
    /// Prepares the run and the folder of this worker's plain log. A run is prepared once; workers that start later
    /// find what earlier ones left. Calls for one run must not overlap.
    fn prepare(&self, job: &Job, worker: WorkerKey) -> Result<PreparedRun, PrepareError>;

    /// Removes the working copy of a job that was removed from the history. Its output stays.
    fn discard(&self, job: &JobId) -> Result<(), PrepareError>;
}
