//! What every engine must do. Call it from a test of the implementation, with a time limit: an engine that never
//! reports makes it wait forever.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use jiff::SignedDuration;

use crate::exit::Exit;
use crate::job::{Job, News, Role, WorkerKey};
use crate::ports::{Assignment, AttemptKey, Engine, EngineEvent, LogReader, LogStore, Piece, Report};

use super::samples;

/// What a worker's program does. Each engine translates it in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Exits immediately with this code.
    EndsWith(i32),
    /// Runs until it gets SIGTERM; as a parameter server it listens on its ports.
    Serves,
    /// Keeps running and ignores SIGTERM.
    IgnoresTerm,
    /// Cannot be started, for example because its folder is missing.
    CannotStart,
    /// Prints [`printed`] to its standard output and exits with 0.
    Prints,
}

/// How many lines [`Program::Prints`] prints: more than fit into a pipe.
const LINES: u32 = 20_000;

/// What [`Program::Prints`] prints.
pub fn printed() -> String {
    (1..=LINES).map(|number| format!("{number}\n")).collect()
}

impl Program {
    /// The command of a fake worker.
    pub fn command(self) -> String {
        match self {
            Program::EndsWith(code) => format!("pretend exit {code}"),
            Program::Serves => "pretend serve".into(),
            Program::IgnoresTerm => "pretend ignore".into(),
            Program::CannotStart => "pretend nothing".into(),
            Program::Prints => "pretend print".into(),
        }
    }

    /// The program of a worker of this job; an unknown command exits with 0.
    pub fn of(job: &Job, role: Role) -> Program {
        let command = match role {
            Role::Pserver => &job.spec.ps_entry,
            Role::Trainer => &job.spec.entry,
        };
        match command.strip_prefix("pretend ") {
            Some("serve") => Program::Serves,
            Some("ignore") => Program::IgnoresTerm,
            Some("nothing") => Program::CannotStart,
            Some("print") => Program::Prints,
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

/// An admitted job of fake workers: one trainer and at most one parameter server.
pub fn pretend_job(number: u32, pserver: Option<Program>, trainer: Program) -> Arc<Job> {
    let mut spec = samples::spec("suite", u32::from(pserver.is_some()), 1);
    spec.entry = trainer.command();
    spec.ps_entry = pserver.unwrap_or(Program::Serves).command();
    Arc::new(samples::starting(number, spec))
}

/// An engine under test and how to create jobs for it.
pub trait Bench {
    type Engine: Engine;

    /// Opens the engine. Dropping it and opening it again simulates a restart of the server.
    fn engine(&self) -> impl Future<Output = Self::Engine>;

    /// A new admitted job with one trainer and at most one parameter server.
    fn job(&self, number: u32, pserver: Option<Program>, trainer: Program) -> Arc<Job>;

    /// The same with its run prepared, as the server prepares it before it calls the engine.
    fn assignment(
        &self,
        job: &Arc<Job>,
        worker: WorkerKey,
        attempt: u32,
    ) -> impl Future<Output = Assignment> {
        let assignment = samples::assignment(job, worker, attempt);
        std::future::ready(assignment)
    }

    /// The logs that workers of this engine write.
    fn logs(&self) -> Arc<dyn LogStore>;

    /// Sets whether the room for workers is used up, as if by other workloads.
    fn crowd(&self, is_full: bool);

    /// Waits until a running program does what it is meant to do: a real one needs a moment to ignore a signal.
    fn settled(&self, _attempt: &AttemptKey) -> impl Future<Output = ()> {
        std::future::ready(())
    }
}

/// Runs every check.
pub async fn engine_suite<B: Bench>(bench: &B) {
    a_trainer_waits_for_the_go_order(bench).await;
    a_parameter_server_starts_and_gets_ready_by_itself(bench).await;
    a_failure_is_reported_with_its_code(bench).await;
    a_failed_start_is_reported_with_a_reason(bench).await;
    stopping_is_polite_then_forced(bench).await;
    every_order_may_come_twice(bench).await;
    orders_for_unknown_attempts_do_nothing(bench).await;
    workers_outlive_the_engine(bench).await;
    a_later_attempt_starts_separately(bench).await;
    an_end_is_reported_after_the_last_byte_of_the_log(bench).await;
    a_gang_without_room_is_reported_and_can_be_launched_later(bench).await;
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

async fn a_trainer_waits_for_the_go_order<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(1, None, Program::EndsWith(0));
    let key = attempt(&job, TRAINER);
    ear.launch(bench, &job, TRAINER).await;
    ear.hear(&key, |news| *news == News::Up).await;
    assert_eq!(
        ear.listed(&key).await,
        Some(News::Up),
        "without the word it does not begin"
    );
    ear.engine.go(&key).await;
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
    ear.launch(bench, &job, PSERVER).await;
    ear.hear(&key, |news| *news == News::Ready).await;
    ear.engine.stop(&key, GRACE).await;
    ear.end(&key).await;
    ear.clean(&key).await;
}

async fn a_failure_is_reported_with_its_code<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(3, None, Program::EndsWith(3));
    let key = attempt(&job, TRAINER);
    ear.launch(bench, &job, TRAINER).await;
    ear.engine.go(&key).await;
    let exit = ear.exit(&key).await;
    assert_eq!((exit.code, exit.signal), (Some(3), None));
    ear.clean(&key).await;
}

async fn a_failed_start_is_reported_with_a_reason<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(4, None, Program::CannotStart);
    let key = attempt(&job, TRAINER);
    ear.launch(bench, &job, TRAINER).await;
    ear.engine.go(&key).await;
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
        ear.start(bench, &job, &key).await;
        bench.settled(&key).await;
        ear.engine.stop(&key, grace).await;
        let exit = ear.exit(&key).await;
        let reported = exit.signal.or(exit.code.map(|code| code - 128));
        assert_eq!(reported, Some(signal), "{program:?}: {exit:?}");
        ear.clean(&key).await;
    }
}

