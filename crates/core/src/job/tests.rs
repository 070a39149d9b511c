//! The rules of a job's life, one by one. The simulator tests their combinations.

use jiff::SignedDuration;

use super::*;
use crate::exit::Exit;
use crate::testing::samples::{admission, everybody, first, pending, running, seconds, spec, starting};

mod limits;
mod stored;

const T0: WorkerKey = WorkerKey {
    role: Role::Trainer,
    index: 0,
};
const T1: WorkerKey = WorkerKey {
    role: Role::Trainer,
    index: 1,
};
const P0: WorkerKey = WorkerKey {
    role: Role::Pserver,
    index: 0,
};
const P1: WorkerKey = WorkerKey {
    role: Role::Pserver,
    index: 1,
};

fn exited(code: i32) -> News {
    News::Exited(Exit::with_code(code))
}

fn attempt(worker: WorkerKey, attempt: u32, news: News) -> Event {
    Event::Worker {
        worker,
        attempt,
        news,
    }
}

fn launched(worker: WorkerKey, attempt: u32) -> Action {
    Action::Launch { worker, attempt }
}

fn go(worker: WorkerKey, attempt: u32) -> Action {
    Action::Go { worker, attempt }
}

fn clean(worker: WorkerKey, attempt: u32) -> Action {
    Action::Clean { worker, attempt }
}

fn stop(worker: WorkerKey, attempt: u32) -> Action {
    Action::Stop {
        worker,
        attempt,
        grace: SignedDuration::from_secs(30),
    }
}

/// Every running worker exits as a stopped program does.
fn all_stop(job: &mut Job) {
    for worker in everybody(job) {
        let attempt = job.worker(worker).unwrap().attempt;
        job.on_event(
            Event::Worker {
                worker,
                attempt,
                news: News::Exited(Exit::by_signal(15)),
            },
            seconds(50),
        );
    }
}

fn retrying(retries: u32, pservers: u32, trainers: u32) -> JobSpec {
    JobSpec {
        retries,
        ..spec("job", pservers, trainers)
    }
}

#[test]
fn all_workers_are_launched_at_admission() {
    let mut job = pending(1, spec("job", 2, 2));
    let actions = job.on_event(admission(&job.spec), seconds(1));
    assert_eq!(
        actions,
        [launched(P0, 1), launched(P1, 1), launched(T0, 1), launched(T1, 1)]
    );
    assert_eq!(job.phase, Phase::Starting);
    assert_eq!(job.workers[3].address, "127.1.0.4");
}

#[test]
fn trainers_start_when_all_workers_are_up() {
    let mut job = starting(1, spec("job", 1, 2));
    assert_eq!(job.on_event(first(T0, News::Up), seconds(2)), []);
    assert_eq!(job.on_event(first(P0, News::Ready), seconds(3)), []);
    assert_eq!(
        job.on_event(first(T1, News::Up), seconds(4)),
        [go(T0, 1), go(T1, 1)]
    );
    assert_eq!((job.phase, job.started_at), (Phase::Running, Some(seconds(4))));
}

#[test]
fn trainers_start_alone_in_a_job_without_parameter_servers() {
    let mut job = starting(1, spec("job", 0, 1));
    assert_eq!(job.on_event(first(T0, News::Up), seconds(2)), [go(T0, 1)]);
}

#[test]
fn a_job_succeeds_when_all_trainers_did_however_the_parameter_servers_end() {
    let mut job = running(1, spec("job", 1, 2));
    assert_eq!(job.on_event(first(T0, exited(0)), seconds(5)), [clean(T0, 1)]);
    assert_eq!(
        job.on_event(first(T1, exited(0)), seconds(6)),
        [clean(T1, 1), stop(P0, 1)]
    );
    assert_eq!(job.phase, Phase::Stopping(Outcome::Succeeded));
    job.on_event(first(P0, News::Exited(Exit::by_signal(9))), seconds(7));
    assert_eq!(
        (job.phase, job.finished_at),
        (Phase::Final(Outcome::Succeeded), Some(seconds(7)))
    );
    assert_eq!(
        job.counts(),
        Counts {
            succeeded: 2,
            failed: 0,
            active: 0
        }
    );
}

