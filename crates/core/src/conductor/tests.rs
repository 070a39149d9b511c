//! The conductor's own rules: names, keys, batches, restoring. Jobs' lives are tested in `job`.

use super::*;
use crate::exit::Exit;
use crate::job::{Boot, News, Outcome, WorkerKey};
use crate::ports::{AttemptKey, EngineState};
use crate::quantity::{Bytes, Cpu};
use crate::scheduler::{Inventory, Node, Policy};
use crate::testing::samples::{id, job_name, noon, seconds, spec, user};

const T0: WorkerKey = WorkerKey {
    role: crate::job::Role::Trainer,
    index: 0,
};

fn node(name: &str, cores: u64) -> Node {
    Node {
        name: name.into(),
        cpu: Cpu::cores(cores),
        memory: Bytes::mib(1 << 20),
        gpus: 0,
        taken: Default::default(),
        traits: Default::default(),
    }
}

fn scheduler(cores: u64, policy: Policy) -> Scheduler {
    let nodes = vec![node("here", cores)];
    Scheduler::new(Inventory { nodes }, policy)
}

fn nothing() -> EngineState {
    EngineState {
        attempts: Vec::new(),
        nodes: Vec::new(),
        boot: Boot::Same,
    }
}

fn restored(cores: u64, jobs: Vec<Job>, engine: EngineState) -> (Conductor, Output) {
    restored_with(scheduler(cores, Policy::default()), jobs, engine)
}

fn restored_with(scheduler: Scheduler, jobs: Vec<Job>, engine: EngineState) -> (Conductor, Output) {
    Conductor::restore(
        scheduler,
        Box::new(Loopback::default()),
        jobs,
        engine,
        &Unrecorded::default(),
        noon(),
    )
}

pub(super) fn conductor(cores: u64) -> Conductor {
    restored(cores, Vec::new(), nothing()).0
}

pub(super) fn submit(number: u32, name: &str) -> Input {
    keyed(number, name, &format!("key-{number}"))
}

fn keyed(number: u32, name: &str, key: &str) -> Input {
    Input::Submit(Submission {
        id: id(number),
        user: user("ada"),
        spec: Arc::new(spec(name, 0, 1)),
        name: NameOrigin::Request,
        key: Some(key.parse().unwrap()),
    })
}

fn news(number: u32, news: News) -> Input {
    Input::Report(Report {
        attempt: AttemptKey {
            job: id(number),
            worker: T0,
            attempt: 1,
        },
        news,
    })
}

/// News of an attempt of a trainer of the first job.
fn of(trainer: u32, attempt: u32, news: News) -> Input {
    Input::Report(Report {
        attempt: AttemptKey {
            job: id(1),
            worker: WorkerKey::trainer(trainer),
            attempt,
        },
        news,
    })
}

fn kill(number: u32, after: AfterKill) -> Input {
    Input::Kill {
        job: id(number),
        after,
    }
}

fn only<T>(mut all: Vec<T>) -> T {
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// What an output orders, in short.
fn orders(output: &Output) -> Vec<String> {
    let word = |command: &EngineCommand| match command {
        EngineCommand::Launch { worker, attempt, .. } => format!("launch {worker} #{attempt}"),
        EngineCommand::Go { attempt } => format!("go {} #{}", attempt.worker, attempt.attempt),
        EngineCommand::Stop { attempt, .. } => format!("stop {} #{}", attempt.worker, attempt.attempt),
        EngineCommand::Clean { attempt } => format!("clean {} #{}", attempt.worker, attempt.attempt),
        EngineCommand::Discard { .. } => "discard".into(),
    };
    output.commands.iter().map(word).collect()
}

fn saved(output: &Output) -> Vec<(JobId, Phase)> {
    let row = |write: &Write| match write {
        Write::Save(job) => (job.id.clone(), job.phase),
        Write::Remove(id) => panic!("{id} is removed"),
    };
    output.writes.iter().map(row).collect()
}

/// Runs the job's only trainer until this exit.
fn run_through(conductor: &mut Conductor, number: u32, exit: Exit) -> Output {
    conductor.handle([news(number, News::Up), news(number, News::Started)], seconds(1));
    conductor.handle([news(number, News::Exited(exit))], seconds(2))
}

#[test]
fn a_job_that_fits_is_stored_once_and_launched_in_the_same_step() {
    let output = conductor(4).handle([submit(1, "a")], noon());
    assert_eq!(saved(&output), [(id(1), Phase::Starting)]);
    assert_eq!(orders(&output), ["launch trainer 0 #1"]);
    assert_eq!(only(output.replies), Ok(Reply::Accepted(id(1))));
    assert_eq!(output.wake_at, Some(seconds(600)), "the start limit is due");
}

#[test]
fn the_same_key_gives_the_same_job_while_it_runs_and_after() {
    let mut conductor = conductor(4);
    let output = conductor.handle([keyed(1, "a", "k"), keyed(2, "a", "k")], noon());
    assert_eq!(
        output.replies,
        [Ok(Reply::Accepted(id(1))), Ok(Reply::AlreadyAccepted(id(1)))]
    );
    run_through(&mut conductor, 1, Exit::with_code(0));
    assert!(conductor.job(&id(1)).is_none());
    let output = conductor.handle([keyed(3, "a", "k")], seconds(3));
    assert_eq!(only(output.replies), Ok(Reply::AlreadyAccepted(id(1))));
    assert!(output.writes.is_empty());
}

#[test]
fn a_taken_name_is_refused_and_a_free_one_offered() {
    let mut conductor = conductor(4);
    conductor.handle([submit(1, "a"), submit(2, "a-2")], noon());
    let output = conductor.handle([submit(3, "a")], noon());
    let refusal = only(output.replies).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        format!("the name `a` is taken by {}, which has not ended yet", id(1))
    );
    let Refusal::NameTaken { free, .. } = refusal else {
        panic!("{refusal}")
    };
    assert_eq!(free, job_name("a-3"));
}

