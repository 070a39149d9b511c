//! A job: the stored document and the state machine that changes it.
//!
//! Events go in, actions come out ([`Job::on_event`]). Nothing here starts a process, writes a row or reads the clock.
//! The conductor knows which jobs exist, and the scheduler decides which may run.

mod event;
mod life;
mod phase;
mod restarts;
mod resume;
mod seats;
mod timeline;
mod words;
mod worker;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::exit;
use crate::names::{JobId, UserName};
use crate::quantity::Bytes;
use crate::scheduler::Placement;
use crate::spec::JobSpec;

pub use crate::plan::Role;
pub use event::{AccountEnd, Action, AfterKill, Event, News};
pub use phase::{Outcome, Phase};
pub use resume::{Boot, FoundAttempt};
pub use timeline::{Moment, Timeline};
pub use words::{runs_alone, some_of};
pub use worker::{Worker, WorkerKey, WorkerStatus, worker_name};

/// Identifies one submit, so that a retry after a lost reply creates no second job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdempotencyKey(String);

/// Why a text is not an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key has 1 to 128 visible ASCII characters")]
pub struct KeyError;

impl IdempotencyKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IdempotencyKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if visible && (1..=128).contains(&text.len()) {
            return Ok(IdempotencyKey(text.to_owned()));
        }
        Err(KeyError)
    }
}

impl TryFrom<String> for IdempotencyKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<IdempotencyKey> for String {
    fn from(key: IdempotencyKey) -> String {
        key.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One run of a job, from submit to its end.
///
/// The fields can be read by everyone and written by stores; otherwise only [`Job::on_event`] and [`Job::resume`]
/// change them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub user: UserName,
    pub spec: Arc<JobSpec>,
    /// The position in the queue: an earlier submit has a smaller number.
    pub order: u64,
    pub key: Option<IdempotencyKey>,
    pub phase: Phase,
    pub submitted_at: Timestamp,
    pub admitted_at: Option<Timestamp>,
    /// When the trainers were first started.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// One sentence that explains the job's current state.
    pub message: String,
    /// A note of the scheduler, for example that the machine is oversubscribed.
    pub note: Option<String>,
    /// Where each worker runs and which cards it has; empty before admission.
    pub placement: Option<Placement>,
    /// Parameter servers first, then trainers, each by index; empty before admission.
    pub workers: Vec<Worker>,
    /// The worker whose failure ended the job.
    pub culprit: Option<WorkerKey>,
    pub kill_requested: bool,
    /// Whether its workers are killed without a grace period.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_grace: bool,
    /// `kill -rm`: the record is removed as soon as the job is final.
    pub remove_when_final: bool,
    /// The highest number of an attempt that was withdrawn before the job was queued again. Numbers are never reused.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub withdrawn: u32,
    /// The folder in its owner's home with the home of the deleted user who ran it; `None`: its owner ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_in: Option<String>,
    /// How long it held its resources before it was queued again.
    #[serde(default, skip_serializing_if = "SignedDuration::is_zero")]
    pub held_before: SignedDuration,
    pub timeline: Timeline,
    pub timers: Timers,
    /// Grows with every change.
    pub revision: u64,
    /// The time of the latest change. Never goes backwards, whatever the clock does.
    pub changed_at: Timestamp,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// When the current wait began. Restarted when the clock is set back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timers {
    /// Not all workers are ready: at the start, and again while a worker is restarted.
    pub assembling_since: Option<Timestamp>,
    /// The trainers were started.
    pub running_since: Option<Timestamp>,
    /// The workers were asked to stop.
    pub stopping_since: Option<Timestamp>,
    /// The running job has lacked a worker since then: one that was restarted has no seat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseated_since: Option<Timestamp>,
    /// When the next worker is due to be restarted, if one is waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_at: Option<Timestamp>,
}

/// Trainers by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub succeeded: u32,
    pub failed: u32,
    pub active: u32,
}

impl Job {
    /// A new job.
    pub fn new(
        id: JobId,
        user: UserName,
        spec: Arc<JobSpec>,
        key: Option<IdempotencyKey>,
        order: u64,
        now: Timestamp,
    ) -> Job {
        let mut timeline = Timeline::default();
        timeline.push(now, "submitted".into());
        Job {
            id,
            user,
            spec,
            order,
            key,
            phase: Phase::Pending,
            submitted_at: now,
            admitted_at: None,
            started_at: None,
            finished_at: None,
            message: "waits for its turn".into(),
            note: None,
            placement: None,
            workers: Vec::new(),
            culprit: None,
            kill_requested: false,
            skip_grace: false,
            remove_when_final: false,
            withdrawn: 0,
            given_in: None,
            held_before: SignedDuration::ZERO,
            timeline,
            timers: Timers::default(),
            revision: 1,
            changed_at: now,
        }
    }

