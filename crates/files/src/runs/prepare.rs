//! Prepares runs for any engine.

use paddlecloud_core::job::{Job, WorkerKey};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::{self, PrepareError, PreparedRun, RunPreparer};
use paddlecloud_pfs::RelPath;

use crate::homes::{PackageLocation, Storage, StorageError};

/// The folders of runs in users' homes.
pub struct HomeRuns {
    storage: Storage,
    /// The value of [`ports::Engine::era`]: a run that was prepared in another era is prepared again.
    era: String,
}

impl HomeRuns {
    pub fn new(storage: Storage, era: String) -> HomeRuns {
        HomeRuns { storage, era }
    }
}

impl RunPreparer for HomeRuns {
    fn prepare(&self, job: &Job, worker: WorkerKey) -> Result<PreparedRun, PrepareError> {
        let run = self
            .storage
            .prepare_run(job, &self.era)
            .map_err(|error| failed("its folder cannot be prepared", &error))?;
        self.storage
            .make_run_folder(&job.user, &run.node(worker.index))
            .map_err(|error| failed("the folder of its log cannot be made", &error))?;
        Ok(PreparedRun {
            folder: text(&run.run),
            workdir: match &run.workdir {
                PackageLocation::Home(below) => ports::WorkDir::Home(text(below)),
                PackageLocation::Public(below) => ports::WorkDir::Public(text(below)),
            },
            shown: self.storage.shown_workdir(job).as_ref().map(text),
            output: text(&run.output),
            rendezvous: text(&run.rendezvous),
            own_latest: text(&run.own_latest),
        })
    }

    fn discard(&self, job: &JobId) -> Result<(), PrepareError> {
        let forgotten: Result<(), StorageError> = self.storage.forget_run(job);
        forgotten.map_err(|error| PrepareError::Failed(error.to_string()))
    }
}

/// The paths of a job come from its spec, so they are valid text.
fn text(path: &RelPath) -> String {
    path.as_path().to_string_lossy().into_owned()
}

/// The failed step, and whether it may succeed later.
fn failed(what: &str, error: &StorageError) -> PrepareError {
    let words = format!("{what}: {error}");
    match error.is_out_of_space() || paddlecloud_supervisor::is_shortage(error) {
        true => PrepareError::Shortage(words),
        false => PrepareError::Failed(words),
    }
}