#[test]
fn names_are_each_users_own() {
    let mut conductor = conductor(4);
    conductor.handle([submit(1, "a")], noon());
    let theirs = Submission {
        id: id(2),
        user: user("bob"),
        spec: Arc::new(spec("a", 0, 1)),
        name: NameOrigin::Request,
        key: None,
    };
    let output = conductor.handle([Input::Submit(theirs)], noon());
    assert_eq!(only(output.replies), Ok(Reply::Accepted(id(2))));
}

#[test]
fn a_killed_jobs_name_is_free_at_once_and_its_room_later() {
    let mut conductor = conductor(1);
    conductor.handle([submit(1, "a")], noon());
    let output = conductor.handle([kill(1, AfterKill::KeepInHistory), submit(2, "a")], seconds(1));
    assert_eq!(
        saved(&output),
        [(id(1), Phase::Stopping(Outcome::Killed)), (id(2), Phase::Pending)]
    );
    assert_eq!(orders(&output), ["stop trainer 0 #1"]);
    let runs: Vec<JobId> = conductor
        .runs(&user("ada"), &job_name("a"))
        .map(|job| job.id.clone())
        .collect();
    assert_eq!(runs, [id(1), id(2)]);
    let output = conductor.handle([news(1, News::Exited(Exit::by_signal(15)))], seconds(2));
    assert_eq!(
        saved(&output),
        [(id(1), Phase::Final(Outcome::Killed)), (id(2), Phase::Starting)]
    );
    assert_eq!(orders(&output), ["clean trainer 0 #1", "launch trainer 0 #1"]);
}

#[test]
fn a_pending_job_that_is_killed_leaves_the_queue() {
    let mut conductor = conductor(1);
    conductor.handle([submit(1, "a"), submit(2, "b"), submit(3, "c")], noon());
    let output = conductor.handle([kill(2, AfterKill::KeepInHistory)], seconds(1));
    assert_eq!(saved(&output), [(id(2), Phase::Final(Outcome::Killed))]);
    let output = run_through(&mut conductor, 1, Exit::with_code(0));
    assert_eq!(
        saved(&output),
        [
            (id(1), Phase::Final(Outcome::Succeeded)),
            (id(3), Phase::Starting)
        ]
    );
}

#[test]
fn kill_rm_removes_the_record_when_the_last_worker_is_gone() {
    let mut conductor = conductor(1);
    conductor.handle([submit(1, "a")], noon());
    let output = conductor.handle([kill(1, AfterKill::Remove)], seconds(1));
    assert_eq!(saved(&output), [(id(1), Phase::Stopping(Outcome::Killed))]);
    let output = conductor.handle([news(1, News::Exited(Exit::by_signal(15)))], seconds(2));
    assert_eq!(output.writes, [Write::Remove(id(1))]);
    assert_eq!(orders(&output), ["clean trainer 0 #1", "discard"]);
}

