//! The name of one attempt: what orders, reports, logs, folders and pods of it have in common.

use std::fmt;
use std::str::FromStr;

use crate::job::WorkerKey;
use crate::names::JobId;
use crate::plan::Role;

/// One attempt of one worker of one job: the subject of every order and report.
///
/// It is written `<job>.<role>-<index>.<attempt>`, for example in the marker of its processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptKey {
    pub job: JobId,
    pub worker: WorkerKey,
    pub attempt: u32,
}

impl AttemptKey {
    /// Its name within its job, and that of its folder: `trainer-0.1`.
    pub fn name(&self) -> String {
        let WorkerKey { role, index } = self.worker;
        format!("{role}-{index}.{}", self.attempt)
    }

    /// Parses what [`AttemptKey::name`] returns.
    pub fn of_job(job: &JobId, name: &str) -> Result<AttemptKey, NoAttempt> {
        format!("{job}.{name}").parse()
    }
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.name())
    }
}

/// A text that names no attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not name an attempt")]
pub struct NoAttempt(String);

impl FromStr for AttemptKey {
    type Err = NoAttempt;

    fn from_str(text: &str) -> Result<AttemptKey, NoAttempt> {
        parse(text)
            // Numbers can be written in several ways, and an attempt has one name.
            .filter(|key| key.to_string() == text)
            .ok_or_else(|| NoAttempt(text.escape_debug().to_string()))
    }
}

fn parse(text: &str) -> Option<AttemptKey> {
    let (job, rest) = text.split_once('.')?;
    let (worker, attempt) = rest.split_once('.')?;
    let (role, index) = worker.split_once('-')?;
    let role = match role {
        "pserver" => Role::Pserver,
        "trainer" => Role::Trainer,
        _ => return None,
    };
    let index = index.parse().ok()?;
    Some(AttemptKey {
        job: job.parse().ok()?,
        worker: WorkerKey { role, index },
        attempt: attempt.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(worker: WorkerKey, attempt: u32) -> AttemptKey {
        AttemptKey {
            job: JobId::new(5, 6),
            worker,
            attempt,
        }
    }

    #[test]
    fn a_name_reads_back_as_its_attempt() {
        let attempt = key(WorkerKey::pserver(12), 3);
        assert_eq!(attempt.name(), "pserver-12.3");
        assert_eq!(attempt.to_string(), format!("{}.pserver-12.3", attempt.job));
        assert_eq!(AttemptKey::of_job(&attempt.job, "pserver-12.3"), Ok(attempt));
    }

    #[test]
    fn a_name_that_is_not_written_like_this_names_no_attempt() {
        let job = JobId::new(5, 6);
        for foreign in [
            "",
            "pserver-12",
            "master-0.1",
            "trainer-x.1",
            "trainer-00.1",
            "trainer-+0.1",
            "trainer-0.01",
            "trainer-0.+1",
            "trainer-0.1.1",
            "trainer-4294967296.1",
            "lost+found",
        ] {
            let refused = AttemptKey::of_job(&job, foreign);
            assert_eq!(refused, Err(NoAttempt(format!("{job}.{foreign}"))));
        }
        let error = "j_1.trainer-0.1".parse::<AttemptKey>().unwrap_err();
        assert_eq!(error.to_string(), "`j_1.trainer-0.1` does not name an attempt");
    }

    proptest! {
        #[test]
        fn every_attempt_reads_back(millis in 0..1u64 << 45, is_trainer: bool, index: u32, attempt: u32) {
            let worker = match is_trainer {
                true => WorkerKey::trainer(index),
                false => WorkerKey::pserver(index),
            };
            let key = AttemptKey { job: JobId::new(millis, index), worker, attempt };
            prop_assert_eq!(key.to_string().parse::<AttemptKey>(), Ok(key));
        }

        #[test]
        fn what_is_accepted_prints_as_itself(name in "(trainer|pserver|[a-z]{0,3})-[+-]?[0-9]{0,11}[.][+]?[0-9]{0,11}") {
            let job = JobId::new(5, 6);
            if let Ok(key) = AttemptKey::of_job(&job, &name) {
                prop_assert_eq!(key.name(), name);
            }
        }
    }
}
