//! What the domain needs from the outside, in its own words: an engine that runs workers and a store that
//! keeps jobs. Every implementation passes the suite of its port in [`crate::testing`].
//!
//! No implementation lives here, and no runtime: the methods return plain futures.

use std::future::Future;
use std::sync::Arc;

use jiff::SignedDuration;

use crate::conductor::Write;
use crate::job::{Boot, IdempotencyKey, Job, News, WorkerKey};
use crate::names::{JobId, JobName, UserName};

/// One attempt of one worker of one job: what every order and every report is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptKey {
    pub job: JobId,
    pub worker: WorkerKey,
    pub attempt: u32,
}

/// What the engine says about one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub attempt: AttemptKey,
    pub news: News,
}

/// Something the engine must do. Every order may come twice; the second changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineCommand {
    Launch {
        job: Arc<Job>,
        worker: WorkerKey,
        attempt: u32,
    },
    Go {
        job: Arc<Job>,
        worker: WorkerKey,
        attempt: u32,
    },
    Stop {
        attempt: AttemptKey,
        grace: SignedDuration,
    },
    Clean {
        attempt: AttemptKey,
    },
    /// The job was removed from the history: its logs and folders may go.
    Discard {
        job: JobId,
    },
}

/// What the engine has, asked once when the server starts.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineState {
    /// Every attempt that was launched and not cleaned, with its latest news.
    pub attempts: Vec<Report>,
    /// Whether the machine restarted. Stays `Changed` until what the restore led to is durable.
    pub boot: Boot,
}

/// Why the engine cannot say what it has.
#[derive(Debug, thiserror::Error)]
#[error("the engine cannot be reached")]
pub struct EngineError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// Runs workers. Workers outlive the server.
///
/// Orders about one worker are carried out in the order they were given. An order has no result: what
/// comes of it is told by [`Engine::next_reports`], also when it cannot be carried out.
pub trait Engine: Send + Sync {
    /// Starts an attempt; a trainer's program waits for [`Engine::go`].
    ///
    /// An attempt that exists, dead or alive, is left as it is. One that cannot be started is reported
    /// as exited, with the reason as its message. From now on it is in [`Engine::state`].
    fn launch(&self, job: &Arc<Job>, worker: WorkerKey, attempt: u32) -> impl Future<Output = ()> + Send;

    /// Lets the program of a trainer begin. Without effect when it has begun, ended, or is not known.
    fn go(&self, job: &Arc<Job>, worker: WorkerKey, attempt: u32) -> impl Future<Output = ()> + Send;

    /// Ends an attempt: politely, and by force after `grace`. Without effect when it is gone or not known.
    fn stop(&self, attempt: &AttemptKey, grace: SignedDuration) -> impl Future<Output = ()> + Send;

    /// Forgets an attempt whose end is stored: nothing of it is left but its log.
    ///
    /// Ends whatever should still run of it. The worker's next attempt starts after that.
    fn clean(&self, attempt: &AttemptKey) -> impl Future<Output = ()> + Send;

    /// Drops the logs and folders of a job that was removed from the history.
    fn discard(&self, job: &JobId) -> impl Future<Output = ()> + Send;

    /// Everything that was launched and not cleaned.
    fn state(&self) -> impl Future<Output = Result<EngineState, EngineError>> + Send;

    /// Waits for news. Each is told at least once while the server lives; twice or late is allowed.
    ///
    /// An end is told after the last byte of the log can be read.
    fn next_reports(&self) -> impl Future<Output = Vec<Report>> + Send;
}

/// Carries out one command.
pub async fn carry_out<E: Engine>(engine: &E, command: &EngineCommand) {
    match command {
        EngineCommand::Launch { job, worker, attempt } => engine.launch(job, *worker, *attempt).await,
        EngineCommand::Go { job, worker, attempt } => engine.go(job, *worker, *attempt).await,
        EngineCommand::Stop { attempt, grace } => engine.stop(attempt, *grace).await,
        EngineCommand::Clean { attempt } => engine.clean(attempt).await,
        EngineCommand::Discard { job } => engine.discard(job).await,
    }
}

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was changed.
    #[error("cannot write to the job store")]
    Write(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot read from the job store")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A record is there but makes no sense to this version.
    #[error("the record of job {job} cannot be understood")]
    Damaged {
        job: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Which jobs a page shows, latest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Only this user's; `None` is everybody's.
    pub user: Option<UserName>,
    pub name: Option<JobName>,
    /// Only jobs older than this one: the last of the page before.
    pub before: Option<JobId>,
    pub limit: usize,
}

/// A page of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub jobs: Vec<Arc<Job>>,
    /// Whether older jobs follow.
    pub more: bool,
}

/// Keeps jobs, those that run and those that ended.
pub trait JobStore: Send + Sync {
    /// Makes all writes durable, or none of them. They survive a power cut once this returns.
    ///
    /// Saving a job that is there replaces it; removing one that is not there is no error.
    fn save(&self, writes: &[Write]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Every job that is not final, in the order they were submitted.
    fn load_active(&self) -> impl Future<Output = Result<Vec<Job>, StoreError>> + Send;

    fn get(&self, job: &JobId) -> impl Future<Output = Result<Option<Arc<Job>>, StoreError>> + Send;

    /// The latest run of a user, of this name or of any.
    fn latest(
        &self,
        user: &UserName,
        name: Option<&JobName>,
    ) -> impl Future<Output = Result<Option<Arc<Job>>, StoreError>> + Send;

    /// The job that was made by this key, also when it is long over.
    fn find_by_key(
        &self,
        user: &UserName,
        key: &IdempotencyKey,
    ) -> impl Future<Output = Result<Option<JobId>, StoreError>> + Send;

    /// One page of all jobs, latest first. Costs the same at the end of the history as at its beginning.
    fn page(&self, request: &PageRequest) -> impl Future<Output = Result<Page, StoreError>> + Send;
}