async fn every_order_may_come_twice<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(7, None, Program::Serves);
    let key = attempt(&job, TRAINER);
    ear.start(bench, &job, &key).await;
    ear.launch(bench, &job, TRAINER).await;
    ear.engine.go(&key).await;
    assert!(ear.runs(&key).await, "a second order disturbs nothing");
    ear.engine.stop(&key, GRACE).await;
    ear.engine.stop(&key, GRACE).await;
    let end = ear.end(&key).await;
    ear.launch(bench, &job, TRAINER).await;
    assert_eq!(
        ear.listed(&key).await,
        Some(end),
        "what has ended is not started again"
    );
    ear.clean(&key).await;
    ear.clean(&key).await;
}

async fn orders_for_unknown_attempts_do_nothing<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(8, None, Program::Serves);
    let key = attempt(&job, TRAINER);
    ear.engine.go(&key).await;
    ear.engine.stop(&key, GRACE).await;
    ear.clean(&key).await;
    ear.engine.discard(&job.id).await;
}

async fn workers_outlive_the_engine<B: Bench>(bench: &B) {
    let job = bench.job(9, None, Program::Serves);
    let key = attempt(&job, TRAINER);
    let mut ear = Ear::open(bench).await;
    ear.start(bench, &job, &key).await;
    drop(ear);
    let mut ear = Ear::open(bench).await;
    // An engine whose worker does not answer immediately reports later that it runs.
    if !ear.runs(&key).await {
        ear.hear(&key, is_running).await;
    }
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

async fn a_later_attempt_starts_separately<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(10, None, Program::Serves);
    let first = attempt(&job, TRAINER);
    ear.start(bench, &job, &first).await;
    ear.engine.stop(&first, GRACE).await;
    ear.end(&first).await;
    ear.clean(&first).await;
    let second = AttemptKey {
        attempt: 2,
        ..first.clone()
    };
    ear.start(bench, &job, &second).await;
    ear.engine.go(&first).await;
    ear.engine.stop(&first, NO_GRACE).await;
    ear.clean(&first).await;
    assert!(
        ear.runs(&second).await,
        "orders about the first attempt do not touch the second"
    );
    ear.engine.stop(&second, GRACE).await;
    ear.end(&second).await;
    ear.clean(&second).await;
}