#[test]
fn a_failed_trainer_fails_the_job_and_stops_the_others() {
    let mut job = running(1, spec("job", 1, 2));
    let actions = job.on_event(first(T1, exited(1)), seconds(5));
    assert_eq!(actions, [clean(T1, 1), stop(P0, 1), stop(T0, 1)]);
    assert_eq!(job.culprit, Some(T1));
    all_stop(&mut job);
    assert_eq!(job.phase, Phase::Final(Outcome::Failed));
    assert_eq!(job.message, "trainer 1 failed: exit code 1");
}

#[test]
fn a_worker_that_failed_before_it_was_asked_to_stop_counts_as_failed() {
    for (stopped, failed) in [(Some(false), 2), (Some(true), 1), (None, 1)] {
        let mut job = running(1, spec("job", 0, 2));
        job.on_event(first(T1, exited(1)), seconds(5));
        let exit = Exit {
            stopped,
            ..Exit::with_code(1)
        };
        job.on_event(first(T0, News::Exited(exit)), seconds(6));
        assert_eq!(job.phase, Phase::Final(Outcome::Failed));
        assert_eq!(job.counts().failed, failed, "{stopped:?}");
    }
}

#[test]
fn the_schedulers_note_is_dropped_at_the_end() {
    let mut job = running(1, spec("job", 0, 1));
    job.note = Some("3 cores requested, 2 in total".into());
    job.on_event(first(T0, exited(0)), seconds(5));
    assert_eq!((job.phase, job.note), (Phase::Final(Outcome::Succeeded), None));
}

#[test]
fn a_job_that_lost_output_says_so_on_success() {
    let mut job = running(1, spec("job", 0, 2));
    let losing = |bytes| {
        News::Exited(Exit {
            lost_output: bytes,
            ..Exit::with_code(0)
        })
    };
    job.on_event(first(T0, losing(20 << 20)), seconds(5));
    job.on_event(first(T1, losing(10 << 20)), seconds(6));
    assert_eq!(job.phase, Phase::Final(Outcome::Succeeded));
    assert_eq!(
        job.message_in_full().unwrap(),
        "all 2 trainers succeeded; 30 MiB of its output could not be stored and is lost: is the disk full?"
    );
}

#[test]
fn output_that_the_failed_worker_lost_is_reported_once() {
    let mut job = running(1, spec("job", 0, 1));
    let exit = Exit {
        lost_output: 1 << 20,
        ..Exit::with_code(1)
    };
    job.on_event(first(T0, News::Exited(exit)), seconds(5));
    assert_eq!(
        job.message_in_full().unwrap(),
        "trainer 0 failed: exit code 1; 1 MiB of its output could not be stored and is lost: is the disk full?"
    );
}

#[test]
fn a_failed_trainer_is_restarted_under_the_next_number_while_it_has_retries() {
    let mut job = running(1, retrying(1, 1, 2));
    let actions = job.on_event(first(T0, exited(1)), seconds(5));
    assert_eq!(actions, [clean(T0, 1), launched(T0, 2)]);
    assert_eq!(job.phase, Phase::Running, "the others go on");
    assert_eq!(job.on_event(attempt(T0, 2, News::Up), seconds(6)), [go(T0, 2)]);
    job.on_event(attempt(T0, 2, exited(1)), seconds(7));
    assert_eq!(job.phase, Phase::Stopping(Outcome::Failed));
    assert_eq!(job.message, "trainer 0 failed after 1 restart: exit code 1");
}

#[test]
fn an_old_attempt_changes_nothing() {
    let mut job = running(1, retrying(2, 0, 1));
    job.on_event(first(T0, exited(1)), seconds(5));
    let before = job.clone();
    for news in [
        News::Up,
        News::Started,
        exited(0),
        exited(1),
        News::Lost("late".into()),
    ] {
        assert_eq!(job.on_event(first(T0, news), seconds(6)), []);
    }
    assert_eq!(job, before);
}

#[test]
fn a_parameter_server_that_exits_early_fails_the_job_even_with_code_zero() {
    let mut job = running(1, spec("job", 1, 1));
    job.on_event(first(P0, exited(0)), seconds(5));
    assert_eq!(job.phase, Phase::Stopping(Outcome::Failed));
    assert_eq!(
        job.message,
        "pserver 0 exited before the trainers finished: exit code 0"
    );
}

#[test]
fn a_parameter_server_that_never_started_did_not_exit() {
    let mut job = starting(1, spec("job", 1, 1));
    let missing = News::Exited(Exit::unseen("image `nowhere:1`: ErrImagePull: not found"));
    job.on_event(first(P0, missing), seconds(5));
    assert_eq!(
        job.message,
        "pserver 0 did not start: image `nowhere:1`: ErrImagePull: not found"
    );
}

