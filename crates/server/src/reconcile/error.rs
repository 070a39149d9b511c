//! Errors of requests about jobs.

use paddlecloud_core::conductor::Refusal;
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::StoreError;

/// Why the loop did not carry out a request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Undone {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the change could not be stored: {words}")]
    NotStored { words: String, full: bool },
    #[error("the server is stopping")]
    Stopping,
}

/// Why a request about jobs failed.
#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    #[error(transparent)]
    Undone(#[from] Undone),
    #[error("this idempotency key was used for another request, which created job {0}")]
    KeyUsed(JobId),
    #[error("job {0} was removed meanwhile")]
    Removed(JobId),
    #[error("there is no such job")]
    NoSuchJob,
    #[error("the job store failed")]
    Store(#[from] StoreError),
}
