//! What every engine must do, whatever it starts. Call it from a test of the implementation, inside a time
//! limit: an engine that never reports makes it wait for ever.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use jiff::SignedDuration;

use crate::exit::Exit;
use crate::job::{Job, News, Role, WorkerKey};
use crate::ports::{AttemptKey, Engine, Report};

use super::samples;

/// What a worker's program does. Each engine has its own way to spell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Ends at once with this code.
    EndsWith(i32),
    /// Runs until it gets SIGTERM; as a parameter server it listens on its ports.
    Serves,
    /// Runs on and ignores SIGTERM.
    IgnoresTerm,
    /// Cannot even be started, for example because its folder is missing.
    CannotStart,
}

impl Program {
    /// The words a pretended worker has as its command.
    pub fn command(self) -> String {
        match self {
            Program::EndsWith(code) => format!("pretend exit {code}"),
            Program::Serves => "pretend serve".into(),
            Program::IgnoresTerm => "pretend ignore".into(),
            Program::CannotStart => "pretend nothing".into(),
        }
    }

    /// The program of a worker of this job; a command that is not in these words ends well.
    pub fn of(job: &Job, role: Role) -> Program {
        let command = match role {
            Role::Pserver => &job.spec.ps_entry,
            Role::Trainer => &job.spec.entry,
        };
        match command.strip_prefix("pretend ") {
            Some("serve") => Program::Serves,
            Some("ignore") => Program::IgnoresTerm,
            Some("nothing") => Program::CannotStart,
            Some(exit) => Program::EndsWith(
                exit.strip_prefix("exit ")
                    .and_then(|code| code.parse().ok())
                    .unwrap_or(0),
            ),
            None if role == Role::Pserver => Program::Serves,
            None => Program::EndsWith(0),
        }
    }
}

/// An admitted job of pretended workers: one trainer and at most one parameter server.
pub fn pretend_job(number: u32, pserver: Option<Program>, trainer: Program) -> Arc<Job> {
    let mut spec = samples::spec("suite", u32::from(pserver.is_some()), 1);
    spec.entry = trainer.command();
    spec.ps_entry = pserver.unwrap_or(Program::Serves).command();
    Arc::new(samples::starting(number, spec))
}

/// An engine under test and how to make jobs for it.
pub trait Bench {
    type Engine: Engine;

    /// Opens the engine. Dropped and called again it is what a restarted server has.
    fn engine(&self) -> impl Future<Output = Self::Engine>;

    /// An admitted job of its own with one trainer and at most one parameter server.
    fn job(&self, number: u32, pserver: Option<Program>, trainer: Program) -> Arc<Job>;

    /// Waits until a program that runs does what it is there for: a real one needs a moment to ignore a signal.
    fn settled(&self, _attempt: &AttemptKey) -> impl Future<Output = ()> {
        std::future::ready(())
    }
}

/// Runs every check.
pub async fn engine_suite<B: Bench>(bench: &B) {
    a_trainer_waits_for_the_word(bench).await;
    a_parameter_server_starts_and_gets_ready_by_itself(bench).await;
    a_failure_is_told_with_its_code(bench).await;
    what_cannot_start_is_told_with_a_reason(bench).await;
    stopping_is_polite_then_forced(bench).await;
    every_order_may_come_twice(bench).await;
    orders_about_the_unknown_do_nothing(bench).await;
    workers_outlive_the_engine(bench).await;
}

const TRAINER: WorkerKey = WorkerKey {
    role: Role::Trainer,
    index: 0,
};
const PSERVER: WorkerKey = WorkerKey {
    role: Role::Pserver,
    index: 0,
};
const GRACE: SignedDuration = SignedDuration::from_secs(30);
const NO_GRACE: SignedDuration = SignedDuration::from_millis(50);

async fn a_trainer_waits_for_the_word<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(1, None, Program::EndsWith(0));
    let key = attempt(&job, TRAINER);
    ear.engine.launch(&job, TRAINER, 1).await;
    ear.hear(&key, |news| *news == News::Up).await;
    assert_eq!(
        ear.listed(&key).await,
        Some(News::Up),
        "without the word it does not begin"
    );
    ear.engine.go(&job, TRAINER, 1).await;
    let end = ear.end(&key).await;
    assert!(matches!(&end, News::Exited(exit) if exit.is_success()), "{end:?}");
    assert_eq!(
        ear.listed(&key).await,
        Some(end),
        "an end stays listed until it is cleaned"
    );
    ear.clean(&key).await;
}

async fn a_parameter_server_starts_and_gets_ready_by_itself<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(2, Some(Program::Serves), Program::EndsWith(0));
    let key = attempt(&job, PSERVER);
    ear.engine.launch(&job, PSERVER, 1).await;
    ear.hear(&key, |news| *news == News::Ready).await;
    ear.engine.stop(&key, GRACE).await;
    ear.end(&key).await;
    ear.clean(&key).await;
}

async fn a_failure_is_told_with_its_code<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(3, None, Program::EndsWith(3));
    let key = attempt(&job, TRAINER);
    ear.engine.launch(&job, TRAINER, 1).await;
    ear.engine.go(&job, TRAINER, 1).await;
    let exit = ear.exit(&key).await;
    assert_eq!((exit.code, exit.signal), (Some(3), None));
    ear.clean(&key).await;
}

