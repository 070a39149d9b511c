//! The rules of a job's life: workers start together, and the result is reported truthfully.
//!
//! - All workers are launched at admission. Parameter servers start immediately; trainers start when every parameter server
//!   is ready and every trainer's supervisor is running.
//! - A worker that fails is restarted under its own id with the next attempt number while it has retries left (see
//!   `restarts`). After that the job fails and the other workers are stopped. A parameter server that exits before the
//!   trainers are done has failed, regardless of its exit code.
//! - A worker that is disrupted is restarted without using a retry, and so is one that fails after another was disrupted.
//! - A job is final when its last attempt is gone, not before.

use jiff::{SignedDuration, Timestamp};

use crate::exit::Exit;
use crate::planted::{Planted, bug};
use crate::scheduler::{Excess, Placement, StorageExcess};

use super::seats::Seating;
use super::{
    Action, AfterKill, Event, Job, News, Outcome, Phase, Role, Worker, WorkerKey, WorkerStatus, words,
};

/// How long to wait after the grace period before the engine is asked again to stop a worker.
const STOP_MARGIN: SignedDuration = SignedDuration::from_secs(10);

impl Job {
    /// Advances the job by one event and returns the actions to perform, in order.
    ///
    /// A job in a final phase ignores every event: late reports are normal. Reports about an attempt other than the
    /// worker's current one are ignored too. An event that changes nothing does not change `revision`.
    pub fn on_event(&mut self, event: Event, now: Timestamp) -> Vec<Action> {
        if self.phase.is_final() && !bug(Planted::FinalCanChange) {
            return Vec::new();
        }
        let actions = match event {
            Event::Admitted {
                placement,
                addresses,
                alone,
            } => self.admit(placement, addresses, alone.as_ref(), now),
            Event::Worker {
                worker,
                attempt,
                news,
            } => self.on_news(worker, attempt, news, now),
            Event::Moved {
                worker,
                attempt,
                node,
            } => self.moved(worker, attempt, node, now),
            Event::Reclaimed => self.give_way(words::RECLAIMED, now),
            Event::Unrecovered(limit) => self.give_way(&words::unrecovered(self, limit), now),
            Event::KillRequested(after) => self.kill(after, words::KILLED, now),
            Event::AccountEnded(end) => self.kill(AfterKill::KeepInHistory, words::account_ended(end), now),
            Event::StorageExceeded(excess) => self.stop_for_storage(&excess, now),
            Event::SkipGrace => self.skip_grace(now),
            Event::Tick => self.tick(now),
            Event::ClockSet(by) => self.set_clock(by, now),
            Event::Rebooted => {
                let all = self.live_attempts();
                self.lose_to_reboot(&all, now)
            }
        };
        self.follow_lack(now);
        actions
    }

    /// When the job needs its next tick, if nothing happens before.
    pub fn deadline(&self) -> Option<Timestamp> {
        let after = |since: Option<Timestamp>, limit: SignedDuration| since?.checked_add(limit).ok();
        match self.phase {
            Phase::Pending | Phase::Final(_) => None,
            Phase::Stopping(_) | Phase::Withdrawing => {
                after(self.timers.stopping_since, self.grace() + STOP_MARGIN)
            }
            Phase::Starting | Phase::Running => {
                let counted = self.timers.assembling_since.filter(|_| !self.awaits_seats());
                let start = after(counted, self.spec.start_limit);
                let run = self
                    .spec
                    .max_runtime
                    .and_then(|limit| after(self.timers.running_since, limit));
                [start, run, self.timers.restart_at].into_iter().flatten().min()
            }
        }
    }

    fn admit(
        &mut self,
        placement: Placement,
        addresses: Vec<String>,
        alone: Option<&Excess>,
        now: Timestamp,
    ) -> Vec<Action> {
        if self.phase != Phase::Pending {
            return Vec::new();
        }
        let stamp = self.touch(now);
        self.phase = Phase::Starting;
        self.admitted_at = Some(stamp);
        self.timers.assembling_since = Some(now);
        self.placement = Some(placement);
        self.message = "its workers are starting".into();
        let note = alone.map(words::runs_alone);
        self.note_moment(match &note {
            Some(note) => format!("admitted: {note}"),
            None => "admitted".to_owned(),
        });
        self.note = note;
        self.workers = self.new_workers(addresses, self.withdrawn + 1);
        let left_out = usize::from(bug(Planted::OneWorkerNotLaunched));
        self.workers.iter().skip(left_out).map(launch).collect()
    }

