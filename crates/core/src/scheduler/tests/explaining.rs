//! What people read about a job that waits.

use super::build::*;
use crate::quantity::Cpu;
use crate::scheduler::Quota;

#[test]
fn a_reason_names_what_is_missing() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run([job(1, 7), job(2, 4)], 0);
    assert_eq!(scheduler.reason(2, 0), "waits for 3 cores: 4 asked, 1 free of 8");
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run(
        [
            job(1, 1).of_size(size(1, 15, 0)),
            job(2, 1).of_size(size(1, 2, 0)),
        ],
        0,
    );
    assert_eq!(
        scheduler.reason(2, 0),
        "waits for 1Gi of memory: 2Gi asked, 1Gi free of 16Gi"
    );
}

#[test]
fn a_reason_names_room_that_is_scattered() {
    let mut scheduler = strict(nodes(&[2, 3, 3]));
    scheduler.run([job(1, 1), job(2, 3).of_size(size(2, 1, 0))], 0);
    assert_eq!(
        scheduler.reason(2, 0),
        "waits for room on single machines: 3 trainers asked, 2 would fit now"
    );
    let mut scheduler = strict(nodes(&[3, 3]));
    scheduler.run(
        [job(1, 2).of_size(size(2, 1, 0)), job(2, 1).of_size(size(2, 1, 0))],
        0,
    );
    assert_eq!(
        scheduler.reason(2, 0),
        "waits for room on single machines: none has enough for its 1 worker"
    );
}

#[test]
fn a_reason_names_the_quota_and_the_job_in_front() {
    let mut scheduler = strict(nodes(&[16]));
    let quota = Quota {
        cpu: Some(Cpu::cores(10)),
        ..Quota::default()
    };
    scheduler.set_quota(user("me"), quota);
    scheduler.run([job(1, 8), job(2, 4), job(3, 1), job(4, 11)], 0);
    assert_eq!(
        scheduler.reason(2, 0),
        "your quota of 10 cores: 8 in use, 4 asked"
    );
    assert_eq!(
        scheduler.reason(3, 0),
        format!("behind your job `{}`, which waits for your quota", id(2))
    );
    assert_eq!(
        scheduler.reason(4, 0),
        "cannot start within your quota of 10 cores: 11 cores asked"
    );
    let why = scheduler.explain(&id(3), at(0)).unwrap();
    assert_eq!((why.ahead, why.ahead_total), (vec![id(2)], 1));
}

#[test]
fn a_reason_names_who_the_free_room_is_kept_for() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.run([job(1, 2)], 0);
    scheduler.run([job(2, 4).urgent(1), job(3, 3).urgent(1), job(4, 1)], 0);
    let why = scheduler.explain(&id(4), at(0)).unwrap();
    assert_eq!(
        why.reason,
        format!(
            "behind 2 jobs of higher priority; what is free is kept for `{}`",
            id(2)
        )
    );
    assert_eq!((why.ahead, why.ahead_total), (vec![id(2), id(3)], 2));
    assert_eq!((why.estimate, why.change), (None, None));
}

#[test]
fn a_reason_names_the_job_that_has_the_machine_to_itself() {
    let mut scheduler = embedded(nodes(&[2]));
    scheduler.run([job(1, 5), job(2, 1)], 0);
    assert_eq!(
        scheduler.reason(2, 0),
        format!(
            "waits for `{}`, which runs alone because it is larger than the machine (5 cores asked, 2 here; \
             5Gi of memory asked, 4Gi here); it has no -max-runtime, so nobody knows when it ends",
            id(1)
        )
    );
    let mut scheduler = embedded(nodes(&[2]));
    scheduler.run([job(1, 1), job(2, 3)], 0);
    assert_eq!(
        scheduler.reason(2, 0),
        "waits until nothing else runs: 3 cores asked, 2 here: it runs alone, other jobs wait"
    );
}

#[test]
fn behind_a_job_that_runs_alone_its_end_is_told_and_only_a_kill_helps() {
    let mut scheduler = embedded(nodes(&[2]));
    let big = job(1, 1).of_size(size(5, 1, 0)).for_seconds(60);
    scheduler.run([big, job(2, 2), job(3, 1)], 0);
    let first = scheduler.explain(&id(2), at(10)).unwrap();
    assert_eq!(
        first.reason,
        format!(
            "waits for `{}`, which runs alone because it is larger than the machine (5 cores asked, 2 here); \
             its -max-runtime ends it by 1970-01-01T00:01:00Z",
            id(1)
        )
    );
    assert_eq!(first.estimate.unwrap().at, at(60));
    assert_eq!(
        first.change,
        Some(format!("would start now after `paddlectl kill {}`", id(1)))
    );
    let second = scheduler.explain(&id(3), at(10)).unwrap();
    assert_eq!(second.change, None, "job 2 would take all there is");
    assert_eq!(scheduler.end_and_run(1, 11), [id(2)], "as it was told");
}

#[test]
fn a_submit_is_told_that_the_job_would_run_alone() {
    let scheduler = embedded(nodes(&[2]));
    let memory = scheduler.note(&job(1, 1).of_size(size(1, 5, 0)));
    assert_eq!(
        memory.as_deref(),
        Some("5Gi of memory asked, 4Gi here: it runs alone, other jobs wait")
    );
    assert_eq!(scheduler.note(&job(1, 2)), None);
}

