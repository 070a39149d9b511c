//! What ends a running job from outside: its time, and its owner's files.

use super::*;
use crate::scheduler::StorageExcess;

#[test]
fn a_job_that_runs_too_long_fails() {
    let limit = Some(SignedDuration::from_hours(1));
    let mut job = running(
        1,
        JobSpec {
            max_runtime: limit,
            ..spec("job", 0, 1)
        },
    );
    assert_eq!(job.deadline(), Some(seconds(3602)));
    assert_eq!(job.on_event(Event::Tick, seconds(3602)), [stop(T0, 1)]);
    assert_eq!(job.message, "ran longer than its limit of 1h");
}

#[test]
fn only_a_running_job_is_stopped_when_its_owner_exceeds_the_storage_quota() {
    let exceeded = || {
        Event::StorageExceeded(StorageExcess::Bytes {
            used: 209 << 20,
            limit: 10 << 20,
        })
    };
    let mut job = running(1, retrying(1, 0, 1));
    assert_eq!(job.on_event(exceeded(), seconds(10)), [stop(T0, 1)]);
    assert_eq!(
        job.message,
        "stopped because its owner's files exceed the storage quota: 209 MiB of 10 MiB in use"
    );
    job.on_event(first(T0, exited(143)), seconds(11));
    assert_eq!(job.phase, Phase::Final(Outcome::Failed), "it is not retried");

    let mut waiting = pending(2, spec("job", 0, 1));
    assert_eq!(waiting.on_event(exceeded(), seconds(10)), []);
    assert_eq!(waiting.phase, Phase::Pending);
}