    fn on_news(&mut self, key: WorkerKey, attempt: u32, news: News, now: Timestamp) -> Vec<Action> {
        let Some(worker) = self.worker(key) else {
            return Vec::new();
        };
        let fenced = worker.attempt != attempt && !bug(Planted::OldAttemptsCount);
        if fenced || !worker.status.is_live() {
            return Vec::new();
        }
        match news {
            News::Launched => Vec::new(),
            News::Unseated(why) => self.seat_changed(key, Seating::Unseated, Some(&why), now),
            News::Seated(why) => self.seat_changed(key, Seating::Seated, why.as_deref(), now),
            News::Up => self.advance(key, WorkerStatus::Up, now),
            News::Started => self.advance(key, WorkerStatus::Running, now),
            News::Ready if key.role == Role::Pserver => self.advance(key, WorkerStatus::Ready, now),
            News::Ready => Vec::new(),
            News::Exited(exit) => self.attempt_ended(key, WorkerStatus::Ended, exit, now),
            News::Lost(why) => self.attempt_ended(key, WorkerStatus::Lost, Exit::unseen(why), now),
            News::NoRoom(why) => self.no_room(key, why, now),
            News::Disrupted(why) => self.attempt_disrupted(key, why, now),
        }
    }

    fn attempt_disrupted(&mut self, key: WorkerKey, why: String, now: Timestamp) -> Vec<Action> {
        let stamp = self.touch(now);
        let wants_workers = self.phase.wants_workers();
        let worker = self.worker_mut(key).expect("the caller looked it up");
        let (attempt, exit) = (worker.attempt, Exit::unseen(why.clone()));
        worker.ended_at = Some(ended_at(worker, &exit, stamp));
        worker.exit = Some(exit.clone());
        let again = wants_workers
            .then(|| self.restart_disrupted(key, &why, now))
            .flatten();
        match again {
            Some(launch) => vec![clean(key, attempt), launch],
            None => self.attempt_ended(key, WorkerStatus::Lost, exit, now),
        }
    }

    /// All or nothing: a job that has not started releases its resources and is queued again at its old place.
    fn no_room(&mut self, key: WorkerKey, why: String, now: Timestamp) -> Vec<Action> {
        if self.phase == Phase::Starting && !self.is_under_way() {
            self.withdraw(&why, now);
            let mut actions = self.stop_orders();
            actions.retain(|action| !matches!(action, Action::Stop { worker, .. } if *worker == key));
            actions.extend(self.attempt_ended(key, WorkerStatus::Lost, Exit::unseen(why), now));
            return actions;
        }
        self.attempt_ended(key, WorkerStatus::Lost, Exit::unseen(why), now)
    }

    /// Giving way to another job is not a failure: it uses no retry, and the job starts again from its place in the queue.
    fn give_way(&mut self, why: &str, now: Timestamp) -> Vec<Action> {
        if !self.phase.wants_workers() {
            return Vec::new();
        }
        self.withdraw(why, now);
        let mut actions = self.stop_orders();
        actions.extend(self.finish_when_all_are_gone());
        actions
    }

    fn withdraw(&mut self, why: &str, now: Timestamp) {
        self.touch(now);
        self.phase = Phase::Withdrawing;
        self.message = format!("queued again: {why}");
        self.note_moment(format!("withdrawn: {why}"));
        self.timers = super::Timers {
            stopping_since: Some(now),
            ..Default::default()
        };
        for worker in &mut self.workers {
            worker.restart_at = None;
        }
    }

    fn advance(&mut self, key: WorkerKey, status: WorkerStatus, now: Timestamp) -> Vec<Action> {
        let stamp = self.changed_at.max(now);
        let Some(worker) = self.worker_mut(key).filter(|worker| worker.status < status) else {
            return Vec::new();
        };
        worker.status = status;
        if status >= WorkerStatus::Running {
            worker.started_at.get_or_insert(stamp);
        }
        let late = std::mem::take(&mut worker.unseated);
        self.touch(now);
        if late {
            self.count_from_the_last_seat(now);
        }
        self.let_go_when_all_are_there(now)
    }

