//! Explanations of why a job waits.

use super::build::*;
use crate::names::JobId;
use crate::quantity::{Bytes, Cpu};
use crate::scheduler::{
    Admits, Change, ExceededLimit, Excess, GroupQuota, Holders, Inventory, LimitKind, Node, NodeChange,
    Outside, Quota, Reason, Request, ResourceKind, Scheduler, Shortage, StorageExcess, StorageHold, Taken,
};

fn short(kind: ResourceKind, asked: u128, there: u128) -> Shortage {
    Shortage { kind, asked, there }
}

/// A shortage in whole cores.
fn cpu(asked: u128, there: u128) -> Shortage {
    short(ResourceKind::Cpu, asked * 1000, there * 1000)
}

fn memory(asked: u128, there: u128) -> Shortage {
    let gib = u128::from(GI);
    short(ResourceKind::Memory, asked * gib, there * gib)
}

fn held_by(jobs: &[u64]) -> Holders {
    let jobs: Vec<JobId> = jobs.iter().copied().map(id).collect();
    Holders {
        total: jobs.len(),
        jobs,
        outside: None,
    }
}

fn change(scheduler: &Scheduler, job: u64) -> Option<Change> {
    scheduler.explain(&id(job), at(0)).unwrap().change
}

#[test]
fn a_reason_names_what_is_missing() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run([job(1, 7), job(2, 4)], 0);
    let missing = Reason::Room {
        short: cpu(4, 1),
        of: 8000,
        held_by: held_by(&[1]),
    };
    assert_eq!(scheduler.reason(2, 0), missing);
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run(
        [
            job(1, 1).of_size(size(1, 15, 0)),
            job(2, 1).of_size(size(1, 2, 0)),
        ],
        0,
    );
    let missing = Reason::Room {
        short: memory(2, 1),
        of: 16 * u128::from(GI),
        held_by: held_by(&[1]),
    };
    assert_eq!(scheduler.reason(2, 0), missing);
}

#[test]
fn a_reason_names_room_that_is_scattered() {
    let mut scheduler = strict(nodes(&[2, 3, 3]));
    scheduler.run([job(1, 1), job(2, 3).of_size(size(2, 1, 0))], 0);
    let scattered = Reason::Scattered {
        trainers: 3,
        workers: 3,
        fitting: Some(2),
        held_by: held_by(&[1]),
    };
    assert_eq!(scheduler.reason(2, 0), scattered);
    let mut scheduler = strict(nodes(&[3, 3]));
    scheduler.run(
        [job(1, 2).of_size(size(2, 1, 0)), job(2, 1).of_size(size(2, 1, 0))],
        0,
    );
    let scattered = Reason::Scattered {
        trainers: 1,
        workers: 1,
        fitting: None,
        held_by: held_by(&[1]),
    };
    assert_eq!(scheduler.reason(2, 0), scattered);
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
    let limit = |used, asked| ExceededLimit {
        group: None,
        kind: LimitKind::Resource(ResourceKind::Cpu),
        limit: 10_000,
        used,
        asked,
    };
    assert_eq!(scheduler.reason(2, 0), Reason::Quota(limit(8000, 4000)));
    assert_eq!(scheduler.reason(3, 0), Reason::BehindOwn(id(2)));
    assert_eq!(scheduler.reason(4, 0), Reason::BeyondQuota(limit(0, 11_000)));
    let why = scheduler.explain(&id(3), at(0)).unwrap();
    assert_eq!((why.ahead, why.ahead_total), (vec![id(2)], 1));
}

#[test]
fn no_job_of_a_user_above_the_storage_quota_starts_and_the_reason_says_so() {
    let mut scheduler = strict(nodes(&[16]));
    let over = StorageHold::Over(StorageExcess::Bytes {
        used: 209 << 20,
        limit: 10 << 20,
    });
    scheduler.run([job(1, 8)], 0);
    scheduler.hold_for_storage(&user("me"), Some(over.clone()));
    let started = scheduler.run([job(2, 1), job(3, 1), job(4, 1).by("eve")], 0);
    assert_eq!(started, [id(4)]);
    assert_eq!(scheduler.reason(2, 0), Reason::Storage(over.clone()));
    assert_eq!(scheduler.reason(3, 0), Reason::Storage(over));
    let why = scheduler.explain(&id(3), at(0)).unwrap();
    assert_eq!((why.estimate, why.change), (None, None));
    scheduler.hold_for_storage(&user("me"), None);
    assert_eq!(scheduler.run([], 0), [id(2), id(3)]);
}

