//! The folders of attempts: `<data>/attempts/<job>/<role>-<index>.<attempt>/`.
//!
//! The log store keeps an attempt's log there, and the engine its other files until the attempt is cleaned. Names only:
//! nothing is created or removed here.

use std::io;
use std::path::{Path, PathBuf};

use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::AttemptKey;

use crate::protocol::files;

/// The folder of all attempts, below the server's data.
pub const ATTEMPTS: &str = "attempts";

/// The folder of one attempt, also of a job that ended long ago.
pub fn attempt_folder(data: &Path, attempt: &AttemptKey) -> PathBuf {
    job_folder(data, &attempt.job).join(attempt.name())
}

pub fn job_folder(data: &Path, job: &JobId) -> PathBuf {
    data.join(ATTEMPTS).join(job.as_str())
}

/// Whether an engine has launched this attempt and not cleaned it: only then its folder has a plan.
pub fn is_launched(data: &Path, attempt: &AttemptKey) -> bool {
    attempt_folder(data, attempt).join(files::PLAN).exists()
}

/// Treats "not found" as success.
pub fn ignore_not_found(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
