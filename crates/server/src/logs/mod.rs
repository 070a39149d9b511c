//! Reading workers' logs: merged in time order, from any offset, to the end or as they grow.
//!
//! The logs themselves are files of the supervisors. Nothing here polls: growth and changes of the job are
//! events. Whoever reads holds one small buffer, so a thousand followers cost little.

mod cursor;
mod source;
mod stream;
mod text;

use std::path::PathBuf;
use std::sync::Arc;

use paddlecloud_api::error::ErrorBody;
use paddlecloud_api::logs::LogQuery;
use paddlecloud_core::job::Job;
use tokio::sync::Semaphore;

use crate::engine::local::LocalEngine;
use crate::reconcile::Jobs;

pub use stream::LogStream;

/// Reads of files that are under way at the same moment.
const READS_AT_ONCE: usize = 8;

/// Access to all logs of this server. Cheap to clone.
#[derive(Clone)]
pub struct Logs {
    data: PathBuf,
    engine: LocalEngine,
    jobs: Jobs,
    reads: Arc<Semaphore>,
}

impl Logs {
    /// `data` is the folder in which the engine keeps its attempts.
    pub fn new(data: PathBuf, engine: LocalEngine, jobs: Jobs) -> Logs {
        Logs {
            data,
            engine,
            jobs,
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
        }
    }

    /// Begins to read a job's logs as the query says.
    pub async fn open(&self, job: Arc<Job>, query: &LogQuery) -> Result<LogStream, ErrorBody> {
        LogStream::open(self.clone(), job, query).await
    }
}