#[test]
fn members_of_a_group_share_its_quota_and_a_reason_names_the_group() {
    let mut scheduler = strict(nodes(&[16]));
    scheduler.set_group_quotas(vec![GroupQuota {
        group: "vision".into(),
        quota: Quota {
            cpu: Some(Cpu::cores(10)),
            ..Quota::default()
        },
        members: vec![user("ann"), user("me")],
    }]);
    let started = scheduler.run(
        [
            job(1, 8).by("ann"),
            job(2, 4),
            job(3, 1),
            job(4, 2).by("ann"),
            job(5, 6).by("eve"),
        ],
        0,
    );
    // Another member may start while a larger job of the group waits; a stranger is not concerned.
    assert_eq!(started, [id(1), id(4), id(5)]);
    let limit = |used, asked| ExceededLimit {
        group: Some("vision".into()),
        kind: LimitKind::Resource(ResourceKind::Cpu),
        limit: 10_000,
        used,
        asked,
    };
    assert_eq!(scheduler.reason(2, 0), Reason::Quota(limit(10_000, 4000)));
    assert_eq!(scheduler.reason(3, 0), Reason::BehindOwn(id(2)));
    let refused = scheduler.check_fits_ever(&job(6, 11)).unwrap_err().to_string();
    assert_eq!(
        refused,
        "11 cores requested, the total of your group `vision` is 10 cores; at most 10 trainers of 1 core and 1 GiB fit"
    );
    assert_eq!(scheduler.group_usage(&user("me"))[0].usage.cpu, Cpu::cores(10));
    assert_eq!(scheduler.end_and_run(1, 1), [id(2), id(3)]);
    scheduler.set_group_quotas(Vec::new());
    assert_eq!(scheduler.group_usage(&user("me")), []);
}

#[test]
fn a_reason_names_the_job_that_free_room_is_reserved_for() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.run([job(1, 2)], 0);
    scheduler.run([job(2, 4).urgent(1), job(3, 3).urgent(1), job(4, 1)], 0);
    let why = scheduler.explain(&id(4), at(0)).unwrap();
    let kept = Reason::Kept {
        job: id(2),
        ahead: 2,
        higher: 2,
    };
    assert_eq!(why.reason, kept);
    assert_eq!((why.ahead, why.ahead_total), (vec![id(2), id(3)], 2));
    assert_eq!((why.estimate, why.change), (None, None));
}

#[test]
fn a_reason_names_the_job_that_has_the_machine_to_itself() {
    let mut scheduler = embedded(nodes(&[2]));
    scheduler.run([job(1, 5), job(2, 1)], 0);
    let alone = Reason::Alone {
        job: id(1),
        excess: Excess::Together(vec![cpu(5, 2), memory(5, 4)]),
        ends_by: None,
    };
    assert_eq!(scheduler.reason(2, 0), alone);
    let mut scheduler = embedded(nodes(&[2]));
    scheduler.run([job(1, 1), job(2, 3)], 0);
    let needs_everything = Reason::NeedsEverything {
        excess: Excess::Together(vec![cpu(3, 2)]),
        held_by: held_by(&[1]),
    };
    assert_eq!(scheduler.reason(2, 0), needs_everything);
}

