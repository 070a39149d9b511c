//! A job: the document that is stored, and the state machine that alone changes it.
//!
//! Events go in, actions come out ([`Job::on_event`]). Nothing here starts a process, writes a row or
//! asks the clock. Which jobs exist and who may run is the conductor's and the scheduler's business.

mod event;
mod life;
mod phase;
mod restarts;
mod resume;
mod timeline;
mod words;
mod worker;

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::exit;
use crate::names::{JobId, UserName};
use crate::quantity::Bytes;
use crate::scheduler::Placement;
use crate::spec::JobSpec;

pub use crate::plan::Role;
pub use event::{Action, AfterKill, Event, News};
pub use phase::{Outcome, Phase};
pub use resume::{Boot, FoundAttempt};
pub use timeline::{Moment, Timeline};
pub use worker::{Worker, WorkerKey, WorkerStatus, worker_name};

/// Names one attempt to submit, so that asking again after a lost reply makes no second job.
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
/// The fields are open for reading and for stores; only [`Job::on_event`] and [`Job::resume`] change them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub user: UserName,
    pub spec: Arc<JobSpec>,
    /// The place in the line: who was submitted earlier has the smaller number.
    pub order: u64,
    pub key: Option<IdempotencyKey>,
    pub phase: Phase,
    pub submitted_at: Timestamp,
    pub admitted_at: Option<Timestamp>,
    /// When the trainers were first let go.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// One sentence on why the job is where it is.
    pub message: String,
    /// What the scheduler had to add, for example that the machine is oversubscribed.
    pub note: Option<String>,
    /// Where each worker runs and which cards it has; none before admission.
    pub placement: Option<Placement>,
    /// Parameter servers first, then trainers, each by index; empty before admission.
    pub workers: Vec<Worker>,
    /// The worker whose failure ended the job.
    pub culprit: Option<WorkerKey>,
    pub kill_requested: bool,
    /// `kill -rm`: the record goes as soon as the job is final.
    pub remove_when_final: bool,
    pub timeline: Timeline,
    pub timers: Timers,
    /// Grows with every change.
    pub revision: u64,
    /// The time of the latest change. Never runs backwards, whatever the clock does.
    pub changed_at: Timestamp,
}

/// Since when something is being waited for. Counted anew when the clock is set back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timers {
    /// Not everybody is there: at the start, and again while a worker is restarted.
    pub assembling_since: Option<Timestamp>,
    /// Trainers were let go.
    pub running_since: Option<Timestamp>,
    /// The workers were told to stop.
    pub stopping_since: Option<Timestamp>,
    /// When the next worker is to be restarted, if one waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_at: Option<Timestamp>,
}

/// Trainers by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub succeeded: u32,
    pub failed: u32,
    pub active: u32,
}

impl Job {
    /// A job that has just been submitted.
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
            remove_when_final: false,
            timeline,
            timers: Timers::default(),
            revision: 1,
            changed_at: now,
        }
    }

    /// Whether nobody else of the same user may take its name.
    pub fn holds_name(&self) -> bool {
        !self.phase.is_final() && !self.kill_requested
    }

    pub fn worker(&self, key: WorkerKey) -> Option<&Worker> {
        self.workers.get(self.position(key)?)
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

    /// How a worker's latest ended attempt ended, in words.
    pub fn exit_in_words(&self, key: WorkerKey) -> Option<String> {
        let exit = self.worker(key)?.exit.as_ref()?;
        Some(exit::in_words(exit, self.memory_of(key.role)))
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

    /// Whether a worker ended because the job was being stopped, and not by itself.
    pub fn was_stopped(&self, worker: &Worker) -> bool {
        let told = worker.exit.as_ref().and_then(|exit| exit.stopped);
        if let (Some(told), true) = (told, self.timers.stopping_since.is_some()) {
            return told && self.culprit != Some(worker.key);
        }
        let later = self
            .timers
            .stopping_since
            .zip(worker.ended_at)
            .is_some_and(|(since, ended)| ended >= since);
        later && self.culprit != Some(worker.key)
    }

    /// Where a worker stands in `workers` and in the placement.
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

    /// Records a change; returns the time to stamp it with.
    fn touch(&mut self, now: Timestamp) -> Timestamp {
        self.changed_at = self.changed_at.max(now);
        self.revision += 1;
        self.changed_at
    }

    fn note_moment(&mut self, text: String) {
        self.timeline.push(self.changed_at, text);
    }
}