    fn let_go_when_all_are_there(&mut self, now: Timestamp) -> Vec<Action> {
        let assembling = self.phase.wants_workers() && self.timers.assembling_since.is_some();
        if !assembling || !self.all_are_there() {
            return Vec::new();
        }
        let stamp = self.changed_at;
        self.timers.assembling_since = None;
        self.timers.running_since.get_or_insert(now);
        self.phase = Phase::Running;
        self.message = "its trainers are running".into();
        if self.started_at.is_none() {
            self.started_at = Some(stamp);
            self.note_moment("all workers are ready: starting the trainers".into());
        }
        let ready =
            |worker: &&mut Worker| worker.key.role == Role::Trainer && worker.status == WorkerStatus::Up;
        let mut actions = Vec::new();
        for trainer in self.workers.iter_mut().filter(ready) {
            trainer.status = WorkerStatus::Going;
            actions.push(go(trainer));
        }
        actions
    }

    fn all_are_there(&self) -> bool {
        let there = |worker: &Worker| match worker.key.role {
            Role::Pserver if bug(Planted::GoWithoutPservers) => true,
            Role::Pserver => worker.status == WorkerStatus::Ready,
            Role::Trainer => worker.status != WorkerStatus::Waiting && worker.restart_at.is_none(),
        };
        self.workers.iter().all(there)
    }

    fn attempt_ended(
        &mut self,
        key: WorkerKey,
        status: WorkerStatus,
        exit: Exit,
        now: Timestamp,
    ) -> Vec<Action> {
        let stamp = self.touch(now);
        let worker = self.worker_mut(key).expect("the caller looked it up");
        // A trainer that was never started cannot have done its work, regardless of its exit code.
        let was_let_go = worker.status >= WorkerStatus::Going;
        let done = key.role == Role::Trainer && was_let_go && exit.is_success();
        worker.status = status;
        worker.unseated = false;
        worker.ended_at = Some(ended_at(worker, &exit, stamp));
        worker.exit = Some(exit);
        let mut actions = vec![clean(key, worker.attempt)];
        actions.extend(match self.phase {
            Phase::Stopping(_) | Phase::Withdrawing => self.finish_when_all_are_gone(),
            _ if done => self.stop_when_all_trainers_are_done(now),
            _ if key.role == Role::Pserver && bug(Planted::PserverMayEnd) => Vec::new(),
            _ => self.worker_failed(key, now),
        });
        actions
    }

    fn stop_when_all_trainers_are_done(&mut self, now: Timestamp) -> Vec<Action> {
        let done = self.trainers().all(Worker::succeeded) || bug(Planted::OneTrainerIsEnough);
        if !done {
            return Vec::new();
        }
        self.stop_all(Outcome::Succeeded, words::all_is_well(self), now)
    }

    fn worker_failed(&mut self, key: WorkerKey, now: Timestamp) -> Vec<Action> {
        let worker = self.worker(key).expect("the caller looked it up");
        let message = words::failure(worker, &self.spec);
        if let Some(launch) = self.restart_bereft(key, &message, now) {
            return vec![launch];
        }
        let worker = self.worker(key).expect("the caller looked it up");
        if worker.restarts < self.spec.retries || bug(Planted::RetriesWithoutEnd) {
            return self.restart_in_time(key, message, now);
        }
        self.culprit = Some(key);
        self.stop_all(Outcome::Failed, message, now)
    }

    fn stop_all(&mut self, outcome: Outcome, message: String, now: Timestamp) -> Vec<Action> {
        self.touch(now);
        self.phase = Phase::Stopping(outcome);
        self.note_moment(format!("stopping: {message}"));
        self.message = message;
        self.timers = super::Timers {
            stopping_since: Some(now),
            ..Default::default()
        };
        for worker in &mut self.workers {
            worker.restart_at = None;
        }
        let grace = self.grace();
        let keeps_running = |worker: &&Worker| {
            outcome == Outcome::Succeeded
                && worker.key.role == Role::Pserver
                && bug(Planted::PserversKeepRunning)
        };
        let to_stop = self.live_workers().filter(|worker| !keeps_running(worker));
        let mut actions: Vec<Action> = to_stop.map(|worker| stop(worker, grace)).collect();
        actions.extend(self.finish_when_all_are_gone());
        actions
    }