#[test]
fn behind_a_job_that_runs_alone_its_end_is_reported_and_only_a_kill_helps() {
    let mut scheduler = embedded(nodes(&[2]));
    let big = job(1, 1).of_size(size(5, 1, 0)).for_seconds(60);
    scheduler.run([big, job(2, 2), job(3, 1)], 0);
    let first = scheduler.explain(&id(2), at(10)).unwrap();
    let alone = Reason::Alone {
        job: id(1),
        excess: Excess::Together(vec![cpu(5, 2)]),
        ends_by: Some(at(60)),
    };
    assert_eq!(first.reason, alone);
    assert_eq!(first.estimate, Some(at(60)));
    assert_eq!(first.change, Some(Change::End(id(1))));
    let second = scheduler.explain(&id(3), at(10)).unwrap();
    assert_eq!(second.change, None, "job 2 would take all there is");
    assert_eq!(scheduler.end_and_run(1, 11), [id(2)], "as it was told");
}

#[test]
fn a_submit_reports_that_the_job_would_run_alone() {
    let scheduler = embedded(nodes(&[2]));
    let excess = scheduler
        .would_run_alone(&job(1, 1).of_size(size(1, 5, 0)))
        .unwrap();
    assert_eq!(
        crate::job::runs_alone(&excess),
        "5 GiB of memory requested, 4 GiB in total: it runs alone, other jobs wait"
    );
    assert_eq!(scheduler.would_run_alone(&job(1, 2)), None);
}

#[test]
fn a_reason_names_what_a_smaller_inventory_lacks() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.run([job(1, 4), job(2, 4)], 0);
    scheduler.change_node(crate::scheduler::NodeChange::Set(node("n0", 2, 4, 0)));
    scheduler.run([], 1);
    let why = scheduler.explain(&id(2), at(1)).unwrap();
    assert_eq!(why.reason, Reason::TooBig(Excess::Together(vec![cpu(4, 2)])));
    assert_eq!(why.estimate, None);
}

#[test]
fn the_smallest_change_keeps_most_of_the_job() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run([job(1, 2), job(2, 8)], 0);
    assert_eq!(change(&scheduler, 2), Some(Change::Trainers(6)));
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run([job(1, 2), job(2, 1).of_size(size(8, 1, 0))], 0);
    assert_eq!(change(&scheduler, 2), Some(Change::Cpu(Cpu::cores(6))));
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run(
        [
            job(1, 1).of_size(size(1, 13, 0)),
            job(2, 1).of_size(size(1, 8, 0)),
        ],
        0,
    );
    assert_eq!(change(&scheduler, 2), Some(Change::Memory(Bytes::new(3 * GI))));
}

#[test]
fn fewer_parameter_servers_or_cards_are_proposed_where_they_are_the_smaller_loss() {
    let mut scheduler = strict(nodes(&[8]));
    let mut many_servers = job(2, 2);
    many_servers.roles.insert(0, (6, size(1, 1, 0)));
    scheduler.run([job(1, 1), many_servers], 0);
    assert_eq!(change(&scheduler, 2), Some(Change::Pservers(5)));
    let mut scheduler = strict(crate::scheduler::Inventory {
        nodes: vec![node("n0", 8, 16, 4)],
    });
    let cards = [job(1, 1).of_size(size(1, 1, 1)), job(2, 1).of_size(size(1, 1, 4))];
    scheduler.run(cards, 0);
    assert_eq!(change(&scheduler, 2), Some(Change::Gpu(3)));
}

#[test]
fn a_higher_priority_is_never_proposed() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.run([job(1, 3), job(2, 4), job(3, 2)], 0);
    for waiting in [2, 3] {
        let change = change(&scheduler, waiting);
        assert!(
            matches!(change, None | Some(Change::Trainers(_) | Change::MaxRuntime(_))),
            "{change:?}"
        );
    }
}

#[test]
fn a_shorter_runtime_is_proposed_when_only_a_reservation_blocks() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.run([job(1, 3).for_seconds(5430), job(2, 4), job(3, 1)], 0);
    let limit = jiff::SignedDuration::from_mins(90);
    assert_eq!(change(&scheduler, 3), Some(Change::MaxRuntime(limit)));
}

