//! The folders of attempts: `<data>/attempts/<job>/<role>-<index>.<attempt>/`.
//!
//! `logs` stores an attempt's log there, and the engine its other files until the attempt is cleaned. Names only: nothing is
//! created or removed here.

use std::io;
use std::path::{Path, PathBuf};

use paddlecloud_core::job::WorkerKey;
use paddlecloud_core::names::JobId;
use paddlecloud_core::plan::Role;
use paddlecloud_core::ports::AttemptKey;
use paddlecloud_worker::protocol::files;

/// The folder of all attempts, below the server's data.
pub const ATTEMPTS: &str = "attempts";

/// The folder of one attempt, also of a job that ended long ago.
pub fn attempt_folder(data: &Path, attempt: &AttemptKey) -> PathBuf {
    job_folder(data, &attempt.job).join(attempt_name(attempt))
}

pub fn job_folder(data: &Path, job: &JobId) -> PathBuf {
    data.join(ATTEMPTS).join(job.as_str())
}

/// `trainer-0.1`
pub fn attempt_name(attempt: &AttemptKey) -> String {
    let WorkerKey { role, index } = attempt.worker;
    format!("{role}-{index}.{}", attempt.attempt)
}

/// Parses `trainer-0.1`.
pub fn parse_attempt(job: JobId, name: &str) -> Option<AttemptKey> {
    let (worker, attempt) = name.rsplit_once('.')?;
    let (role, index) = worker.split_once('-')?;
    let role = match role {
        "trainer" => Role::Trainer,
        "pserver" => Role::Pserver,
        _ => return None,
    };
    let worker = WorkerKey {
        role,
        index: index.parse().ok()?,
    };
    Some(AttemptKey {
        job,
        worker,
        attempt: attempt.parse().ok()?,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_name_reads_back_as_its_attempt() {
        let job = JobId::new(5, 6);
        let attempt = AttemptKey {
            job: job.clone(),
            worker: WorkerKey::pserver(12),
            attempt: 3,
        };
        assert_eq!(attempt_name(&attempt), "pserver-12.3");
        assert_eq!(parse_attempt(job.clone(), "pserver-12.3"), Some(attempt));
        for foreign in ["pserver-12", "master-0.1", "trainer-x.1", "lost+found"] {
            assert_eq!(parse_attempt(job.clone(), foreign), None);
        }
    }
}