#[test]
fn a_restarted_parameter_server_leaves_running_trainers_alone() {
    let mut job = running(1, retrying(1, 1, 1));
    assert_eq!(
        job.on_event(first(P0, exited(1)), seconds(5)),
        [clean(P0, 1), launched(P0, 2)]
    );
    assert_eq!(job.on_event(attempt(P0, 2, News::Ready), seconds(6)), []);
    assert_eq!(job.worker(T0).unwrap().status, WorkerStatus::Running);
    assert_eq!(job.deadline(), None, "nobody is waited for any more");
}

#[test]
fn a_trainer_that_exits_before_its_start_has_failed() {
    let mut job = starting(1, spec("job", 1, 1));
    job.on_event(first(T0, News::Up), seconds(2));
    job.on_event(first(T0, exited(0)), seconds(3));
    assert_eq!(job.phase, Phase::Stopping(Outcome::Failed));
}

#[test]
fn a_lost_attempt_counts_as_a_failure() {
    let mut job = running(1, spec("job", 0, 1));
    job.on_event(first(T0, News::Lost("its supervisor is gone".into())), seconds(5));
    assert_eq!(job.phase, Phase::Final(Outcome::Failed));
    assert_eq!(job.message, "trainer 0 was lost: its supervisor is gone");
}

#[test]
fn the_start_limit_names_the_missing_workers() {
    let mut job = starting(1, spec("job", 2, 7));
    job.on_event(first(P0, News::Started), seconds(2));
    job.on_event(first(P1, News::Ready), seconds(2));
    job.on_event(first(T1, News::Up), seconds(2));
    assert_eq!(job.deadline(), Some(seconds(601)));
    assert_eq!(job.on_event(Event::Tick, seconds(600)), []);
    let stops = job.on_event(Event::Tick, seconds(601));
    assert_eq!(stops.len(), 9);
    insta::assert_snapshot!(job.message, @"not all workers were ready after 10m: pserver 0 is not listening on both of its ports 7164 and 7165 yet; trainer 0 has not started; trainer 2 has not started; trainer 3 has not started; trainer 4 has not started; and 2 more");
    all_stop(&mut job);
    assert_eq!(job.phase, Phase::Final(Outcome::Failed));
}

#[test]
fn the_start_limit_counts_for_restarted_workers_too() {
    let mut job = running(1, retrying(1, 0, 1));
    job.on_event(first(T0, exited(1)), seconds(100));
    assert_eq!(job.deadline(), Some(seconds(700)));
    job.on_event(Event::Tick, seconds(700));
    assert_eq!(job.phase, Phase::Stopping(Outcome::Failed));
}

#[test]
fn a_killed_job_frees_its_name_at_once_and_is_final_when_all_are_gone() {
    let mut job = running(1, spec("job", 1, 1));
    assert!(job.holds_name());
    let kill = Event::KillRequested(AfterKill::KeepInHistory);
    assert_eq!(job.on_event(kill.clone(), seconds(5)), [stop(P0, 1), stop(T0, 1)]);
    assert!(!job.holds_name());
    assert_eq!(
        job.on_event(kill, seconds(6)),
        [],
        "a second kill changes nothing"
    );
    job.on_event(first(T0, News::Exited(Exit::by_signal(15))), seconds(7));
    assert_eq!(job.phase, Phase::Stopping(Outcome::Killed));
    job.on_event(first(P0, News::Exited(Exit::by_signal(15))), seconds(8));
    assert_eq!(job.phase, Phase::Final(Outcome::Killed));
}

#[test]
fn a_kill_does_not_change_the_outcome_of_a_finished_job() {
    let mut job = running(1, spec("job", 1, 1));
    job.on_event(first(T0, exited(0)), seconds(5));
    job.on_event(Event::KillRequested(AfterKill::Remove), seconds(6));
    assert!(job.remove_when_final && !job.holds_name());
    all_stop(&mut job);
    assert_eq!(job.phase, Phase::Final(Outcome::Succeeded));
}