#[test]
fn an_estimate_follows_the_ends_of_what_runs_and_waits() {
    let mut scheduler = strict(nodes(&[4]));
    let jobs = [job(1, 4).for_seconds(100), job(2, 4).for_seconds(50), job(3, 4)];
    scheduler.run(jobs, 0);
    let estimate = |job| scheduler.explain(&id(job), at(10)).unwrap().estimate;
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
    assert_eq!(scheduler.explain(&id(2), at(0)).unwrap().estimate, Some(at(60)));
}

#[test]
fn an_estimate_of_a_job_that_runs_alone_waits_for_everything() {
    let mut scheduler = embedded(nodes(&[2]));
    scheduler.run(
        [job(1, 1).for_seconds(60), job(2, 3).for_seconds(30), job(3, 2)],
        0,
    );
    let estimate = |job| scheduler.explain(&id(job), at(0)).unwrap().estimate.unwrap();
    assert_eq!((estimate(2), estimate(3)), (at(60), at(90)));
}

#[test]
fn only_queued_jobs_have_a_reason() {
    let mut scheduler = strict(nodes(&[2]));
    scheduler.run([job(1, 1)], 0);
    assert_eq!(scheduler.explain(&id(1), at(0)), None);
    assert_eq!(scheduler.explain(&id(2), at(0)), None);
}

#[test]
fn holders_of_the_cores_are_named_with_the_users_own_jobs_first() {
    let mut scheduler = strict(nodes(&[12]));
    scheduler.run(
        [
            job(1, 5).by("you"),
            job(2, 1),
            job(3, 2),
            job(4, 3).by("them"),
            job(5, 1).by("you"),
            job(6, 4),
        ],
        0,
    );
    let Reason::Room { held_by, .. } = scheduler.reason(6, 0) else {
        panic!("{:?}", scheduler.reason(6, 0));
    };
    let expected = Holders {
        jobs: vec![id(3), id(2), id(1)],
        total: 5,
        outside: None,
    };
    assert_eq!(held_by, expected);
}

#[test]
fn other_workloads_are_named_with_what_they_hold() {
    let shared = Node {
        taken: Taken {
            cpu: Cpu::millis(1500),
            ..Taken::default()
        },
        ..node("n0", 2, 4, 0)
    };
    let mut scheduler = strict(Inventory { nodes: vec![shared] });
    scheduler.run([job(1, 1)], 0);
    let missing = Reason::Room {
        short: short(ResourceKind::Cpu, 1000, 500),
        of: 2000,
        held_by: Holders {
            outside: Some(Outside {
                kind: ResourceKind::Cpu,
                amount: 1500,
            }),
            ..held_by(&[])
        },
    };
    assert_eq!(scheduler.reason(1, 0), missing);
}

#[test]
fn a_job_without_cards_is_not_blamed_for_missing_ones() {
    let mut scheduler = strict(Inventory {
        nodes: vec![node("n0", 8, 16, 2)],
    });
    scheduler.run([job(1, 4), job(2, 1).of_size(size(1, 1, 2))], 0);
    scheduler.run([job(3, 1).of_size(size(1, 1, 1))], 0);
    let missing = Reason::Room {
        short: short(ResourceKind::Gpu, 1, 0),
        of: 2,
        held_by: held_by(&[2]),
    };
    assert_eq!(scheduler.reason(3, 0), missing);
}

/// Two nodes of eight cores and two cards each, one with labels and a type.
fn labelled() -> Scheduler {
    let train = node("n0", 8, 16, 2).having(&["pool=train", "t4"]);
    let other = node("n1", 8, 16, 2).having(&["pool=other"]);
    strict(Inventory {
        nodes: vec![train, other],
    })
}

