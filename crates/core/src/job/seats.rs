//! Late seats: a launched worker may have to wait for a machine.
//!
//! The start limit is for workers that have a seat but do not start. It does not run while a worker has no seat.

use jiff::Timestamp;

use super::{Action, Job, WorkerKey, WorkerStatus};
use crate::names::NodeName;

/// Whether a launched worker has a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seating {
    Seated,
    Unseated,
}

impl Job {
    /// A worker got its seat, or still has none; `why` says what it waits for, if it does.
    pub(super) fn seat_changed(
        &mut self,
        key: WorkerKey,
        seating: Seating,
        why: Option<&str>,
        now: Timestamp,
    ) -> Vec<Action> {
        let unseated = seating == Seating::Unseated;
        let message = why.map(|why| format!("{key} waits: {why}"));
        let is_reported = message.as_ref().is_none_or(|message| *message == self.message);
        let Some(worker) = self
            .worker_mut(key)
            .filter(|worker| worker.status == WorkerStatus::Waiting)
        else {
            return Vec::new();
        };
        if worker.unseated == unseated && is_reported {
            return Vec::new();
        }
        let before = std::mem::replace(&mut worker.unseated, unseated);
        self.touch(now);
        if let Some(message) = message.filter(|_| !is_reported) {
            self.note_moment(message.clone());
            self.message = message;
        }
        if before && !unseated {
            self.count_from_the_last_seat(now);
        }
        Vec::new()
    }

    /// Moves the seat of a worker to the node that it runs on.
    pub(super) fn moved(
        &mut self,
        key: WorkerKey,
        attempt: u32,
        node: NodeName,
        now: Timestamp,
    ) -> Vec<Action> {
        let is_current = self
            .worker(key)
            .is_some_and(|worker| worker.attempt == attempt && worker.status.is_live());
        let position = self
            .position(key)
            .filter(|_| is_current && self.phase.wants_workers());
        let seats = self.placement.as_mut().map(|placement| &mut placement.workers);
        if let Some(seat) = position.and_then(|position| seats?.get_mut(position))
            && seat.node != node
        {
            seat.node = node;
            // The cluster chooses the cards.
            seat.gpus.clear();
            self.touch(now);
        }
        Vec::new()
    }

    /// Called when a worker no longer waits for a seat.
    pub(super) fn count_from_the_last_seat(&mut self, now: Timestamp) {
        if self.awaits_seats() || self.timers.assembling_since.is_none() {
            return;
        }
        self.timers.assembling_since = Some(now);
        self.message = "its workers are starting".into();
    }

    /// Whether a worker has no seat yet.
    pub fn awaits_seats(&self) -> bool {
        self.workers.iter().any(|worker| worker.unseated)
    }

    /// The workers without a seat.
    pub fn unseated(&self) -> Vec<String> {
        let unseated = self.workers.iter().filter(|worker| worker.unseated);
        unseated.map(|worker| worker.key.to_string()).collect()
    }

    /// Since when the running job lacks a worker that is restarted and has no seat. Its other workers hold their room
    /// meanwhile, and usually wait for it.
    pub fn lacks_worker_since(&self) -> Option<Timestamp> {
        self.timers.unseated_since
    }

    /// Keeps [`Job::lacks_worker_since`] up to date; called after every event.
    pub(super) fn follow_lack(&mut self, now: Timestamp) {
        let lacks = self.phase.wants_workers() && self.is_under_way() && self.awaits_seats();
        let since = self.timers.unseated_since;
        self.timers.unseated_since = lacks.then(|| since.unwrap_or(now));
    }
}

#[cfg(test)]
mod tests {
    use crate::job::{Event, News, Outcome, Phase};
    use crate::testing::samples::{first, seconds, spec, starting};

    use super::*;

    const T0: WorkerKey = WorkerKey {
        role: crate::plan::Role::Trainer,
        index: 0,
    };

    fn job() -> Job {
        let mut spec = spec("late", 0, 2);
        spec.start_limit = jiff::SignedDuration::from_secs(60);
        starting(1, spec)
    }

    #[test]
    fn the_start_limit_counts_from_the_last_placement() {
        let mut job = job();
        assert_eq!(job.deadline(), Some(seconds(61)));
        job.on_event(first(T0, News::Unseated("0/2 nodes".into())), seconds(2));
        assert_eq!(job.message, "trainer 0 waits: 0/2 nodes");
        assert_eq!(job.deadline(), None);
        job.on_event(Event::Tick, seconds(500));
        assert_eq!(job.phase, Phase::Starting, "no limit passes meanwhile");
        job.on_event(first(T0, News::Seated(None)), seconds(600));
        assert_eq!(job.message, "its workers are starting");
        assert_eq!(job.deadline(), Some(seconds(660)));
        job.on_event(Event::Tick, seconds(660));
        assert_eq!(job.phase.outcome(), Some(Outcome::Failed));
    }

    #[test]
    fn a_worker_that_is_up_counts_as_placed() {
        let mut job = job();
        job.on_event(first(T0, News::Unseated("full".into())), seconds(2));
        job.on_event(first(T0, News::Up), seconds(100));
        assert_eq!(job.deadline(), Some(seconds(160)));
        let revision = job.revision;
        job.on_event(first(T0, News::Unseated("late".into())), seconds(101));
        assert_eq!(job.revision, revision, "old news of a worker that is up");
    }

    #[test]
    fn a_placed_worker_reports_its_wait_and_the_limit_runs() {
        let mut job = job();
        let why = "its pod does not reach this server";
        job.on_event(first(T0, News::Seated(Some(why.into()))), seconds(20));
        assert_eq!(job.message, format!("trainer 0 waits: {why}"));
        assert_eq!(job.deadline(), Some(seconds(61)));
    }
}
