//! Use cases: what the server does for a caller, one function per thing that can be asked.
//!
//! Nothing here knows HTTP. What changes a job goes through [`Jobs`]; what only reads looks at the jobs
//! in memory first and at the store behind them.

mod files;
mod files_old;
mod find;
mod info;
mod jobs;
mod logs;
mod packages;
mod prune;
mod quota;
mod reach;
mod submit;
mod taking;
pub(crate) mod view;
mod why;

use jiff::Timestamp;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::{JobDetail, JobView};
use paddlecloud_core::job::Job;
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::StoreError;
use tokio_util::sync::CancellationToken;

pub use files::ListQuery as FileListQuery;
pub use jobs::{ListQuery, WaitEnd};
pub use packages::Upload;
pub use taking::{Takes, Taking};

use crate::auth::Authenticator;
use crate::config::Config;
use crate::files::Files;
use crate::logs::Logs;
use crate::long::Long;
use crate::metrics::Metrics;
use crate::packages::{PackageError, Storage};
use crate::reconcile::Jobs;
use crate::store::{self, Store};

/// All parts of a running server, as its use cases need them.
pub struct App {
    pub config: Config,
    pub store: Store,
    pub jobs: Jobs,
    pub storage: Storage,
    pub files: Files,
    /// The turns of what takes long.
    pub long: Long,
    pub logs: Logs,
    pub auth: Authenticator,
    pub metrics: Metrics,
    /// Cancelled when the server is asked to stop.
    pub stop: CancellationToken,
    pub started: Timestamp,
    /// Where it really listens: a port that was asked for as 0 has its number here.
    pub listen: Vec<String>,
    /// What this machine does not permit, each a sentence.
    pub degraded: Vec<String>,
}

impl App {
    fn job_view(&self, job: &Job) -> JobView {
        view::job_view(job, &self.config.datacenter, &self.storage)
    }

    fn job_detail(&self, job: &Job) -> JobDetail {
        view::job_detail(job, &self.config.datacenter, &self.storage)
    }

    /// Does something with files on a thread that may block.
    async fn with_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Storage) -> Result<T, PackageError> + Send + 'static,
    ) -> Result<T, ErrorBody> {
        let storage = self.storage.clone();
        let done = tokio::task::spawn_blocking(move || work(&storage)).await;
        done.map_err(|_| internal())?.map_err(packages::package_refused)
    }

    /// The same for what may take long: it waits for its turn, and leaves threads to what is short.
    async fn with_files_at_length<T: Send + 'static>(
        &self,
        user: &UserName,
        work: impl FnOnce(&Storage) -> Result<T, PackageError> + Send + 'static,
    ) -> Result<T, ErrorBody> {
        let storage = self.storage.clone();
        let done = self.long.blocking(user, move || work(&storage)).await;
        done.map_err(|_| internal())?.map_err(packages::package_refused)
    }
}

/// A mistake of the server's own.
pub(crate) fn internal() -> ErrorBody {
    ErrorBody::new(ErrorName::Internal, "the server made a mistake").with_hint("its log has the story")
}

/// The jobs are just being taken up again.
pub(crate) fn starting_over() -> ErrorBody {
    ErrorBody::new(ErrorName::Unavailable, "the server takes up its jobs again").with_hint("ask again")
}

/// Turns a failure of the store into what the caller may know; the log gets the rest.
pub(crate) fn store_failed(error: StoreError) -> ErrorBody {
    let chain = chain_of(&error);
    if store::is_full(&error) {
        tracing::error!(error = chain, "the disk is full");
        return disk_is_full();
    }
    tracing::error!(error = chain, "the job store failed");
    if let Some(damaged) = store::damage(&error) {
        tracing::error!(hint = damaged.hint(), "the server should be stopped");
        return ErrorBody::new(ErrorName::Internal, "the server's database is damaged")
            .with_hint("whoever runs the server finds the file and the way out in its log");
    }
    ErrorBody::new(ErrorName::Unavailable, "the server cannot reach its job store")
        .with_hint("try again; the server's log has the cause")
}

pub(crate) fn disk_is_full() -> ErrorBody {
    ErrorBody::new(ErrorName::StorageFull, "the server's disk is full")
        .with_hint("free some space on the server, for example with `paddlectl prune`")
}

/// An error and everything that caused it, on one line.
pub(crate) fn chain_of(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.fold(String::new(), |told, cause| {
        let cause = cause.to_string();
        match () {
            () if told.is_empty() => cause,
            // Some errors of others say their cause themselves.
            () if told.ends_with(&cause) => told,
            () => format!("{told}: {cause}"),
        }
    })
}
