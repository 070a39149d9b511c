//! The port for job stores.

use std::future::Future;
use std::sync::Arc;

use crate::conductor::Write;
use crate::job::{IdempotencyKey, Job};
use crate::names::{JobId, JobName, UserName};

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was changed.
    #[error("cannot write to the job store")]
    Write(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot read from the job store")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A record exists but this version cannot parse it.
    #[error("the record of job {job} cannot be parsed")]
    Damaged {
        job: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Which jobs a page shows, latest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Only this user's jobs; `None` for all users.
    pub user: Option<UserName>,
    pub name: Option<JobName>,
    /// Only jobs older than this one, the last of the previous page.
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

/// Stores jobs, unfinished and ended.
pub trait JobStore: Send + Sync {
    /// Makes all writes durable, or none of them. They survive a power cut once this returns.
    ///
    /// Saving an existing job replaces it; removing a missing one is not an error.
    fn save(&self, writes: &[Write]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Every unfinished job, in the order they were submitted.
    fn load_active(&self) -> impl Future<Output = Result<Vec<Job>, StoreError>> + Send;

    fn get(&self, job: &JobId) -> impl Future<Output = Result<Option<Arc<Job>>, StoreError>> + Send;

    /// The latest run of a user, of this name or of any.
    fn latest(
        &self,
        user: &UserName,
        name: Option<&JobName>,
    ) -> impl Future<Output = Result<Option<Arc<Job>>, StoreError>> + Send;

    /// The job that was created by this key, even if it ended long ago.
    fn find_by_key(
        &self,
        user: &UserName,
        key: &IdempotencyKey,
    ) -> impl Future<Output = Result<Option<JobId>, StoreError>> + Send;

    /// One page of all jobs, latest first. The cost does not depend on the position in the history.
    fn page(&self, request: &PageRequest) -> impl Future<Output = Result<Page, StoreError>> + Send;
}
