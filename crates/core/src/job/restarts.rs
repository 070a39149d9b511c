//! When a failed worker is restarted: the first time immediately, then after pauses that double.
//!
//! `life` decides how often, and what happens to the job afterwards.

use jiff::{SignedDuration, Timestamp};

use crate::plan::is_own_pserver;
use crate::planted::{Planted, bug};

use super::life::launch;
use super::{Action, Job, Role, Worker, WorkerKey, WorkerStatus, words};

/// The pause before the second restart; the first restart has none.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// A worker that is disrupted more often than this counts as failed: something is wrong with it or its cluster. Engines
/// have a lower limit of their own, which administrators set.
const MOST_DISRUPTIONS: u32 = 1000;
/// A worker that ran this long is restarted immediately: it did not fail because it started too early.
const LONG_RUN: SignedDuration = SignedDuration::from_mins(10);

impl Job {
    /// Restarts a failed worker, now or after its pause; `failure` says how it ended.
    pub(super) fn restart_in_time(&mut self, key: WorkerKey, failure: String, now: Timestamp) -> Vec<Action> {
        let pause = self.worker(key).map_or(SignedDuration::ZERO, pause);
        let due = now.checked_add(pause).unwrap_or(now);
        let effect = self.effect_on_training(key);
        if pause.is_zero() {
            self.note_moment(format!("{failure}; it is restarted{effect}"));
            return vec![self.restart(key, now)];
        }
        self.message = format!("{failure}; it is restarted after {pause:#}{effect}");
        self.note_moment(self.message.clone());
        if let Some(worker) = self.worker_mut(key) {
            worker.restart_at = Some(due);
        }
        self.timers.restart_at = Some(self.timers.restart_at.map_or(due, |first| first.min(due)));
        Vec::new()
    }

    pub(super) fn restart(&mut self, key: WorkerKey, now: Timestamp) -> Action {
        let worker = self.worker_mut(key).expect("the caller looked it up");
        worker.restarts += 1;
        self.launch_again(key, now)
    }

    /// Restarts a disrupted worker; `why` names the cause. `None`: it was disrupted too often.
    pub(super) fn restart_disrupted(&mut self, key: WorkerKey, why: &str, now: Timestamp) -> Option<Action> {
        let worker = self
            .worker_mut(key)
            .filter(|worker| worker.disruptions < MOST_DISRUPTIONS)?;
        worker.disruptions += 1;
        self.message = format!("{key} is restarted: {why}{}", self.effect_on_training(key));
        self.note_moment(self.message.clone());
        Some(self.launch_again(key, now))
    }

    /// Restarts a worker that failed after another one was disrupted: it may have failed because of that. It uses no
    /// retry, and this happens once for each disruption. `None`: its program did not exit, or no other worker was disrupted
    /// since its launch.
    pub(super) fn restart_bereft(&mut self, key: WorkerKey, failure: &str, now: Timestamp) -> Option<Action> {
        let disrupted = self.disruptions();
        let worker = self
            .worker(key)
            .filter(|worker| worker.status == WorkerStatus::Ended)?;
        if worker.disrupted_before >= disrupted {
            return None;
        }
        let effect = self.effect_on_training(key);
        self.message =
            format!("{failure}; it is restarted, because another worker was disrupted before{effect}");
        self.note_moment(self.message.clone());
        Some(self.launch_again(key, now))
    }

    /// What the restart of a worker means for the training, to be appended to the message about it.
    fn effect_on_training(&self, key: WorkerKey) -> &'static str {
        let has_state = key.role == Role::Pserver && is_own_pserver(&self.spec.ps_entry);
        match has_state && self.started_at.is_some() {
            true => words::TRAINING_RESUMES,
            false => "",
        }
    }

    /// How often workers of this job were disrupted.
    fn disruptions(&self) -> u32 {
        self.workers.iter().map(|worker| worker.disruptions).sum()
    }

    fn launch_again(&mut self, key: WorkerKey, now: Timestamp) -> Action {
        self.timers.assembling_since.get_or_insert(now);
        let disrupted_before = self.disruptions();
        let worker = self.worker_mut(key).expect("the caller looked it up");
        worker.attempt += u32::from(!bug(Planted::SameAttemptAgain));
        worker.status = WorkerStatus::Waiting;
        worker.disrupted_before = disrupted_before;
        worker.started_at = None;
        worker.ended_at = None;
        worker.restart_at = None;
        worker.unseated = false;
        launch(worker)
    }

    /// Restarts every worker whose pause is over.
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

    /// Caps every pause at the longest one, in case the clock was set back. Returns whether anything changed.
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