#[test]
fn a_stopping_job_can_be_killed_without_its_grace_period() {
    let at_once = |worker| Action::Stop {
        worker,
        attempt: 1,
        grace: SignedDuration::ZERO,
    };
    let mut job = running(1, spec("job", 1, 1));
    assert_eq!(
        job.on_event(Event::SkipGrace, seconds(4)),
        [],
        "nobody asked it to stop"
    );
    job.on_event(Event::KillRequested(AfterKill::KeepInHistory), seconds(5));
    job.on_event(first(T0, News::Exited(Exit::by_signal(15))), seconds(6));
    assert_eq!(job.on_event(Event::SkipGrace, seconds(7)), [at_once(P0)]);
    assert_eq!(job.on_event(Event::SkipGrace, seconds(8)), [], "once is enough");
    assert_eq!(
        job.deadline(),
        Some(seconds(17)),
        "the order is repeated for an engine that missed it"
    );
    assert_eq!(job.on_event(Event::Tick, seconds(17)), [at_once(P0)]);
}

#[test]
fn a_pending_job_is_killed_on_the_spot() {
    let mut job = pending(1, spec("job", 1, 1));
    assert_eq!(
        job.on_event(Event::KillRequested(AfterKill::KeepInHistory), seconds(5)),
        []
    );
    assert_eq!(job.phase, Phase::Final(Outcome::Killed));
    assert_eq!(job.on_event(admission(&job.spec), seconds(6)), []);
}

#[test]
fn a_final_job_ignores_every_event() {
    let mut job = running(1, spec("job", 0, 1));
    job.on_event(first(T0, exited(0)), seconds(5));
    let before = job.clone();
    for event in [
        Event::Tick,
        Event::Rebooted,
        first(T0, exited(1)),
        Event::KillRequested(AfterKill::Remove),
    ] {
        assert_eq!(job.on_event(event, seconds(9)), []);
    }
    assert_eq!(job, before);
}

#[test]
fn a_stop_order_is_repeated_until_the_engine_stops() {
    let mut job = running(1, spec("job", 0, 1));
    job.on_event(Event::KillRequested(AfterKill::KeepInHistory), seconds(5));
    assert_eq!(job.deadline(), Some(seconds(45)));
    assert_eq!(job.on_event(Event::Tick, seconds(45)), [stop(T0, 1)]);
    assert_eq!(job.deadline(), Some(seconds(85)));
}

#[test]
fn limits_restart_when_the_clock_is_set_back() {
    let mut job = starting(1, spec("job", 0, 1));
    assert_eq!(job.on_event(Event::Tick, seconds(-3600)), []);
    assert_eq!(job.deadline(), Some(seconds(-3000)));
    job.on_event(first(T0, News::Up), seconds(-3500));
    assert_eq!(
        job.started_at,
        Some(seconds(1)),
        "the story of a job never runs backwards"
    );
}

#[test]
fn a_restart_of_the_machine_loses_the_job() {
    let mut job = running(1, spec("job", 1, 1));
    assert_eq!(
        job.on_event(Event::Rebooted, seconds(5)),
        [clean(P0, 1), clean(T0, 1)]
    );
    assert_eq!(job.phase, Phase::Final(Outcome::Lost));
    assert_eq!(job.message, "the machine restarted while it was running");
}

#[test]
fn a_restart_of_the_machine_starts_a_job_with_retries_again() {
    let mut job = running(1, retrying(1, 1, 2));
    job.on_event(first(T1, exited(0)), seconds(4));
    let actions = job.on_event(Event::Rebooted, seconds(5));
    assert_eq!(
        actions,
        [clean(P0, 1), clean(T0, 1), launched(P0, 2), launched(T0, 2)]
    );
    assert_eq!(job.phase, Phase::Starting);
    job.on_event(attempt(T0, 2, News::Up), seconds(6));
    assert_eq!(job.on_event(attempt(P0, 2, News::Ready), seconds(7)), [go(T0, 2)]);
}

#[test]
fn a_resumed_job_adopts_running_workers_and_repeats_lost_orders() {
    let mut job = starting(1, spec("job", 0, 2));
    job.on_event(first(T0, News::Up), seconds(2));
    // The engine has both attempts but never received `go`, and the report of the second one was lost.
    let found = [T0, T1].map(|worker| FoundAttempt {
        worker,
        attempt: 1,
        news: News::Up,
    });
    assert_eq!(
        job.resume(found.to_vec(), Boot::Same, seconds(60)),
        [go(T0, 1), go(T1, 1)]
    );
    assert_eq!(
        job.resume(found.to_vec(), Boot::Same, seconds(61)),
        [go(T0, 1), go(T1, 1)]
    );
}

