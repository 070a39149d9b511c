//! Reads workers' logs: merged in time order, from any offset, to the end or as they grow.
//!
//! The logs themselves are behind [`LogStore`], implemented by `segments`. Nothing here polls: growth and changes of
//! the job are events. Each reader has one small buffer, so a thousand followers cost little.

mod cursor;
mod error;
mod segments;
mod source;
mod stream;
mod text;

use std::sync::Arc;

use paddlecloud_api::logs::LogQuery;
use paddlecloud_core::job::Job;
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::LogStore;
use tokio::sync::Semaphore;

use crate::reconcile::Jobs;

pub(crate) use cursor::parse_position;
pub use error::LogsError;
pub use segments::{SegmentLogs, Tail};
pub use stream::LogStream;

/// Concurrent file reads.
const READS_AT_ONCE: usize = 8;

/// Access to all logs of this server. Cheap to clone.
#[derive(Clone)]
pub struct Logs {
    store: Arc<dyn LogStore>,
    jobs: Jobs,
    reads: Arc<Semaphore>,
}

impl Logs {
    pub fn new(store: Arc<dyn LogStore>, jobs: Jobs) -> Logs {
        Logs {
            store,
            jobs,
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
        }
    }

    /// Jobs that have logs.
    pub async fn jobs_with_logs(&self) -> std::io::Result<Vec<JobId>> {
        let store = Arc::clone(&self.store);
        let listed = tokio::task::spawn_blocking(move || store.jobs()).await;
        listed.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
    }

    /// Deletes the oldest segments of these jobs' logs until they occupy at most `most` bytes; returns the deleted bytes.
    pub async fn trim(&self, jobs: Vec<JobId>, most: u64) -> u64 {
        let store = Arc::clone(&self.store);
        let trimmed = tokio::task::spawn_blocking(move || store.trim(&jobs, most)).await;
        trimmed.unwrap_or(0)
    }

    /// Starts to read a job's logs.
    pub async fn open(&self, job: Arc<Job>, query: &LogQuery) -> Result<LogStream, LogsError> {
        LogStream::open(self.clone(), job, query).await
    }

    /// The bytes that the logs of these jobs occupy.
    pub async fn occupied(&self, jobs: &[JobId]) -> u64 {
        let (store, jobs) = (Arc::clone(&self.store), jobs.to_vec());
        let measure = move || jobs.iter().map(|job| store.occupied(job)).sum();
        tokio::task::spawn_blocking(measure).await.unwrap_or(0)
    }
}