#[test]
fn only_finished_jobs_can_be_removed_from_the_history() {
    let mut conductor = conductor(1);
    conductor.handle([submit(1, "a")], noon());
    let output = conductor.handle([Input::Remove { job: id(1) }], seconds(1));
    assert_eq!(only(output.replies), Err(Refusal::StillActive(id(1))));
    run_through(&mut conductor, 1, Exit::with_code(0));
    let output = conductor.handle(
        [Input::Remove { job: id(1) }, kill(1, AfterKill::Remove)],
        seconds(3),
    );
    assert_eq!(
        output.replies,
        [Ok(Reply::Removed(id(1))), Err(Refusal::NotActive(id(1)))]
    );
    assert_eq!(output.writes, [Write::Remove(id(1))]);
}

#[test]
fn a_job_that_can_never_fit_is_refused_and_leaves_nothing() {
    let mut conductor = conductor(1);
    let big = Submission {
        id: id(1),
        user: user("ada"),
        spec: Arc::new(spec("a", 0, 5)),
        name: NameOrigin::Request,
        key: None,
    };
    let output = conductor.handle([Input::Submit(big)], noon());
    assert!(matches!(only(output.replies), Err(Refusal::TooBig(_))));
    assert!(output.writes.is_empty() && conductor.jobs().next().is_none());
    let output = conductor.handle([submit(1, "a")], noon());
    assert_eq!(only(output.replies), Ok(Reply::Accepted(id(1))));
}

#[test]
fn a_batch_writes_each_job_once_as_it_is_at_the_end() {
    let mut conductor = conductor(1);
    let output = conductor.handle([submit(1, "a")], noon());
    assert_eq!(output.writes.len(), 1);
    let all = [
        news(1, News::Up),
        news(1, News::Started),
        news(1, News::Exited(Exit::with_code(0))),
    ];
    let output = conductor.handle(all, seconds(1));
    assert_eq!(saved(&output), [(id(1), Phase::Final(Outcome::Succeeded))]);
    assert_eq!(orders(&output), ["go trainer 0 #1", "clean trainer 0 #1"]);
}

#[test]
fn reports_that_change_nothing_are_not_written() {
    let mut conductor = conductor(1);
    conductor.handle([submit(1, "a")], noon());
    conductor.handle([news(1, News::Up)], seconds(1));
    let output = conductor.handle([news(1, News::Up), news(9, News::Up), Input::Tick], seconds(2));
    assert!(output.writes.is_empty() && output.commands.is_empty());
}

#[test]
fn a_tick_ends_overdue_jobs() {
    let mut conductor = conductor(1);
    conductor.handle([submit(1, "a")], noon());
    let output = conductor.handle([Input::Tick], seconds(600));
    assert_eq!(saved(&output), [(id(1), Phase::Stopping(Outcome::Failed))]);
    assert_eq!(orders(&output), ["stop trainer 0 #1"]);
}

#[test]
fn every_live_worker_has_an_address_of_its_own() {
    let mut conductor = conductor(8);
    conductor.handle(
        (1..=4).map(|number| submit(number, &format!("j{number}"))),
        noon(),
    );
    let address =
        |conductor: &Conductor, number| conductor.job(&id(number)).unwrap().workers[0].address.clone();
    let mut addresses: Vec<String> = (1..=4).map(|number| address(&conductor, number)).collect();
    assert_eq!(addresses[0], "127.1.0.1");
    addresses.dedup();
    assert_eq!(addresses.len(), 4);
    let jobs: Vec<Job> = conductor.jobs().map(|job| Job::clone(job)).collect();
    let (mut conductor, _) = restored(8, jobs, nothing());
    conductor.handle([submit(5, "j5")], noon());
    assert_eq!(address(&conductor, 5), "127.1.0.5");
}

#[test]
fn restoring_keeps_the_queue_and_the_room() {
    let mut before = conductor(1);
    before.handle([submit(1, "a"), submit(2, "b"), submit(3, "c")], noon());
    let jobs: Vec<Job> = before.jobs().map(|job| Job::clone(job)).collect();
    let running = Report {
        attempt: AttemptKey {
            job: id(1),
            worker: T0,
            attempt: 1,
        },
        news: News::Up,
    };
    let (mut after, output) = restored(
        1,
        jobs,
        EngineState {
            attempts: vec![running],
            nodes: Vec::new(),
            boot: Boot::Same,
        },
    );
    assert_eq!(orders(&output), ["go trainer 0 #1"]);
    let output = after.handle(
        [news(1, News::Started), news(1, News::Exited(Exit::with_code(0)))],
        seconds(1),
    );
    assert_eq!(saved(&output)[1], (id(2), Phase::Starting));
    let output = after.handle([submit(4, "b")], seconds(1));
    assert!(
        matches!(only(output.replies), Err(Refusal::NameTaken { .. })),
        "names are known again"
    );
    let output = after.handle([keyed(5, "z", "key-3")], seconds(1));
    assert_eq!(
        only(output.replies),
        Ok(Reply::AlreadyAccepted(id(3))),
        "and keys"
    );
}