    /// The last transition of a job: its last attempt is gone, and the last byte of its log is written.
    fn finish_when_all_are_gone(&mut self) -> Vec<Action> {
        if self.phase == Phase::Withdrawing {
            self.wait_again();
            return Vec::new();
        }
        let gone = self.live_workers().next().is_none() || bug(Planted::FinalTooEarly);
        if let (Phase::Stopping(outcome), true) = (self.phase, gone) {
            self.phase = Phase::Final(outcome);
            // The note described the running job.
            self.note = None;
            let last = self.workers.iter().filter_map(|worker| worker.ended_at).max();
            self.finished_at = Some(last.unwrap_or(self.changed_at));
            self.timers = super::Timers {
                // Distinguishes workers that were stopped from those that exited by themselves.
                stopping_since: self.timers.stopping_since,
                ..super::Timers::default()
            };
            self.note_moment(words::over(outcome).to_owned());
        }
        Vec::new()
    }

    fn wait_again(&mut self) {
        let gone = self.live_workers().next().is_none() || bug(Planted::RequeuedTooEarly);
        if !gone {
            return;
        }
        let used = self.workers.iter().map(|worker| worker.attempt).max();
        self.withdrawn = used.unwrap_or(self.withdrawn);
        self.phase = Phase::Pending;
        let held = self
            .admitted_at
            .map(|since| self.changed_at.duration_since(since));
        self.held_before += held.unwrap_or_default();
        self.admitted_at = None;
        self.placement = None;
        self.note = None;
        self.workers.clear();
        self.timers = super::Timers::default();
    }

    fn kill(&mut self, after: AfterKill, message: &str, now: Timestamp) -> Vec<Action> {
        let remove = self.remove_when_final || after == AfterKill::Remove;
        if self.kill_requested && self.remove_when_final == remove {
            return Vec::new();
        }
        self.touch(now);
        self.remove_when_final = remove;
        if !self.kill_requested {
            self.kill_requested = true;
            self.note_moment("kill requested".into());
        }
        match self.phase {
            Phase::Stopping(_) if bug(Planted::KillRewritesOutcome) => {
                self.phase = Phase::Stopping(Outcome::Killed);
                Vec::new()
            }
            // The outcome that was decided first stays.
            Phase::Stopping(_) | Phase::Final(_) => Vec::new(),
            _ => self.stop_all(Outcome::Killed, message.into(), now),
        }
    }

    /// A job that does not run yet writes nothing: it stays in the queue, where the scheduler holds it.
    fn stop_for_storage(&mut self, excess: &StorageExcess, now: Timestamp) -> Vec<Action> {
        match self.phase.wants_workers() {
            true => self.stop_all(Outcome::Failed, words::storage_exceeded(excess), now),
            false => Vec::new(),
        }
    }

    /// Asks the engine again to stop the remaining workers: the engine uses the shortest grace period it was given.
    fn skip_grace(&mut self, now: Timestamp) -> Vec<Action> {
        if self.skip_grace || !matches!(self.phase, Phase::Stopping(_)) {
            return Vec::new();
        }
        self.skip_grace = true;
        self.note_moment("its grace period was skipped".into());
        self.stop_again(now)
    }

    /// How long a worker may take after it was asked to stop.
    fn grace(&self) -> SignedDuration {
        match self.skip_grace {
            true => SignedDuration::ZERO,
            false => self.spec.grace,
        }
    }