#[test]
fn a_resumed_job_launches_unlaunched_workers_and_relaunches_vanished_ones() {
    let mut job = starting(1, retrying(1, 0, 2));
    job.on_event(first(T0, News::Up), seconds(2));
    let actions = job.resume(Vec::new(), Boot::Same, seconds(60));
    assert_eq!(actions, [clean(T0, 1), launched(T0, 2), launched(T1, 1)]);
}

#[test]
fn a_resumed_job_handles_recorded_exits_and_cleans_old_attempts() {
    let mut job = running(1, retrying(1, 0, 1));
    job.on_event(first(T0, exited(1)), seconds(5));
    let old = FoundAttempt {
        worker: T0,
        attempt: 1,
        news: exited(1),
    };
    let new = FoundAttempt {
        worker: T0,
        attempt: 2,
        news: exited(0),
    };
    let mut ready = job.clone();
    ready.on_event(attempt(T0, 2, News::Up), seconds(6));
    let actions = ready.resume(vec![old, new], Boot::Same, seconds(60));
    assert_eq!(actions, [clean(T0, 1), clean(T0, 2)]);
    assert_eq!(ready.phase, Phase::Final(Outcome::Succeeded));
}

#[test]
fn a_resumed_job_that_was_stopping_is_stopped_again() {
    let mut job = running(1, spec("job", 0, 2));
    job.on_event(Event::KillRequested(AfterKill::KeepInHistory), seconds(5));
    let found = FoundAttempt {
        worker: T0,
        attempt: 1,
        news: News::Started,
    };
    let actions = job.resume(vec![found], Boot::Same, seconds(60));
    assert_eq!(
        actions,
        [clean(T1, 1), stop(T0, 1)],
        "the unknown attempt is gone, the order for the other is repeated"
    );
}

#[test]
fn after_a_restart_of_the_machine_recorded_ends_stay_true() {
    let mut job = running(1, spec("job", 1, 2));
    job.on_event(first(T0, exited(0)), seconds(4));
    let ended = FoundAttempt {
        worker: T1,
        attempt: 1,
        news: exited(0),
    };
    let gone = FoundAttempt {
        worker: P0,
        attempt: 1,
        news: News::Lost("gone".into()),
    };
    let actions = job.resume(vec![ended, gone], Boot::Changed, seconds(60));
    assert_eq!(actions, [clean(T1, 1), clean(P0, 1)]);
    assert_eq!(
        job.phase,
        Phase::Final(Outcome::Succeeded),
        "the trainers had done their work before"
    );
}

#[test]
fn time_without_a_server_does_not_count_against_the_start_limit() {
    let mut job = starting(1, spec("job", 0, 1));
    job.resume(Vec::new(), Boot::Same, seconds(7200));
    assert_eq!(job.deadline(), Some(seconds(7800)));
}

#[test]
fn a_stored_job_reads_back_the_same() {
    let mut job = running(1, retrying(1, 1, 2));
    job.on_event(first(T0, exited(1)), seconds(5));
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    let phases = [
        Phase::Pending,
        Phase::Stopping(Outcome::Killed),
        Phase::Final(Outcome::Succeeded),
    ];
    insta::assert_snapshot!(
        serde_json::to_string(&phases).unwrap(),
        @r#"["pending",{"stopping":"killed"},{"final":"succeeded"}]"#
    );
}

#[test]
fn the_timeline_lists_the_events_of_a_job() {
    let mut job = running(1, retrying(1, 0, 1));
    job.on_event(
        first(
            T0,
            News::Exited(Exit {
                oom: true,
                ..Exit::by_signal(9)
            }),
        ),
        seconds(5),
    );
    job.on_event(attempt(T0, 2, News::Up), seconds(6));
    job.on_event(attempt(T0, 2, News::Exited(Exit::by_signal(11))), seconds(7));
    let story: Vec<String> = job
        .timeline
        .moments()
        .iter()
        .map(|moment| format!("{:.0} {}", moment.at, moment.text))
        .collect();
    insta::assert_snapshot!(story.join("\n"), @r"
    2019-12-20T12:00:00Z submitted
    2019-12-20T12:00:01Z admitted
    2019-12-20T12:00:02Z all workers are ready: starting the trainers
    2019-12-20T12:00:05Z trainer 0 failed: out of memory: the worker used more than its 1 GiB (exit 137); it is restarted
    2019-12-20T12:00:07Z stopping: trainer 0 failed after 1 restart: segmentation fault (signal 11, SIGSEGV)
    2019-12-20T12:00:07Z failed
    ");
}
