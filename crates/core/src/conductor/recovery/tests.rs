//! Running jobs that each lack a worker, with a cluster that has no node for it.

use std::sync::Arc;

use crate::conductor::{Input, Loopback, NameOrigin, Output, Submission, Unrecorded, Write};
use crate::exit::Exit;
use crate::job::{Boot, News, WorkerKey};
use crate::ports::{AttemptKey, EngineState, Report};
use crate::quantity::{Bytes, Cpu};
use crate::scheduler::{Inventory, Node, Policy, Scheduler};
use crate::testing::samples::{id, seconds, spec, user};

use super::*;

const LIMIT: SignedDuration = SignedDuration::from_mins(5);

fn conductor(cores: u64, limit: Option<SignedDuration>) -> Conductor {
    let node = Node {
        name: "here".into(),
        cpu: Cpu::cores(cores),
        memory: Bytes::mib(1 << 20),
        gpus: 0,
        taken: Default::default(),
        traits: Default::default(),
    };
    let policy = Policy {
        recovery: limit,
        ..Policy::default()
    };
    let engine = EngineState {
        attempts: Vec::new(),
        nodes: Vec::new(),
        boot: Boot::Same,
    };
    Conductor::restore(
        Scheduler::new(Inventory { nodes: vec![node] }, policy),
        Box::new(Loopback::default()),
        Vec::new(),
        engine,
        &Unrecorded::default(),
        seconds(0),
    )
    .0
}

fn submit(number: u32) -> Input {
    Input::Submit(Submission {
        id: id(number),
        user: user("ada"),
        spec: Arc::new(spec(&format!("gang-{number}"), 0, 2)),
        name: NameOrigin::Request,
        key: None,
    })
}

fn news(job: u32, trainer: u32, attempt: u32, news: News) -> Input {
    let attempt = AttemptKey {
        job: id(job),
        worker: WorkerKey::trainer(trainer),
        attempt,
    };
    Input::Report(Report { attempt, news })
}

/// A running job of two trainers.
fn start(conductor: &mut Conductor, job: u32) {
    conductor.handle([submit(job)], seconds(0));
    conductor.handle([news(job, 0, 1, News::Up), news(job, 1, 1, News::Up)], seconds(0));
    assert_eq!(phase(conductor, job), Phase::Running);
}

/// One of its trainers loses its node, and the cluster has no other.
fn lose_one(conductor: &mut Conductor, job: u32, at: i64) -> Output {
    let lost = News::Disrupted("its node is gone".into());
    conductor.handle([news(job, 1, 1, lost)], seconds(at));
    let none = News::Unseated("0/2 nodes are available".into());
    conductor.handle([news(job, 1, 2, none)], seconds(at))
}

fn phase(conductor: &Conductor, job: u32) -> Phase {
    conductor.job(&id(job)).expect("it has not ended").phase
}

fn saved(output: &Output) -> Vec<(JobId, Phase)> {
    let jobs = output.writes.iter().filter_map(|write| match write {
        Write::Save(job) => Some((job.id.clone(), job.phase)),
        Write::Remove(_) => None,
    });
    jobs.collect()
}

fn gone(job: u32) -> [Input; 2] {
    let end = || News::Exited(Exit::by_signal(15));
    [news(job, 0, 1, end()), news(job, 1, 2, end())]
}

#[test]
fn of_two_jobs_that_each_lack_a_worker_the_later_one_makes_room() {
    let mut conductor = conductor(4, Some(LIMIT));
    start(&mut conductor, 1);
    start(&mut conductor, 2);
    assert_eq!(
        lose_one(&mut conductor, 1, 10).wake_at,
        None,
        "nobody needs its room"
    );
    let output = lose_one(&mut conductor, 2, 20);
    assert_eq!(output.wake_at, Some(seconds(310)));
    assert_eq!(saved(&conductor.handle([Input::Tick], seconds(309))), []);
    // Both are due; the one that was submitted first keeps its room.
    let output = conductor.handle([Input::Tick], seconds(320));
    assert_eq!(saved(&output), [(id(2), Phase::Withdrawing)]);
    assert_eq!(output.wake_at, Some(seconds(320) + SignedDuration::from_secs(40)));
    let job = conductor.job(&id(2)).unwrap();
    assert_eq!(
        job.message,
        "queued again: trainer 1 had no node for 5m, and other jobs wait for room"
    );
    assert!(job.workers.iter().all(|worker| worker.restarts == 0));
    let output = conductor.handle(gone(2), seconds(330));
    assert_eq!(
        phase(&conductor, 2),
        Phase::Starting,
        "from its place in the queue"
    );
    assert_eq!(
        output.wake_at,
        conductor.job(&id(2)).unwrap().deadline(),
        "nobody needs the room of the other"
    );
    // Its room completes the other.
    conductor.handle([news(1, 1, 2, News::Up)], seconds(331));
    assert_eq!(conductor.job(&id(1)).unwrap().lacks_worker_since(), None);
    assert_eq!(phase(&conductor, 1), Phase::Running);
}

