//! Errors when reading logs.

use paddlecloud_core::names::JobName;
use paddlecloud_core::ports::LogError;

use crate::reconcile::JobsError;

/// Why logs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    #[error("`{}` is not a role", .0.escape_debug())]
    NotARole(String),
    #[error("`{}` is not a time", .0.escape_debug())]
    NotATime(String),
    #[error("`from` is not a list of `worker:attempt:offset`")]
    BadCursors,
    #[error("job `{job}` has no worker `{}`", .worker.escape_debug())]
    NoWorker {
        job: JobName,
        worker: String,
        /// Some of its workers.
        known: Vec<String>,
    },
    #[error("the logs are too long for one reply")]
    TooLong,
    #[error("a log cannot be read: {0}")]
    Unreadable(LogError),
    /// The loop is restoring its jobs; the client should retry.
    #[error("the server is still loading its jobs")]
    StartingOver,
    #[error(transparent)]
    Jobs(#[from] JobsError),
    #[error("a thread that reads logs failed")]
    Thread,
}