async fn what_cannot_start_is_told_with_a_reason<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(4, None, Program::CannotStart);
    let key = attempt(&job, TRAINER);
    ear.engine.launch(&job, TRAINER, 1).await;
    ear.engine.go(&job, TRAINER, 1).await;
    let exit = ear.exit(&key).await;
    assert!(!exit.is_success() && exit.message.is_some(), "{exit:?}");
    ear.clean(&key).await;
}

async fn stopping_is_polite_then_forced<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    for (number, program, grace, signal) in [
        (5, Program::Serves, GRACE, 15),
        (6, Program::IgnoresTerm, NO_GRACE, 9),
    ] {
        let job = bench.job(number, None, program);
        let key = attempt(&job, TRAINER);
        ear.start(&job, &key).await;
        bench.settled(&key).await;
        ear.engine.stop(&key, grace).await;
        let exit = ear.exit(&key).await;
        let told = exit.signal.or(exit.code.map(|code| code - 128));
        assert_eq!(told, Some(signal), "{program:?}: {exit:?}");
        ear.clean(&key).await;
    }
}

async fn every_order_may_come_twice<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(7, None, Program::Serves);
    let key = attempt(&job, TRAINER);
    ear.start(&job, &key).await;
    ear.engine.launch(&job, TRAINER, 1).await;
    ear.engine.go(&job, TRAINER, 1).await;
    assert!(ear.runs(&key).await, "a second order disturbs nothing");
    ear.engine.stop(&key, GRACE).await;
    ear.engine.stop(&key, GRACE).await;
    let end = ear.end(&key).await;
    ear.engine.launch(&job, TRAINER, 1).await;
    assert_eq!(
        ear.listed(&key).await,
        Some(end),
        "what has ended is not started again"
    );
    ear.clean(&key).await;
    ear.clean(&key).await;
}

async fn orders_about_the_unknown_do_nothing<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(8, None, Program::Serves);
    let key = attempt(&job, TRAINER);
    ear.engine.go(&job, TRAINER, 1).await;
    ear.engine.stop(&key, GRACE).await;
    ear.clean(&key).await;
    ear.engine.discard(&job.id).await;
}

async fn workers_outlive_the_engine<B: Bench>(bench: &B) {
    let job = bench.job(9, None, Program::Serves);
    let key = attempt(&job, TRAINER);
    let mut ear = Ear::open(bench).await;
    ear.start(&job, &key).await;
    drop(ear);
    let mut ear = Ear::open(bench).await;
    assert!(ear.runs(&key).await);
    ear.engine.stop(&key, GRACE).await;
    let end = ear.end(&key).await;
    drop(ear);
    let mut ear = Ear::open(bench).await;
    assert_eq!(
        ear.listed(&key).await,
        Some(end),
        "an end outlives the engine too"
    );
    ear.clean(&key).await;
}

fn attempt(job: &Job, worker: WorkerKey) -> AttemptKey {
    AttemptKey {
        job: job.id.clone(),
        worker,
        attempt: 1,
    }
}

/// Listens to an engine and keeps what it was not waiting for.
struct Ear<E> {
    engine: E,
    heard: VecDeque<Report>,
}

impl<E: Engine> Ear<E> {
    async fn open<B: Bench<Engine = E>>(bench: &B) -> Ear<E> {
        Ear {
            engine: bench.engine().await,
            heard: VecDeque::new(),
        }
    }

    async fn start(&mut self, job: &Arc<Job>, key: &AttemptKey) {
        self.engine.launch(job, key.worker, 1).await;
        self.hear(key, |news| *news == News::Up).await;
        self.engine.go(job, key.worker, 1).await;
        self.hear(key, |news| *news == News::Started).await;
    }

    async fn hear(&mut self, key: &AttemptKey, wanted: impl Fn(&News) -> bool) -> News {
        loop {
            while let Some(report) = self.heard.pop_front() {
                if report.attempt == *key && wanted(&report.news) {
                    return report.news;
                }
            }
            self.heard.extend(self.engine.next_reports().await);
        }
    }

    async fn end(&mut self, key: &AttemptKey) -> News {
        self.hear(key, News::is_end).await
    }

    async fn exit(&mut self, key: &AttemptKey) -> Exit {
        match self.end(key).await {
            News::Exited(exit) => exit,
            other => panic!("{key:?} did not exit: {other:?}"),
        }
    }

    async fn listed(&self, key: &AttemptKey) -> Option<News> {
        let state = self.engine.state().await.expect("the engine can be asked");
        state
            .attempts
            .into_iter()
            .find(|report| report.attempt == *key)
            .map(|report| report.news)
    }

    /// Whether a trainer is listed as running. An engine may say more of one: that it listens on all its ports, of
    /// which it has none.
    async fn runs(&self, key: &AttemptKey) -> bool {
        matches!(self.listed(key).await, Some(News::Started | News::Ready))
    }

    async fn clean(&mut self, key: &AttemptKey) {
        self.engine.clean(key).await;
        assert_eq!(self.listed(key).await, None, "what was cleaned is not listed");
    }
}