#[test]
fn a_job_that_lacks_a_worker_keeps_its_room_until_another_needs_it() {
    let mut conductor = conductor(2, Some(LIMIT));
    start(&mut conductor, 1);
    lose_one(&mut conductor, 1, 10);
    let recovery = |conductor: &Conductor| conductor.recovery(&id(1));
    let expected = Recovery {
        limit: LIMIT,
        at: seconds(310),
        is_room_needed: false,
    };
    assert_eq!(recovery(&conductor), Some(expected));
    assert_eq!(saved(&conductor.handle([Input::Tick], seconds(5000))), []);
    let output = conductor.handle([submit(2)], seconds(6000));
    assert_eq!(
        saved(&output),
        [(id(2), Phase::Pending), (id(1), Phase::Withdrawing)]
    );
    assert_eq!(recovery(&conductor), None);
    conductor.handle(gone(1), seconds(6001));
    assert_eq!(phase(&conductor, 1), Phase::Starting, "it is ahead in the queue");
}

#[test]
fn a_node_that_is_back_in_time_costs_nobody_his_work() {
    let mut conductor = conductor(2, Some(LIMIT));
    start(&mut conductor, 1);
    conductor.handle([submit(2)], seconds(1));
    assert_eq!(lose_one(&mut conductor, 1, 10).wake_at, Some(seconds(310)));
    let output = conductor.handle([news(1, 1, 2, News::Seated(None))], seconds(200));
    assert_eq!(output.wake_at, conductor.job(&id(1)).unwrap().deadline());
    conductor.handle([news(1, 1, 2, News::Up)], seconds(201));
    assert_eq!(saved(&conductor.handle([Input::Tick], seconds(9000))), []);
    assert_eq!(phase(&conductor, 1), Phase::Running);
}

#[test]
fn jobs_are_withdrawn_one_after_the_other() {
    let mut conductor = conductor(4, Some(LIMIT));
    start(&mut conductor, 1);
    start(&mut conductor, 2);
    conductor.handle([submit(3)], seconds(1));
    lose_one(&mut conductor, 1, 10);
    lose_one(&mut conductor, 2, 10);
    let output = conductor.handle([Input::Tick], seconds(310));
    assert_eq!(saved(&output), [(id(2), Phase::Withdrawing)]);
    assert_eq!(saved(&conductor.handle([Input::Tick], seconds(315))), []);
    let output = conductor.handle(gone(2), seconds(320));
    assert_eq!(phase(&conductor, 2), Phase::Starting);
    assert_eq!(
        output.wake_at,
        Some(seconds(350)),
        "its room is left to the others"
    );
    let output = conductor.handle([Input::Tick], seconds(350));
    assert_eq!(saved(&output), [(id(1), Phase::Withdrawing)], "another job waits");
}

#[test]
fn no_job_is_withdrawn_without_a_limit_or_while_the_engine_can_start_nothing() {
    let mut without = conductor(2, None);
    start(&mut without, 1);
    without.handle([submit(2)], seconds(1));
    assert_eq!(lose_one(&mut without, 1, 10).wake_at, None);
    assert_eq!(saved(&without.handle([Input::Tick], seconds(9000))), []);
    assert_eq!(without.recovery(&id(1)), None);

    let mut conductor = conductor(2, Some(LIMIT));
    start(&mut conductor, 1);
    conductor.handle([submit(2)], seconds(1));
    lose_one(&mut conductor, 1, 10);
    conductor.set_engine_usable(false);
    let output = conductor.handle([Input::Tick], seconds(310));
    assert_eq!((saved(&output), output.wake_at), (vec![], Some(seconds(340))));
    conductor.set_engine_usable(true);
    assert_eq!(saved(&conductor.handle([Input::Tick], seconds(339))), []);
    let output = conductor.handle([Input::Tick], seconds(340));
    assert_eq!(saved(&output), [(id(1), Phase::Withdrawing)]);
}