#[test]
fn a_reason_names_what_a_smaller_inventory_lacks() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.run([job(1, 4), job(2, 4)], 0);
    scheduler.set_inventory(nodes(&[2]));
    scheduler.run([], 1);
    let why = scheduler.explain(&id(2), at(1)).unwrap();
    assert_eq!(
        why.reason,
        "cannot start on these machines: 4 cores asked, 2 here"
    );
    assert_eq!(why.estimate, None);
}

#[test]
fn the_smallest_change_keeps_most_of_the_job() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run([job(1, 2), job(2, 8)], 0);
    let change =
        |scheduler: &crate::scheduler::Scheduler, job| scheduler.explain(&id(job), at(0)).unwrap().change;
    assert_eq!(
        change(&scheduler, 2).as_deref(),
        Some("would start now with `-parallelism 6`")
    );
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run([job(1, 2), job(2, 1).of_size(size(8, 1, 0))], 0);
    assert_eq!(
        change(&scheduler, 2).as_deref(),
        Some("would start now with `-cpu 6`")
    );
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run(
        [
            job(1, 1).of_size(size(1, 13, 0)),
            job(2, 1).of_size(size(1, 8, 0)),
        ],
        0,
    );
    assert_eq!(
        change(&scheduler, 2).as_deref(),
        Some("would start now with `-memory 3Gi`")
    );
}

#[test]
fn fewer_parameter_servers_or_cards_are_proposed_where_they_are_the_smaller_loss() {
    let change =
        |scheduler: &crate::scheduler::Scheduler, job| scheduler.explain(&id(job), at(0)).unwrap().change;
    let mut scheduler = strict(nodes(&[8]));
    let mut many_servers = job(2, 2);
    many_servers.roles.insert(0, (6, size(1, 1, 0)));
    scheduler.run([job(1, 1), many_servers], 0);
    assert_eq!(
        change(&scheduler, 2).as_deref(),
        Some("would start now with `-pservers 5`")
    );
    let mut scheduler = strict(crate::scheduler::Inventory {
        nodes: vec![node("n0", 8, 16, 4)],
    });
    let cards = [job(1, 1).of_size(size(1, 1, 1)), job(2, 1).of_size(size(1, 1, 4))];
    scheduler.run(cards, 0);
    assert_eq!(
        change(&scheduler, 2).as_deref(),
        Some("would start now with `-gpu 3`")
    );
}

#[test]
fn a_higher_priority_is_never_proposed() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.run([job(1, 3), job(2, 4), job(3, 2)], 0);
    for waiting in [2, 3] {
        let change = scheduler.explain(&id(waiting), at(0)).unwrap().change;
        assert!(!change.unwrap_or_default().contains("priority"));
    }
}

#[test]
fn a_shorter_runtime_is_proposed_when_only_a_reservation_is_in_the_way() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.run([job(1, 3).for_seconds(5430), job(2, 4), job(3, 1)], 0);
    let why = scheduler.explain(&id(3), at(0)).unwrap();
    assert_eq!(
        why.change.as_deref(),
        Some("would start now with `-max-runtime 1h30m`")
    );
}

#[test]
fn an_estimate_follows_the_ends_of_what_runs_and_waits() {
    let mut scheduler = strict(nodes(&[4]));
    let jobs = [job(1, 4).for_seconds(100), job(2, 4).for_seconds(50), job(3, 4)];
    scheduler.run(jobs, 0);
    let estimate = |job| {
        scheduler
            .explain(&id(job), at(10))
            .unwrap()
            .estimate
            .map(|e| e.at)
    };
    assert_eq!(estimate(2), Some(at(100)));
    assert_eq!(estimate(3), Some(at(150)));
    scheduler.run([job(4, 1)], 10);
    assert_eq!(
        scheduler.explain(&id(4), at(10)).unwrap().estimate,
        None,
        "job 3 has no end"
    );
}

#[test]
fn an_estimate_waits_for_the_quota() {
    let mut scheduler = strict(nodes(&[8]));
    let quota = Quota {
        parallelism: Some(2),
        ..Quota::default()
    };
    scheduler.set_quota(user("me"), quota);
    scheduler.run([job(1, 2).for_seconds(60), job(2, 1)], 0);
    let estimate = scheduler.explain(&id(2), at(0)).unwrap().estimate.unwrap();
    assert_eq!(estimate.at, at(60));
}

#[test]
fn an_estimate_of_a_job_that_runs_alone_waits_for_everything() {
    let mut scheduler = embedded(nodes(&[2]));
    scheduler.run(
        [job(1, 1).for_seconds(60), job(2, 3).for_seconds(30), job(3, 2)],
        0,
    );
    let estimate = |job| scheduler.explain(&id(job), at(0)).unwrap().estimate.unwrap().at;
    assert_eq!((estimate(2), estimate(3)), (at(60), at(90)));
}

#[test]
fn only_queued_jobs_have_a_reason() {
    let mut scheduler = strict(nodes(&[2]));
    scheduler.run([job(1, 1)], 0);
    assert_eq!(scheduler.explain(&id(1), at(0)), None);
    assert_eq!(scheduler.explain(&id(2), at(0)), None);
}