#[test]
fn restoring_cleans_stray_attempts() {
    let stray = Report {
        attempt: AttemptKey {
            job: id(7),
            worker: T0,
            attempt: 1,
        },
        news: News::Exited(Exit::with_code(0)),
    };
    let (_, output) = restored(
        1,
        Vec::new(),
        EngineState {
            attempts: vec![stray],
            nodes: Vec::new(),
            boot: Boot::Same,
        },
    );
    assert_eq!(orders(&output), ["clean trainer 0 #1"]);
}

#[test]
fn a_raised_quota_lets_a_waiting_job_start() {
    let mut conductor = conductor(4);
    let quota = |cores| Input::QuotaChanged {
        user: user("ada"),
        quota: Quota {
            cpu: Some(Cpu::cores(cores)),
            ..Quota::default()
        },
    };
    conductor.handle([quota(1), submit(1, "a"), submit(2, "b")], noon());
    assert_eq!(conductor.job(&id(2)).unwrap().phase, Phase::Pending);
    assert!(conductor.why(&id(2), noon()).is_some());
    let output = conductor.handle([quota(2)], seconds(1));
    assert_eq!(saved(&output), [(id(2), Phase::Starting)]);
    assert_eq!(conductor.usage(&user("ada")).cpu, Cpu::cores(2));
}

#[test]
fn a_gang_without_room_returns_to_its_queue_position_with_the_reason() {
    let mut conductor = conductor(2);
    let gang = Input::Submit(Submission {
        id: id(1),
        user: user("ada"),
        spec: Arc::new(spec("gang", 0, 2)),
        name: NameOrigin::Request,
        key: None,
    });
    conductor.handle([gang, submit(2, "later")], noon());
    let why = "`node-1` was taken by another pod".to_owned();
    let output = conductor.handle([news(1, News::NoRoom(why.clone()))], seconds(1));
    assert_eq!(saved(&output), [(id(1), Phase::Withdrawing)]);
    assert_eq!(orders(&output), ["stop trainer 1 #1", "clean trainer 0 #1"]);
    let other = AttemptKey {
        job: id(1),
        worker: WorkerKey::trainer(1),
        attempt: 1,
    };
    let gone = Report {
        attempt: other,
        news: News::Exited(Exit::by_signal(15)),
    };
    let output = conductor.handle([Input::Report(gone)], seconds(2));
    assert_eq!(
        orders(&output),
        ["clean trainer 1 #1", "launch trainer 0 #2", "launch trainer 1 #2"],
        "before the job that came later, and under new numbers"
    );
    let job = conductor.job(&id(1)).unwrap();
    let moments = job.timeline.moments().iter();
    assert!(
        moments.clone().any(|moment| moment.text.contains(&why)),
        "{:?}",
        job.timeline
    );
    assert_eq!(conductor.job(&id(2)).unwrap().phase, Phase::Pending);
}