    fn tick(&mut self, now: Timestamp) -> Vec<Action> {
        self.restart_timers_when_the_clock_went_back(now);
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Vec::new();
        }
        match self.phase {
            Phase::Stopping(_) | Phase::Withdrawing => self.stop_again(now),
            _ if self.ran_too_long(now) => {
                let limit = self.spec.max_runtime.unwrap_or_default();
                self.stop_all(
                    Outcome::Failed,
                    format!("ran longer than its limit of {limit:#}"),
                    now,
                )
            }
            _ if self.took_too_long_to_start(now) => match bug(Planted::NoStartLimit) {
                true => Vec::new(),
                false => self.stop_all(Outcome::Failed, words::not_assembled(self), now),
            },
            _ => self.restart_who_is_due(now),
        }
    }

    fn took_too_long_to_start(&self, now: Timestamp) -> bool {
        let since = self.timers.assembling_since.filter(|_| !self.awaits_seats());
        since.is_some_and(|since| now.duration_since(since) >= self.spec.start_limit)
    }

    /// Shifts all timers: limits measure elapsed time, not clock time.
    fn set_clock(&mut self, by: SignedDuration, now: Timestamp) -> Vec<Action> {
        let timers = &mut self.timers;
        let all = [
            &mut timers.assembling_since,
            &mut timers.running_since,
            &mut timers.stopping_since,
            &mut timers.unseated_since,
            &mut timers.restart_at,
        ];
        let restarts = self.workers.iter_mut().map(|worker| &mut worker.restart_at);
        for time in all.into_iter().chain(restarts).flatten() {
            *time = time.saturating_add(by).unwrap_or(*time);
        }
        self.touch(now);
        Vec::new()
    }

    fn ran_too_long(&self, now: Timestamp) -> bool {
        let (Some(limit), Some(since)) = (self.spec.max_runtime, self.timers.running_since) else {
            return false;
        };
        now.duration_since(since) >= limit
    }

    /// Repeating an order does no harm; an engine that missed it would never stop the worker.
    fn stop_again(&mut self, now: Timestamp) -> Vec<Action> {
        self.touch(now);
        self.timers.stopping_since = Some(now);
        self.stop_orders()
    }

    pub(super) fn stop_orders(&self) -> Vec<Action> {
        if bug(Planted::StopOnlyOnce) {
            return Vec::new();
        }
        self.live_workers()
            .map(|worker| stop(worker, self.grace()))
            .collect()
    }

    fn restart_timers_when_the_clock_went_back(&mut self, now: Timestamp) {
        let timers = &mut self.timers;
        let all = [
            &mut timers.assembling_since,
            &mut timers.running_since,
            &mut timers.stopping_since,
            &mut timers.unseated_since,
        ];
        let mut went_back = false;
        for since in all.into_iter().flatten().filter(|since| **since > now) {
            *since = now;
            went_back = true;
        }
        went_back |= self.restart_no_later_than(now);
        if went_back {
            self.touch(now);
        }
    }

    pub(super) fn live_attempts(&self) -> Vec<(WorkerKey, u32)> {
        self.live_workers()
            .map(|worker| (worker.key, worker.attempt))
            .collect()
    }

    /// Removes the given attempts, which ended when the machine restarted. Restarts all of them or none.
    pub(super) fn lose_to_reboot(&mut self, lost: &[(WorkerKey, u32)], now: Timestamp) -> Vec<Action> {
        if lost.is_empty() || bug(Planted::RebootIgnored) {
            return Vec::new();
        }
        let stamp = self.touch(now);
        let mut actions = Vec::new();
        for (key, attempt) in lost {
            let worker = self.worker_mut(*key).expect("live workers exist");
            worker.status = WorkerStatus::Lost;
            worker.ended_at = Some(stamp);
            worker.exit = Some(Exit::unseen("the machine restarted"));
            actions.push(clean(*key, *attempt));
        }
        actions.extend(self.go_on_after_reboot(lost, now));
        actions
    }

    fn go_on_after_reboot(&mut self, lost: &[(WorkerKey, u32)], now: Timestamp) -> Vec<Action> {
        if !self.phase.wants_workers() {
            return self.finish_when_all_are_gone();
        }
        let worn_out = |(key, _): &&(WorkerKey, u32)| {
            self.worker(*key)
                .is_some_and(|worker| worker.restarts >= self.spec.retries)
        };
        if let Some((key, _)) = lost.iter().find(worn_out) {
            self.culprit = Some(*key);
            return self.stop_all(
                Outcome::Lost,
                "the machine restarted while it was running".into(),
                now,
            );
        }
        self.phase = Phase::Starting;
        self.message = "its workers are starting again after the machine restarted".into();
        self.note_moment("the machine restarted; restarting its workers".into());
        lost.iter().map(|(key, _)| self.restart(*key, now)).collect()
    }
}

pub(super) fn launch(worker: &Worker) -> Action {
    Action::Launch {
        worker: worker.key,
        attempt: worker.attempt,
    }
}

pub(super) fn go(worker: &Worker) -> Action {
    Action::Go {
        worker: worker.key,
        attempt: worker.attempt,
    }
}

fn stop(worker: &Worker, grace: SignedDuration) -> Action {
    Action::Stop {
        worker: worker.key,
        attempt: worker.attempt,
        grace,
    }
}

pub(super) fn clean(worker: WorkerKey, attempt: u32) -> Action {
    Action::Clean { worker, attempt }
}

/// The engine's time of an exit, if it is plausible.
fn ended_at(worker: &Worker, exit: &Exit, heard: Timestamp) -> Timestamp {
    let said = exit.at.unwrap_or(heard).min(heard);
    worker.started_at.map_or(said, |started| said.max(started))
}