/// The pause of a worker that has just failed.
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

    /// A job with one trainer that may fail often.
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
    fn pauses_start_at_zero_double_and_are_bounded() {
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
    fn a_disrupted_worker_is_restarted_at_once_and_uses_no_retry() {
        let mut job = running(1, spec("again", 0, 1));
        assert_eq!(job.spec.retries, 0);
        let disrupted = |attempt| Event::Worker {
            worker: TRAINER,
            attempt,
            news: News::Disrupted("its node is gone".into()),
        };
        for attempt in 1..=MOST_DISRUPTIONS {
            let actions = job.on_event(disrupted(attempt), seconds(10));
            assert_eq!(launches(&actions), 1, "{actions:?}");
            assert!(actions.contains(&Action::Clean {
                worker: TRAINER,
                attempt
            }));
        }
        assert_eq!(job.message, "trainer 0 is restarted: its node is gone");
        assert_eq!(job.worker(TRAINER).unwrap().restarts, 0);
        job.on_event(disrupted(MOST_DISRUPTIONS + 1), seconds(20));
        assert_eq!(job.phase, Phase::Final(Outcome::Failed), "not for ever");
        assert!(job.message.contains("its node is gone"), "{}", job.message);
    }

    #[test]
    fn the_restart_of_a_parameter_server_says_where_training_resumes() {
        let message = |ps_entry: &str| {
            let mut spec = spec("resumes", 1, 1);
            spec.ps_entry = ps_entry.into();
            let mut job = running(1, spec);
            let disrupted = Event::Worker {
                worker: WorkerKey::pserver(0),
                attempt: 1,
                news: News::Disrupted("its node is gone".into()),
            };
            job.on_event(disrupted, seconds(10));
            assert_eq!(job.timeline.moments().last().unwrap().text, job.message);
            job.message
        };
        assert_eq!(
            message("paddle pserver"),
            "pserver 0 is restarted: its node is gone; it loads its latest checkpoint; without one, training restarts \
             at step 0"
        );
        assert_eq!(
            message("./serve"),
            "pserver 0 is restarted: its node is gone",
            "nothing is known of it"
        );
    }

    #[test]
    fn a_worker_that_fails_after_another_was_disrupted_uses_no_retry() {
        let mut job = running(1, spec("together", 1, 2));
        let news = |worker, attempt, news| Event::Worker {
            worker,
            attempt,
            news,
        };
        let failed = || News::Exited(Exit::with_code(1));
        let disrupted = News::Disrupted("its node is gone".into());
        job.on_event(news(WorkerKey::pserver(0), 1, disrupted.clone()), seconds(10));
        for index in 0..2 {
            let actions = job.on_event(news(WorkerKey::trainer(index), 1, failed()), seconds(11));
            assert_eq!(launches(&actions), 1, "{actions:?}");
        }
        let worker = job.worker(TRAINER).unwrap();
        assert_eq!((worker.attempt, worker.restarts, worker.disruptions), (2, 0, 0));
        assert!(
            job.message
                .ends_with("it is restarted, because another worker was disrupted before"),
            "{}",
            job.message
        );
        // A second failure is its own, until another disruption.
        job.on_event(news(WorkerKey::trainer(1), 2, disrupted), seconds(12));
        let actions = job.on_event(news(TRAINER, 2, failed()), seconds(13));
        assert_eq!(launches(&actions), 1, "{actions:?}");
        job.on_event(news(TRAINER, 3, failed()), seconds(14));
        assert!(
            matches!(job.phase, Phase::Stopping(Outcome::Failed)),
            "{:?}",
            job.phase
        );
    }

    #[test]
    fn a_worker_that_is_lost_after_another_was_disrupted_is_not_restarted_for_free() {
        let mut job = running(1, spec("together", 1, 2));
        let news = |worker, news| Event::Worker {
            worker,
            attempt: 1,
            news,
        };
        let disrupted = News::Disrupted("its node is gone".into());
        job.on_event(news(WorkerKey::pserver(0), disrupted), seconds(10));
        let lost = News::Lost("it was disrupted 3 times, which is the limit".into());
        job.on_event(news(TRAINER, lost), seconds(11));
        assert!(
            matches!(job.phase, Phase::Stopping(Outcome::Failed)),
            "{:?}",
            job.phase
        );
    }

    #[test]
    fn a_disrupted_worker_of_a_killed_job_is_not_restarted() {
        let mut job = job();
        job.on_event(Event::KillRequested(AfterKill::KeepInHistory), seconds(5));
        let event = Event::Worker {
            worker: TRAINER,
            attempt: 1,
            news: News::Disrupted("its node is gone".into()),
        };
        assert_eq!(launches(&job.on_event(event, seconds(6))), 0);
        assert_eq!(job.phase, Phase::Final(Outcome::Killed));
    }

    #[test]
    fn a_pending_restart_does_not_delay_the_end_of_a_killed_job() {
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
        // The clock change was not reported this time: the pause stays within its limit.
        job.on_event(Event::Tick, seconds(0));
        assert_eq!(job.deadline(), Some(seconds(300)));
    }
}