    /// Whether it still holds its name, so that no other job of the user can use it.
    pub fn holds_name(&self) -> bool {
        !self.phase.is_final() && !self.kill_requested
    }

    /// Whether all its workers were ready since it was last admitted. From then on, a lost worker is restarted alone; until
    /// then, the job starts as a whole or not at all. A job that was queued again starts as a whole again.
    pub fn is_under_way(&self) -> bool {
        self.timers.running_since.is_some()
    }

    pub fn worker(&self, key: WorkerKey) -> Option<&Worker> {
        self.workers.get(self.position(key)?)
    }

    /// The workers, or if the job was queued again, its former ones with the highest attempt that was withdrawn. A worker
    /// may have had fewer attempts.
    pub fn workers_with_logs(&self) -> Cow<'_, [Worker]> {
        if self.workers.is_empty() && self.withdrawn > 0 {
            return Cow::Owned(self.new_workers(Vec::new(), self.withdrawn));
        }
        Cow::Borrowed(&self.workers)
    }

    fn new_workers(&self, addresses: Vec<String>, attempt: u32) -> Vec<Worker> {
        let pservers = (0..self.spec.pservers).map(WorkerKey::pserver);
        let keys = pservers.chain((0..self.spec.parallelism).map(WorkerKey::trainer));
        let addresses = addresses.into_iter().chain(std::iter::repeat(String::new()));
        keys.zip(addresses)
            .map(|(key, address)| Worker::new(key, &self.id, &self.spec.name, address, attempt))
            .collect()
    }

    pub fn pservers(&self) -> impl Iterator<Item = &Worker> {
        self.workers
            .iter()
            .filter(|worker| worker.key.role == Role::Pserver)
    }

    pub fn trainers(&self) -> impl Iterator<Item = &Worker> {
        self.workers
            .iter()
            .filter(|worker| worker.key.role == Role::Trainer)
    }

    /// The memory limit of each worker of a role.
    pub fn memory_of(&self, role: Role) -> Bytes {
        match role {
            Role::Pserver => self.spec.pserver.memory,
            Role::Trainer => self.spec.trainer.memory,
        }
    }

    /// An explanation of how a worker's latest finished attempt exited.
    pub fn exit_in_words(&self, key: WorkerKey) -> Option<String> {
        let exit = self.worker(key)?.exit.as_ref()?;
        Some(exit::in_words(exit, self.memory_of(key.role)))
    }

    /// The state of the job, what it waits for, the scheduler's note, and how much output was lost.
    pub fn message_in_full(&self) -> Option<String> {
        words::message_in_full(self)
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for trainer in self.trainers() {
            match trainer.status {
                status if status.is_live() => counts.active += 1,
                _ if trainer.succeeded() => counts.succeeded += 1,
                _ if self.was_stopped(trainer) => {}
                _ => counts.failed += 1,
            }
        }
        counts
    }

    /// Whether a worker exited because the job was being stopped, and not by itself.
    pub fn was_stopped(&self, worker: &Worker) -> bool {
        let stopped = worker.exit.as_ref().and_then(|exit| exit.stopped);
        if let (Some(stopped), true) = (stopped, self.timers.stopping_since.is_some()) {
            return stopped && self.culprit != Some(worker.key);
        }
        let later = self
            .timers
            .stopping_since
            .zip(worker.ended_at)
            .is_some_and(|(since, ended)| ended >= since);
        later && self.culprit != Some(worker.key)
    }

    /// The index of a worker in `workers` and in the placement.
    pub fn position(&self, key: WorkerKey) -> Option<usize> {
        let (first, count) = match key.role {
            Role::Pserver => (0, self.spec.pservers),
            Role::Trainer => (self.spec.pservers, self.spec.parallelism),
        };
        (key.index < count).then_some((first + key.index) as usize)
    }

    fn worker_mut(&mut self, key: WorkerKey) -> Option<&mut Worker> {
        let position = self.position(key)?;
        self.workers.get_mut(position)
    }

    fn live_workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().filter(|worker| worker.status.is_live())
    }

    /// Records a change; returns its time stamp.
    fn touch(&mut self, now: Timestamp) -> Timestamp {
        self.changed_at = self.changed_at.max(now);
        self.revision += 1;
        self.changed_at
    }

    fn note_moment(&mut self, text: String) {
        self.timeline.push(self.changed_at, text);
    }
}
