//! When a worker that failed is started again: the first time at once, then after pauses that double.
//!
//! How often it may be, and what becomes of the job afterwards, is decided in `life`.

use jiff::{SignedDuration, Timestamp};

use crate::testing::planted::{Planted, bug};

use super::life::launch;
use super::{Action, Job, Worker, WorkerKey, WorkerStatus};

/// The pause before the second restart; the first comes at once.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// Who ran this long did not fail for want of patience: it is started again at once.
const LONG_RUN: SignedDuration = SignedDuration::from_mins(10);

impl Job {
    /// Restarts a worker that failed, now or after its pause; `failure` says how it ended.
    pub(super) fn restart_in_time(&mut self, key: WorkerKey, failure: String, now: Timestamp) -> Vec<Action> {
        let pause = self.worker(key).map_or(SignedDuration::ZERO, pause);
        let due = now.checked_add(pause).unwrap_or(now);
        if pause.is_zero() {
            self.note_moment(format!("{failure}; it is restarted"));
            return vec![self.restart(key, now)];
        }
        self.message = format!("{failure}; it is restarted after {pause:#}");
        self.note_moment(self.message.clone());
        if let Some(worker) = self.worker_mut(key) {
            worker.restart_at = Some(due);
        }
        self.timers.restart_at = Some(self.timers.restart_at.map_or(due, |first| first.min(due)));
        Vec::new()
    }

    pub(super) fn restart(&mut self, key: WorkerKey, now: Timestamp) -> Action {
        self.timers.assembling_since.get_or_insert(now);
        let worker = self.worker_mut(key).expect("the caller looked it up");
        worker.restarts += 1;
        worker.attempt += u32::from(!bug(Planted::SameAttemptAgain));
        worker.status = WorkerStatus::Waiting;
        worker.started_at = None;
        worker.ended_at = None;
        worker.restart_at = None;
        launch(worker)
    }

    /// Restarts everybody whose pause is over.
    pub(super) fn restart_who_is_due(&mut self, now: Timestamp) -> Vec<Action> {
        let is_due = |worker: &&Worker| worker.restart_at.is_some_and(|at| at <= now);
        let due: Vec<WorkerKey> = self
            .workers
            .iter()
            .filter(is_due)
            .map(|worker| worker.key)
            .collect();
        if due.is_empty() {
            return Vec::new();
        }
        self.touch(now);
        let actions = due.iter().map(|key| self.restart(*key, now)).collect();
        let names: Vec<String> = due.iter().map(ToString::to_string).collect();
        self.message = format!("started again: {}", names.join(", "));
        self.note_moment(self.message.clone());
        self.timers.restart_at = self.workers.iter().filter_map(|worker| worker.restart_at).min();
        actions
    }

    /// A clock that was set back makes nobody wait longer than the longest pause. Says whether anything changed.
    pub(super) fn restart_no_later_than(&mut self, now: Timestamp) -> bool {
        let latest = now.checked_add(LONGEST_PAUSE).unwrap_or(now);
        if self.timers.restart_at.is_none_or(|at| at <= latest) {
            return false;
        }
        let restarts = self
            .workers
            .iter_mut()
            .filter_map(|worker| worker.restart_at.as_mut());
        for at in restarts.filter(|at| **at > latest) {
            *at = latest;
        }
        self.timers.restart_at = Some(latest);
        true
    }
}

/// How long a worker that has just failed waits.
fn pause(worker: &Worker) -> SignedDuration {
    let ran = worker
        .started_at
        .zip(worker.ended_at)
        .map(|(started, ended)| ended.duration_since(started));
    match worker.restarts {
        0 => SignedDuration::ZERO,
        _ if ran.is_some_and(|ran| ran >= LONG_RUN) => SignedDuration::ZERO,
        restarts => {
            let doubled = 1i32.checked_shl(restarts - 1).filter(|factor| *factor > 0);
            let pause = doubled.and_then(|factor| FIRST_PAUSE.checked_mul(factor));
            pause.map_or(LONGEST_PAUSE, |pause| pause.min(LONGEST_PAUSE))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::exit::Exit;
    use crate::job::{AfterKill, Event, News, Outcome, Phase};
    use crate::testing::samples::{running, seconds, spec};

    use super::*;

    const TRAINER: WorkerKey = WorkerKey {
        role: crate::plan::Role::Trainer,
        index: 0,
    };

    /// A job of one trainer that may fail often.
    fn job() -> Job {
        let mut spec = spec("again", 0, 1);
        spec.retries = 20;
        running(1, spec)
    }

    fn fails(job: &mut Job, now: Timestamp) -> Vec<Action> {
        let attempt = job.worker(TRAINER).unwrap().attempt;
        let news = |news| Event::Worker {
            worker: TRAINER,
            attempt,
            news,
        };
        job.on_event(news(News::Up), now);
        job.on_event(news(News::Started), now);
        job.on_event(news(News::Exited(Exit::with_code(1))), now)
    }

    fn launches(actions: &[Action]) -> usize {
        let is_launch = |action: &&Action| matches!(action, Action::Launch { .. });
        actions.iter().filter(is_launch).count()
    }

    #[test]
    fn pauses_begin_at_nothing_double_and_have_an_end() {
        let mut worker = job().worker(TRAINER).unwrap().clone();
        let mut pauses = Vec::new();
        for restarts in [0, 1, 2, 3, 9, 10, 31, 32, 33, 4_000_000_000] {
            worker.restarts = restarts;
            pauses.push(pause(&worker).as_secs());
        }
        assert_eq!(pauses, [0, 1, 2, 4, 256, 300, 300, 300, 300, 300]);
        (worker.started_at, worker.ended_at) = (Some(seconds(0)), Some(seconds(600)));
        assert!(pause(&worker).is_zero(), "it ran long enough");
    }

    #[test]
    fn the_first_restart_comes_at_once_and_the_second_after_its_pause() {
        let mut job = job();
        assert_eq!(launches(&fails(&mut job, seconds(10))), 1);
        assert_eq!(launches(&fails(&mut job, seconds(20))), 0);
        assert_eq!(job.deadline(), Some(seconds(21)));
        assert!(job.message.contains("restarted after 1s"), "{}", job.message);
        assert_eq!(launches(&job.on_event(Event::Tick, seconds(20))), 0);
        assert_eq!(launches(&job.on_event(Event::Tick, seconds(21))), 1);
        let worker = job.worker(TRAINER).unwrap();
        assert_eq!((worker.attempt, worker.restart_at), (3, None));
        assert_eq!(job.timers.restart_at, None);
    }

    #[test]
    fn who_waits_for_a_restart_does_not_keep_a_killed_job() {
        let mut job = job();
        fails(&mut job, seconds(10));
        fails(&mut job, seconds(20));
        job.on_event(Event::KillRequested(AfterKill::KeepInHistory), seconds(20));
        assert_eq!(job.phase, Phase::Final(Outcome::Killed));
        assert_eq!(job.worker(TRAINER).unwrap().restart_at, None);
    }

    #[test]
    fn a_clock_that_is_set_moves_the_restart_with_it() {
        let mut job = job();
        fails(&mut job, seconds(10));
        fails(&mut job, seconds(20));
        let day = SignedDuration::from_hours(24);
        job.on_event(Event::ClockSet(day), seconds(20) + day);
        assert_eq!(job.deadline(), Some(seconds(21) + day));
        // Nobody said so this time: the pause is kept within its bound.
        job.on_event(Event::Tick, seconds(0));
        assert_eq!(job.deadline(), Some(seconds(300)));
    }
}