async fn an_end_is_reported_after_the_last_byte_of_the_log<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(11, None, Program::Prints);
    let key = attempt(&job, TRAINER);
    let logs = bench.logs();
    ear.start(bench, &job, &key).await;
    let exit = ear.exit(&key).await;
    let mut reader = logs.reader(&key);
    let length = reader.length().expect("the log can be read");
    assert_eq!(
        exit.log_end, length,
        "the whole log is there when the end is reported"
    );
    let text = printed();
    let begin = length - text.len() as u64;
    assert!(
        read(&mut *reader, begin) == text.as_bytes(),
        "every byte, in order"
    );
    let middle = text.len() / 2;
    let half = read(&mut *reader, begin + middle as u64);
    assert!(half == text.as_bytes()[middle..], "from any offset");
    ear.clean(&key).await;
    assert_eq!(
        reader.length().expect("the log can be read"),
        length,
        "cleaning keeps the log"
    );
    logs.discard(&job.id).expect("the log can be removed");
    ear.engine.discard(&job.id).await;
}

/// All bytes from an offset on; nothing may be missing.
fn read(reader: &mut dyn LogReader, from: u64) -> Vec<u8> {
    let (mut at, mut bytes) = (from, Vec::new());
    loop {
        let pieces = reader.read(at, 64 << 10).expect("the log can be read");
        let Some(last) = pieces.last() else { return bytes };
        at = last.end();
        for piece in pieces {
            match piece {
                Piece::Chunk(chunk) => bytes.extend(chunk.bytes),
                Piece::Gap(gap) => panic!("{gap:?} in the log"),
            }
        }
    }
}

async fn a_gang_without_room_is_reported_and_can_be_launched_later<B: Bench>(bench: &B) {
    let mut ear = Ear::open(bench).await;
    let job = bench.job(12, Some(Program::Serves), Program::Serves);
    bench.crowd(true);
    for worker in [PSERVER, TRAINER] {
        let key = attempt(&job, worker);
        ear.launch(bench, &job, worker).await;
        let end = ear.end(&key).await;
        assert!(matches!(&end, News::NoRoom(why) if !why.is_empty()), "{end:?}");
        ear.clean(&key).await;
    }
    bench.crowd(false);
    let again = AttemptKey {
        attempt: 2,
        ..attempt(&job, TRAINER)
    };
    ear.start(bench, &job, &again).await;
    ear.engine.stop(&again, GRACE).await;
    ear.end(&again).await;
    ear.clean(&again).await;
}

fn attempt(job: &Job, worker: WorkerKey) -> AttemptKey {
    AttemptKey {
        job: job.id.clone(),
        worker,
        attempt: 1,
    }
}

/// An engine may report a trainer as ready too, because it has no ports to listen on.
fn is_running(news: &News) -> bool {
    matches!(news, News::Started | News::Ready)
}

/// Receives events of an engine and buffers those that are not expected yet.
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

    async fn launch<B: Bench<Engine = E>>(&self, bench: &B, job: &Arc<Job>, worker: WorkerKey) {
        self.engine.launch(&bench.assignment(job, worker, 1).await).await;
    }

    async fn start<B: Bench<Engine = E>>(&mut self, bench: &B, job: &Arc<Job>, key: &AttemptKey) {
        let assignment = bench.assignment(job, key.worker, key.attempt).await;
        self.engine.launch(&assignment).await;
        self.hear(key, |news| *news == News::Up).await;
        self.engine.go(key).await;
        self.hear(key, |news| *news == News::Started).await;
    }

    async fn hear(&mut self, key: &AttemptKey, is_expected: impl Fn(&News) -> bool) -> News {
        loop {
            while let Some(report) = self.heard.pop_front() {
                if report.attempt == *key && is_expected(&report.news) {
                    return report.news;
                }
            }
            let events = self.engine.next_events().await.into_iter();
            self.heard.extend(events.filter_map(|event| match event {
                EngineEvent::Worker(report) => Some(report),
                EngineEvent::Moved { .. } | EngineEvent::Node(_) => None,
            }));
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

    /// Whether a trainer is listed as running.
    async fn runs(&self, key: &AttemptKey) -> bool {
        self.listed(key).await.as_ref().is_some_and(is_running)
    }

    async fn clean(&mut self, key: &AttemptKey) {
        self.engine.clean(key).await;
        assert_eq!(self.listed(key).await, None, "what was cleaned is not listed");
    }
}
