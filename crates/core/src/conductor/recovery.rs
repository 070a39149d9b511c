//! Running jobs that lack a worker: which of them gives its room to others, and when.
//!
//! Such a job holds the room of its other workers. If another job needs room, or lacks a worker too, both could wait for
//! ever. Jobs are withdrawn one at a time, the last of the queue first: the room of one may complete the others.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::job::{Event, Job, Phase};
use crate::names::JobId;
use crate::planted::{Planted, bug};

use super::Conductor;
use super::batch::Batch;

/// How long the room of a withdrawn job is left to the others before the next job is withdrawn. The cluster needs a moment
/// to place what waited for it.
const SETTLE: SignedDuration = SignedDuration::from_secs(30);

/// What happens to a running job that lacks a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    pub limit: SignedDuration,
    /// The earliest time at which it is withdrawn.
    pub at: Timestamp,
    /// Whether others need its room now. If not, it keeps it.
    pub is_room_needed: bool,
}

/// The jobs with workers without a seat.
#[derive(Debug, Default)]
pub(super) struct Incomplete {
    /// All of them; those that run, since when.
    jobs: HashMap<JobId, Option<Timestamp>>,
    /// Those that run, the longest incomplete first.
    running: BTreeSet<(Timestamp, JobId)>,
    /// The job that is being withdrawn.
    leaving: Option<JobId>,
    /// None is withdrawn before this time.
    not_before: Option<Timestamp>,
}

impl Incomplete {
    /// Follows a change of a job.
    pub fn follow(&mut self, job: &Job) {
        let after = job.awaits_seats().then(|| job.lacks_worker_since());
        let after = after.filter(|_| job.phase.wants_workers());
        if self.jobs.get(&job.id).copied() == after {
            return;
        }
        let before = match after {
            Some(since) => self.jobs.insert(job.id.clone(), since),
            None => self.jobs.remove(&job.id),
        };
        if let Some(since) = before.flatten() {
            self.running.remove(&(since, job.id.clone()));
        }
        if let Some(since) = after.flatten() {
            self.running.insert((since, job.id.clone()));
        }
    }

    /// When a job that is incomplete since then may be withdrawn.
    fn due(&self, since: Timestamp, limit: SignedDuration) -> Timestamp {
        let due = after(since, limit);
        self.not_before.map_or(due, |earliest| due.max(earliest))
    }
}

impl Conductor {
    /// Reports whether the engine can start workers at all. While it cannot, for example because the API server does not
    /// answer, nobody could use the room of an incomplete job.
    pub fn set_engine_usable(&mut self, is_usable: bool) {
        self.engine_usable = is_usable;
    }

    /// What happens to a running job that lacks a worker; `None` for any other job, and if such jobs are never withdrawn.
    pub fn recovery(&self, id: &JobId) -> Option<Recovery> {
        let limit = self.scheduler.recovery_limit()?;
        let since = self.jobs.get(id)?.lacks_worker_since()?;
        Some(Recovery {
            limit,
            at: self.incomplete.due(since, limit),
            is_room_needed: self.is_room_needed(),
        })
    }

    /// Withdraws the last job of the queue among those that are incomplete for too long.
    pub(super) fn recover(&mut self, now: Timestamp, batch: &mut Batch) {
        let Some(limit) = self.scheduler.recovery_limit() else {
            return;
        };
        if self.is_one_leaving() {
            return;
        }
        let has_left = self.incomplete.leaving.take().is_some();
        if has_left || !self.engine_usable && !self.incomplete.running.is_empty() {
            self.incomplete.not_before = Some(after(now, limit.min(SETTLE)));
        }
        let Some(id) = self.first_to_leave(limit, now) else {
            return;
        };
        self.scheduler.leave(&id, now);
        self.change(&id, now, batch, |job| {
            job.on_event(Event::Unrecovered(limit), now)
        });
        self.incomplete.leaving = Some(id);
    }

    /// When to call [`Conductor::recover`] again, if nothing happens before.
    pub(super) fn recover_at(&self) -> Option<Timestamp> {
        let limit = self.scheduler.recovery_limit()?;
        let (since, _) = self.incomplete.running.first()?;
        let waits = self.is_room_needed() && self.incomplete.leaving.is_none();
        waits.then(|| self.incomplete.due(*since, limit))
    }

    fn first_to_leave(&self, limit: SignedDuration, now: Timestamp) -> Option<JobId> {
        let is_needed = self.is_room_needed() || bug(Planted::WithdrawForNobody);
        if !is_needed || bug(Planted::NeverWithdrawTheIncomplete) {
            return None;
        }
        let running = self.incomplete.running.iter();
        let due = running.take_while(|(since, _)| self.incomplete.due(*since, limit) <= now);
        let jobs = due.filter_map(|(_, id)| self.jobs.get(id));
        let last = jobs.min_by_key(|job| (job.spec.priority, Reverse(job.order)))?;
        Some(last.id.clone())
    }

    /// Whether a job waits for room, or more than one lacks a worker.
    fn is_room_needed(&self) -> bool {
        self.scheduler.has_job_without_room() || self.incomplete.jobs.len() > 1
    }

    fn is_one_leaving(&self) -> bool {
        let leaving = self.incomplete.leaving.as_ref();
        let job = leaving.and_then(|id| self.jobs.get(id));
        job.is_some_and(|job| job.phase == Phase::Withdrawing)
    }
}

/// `start + wait`, capped at the largest timestamp.
fn after(start: Timestamp, wait: SignedDuration) -> Timestamp {
    start.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
