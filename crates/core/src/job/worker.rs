//! One worker of a job: its identity, its current attempt and that attempt's progress.
//!
//! `life` decides what the progress means for the job.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::names::{JobId, JobName};
use crate::plan::Role;

/// Identifies a worker inside its job. The same across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkerKey {
    pub role: Role,
    pub index: u32,
}

impl WorkerKey {
    pub fn pserver(index: u32) -> WorkerKey {
        WorkerKey {
            role: Role::Pserver,
            index,
        }
    }

    pub fn trainer(index: u32) -> WorkerKey {
        WorkerKey {
            role: Role::Trainer,
            index,
        }
    }
}

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.index)
    }
}

/// The progress of a worker's current attempt. It only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    /// The launch was ordered, and the engine has not replied yet.
    Waiting,
    /// Its supervisor is running. A trainer waits for `Go`.
    Up,
    /// A trainer was sent `Go`.
    Going,
    /// Its program is running.
    Running,
    /// A parameter server listens on all its ports.
    Ready,
    /// Its program exited; `exit` says how.
    Ended,
    /// It vanished without an exit.
    Lost,
}

impl WorkerStatus {
    /// Whether part of this attempt may still be running.
    pub fn is_live(self) -> bool {
        self < WorkerStatus::Ended
    }
}

impl fmt::Display for WorkerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkerStatus::Waiting => "Waiting",
            WorkerStatus::Up => "Up",
            WorkerStatus::Going => "Going",
            WorkerStatus::Running => "Running",
            WorkerStatus::Ready => "Ready",
            WorkerStatus::Ended => "Ended",
            WorkerStatus::Lost => "Lost",
        })
    }
}

/// One worker and its current attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    #[serde(flatten)]
    pub key: WorkerKey,
    /// `<job>-trainer-3s4nz`: stable across attempts, at most 63 characters.
    pub name: String,
    /// Its address for its peers; chosen when the job is admitted.
    pub address: String,
    /// Fences reports: a report about an earlier attempt changes nothing. The first is 1.
    pub attempt: u32,
    pub status: WorkerStatus,
    /// How often it was restarted; at most the job's retries.
    pub restarts: u32,
    /// Restarts that were not its fault and use no retry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disruptions: u32,
    /// How often workers of this job had been disrupted when this attempt was launched. It may depend on those that
    /// are disrupted later.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disrupted_before: u32,
    /// When the program of this attempt started.
    pub started_at: Option<Timestamp>,
    /// When this attempt ended.
    pub ended_at: Option<Timestamp>,
    /// The exit of the latest finished attempt, also of the one before a restart.
    pub exit: Option<Exit>,
    /// It has failed and will be restarted at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_at: Option<Timestamp>,
    /// Its current attempt has no seat yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseated: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference.
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Worker {
    /// A worker before its first attempt, which has the given number.
    pub fn new(key: WorkerKey, job: &JobId, job_name: &JobName, address: String, attempt: u32) -> Worker {
        Worker {
            key,
            name: worker_name(job_name, job, key),
            address,
            attempt,
            status: WorkerStatus::Waiting,
            restarts: 0,
            disruptions: 0,
            disrupted_before: 0,
            started_at: None,
            ended_at: None,
            exit: None,
            restart_at: None,
            unseated: false,
        }
    }

    /// The current attempt exited successfully.
    pub fn succeeded(&self) -> bool {
        self.status == WorkerStatus::Ended && self.exit.as_ref().is_some_and(Exit::is_success)
    }
}

/// Longest worker name; it is a host name too.
const MAX_WORKER_NAME: usize = 63;
const MARK_DIGITS: usize = 5;
const MARK_BITS: u32 = 25;
const MARK_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The name of a worker. No two workers of a job share one.
pub fn worker_name(job_name: &JobName, job: &JobId, key: WorkerKey) -> String {
    let tail = format!("-{}-{}", key.role, mark(job, key));
    let room = MAX_WORKER_NAME - tail.len();
    let stem = &job_name.as_str()[..job_name.as_str().len().min(room)];
    format!("{}{tail}", stem.trim_end_matches(['-', '.']))
}

/// Five characters derived from the job's id, the role and the index.
///
/// Every step is a permutation of 25 bits, so two indexes of a role never get the same mark.
fn mark(job: &JobId, key: WorkerKey) -> String {
    const MASK: u32 = (1 << MARK_BITS) - 1;
    let seed = job
        .as_str()
        .bytes()
        .chain(key.role.as_str().bytes())
        .fold(0x811c_9dc5u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
    let mut value = (key.index ^ seed) & MASK;
    for _ in 0..3 {
        value = value.wrapping_mul(0x9e37_79b1) & MASK;
        value ^= value >> 12;
    }
    let digit = |place: usize| char::from(MARK_ALPHABET[(value >> (5 * place)) as usize & 31]);
    (0..MARK_DIGITS).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ten_thousand_workers_have_different_names() {
        let name: JobName = "a".repeat(63).parse().unwrap();
        let id = JobId::new(1_700_000_000_000, 7);
        let names: HashSet<String> = (0..10_000)
            .flat_map(|index| [WorkerKey::trainer(index), WorkerKey::pserver(index)])
            .map(|key| worker_name(&name, &id, key))
            .collect();
        assert_eq!(names.len(), 20_000);
        assert!(names.iter().all(|name| name.len() <= 63));
    }

    #[test]
    fn a_name_shows_job_and_role_and_stays_the_same() {
        let name: JobName = "word-emb".parse().unwrap();
        let id = JobId::new(1_700_000_000_000, 7);
        let made = worker_name(&name, &id, WorkerKey::trainer(0));
        assert!(made.starts_with("word-emb-trainer-"), "{made}");
        assert_eq!(made.len(), "word-emb-trainer-3s4nz".len());
        assert_eq!(made, worker_name(&name, &id, WorkerKey::trainer(0)));
        assert_ne!(
            made,
            worker_name(&name, &JobId::new(1_700_000_000_000, 8), WorkerKey::trainer(0))
        );
    }
}
