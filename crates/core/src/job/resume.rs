//! Restores a stored job after the server was down: attempts that the engine still has are adopted, the others are
//! lost, and orders that may never have been carried out are repeated.
//!
//! This relies on one promise of every engine: a launched attempt stays in its list, dead or alive, until it is
//! cleaned.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::planted::{Planted, bug};

use super::life::{clean, go, launch};
use super::{Action, Event, Job, News, Phase, Worker, WorkerKey, WorkerStatus};

/// Whether the machine restarted while the server was down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    Same,
    Changed,
}

/// The engine's latest report about one attempt of this job; earlier ones are implied.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundAttempt {
    pub worker: WorkerKey,
    pub attempt: u32,
    pub news: News,
}

impl Job {
    /// Restores the job. Repeating an order must be harmless to the engine.
    pub fn resume(&mut self, found: Vec<FoundAttempt>, boot: Boot, now: Timestamp) -> Vec<Action> {
        let before = Before::of(self);
        let (current, stale): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| self.is_current(one));
        // While the server was down, nothing could be launched or started: that time does not count.
        if self.timers.assembling_since.is_some() {
            self.timers.assembling_since = Some(now);
            self.timers.unseated_since = None;
            self.touch(now);
        }
        let mut actions: Vec<Action> = stale.iter().map(|one| clean(one.worker, one.attempt)).collect();
        actions.extend(match boot {
            Boot::Same => self.adopt(current, &before, now),
            Boot::Changed => self.resume_after_reboot(current, &before, now),
        });
        self.follow_lack(now);
        actions
    }

    fn is_current(&self, found: &FoundAttempt) -> bool {
        self.worker(found.worker)
            .is_some_and(|worker| worker.attempt == found.attempt && worker.status.is_live())
    }

    fn adopt(&mut self, current: Vec<FoundAttempt>, before: &Before, now: Timestamp) -> Vec<Action> {
        let known: BTreeSet<WorkerKey> = current.iter().map(|one| one.worker).collect();
        let mut actions = Vec::new();
        for one in current {
            actions.extend(self.on_event(one.into(), now));
        }
        for (key, (attempt, status)) in before.live.iter().filter(|(key, _)| !known.contains(key)) {
            actions.extend(self.miss(*key, *attempt, *status, now));
        }
        actions.extend(self.give_orders_again(before));
        actions
    }

    /// The engine does not know a live attempt.
    fn miss(&mut self, key: WorkerKey, attempt: u32, status: WorkerStatus, now: Timestamp) -> Vec<Action> {
        let never_launched = status == WorkerStatus::Waiting;
        if never_launched && self.phase.wants_workers() {
            let again = self.worker(key).filter(|worker| worker.attempt == attempt);
            return again
                .filter(|_| !bug(Planted::LaunchOnlyOnce))
                .map(launch)
                .into_iter()
                .collect();
        }
        if bug(Planted::LaunchTheVanished) && self.phase.wants_workers() {
            return vec![Action::Launch { worker: key, attempt }];
        }
        let why = match never_launched {
            true => "it was never launched",
            false => "the engine no longer knows it",
        };
        let news = News::Lost(why.into());
        self.on_event(
            Event::Worker {
                worker: key,
                attempt,
                news,
            },
            now,
        )
    }

    fn give_orders_again(&self, before: &Before) -> Vec<Action> {
        match self.phase {
            Phase::Stopping(_) if matches!(before.phase, Phase::Stopping(_)) => self.stop_orders(),
            Phase::Withdrawing if before.phase == Phase::Withdrawing => self.stop_orders(),
            Phase::Starting | Phase::Running if !bug(Planted::GoOnlyOnce) => {
                let still_going = |worker: &&Worker| {
                    let then = before.live.get(&worker.key);
                    worker.status == WorkerStatus::Going
                        && then == Some(&(worker.attempt, WorkerStatus::Going))
                };
                self.workers.iter().filter(still_going).map(go).collect()
            }
            _ => Vec::new(),
        }
    }

    /// After the machine restarted, only recorded exits count; every other attempt is lost.
    fn resume_after_reboot(
        &mut self,
        current: Vec<FoundAttempt>,
        before: &Before,
        now: Timestamp,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        for one in current
            .into_iter()
            .filter(|one| matches!(one.news, News::Exited(_)))
        {
            actions.extend(self.on_event(one.into(), now));
        }
        let mut lost = self.live_attempts();
        lost.retain(|attempt| before.had(*attempt));
        actions.extend(self.lose_to_reboot(&lost, now));
        // Attempts from before the restart need no stop order.
        actions.retain(|action| match action {
            Action::Stop { worker, attempt, .. } => !before.had((*worker, *attempt)),
            _ => true,
        });
        actions
    }
}

impl From<FoundAttempt> for Event {
    fn from(found: FoundAttempt) -> Event {
        Event::Worker {
            worker: found.worker,
            attempt: found.attempt,
            news: found.news,
        }
    }
}

/// The state of the stored job before the engine's state is considered.
struct Before {
    phase: Phase,
    live: BTreeMap<WorkerKey, (u32, WorkerStatus)>,
}

impl Before {
    fn of(job: &Job) -> Before {
        let live = job
            .live_workers()
            .map(|worker| (worker.key, (worker.attempt, worker.status)));
        Before {
            phase: job.phase,
            live: live.collect(),
        }
    }

    fn had(&self, attempt: (WorkerKey, u32)) -> bool {
        self.live
            .get(&attempt.0)
            .is_some_and(|(number, _)| *number == attempt.1)
    }
}