#[test]
fn a_job_that_borrows_is_queued_again_for_a_guaranteed_one_and_keeps_its_retries() {
    let policy = Policy {
        reclaim: Some(SignedDuration::from_secs(5)),
        ..Policy::default()
    };
    let (mut conductor, _) = restored_with(scheduler(2, policy), Vec::new(), nothing());
    let guarantee = Guarantee {
        cpu: Cpu::cores(2),
        memory: Bytes::mib(1 << 20),
        gpu: 0,
    };
    let quota = Input::QuotaChanged {
        user: user("bob"),
        quota: Quota {
            guarantee,
            ..Quota::default()
        },
    };
    let mut asked = Submission {
        id: id(1),
        user: user("ada"),
        spec: Arc::new(spec("long", 0, 2)),
        name: NameOrigin::Request,
        key: None,
    };
    conductor.handle([quota, Input::Submit(asked.clone())], noon());
    asked.id = id(2);
    asked.user = user("bob");
    let output = conductor.handle([Input::Submit(asked)], seconds(1));
    assert_eq!(
        output.wake_at,
        Some(seconds(6)),
        "when bob's job has waited long enough"
    );
    let output = conductor.handle([Input::Tick], seconds(6));
    assert_eq!(saved(&output), [(id(1), Phase::Withdrawing)]);
    assert_eq!(orders(&output), ["stop trainer 0 #1", "stop trainer 1 #1"]);
    let gone = |index| {
        let attempt = AttemptKey {
            job: id(1),
            worker: WorkerKey::trainer(index),
            attempt: 1,
        };
        let news = News::Exited(Exit::by_signal(15));
        Input::Report(Report { attempt, news })
    };
    let output = conductor.handle([gone(0), gone(1)], seconds(8));
    assert_eq!(
        saved(&output),
        [(id(1), Phase::Pending), (id(2), Phase::Starting)]
    );
    let job = conductor.job(&id(1)).unwrap();
    assert!(
        job.message.starts_with("queued again: the resources it borrowed"),
        "{}",
        job.message
    );
    assert_eq!(job.held_before, SignedDuration::from_secs(8));
    assert!(!job.message.contains("bob"));
    conductor.handle([kill(2, AfterKill::KeepInHistory)], seconds(9));
    let ended = |index| {
        let attempt = AttemptKey {
            job: id(2),
            worker: WorkerKey::trainer(index),
            attempt: 1,
        };
        let news = News::Exited(Exit::by_signal(15));
        Input::Report(Report { attempt, news })
    };
    let output = conductor.handle([ended(0), ended(1)], seconds(10));
    assert!(
        orders(&output).contains(&"launch trainer 0 #2".to_owned()),
        "{:?}",
        orders(&output)
    );
    let job = conductor.job(&id(1)).unwrap();
    assert!(job.workers.iter().all(|worker| worker.restarts == 0));
}

#[test]
fn a_job_that_ran_and_was_queued_again_starts_as_a_whole_again() {
    let mut conductor = conductor(2);
    let gang = Input::Submit(Submission {
        id: id(1),
        user: user("ada"),
        spec: Arc::new(spec("gang", 0, 2)),
        name: NameOrigin::Request,
        key: None,
    });
    conductor.handle([gang], noon());
    conductor.handle([of(0, 1, News::Up), of(1, 1, News::Up)], seconds(1));
    assert!(conductor.job(&id(1)).unwrap().is_under_way());
    let mut batch = Batch::default();
    conductor.change(&id(1), seconds(2), &mut batch, |job| {
        job.on_event(Event::Reclaimed, seconds(2))
    });
    let gone = || News::Exited(Exit::by_signal(15));
    let output = conductor.handle([of(0, 1, gone()), of(1, 1, gone())], seconds(3));
    assert_eq!(saved(&output), [(id(1), Phase::Starting)]);
    assert!(!conductor.job(&id(1)).unwrap().is_under_way());
    let output = conductor.handle([of(0, 2, News::NoRoom("taken".into()))], seconds(4));
    assert_eq!(
        saved(&output),
        [(id(1), Phase::Withdrawing)],
        "it does not keep half of its workers, and has not failed"
    );
}

#[test]
fn a_moved_worker_holds_room_where_it_runs() {
    let two = Inventory {
        nodes: vec![node("a", 1), node("b", 1)],
    };
    let (mut conductor, _) = restored_with(Scheduler::new(two, Policy::default()), Vec::new(), nothing());
    let node_of = |conductor: &Conductor, number| {
        let job = conductor.job(&id(number)).unwrap();
        job.placement
            .as_ref()
            .map(|placement| placement.workers[0].node.clone())
    };
    conductor.handle([submit(1, "moves")], seconds(0));
    let first = node_of(&conductor, 1).unwrap();
    let other: NodeName = if first == "a".into() {
        "b".into()
    } else {
        "a".into()
    };
    let attempt = AttemptKey {
        job: id(1),
        worker: T0,
        attempt: 1,
    };
    let moved = Input::Moved {
        attempt,
        node: other.clone(),
    };
    let output = conductor.handle([moved.clone()], seconds(1));
    assert_eq!(saved(&output), [(id(1), Phase::Starting)], "it is durable");
    assert_eq!(
        saved(&conductor.handle([moved], seconds(2))),
        [],
        "nothing changed"
    );
    conductor.handle([submit(2, "next"), submit(3, "waits")], seconds(3));
    assert_eq!(node_of(&conductor, 1), Some(other));
    assert_eq!(node_of(&conductor, 2), Some(first), "its old seat is free");
    assert_eq!(node_of(&conductor, 3), None);
}