#[test]
fn what_no_node_has_is_refused_with_what_there_is() {
    let scheduler = labelled();
    let refused = |words: &[&str]| {
        let request = job(1, 1).of_size(size(1, 1, 1)).on(words);
        scheduler.check_fits_ever(&request).unwrap_err().to_string()
    };
    insta::assert_snapshot!(refused(&["a100"]), @"no node has GPUs of type `a100`; there are `t4` (1 node)");
    insta::assert_snapshot!(refused(&["pool=big"]), @"no node has the label `pool=big`; `pool` is `other` (1 node), `train` (1 node)");
    insta::assert_snapshot!(refused(&["zone=x"]), @"no node has the label `zone=x`; the labels are `pool` (2 nodes)");
    insta::assert_snapshot!(refused(&["t4", "pool=other"]), @"no node has GPUs of type `t4` and the label `pool=other` together");
    let bare = strict(nodes(&[8]));
    let missing = |request: Request| bare.check_fits_ever(&request).unwrap_err().to_string();
    insta::assert_snapshot!(missing(job(1, 1).on(&["zone=x"])), @"no node has the label `zone=x`; no node has labels");
    let typed = job(1, 1).of_size(size(1, 1, 1)).on(&["t4"]);
    insta::assert_snapshot!(missing(typed), @"no node has GPUs of type `t4`; the type of no node's GPUs is known");
}

#[test]
fn a_job_larger_than_the_matching_nodes_is_refused_with_their_number() {
    let scheduler = labelled();
    let refused = |request: Request| scheduler.check_fits_ever(&request).unwrap_err().to_string();
    let cards = job(1, 1).of_size(size(1, 1, 3)).on(&["t4"]);
    insta::assert_snapshot!(refused(cards), @"3 GPUs requested for one worker, 2 on the largest machine; 1 of 2 nodes has GPUs of type `t4`");
    let trainers = job(1, 9).on(&["pool=train"]);
    insta::assert_snapshot!(refused(trainers), @"9 cores requested, 8 in total; 1 of 2 nodes has the label `pool=train`; at most 8 trainers of 1 core and 1 GiB fit");
}

#[test]
fn a_reserved_node_is_refused_to_jobs_without_its_type() {
    let reserved = node("n1", 8, 16, 2).having(&["t4"]).admitting(Admits::OnlyByType);
    let scheduler = strict(Inventory {
        nodes: vec![node("n0", 4, 8, 0), reserved],
    });
    let gpu = job(1, 1).of_size(size(1, 1, 1));
    assert_eq!(scheduler.check_fits_ever(&gpu.clone().on(&["t4"])), Ok(()));
    let refused = scheduler.check_fits_ever(&gpu).unwrap_err().to_string();
    insta::assert_snapshot!(refused, @"the nodes with GPUs are for jobs that name a type: `t4` (1 node)");
    let cores = scheduler
        .check_fits_ever(&job(2, 1).of_size(size(8, 1, 0)))
        .unwrap_err();
    insta::assert_snapshot!(cores, @"8 cores requested for one worker, 4 on the largest machine");
}

#[test]
fn a_reason_counts_the_matching_nodes_and_what_is_free_there() {
    let mut scheduler = labelled();
    let typed = |number| job(number, 1).of_size(size(1, 1, 2)).on(&["t4"]);
    let started = scheduler.run([typed(1), job(2, 1).of_size(size(1, 1, 1)), typed(3)], 0);
    assert_eq!(started, [id(1), id(2)]);
    let why = scheduler.explain(&id(3), at(0)).unwrap();
    let missing = Reason::Room {
        short: short(ResourceKind::Gpu, 2, 0),
        of: 2,
        held_by: held_by(&[1]),
    };
    assert_eq!(
        why.reason, missing,
        "the card of the other node is of another type"
    );
    insta::assert_snapshot!(why.matching.unwrap(), @"1 of 2 nodes has GPUs of type `t4`");
}

#[test]
fn a_job_starts_when_its_label_appears() {
    let mut scheduler = labelled();
    scheduler.set_closed_nodes(1);
    assert!(scheduler.run([job(1, 1).on(&["pool=big"])], 0).is_empty());
    assert!(matches!(
        scheduler.reason(1, 0),
        Reason::TooBig(Excess::NoNode(_))
    ));
    let relabelled = node("n1", 8, 16, 2).having(&["pool=big"]);
    scheduler.change_node(NodeChange::Set(relabelled));
    assert_eq!(scheduler.run([job(2, 1).on(&["pool=big"])], 1), [id(1), id(2)]);
}
