//! Use cases: what the server does for a caller, one function per request.
//!
//! Nothing here knows HTTP. Changes of jobs go through [`Jobs`]; reads use the jobs in memory first, then the store.

mod accounts;
mod certificates;
mod error;
mod files;
mod files_old;
mod find;
mod homes;
mod info;
mod jobs;
mod log_quota;
mod logs;
mod look;
mod machine_cause;
mod manifests;
mod missing_module;
mod packages;
mod programs;
mod provider_login;
mod prune;
mod quota;
mod reach;
mod resume;
mod secrets;
mod storage_limits;
mod submit;
mod taking;
mod tokens;
mod usage;
pub(crate) mod view;
mod why;

use std::sync::Arc;

use jiff::Timestamp;
use paddlecloud_accounts::Accounts;
use paddlecloud_accounts::auth::{Authenticator, request_id};
use paddlecloud_accounts::authority::Authority;
use paddlecloud_accounts::oidc::Oidc;
use paddlecloud_accounts::secrets::Secrets;
use paddlecloud_api::jobs::{JobDetail, JobView, WorkerView};
use paddlecloud_core::job::{Job, Worker};
use paddlecloud_core::names::UserName;
use paddlecloud_files::Files;
use paddlecloud_files::homes::{Storage, StorageError};
use paddlecloud_files::locks::Locks;
use paddlecloud_files::queue::{Class, Queue};
use paddlecloud_k8s::NamespaceNames;
use paddlecloud_store::Store;
use tokio_util::sync::CancellationToken;

pub use accounts::UserRefusal;
pub use error::{AdminOnly, AppError, FieldRule, What};
pub use info::{DisksChecked, NotReady};
pub use jobs::{JobList, ListQuery, WaitEnd};
pub use logs::LogReaders;
pub use provider_login::ProviderRefusal;
pub use resume::{NoCheckpoints, ResumeRefusal};
pub use storage_limits::StorageWatch;
pub use submit::SubmitOutcome;
pub use taking::Taking;
pub use tokens::TokenRefusal;

use crate::config::{Config, EngineKind};
use crate::logs::Logs;
use crate::metrics::Metrics;
use crate::reconcile::{Jobs, NewJob};

/// The parts of a running server that its use cases need.
pub struct App {
    pub config: Config,
    pub store: Store,
    pub jobs: Jobs,
    pub storage: Storage,
    pub files: Files,
    /// Schedules long work.
    pub queue: Queue,
    /// The most bytes of a package's list of files.
    pub list_limit: usize,
    pub locks: Locks,
    pub logs: Logs,
    pub log_readers: Arc<LogReaders>,
    pub disks: DisksChecked,
    pub accounts: Arc<Accounts>,
    /// Where users' namespaces in a cluster differ from what their accounts say.
    pub namespaces: NamespaceNames,
    pub secrets: Secrets,
    pub auth: Authenticator,
    /// The login provider, if one is configured.
    pub oidc: Option<Oidc>,
    /// Signs users' certificates; `None` without TLS, where a client cannot present one.
    pub authority: Option<Authority>,
    /// Read-locked by each submit while its job is stored.
    pub submitting: tokio::sync::RwLock<()>,
    pub metrics: Metrics,
    /// Cancelled when the server is asked to stop.
    pub stop: CancellationToken,
    pub started: Timestamp,
    /// The actual listening addresses, with the assigned port for a configured port 0.
    pub listen: Vec<String>,
    /// Restrictions of this machine, one sentence each.
    pub degraded: Vec<String>,
}

impl App {
    fn job_view(&self, job: &Job) -> JobView {
        JobView {
            namespace: self.namespace_of(&job.user),
            ..view::job_view(job, &self.config.datacenter, &self.storage)
        }
    }

    fn job_detail(&self, job: &Job) -> JobDetail {
        let workers = view::shown_workers(job);
        let workers = workers.iter().map(|worker| self.worker_view(job, worker));
        view::job_detail(job, self.job_view(job), workers.collect(), self.objects(job))
    }

    fn worker_view(&self, job: &Job, worker: &Worker) -> WorkerView {
        let node = match self.config.engine.uses_own_machine() {
            true => None,
            false => view::node(job, worker),
        };
        WorkerView {
            node,
            ..view::worker_view(job, worker)
        }
    }

    /// A job that was not accepted yet.
    fn planned_view(&self, new_job: &NewJob) -> JobView {
        let now = Timestamp::now();
        JobView {
            namespace: self.namespace_of(&new_job.user),
            ..JobView::planned(&new_job.spec, &new_job.user, &self.config.datacenter, now)
        }
    }

    /// The namespace of a user's objects in the cluster. Without a cluster it is only shown.
    fn namespace_of(&self, user: &UserName) -> String {
        let own = || self.auth.users().namespace_of(user);
        match &self.config.engine {
            EngineKind::Local => own(),
            EngineKind::Kubernetes(cluster) => cluster.namespaces.of(user, || self.namespaces.of(own())),
        }
    }

    /// Completes a request's work even if the caller disconnects.
    async fn carry_out<T: Send + 'static>(
        work: impl Future<Output = Result<T, AppError>> + Send + 'static,
    ) -> Result<T, AppError> {
        let done = tokio::spawn(request_id::carried(work)).await;
        done.map_err(|_| AppError::Internal)?
    }

    /// Runs short work on files on a blocking thread.
    async fn with_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Storage) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, AppError> {
        let storage = self.storage.clone();
        let done = tokio::task::spawn_blocking(move || work(&storage)).await;
        Ok(done.map_err(|_| AppError::Internal)??)
    }

    /// The same for long work: it is queued, so that threads remain for short work.
    async fn with_files_queued<T: Send + 'static>(
        &self,
        user: &UserName,
        work: impl FnOnce(&Storage) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, AppError> {
        let storage = self.storage.clone();
        let done = self
            .queue
            .blocking(Class::Long, user, move || work(&storage))
            .await;
        Ok(done.map_err(|_| AppError::Internal)??)
    }
}
