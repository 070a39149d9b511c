//! One example for each rule.

use super::build::*;
use crate::quantity::Cpu;
use crate::scheduler::{Inventory, Node, NodeChange, Placement, Quota, Seat, Taken, Usage};

fn cores(limit: u64) -> Quota {
    Quota {
        cpu: Some(Cpu::cores(limit)),
        ..Quota::default()
    }
}

#[test]
fn a_job_starts_with_all_its_workers_or_not_at_all() {
    let mut scheduler = strict(nodes(&[2, 2]));
    assert_eq!(scheduler.run([job(1, 3)], 0), [id(1)]);
    assert_eq!(scheduler.run([job(2, 2)], 0), []);
    assert_eq!(scheduler.usage(&user("me")).parallelism, 3);
}

#[test]
fn the_same_priority_is_first_in_first_out() {
    let mut scheduler = strict(nodes(&[4]));
    assert_eq!(
        scheduler.run([job(2, 2), job(1, 2), job(3, 1)], 0),
        [id(1), id(2)]
    );
}

#[test]
fn a_higher_priority_goes_first() {
    let mut scheduler = strict(nodes(&[4]));
    let started = scheduler.run([job(1, 4), job(2, 4).urgent(5)], 0);
    assert_eq!(started, [id(2)]);
}

#[test]
fn placements_are_in_the_order_of_the_roles() {
    let mut scheduler = strict(nodes(&[1, 4]));
    let request = job(1, 1).of_size(size(4, 1, 0)).with_servers(1, size(1, 1, 0));
    scheduler.enqueue(request, at(0));
    let seats = scheduler.decide(at(0)).remove(0).placement.workers;
    assert_eq!(
        seats.iter().map(|seat| seat.node.as_str()).collect::<Vec<_>>(),
        ["n0", "n1"]
    );
}

#[test]
fn every_worker_gets_cards_of_its_own() {
    let inventory = Inventory {
        nodes: vec![node("gpu", 8, 8, 4), node("cpu", 8, 8, 0)],
    };
    let mut scheduler = strict(inventory);
    scheduler.enqueue(job(1, 2).of_size(size(1, 1, 2)), at(0));
    let seats = scheduler.decide(at(0)).remove(0).placement.workers;
    assert_eq!(
        seats[0],
        Seat {
            node: "gpu".into(),
            gpus: vec![0, 1]
        }
    );
    assert_eq!(
        seats[1],
        Seat {
            node: "gpu".into(),
            gpus: vec![2, 3]
        }
    );
}

#[test]
fn work_without_cards_leaves_the_nodes_with_cards_free() {
    let inventory = Inventory {
        nodes: vec![node("gpu", 8, 8, 4), node("cpu", 8, 8, 0)],
    };
    let mut scheduler = strict(inventory);
    scheduler.enqueue(job(1, 8), at(0));
    let seats = scheduler.decide(at(0)).remove(0).placement.workers;
    assert!(seats.iter().all(|seat| seat.node.as_str() == "cpu"), "{seats:?}");
}

#[test]
fn a_small_job_is_backfilled_only_outside_a_reservation() {
    let mut scheduler = strict(nodes(&[8]));
    assert_eq!(scheduler.run([job(1, 4)], 0), [id(1)]);
    // 6 for job 2 and 2 beside it: job 3 fits there, job 4 does not.
    assert_eq!(scheduler.run([job(2, 6), job(3, 2), job(4, 1)], 0), [id(3)]);
    assert_eq!(scheduler.end_and_run(1, 5), [id(2)]);
}

#[test]
fn a_short_job_is_backfilled_if_it_ends_before_the_stuck_one_could_start() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run([job(1, 4).for_seconds(100)], 0);
    let later = [job(2, 8), job(3, 2).for_seconds(100), job(4, 2).for_seconds(99)];
    assert_eq!(scheduler.run(later, 0), [id(4)]);
}

#[test]
fn no_job_is_backfilled_by_runtime_when_the_start_is_unknown() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run([job(1, 4)], 0);
    assert_eq!(scheduler.run([job(2, 8), job(3, 1).for_seconds(1)], 0), []);
}

#[test]
fn backfilled_jobs_do_not_count_as_making_room() {
    let mut scheduler = strict(Inventory {
        nodes: vec![node("a", 5, 6, 0), node("b", 4, 5, 0), node("c", 7, 7, 0)],
    });
    let running = [
        job(1, 1).of_size(size(1, 5, 0)),
        job(2, 1),
        job(3, 1).for_seconds(1),
    ];
    assert_eq!(scheduler.run(running, 0).len(), 3);
    // Job 4 needs room of a job without an end (on a) and of one with an end (on b); 3 cores of c are left beside it.
    assert_eq!(
        scheduler.run([job(4, 3).of_size(size(4, 1, 0)), job(5, 1)], 0),
        [id(5)]
    );
    assert_eq!(
        scheduler.run([job(6, 3)], 0),
        [],
        "job 5 is still there when job 4 starts"
    );
    assert_eq!(scheduler.run([job(7, 2)], 0), [id(7)]);
}

#[test]
fn a_job_that_ends_when_the_stuck_one_starts_counts_as_running() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.run([job(1, 4).for_seconds(14)], 0);
    // 3 cores are left beside job 2, and job 3 holds one of them until exactly its start.
    assert_eq!(scheduler.run([job(2, 5), job(3, 1).for_seconds(10)], 4), [id(3)]);
    assert_eq!(scheduler.run([job(4, 3), job(5, 2)], 4), [id(5)]);
}

#[test]
fn an_earlier_start_counts_for_backfilled_jobs() {
    let mut scheduler = strict(nodes(&[8]));
    let running = [job(1, 2).for_seconds(100), job(2, 4).for_seconds(10)];
    scheduler.run(running, 0);
    assert_eq!(scheduler.run([job(3, 7)], 0), []);
    scheduler.release(&id(1), at(1));
    // Job 3 now starts when job 2 ends. One core is left beside it, and job 4 still holds that core then.
    let later = [job(4, 1).for_seconds(50), job(5, 1).for_seconds(50)];
    assert_eq!(scheduler.run(later, 1), [id(4)]);
}

#[test]
fn a_stream_of_small_jobs_does_not_starve_a_big_one() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.run((1..=4).map(|number| job(number, 1)), 0);
    scheduler.run([job(5, 4)], 0);
    for ending in 1..=4 {
        scheduler.enqueue(job(10 + ending, 1), at(1));
        let started = scheduler.end_and_run(ending, 1);
        assert_eq!(started.contains(&id(5)), ending == 4, "{started:?}");
    }
}

#[test]
fn a_full_quota_holds_back_its_user_only() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.set_quota(user("me"), cores(2));
    assert_eq!(
        scheduler.run([job(1, 2), job(2, 1), job(3, 4).by("other")], 0),
        [id(1), id(3)]
    );
    assert_eq!(scheduler.end_and_run(1, 1), [id(2)]);
}

#[test]
fn no_later_job_of_a_user_passes_one_that_waits_for_the_quota() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.set_quota(user("me"), cores(4));
    assert_eq!(scheduler.run([job(1, 2), job(2, 3), job(3, 1)], 0), [id(1)]);
    assert_eq!(scheduler.run([job(4, 1).urgent(1)], 0), [id(4)]);
}

#[test]
fn a_job_beyond_the_quota_does_not_block_others() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.set_quota(user("me"), cores(4));
    assert_eq!(scheduler.run([job(1, 5), job(2, 1)], 0), [id(2)]);
    scheduler.set_quota(user("me"), cores(6));
    assert_eq!(scheduler.run([], 1), [id(1)]);
}

#[test]
fn the_quota_a_stuck_job_will_need_is_kept_for_it() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.set_quota(user("me"), cores(7));
    scheduler.run([job(1, 6).by("other")], 0);
    // Job 2 waits for room. Job 3 fits beside it, but then the quota would not allow job 2.
    assert_eq!(scheduler.run([job(2, 6), job(3, 2)], 0), []);
    assert_eq!(scheduler.run([job(4, 2).by("third")], 0), [id(4)]);
}

#[test]
fn trainers_are_limited_but_parameter_servers_are_not() {
    let mut scheduler = strict(nodes(&[8]));
    let two = Quota {
        parallelism: Some(2),
        ..Quota::default()
    };
    scheduler.set_quota(user("me"), two);
    assert_eq!(
        scheduler.run([job(1, 2).with_servers(3, size(1, 1, 0))], 0),
        [id(1)]
    );
    assert_eq!(scheduler.run([job(2, 1)], 0), []);
}

#[test]
fn a_job_bigger_than_the_machine_runs_alone_where_that_is_allowed() {
    let mut scheduler = embedded(nodes(&[2]));
    assert_eq!(scheduler.run([job(1, 1), job(2, 10), job(3, 1)], 0), [id(1)]);
    scheduler.release(&id(1), at(1));
    let started = scheduler.decide(at(1));
    assert_eq!(started.len(), 1);
    assert_eq!(started[0].placement.workers.len(), 10);
    assert_eq!(
        started[0].alone.as_ref().unwrap().to_string(),
        "10 cores requested, 2 in total; 10 GiB of memory requested, 4 GiB in total"
    );
    assert_eq!(scheduler.run([job(4, 1)], 2), [], "nothing starts beside it");
    assert_eq!(scheduler.end_and_run(2, 3), [id(3), id(4)]);
}

#[test]
fn a_job_that_runs_alone_is_still_alone_after_adoption() {
    let mut scheduler = embedded(nodes(&[2]));
    let seats = vec![
        Seat {
            node: "n0".into(),
            gpus: vec![]
        };
        10
    ];
    scheduler.occupy(job(1, 10), Placement { workers: seats }, at(0));
    assert_eq!(scheduler.run([job(2, 1)], 1), []);
    assert_eq!(scheduler.end_and_run(1, 2), [id(2)]);
}

#[test]
fn cards_that_do_not_exist_are_refused_everywhere() {
    let scheduler = embedded(nodes(&[2]));
    let refused = scheduler
        .check_fits_ever(&job(1, 1).of_size(size(1, 1, 1)))
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "1 GPU requested for one worker, 0 on the largest machine"
    );
    assert!(scheduler.check_fits_ever(&job(2, 100)).is_ok());
}

#[test]
fn a_job_waits_for_a_machine_if_none_can_be_used() {
    let mut scheduler = strict(nodes(&[]));
    assert_eq!(scheduler.check_fits_ever(&job(1, 1)), Ok(()));
    assert_eq!(scheduler.run([job(1, 1)], 0), []);
}

#[test]
fn a_refusal_names_the_largest_job_that_would_fit() {
    let scheduler = strict(nodes(&[8, 8]));
    let request = job(1, 20).of_size(size(2, 4, 0)).with_servers(2, size(1, 1, 0));
    assert_eq!(
        scheduler.check_fits_ever(&request).unwrap_err().to_string(),
        "42 cores requested, 16 in total; 82 GiB of memory requested, 32 GiB in total; \
         at most 7 trainers of 2 cores and 4 GiB fit with 2 parameter servers"
    );
    assert!(scheduler.check_fits_ever(&job(2, 16)).is_ok());
}

#[test]
fn a_refusal_names_the_worker_that_is_larger_than_any_machine() {
    let scheduler = strict(nodes(&[8, 8]));
    let refused = scheduler
        .check_fits_ever(&job(1, 1).of_size(size(9, 1, 0)))
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "9 cores requested for one worker, 8 on the largest machine"
    );
}

#[test]
fn a_request_beyond_the_quota_is_refused() {
    let mut scheduler = strict(nodes(&[8]));
    scheduler.set_quota(user("me"), cores(3));
    assert_eq!(
        scheduler.check_fits_ever(&job(1, 4)).unwrap_err().to_string(),
        "4 cores requested, your quota is 3 cores; at most 3 trainers of 1 core and 1 GiB fit"
    );
}

#[test]
fn an_adopted_job_holds_its_cards_and_gives_them_back() {
    let inventory = Inventory {
        nodes: vec![node("gpu", 8, 8, 2)],
    };
    let mut scheduler = strict(inventory);
    let adopted = job(1, 1).of_size(size(1, 1, 1));
    let seats = vec![Seat {
        node: "gpu".into(),
        gpus: vec![0],
    }];
    scheduler.occupy(adopted, Placement { workers: seats }, at(0));
    scheduler.enqueue(job(2, 1).of_size(size(1, 1, 1)), at(0));
    assert_eq!(scheduler.decide(at(0))[0].placement.workers[0].gpus, [1]);
    assert_eq!(scheduler.run([job(3, 1).of_size(size(1, 1, 1))], 0), []);
    assert_eq!(scheduler.end_and_run(1, 1), [id(3)]);
}

#[test]
fn running_jobs_keep_their_room_when_the_machines_change() {
    let mut scheduler = strict(nodes(&[4, 4]));
    scheduler.run([job(1, 3), job(2, 8)], 0);
    scheduler.change_node(NodeChange::Set(node("new", 4, 8, 0)));
    assert_eq!(scheduler.run([], 1), [id(2)]);
    scheduler.change_node(NodeChange::Removed("new".into()));
    scheduler.change_node(NodeChange::Removed("n1".into()));
    scheduler.change_node(NodeChange::Set(node("n0", 2, 4, 0)));
    assert_eq!(scheduler.run([job(3, 1)], 2), [], "what runs exceeds the machine");
    scheduler.release(&id(1), at(3));
    assert_eq!(scheduler.end_and_run(2, 3), [id(3)]);
    assert_eq!(scheduler.usage(&user("me")).parallelism, 1);
}

#[test]
fn a_job_that_no_longer_fits_does_not_block_others() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.run([job(1, 2), job(2, 4)], 0);
    scheduler.change_node(NodeChange::Set(node("n0", 3, 6, 0)));
    assert_eq!(scheduler.run([job(3, 1)], 1), [id(3)]);
}

/// A node on which other workloads hold this many cores.
fn shared(cores: u64, taken: u64) -> Node {
    Node {
        taken: Taken {
            cpu: Cpu::cores(taken),
            ..Taken::default()
        },
        ..node("n0", cores, 2 * cores, 0)
    }
}

#[test]
fn a_job_waiting_for_other_workloads_does_not_block_others() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.change_node(NodeChange::Set(shared(4, 2)));
    scheduler.check_fits_ever(&job(1, 4)).unwrap();
    assert_eq!(scheduler.run([job(1, 4), job(2, 1)], 0), [id(2)]);
    scheduler.change_node(NodeChange::Set(shared(4, 3)));
    assert_eq!(scheduler.run([job(3, 1)], 1), [], "others took the rest");
    scheduler.change_node(NodeChange::Set(shared(4, 0)));
    scheduler.release(&id(2), at(2));
    assert_eq!(scheduler.run([], 2), [id(1)]);
}

#[test]
fn unknown_and_repeated_calls_change_nothing() {
    let mut scheduler = strict(nodes(&[4]));
    scheduler.release(&id(9), at(0));
    scheduler.withdraw(&id(9));
    assert_eq!(scheduler.run([job(1, 2), job(1, 2)], 0), [id(1)]);
    assert_eq!(scheduler.run([job(1, 2)], 0), [], "it runs already");
    scheduler.withdraw(&id(1));
    scheduler.release(&id(1), at(1));
    scheduler.release(&id(1), at(1));
    assert_eq!(scheduler.usage(&user("me")), Usage::default());
}

#[test]
fn amounts_beyond_every_machine_do_not_overflow() {
    let mut scheduler = embedded(nodes(&[2]));
    let mut huge = job(1, 10_000);
    huge.roles[0].1.memory = crate::quantity::Bytes::new(u64::MAX);
    huge.roles[0].1.cpu = Cpu::millis(u64::MAX);
    assert_eq!(scheduler.run([huge], 0), [id(1)]);
    assert_eq!(scheduler.usage(&user("me")).memory.as_u64(), u64::MAX);
    scheduler.release(&id(1), at(1));
    assert_eq!(scheduler.usage(&user("me")), Usage::default());
}

#[test]
fn among_equal_priorities_the_user_with_the_smallest_share_is_next() {
    let mut scheduler = fair(nodes(&[4]));
    let of_ann = (1..5).map(|number| job(number, 1).by("ann"));
    let of_bob = (5..7).map(|number| job(number, 1).by("bob"));
    let started = scheduler.run(of_ann.chain(of_bob), 0);
    assert_eq!(
        started,
        [id(1), id(5), id(2), id(6)],
        "equal shares: first in, first out"
    );
    assert_eq!(
        scheduler.end_and_run(1, 1),
        [id(3)],
        "both have the same, ann was first"
    );
    scheduler.enqueue(job(7, 1).by("bob").urgent(1), at(2));
    assert_eq!(
        scheduler.end_and_run(2, 2),
        [id(7)],
        "a higher priority goes before every share"
    );
}

#[test]
fn the_share_is_that_of_the_dominant_resource() {
    // Eight cores and 16Gi: a job of ann has an eighth of the cores, one of bob a quarter of the memory.
    let mut scheduler = fair(nodes(&[8]));
    let of_ann = (1..7).map(|number| job(number, 1).by("ann"));
    let of_bob = (7..10).map(|number| job(number, 1).by("bob").of_size(size(1, 4, 0)));
    let started = scheduler.run(of_ann.chain(of_bob), 0);
    assert_eq!(
        started,
        [id(1), id(7), id(2), id(3), id(8), id(4), id(5)].as_slice()
    );
}

#[test]
fn twice_the_weight_is_twice_the_share() {
    let mut scheduler = fair(nodes(&[6]));
    let heavy = Quota {
        weight: Some(2),
        ..Quota::default()
    };
    scheduler.set_quota(user("ann"), heavy);
    let of_ann = (1..7).map(|number| job(number, 1).by("ann"));
    let of_bob = (7..13).map(|number| job(number, 1).by("bob"));
    scheduler.run(of_ann.chain(of_bob), 0);
    assert_eq!(scheduler.usage(&user("ann")).jobs, 4);
    assert_eq!(scheduler.usage(&user("bob")).jobs, 2);
}

#[test]
fn a_limit_of_running_jobs_holds_the_next_one_back() {
    let mut scheduler = strict(nodes(&[8]));
    let two = Quota {
        jobs: Some(2),
        ..Quota::default()
    };
    scheduler.set_quota(user("me"), two);
    assert_eq!(
        scheduler.run((1..5).map(|number| job(number, 1)), 0),
        [id(1), id(2)]
    );
    assert_eq!(scheduler.queued(&user("me")), 2);
    assert_eq!(scheduler.end_and_run(1, 1), [id(3)]);
    // A limit below current usage stops nothing and admits nothing.
    let one = Quota {
        jobs: Some(1),
        ..Quota::default()
    };
    scheduler.set_quota(user("me"), one);
    assert_eq!(scheduler.usage(&user("me")).jobs, 2);
    assert_eq!(scheduler.end_and_run(2, 2), []);
    assert_eq!(scheduler.end_and_run(3, 3), [id(4)]);
}

#[test]
fn a_node_that_returns_still_has_the_load_of_its_jobs() {
    let mut scheduler = strict(nodes(&[2, 2]));
    assert_eq!(scheduler.run([job(1, 4)], 0), [id(1)]);
    scheduler.change_node(NodeChange::Removed("n0".into()));
    assert_eq!(scheduler.run([job(2, 1)], 1), [], "n1 is full");
    scheduler.change_node(NodeChange::Set(node("n0", 2, 4, 0)));
    assert_eq!(scheduler.run([], 2), [], "both are full again");
    scheduler.release(&id(1), at(3));
    assert_eq!(scheduler.run([], 3), [id(2)]);
}

#[test]
fn a_job_that_needs_a_closed_node_is_accepted_and_waits() {
    let mut scheduler = strict(nodes(&[2]));
    assert!(scheduler.check_fits_ever(&job(1, 4)).is_err());
    scheduler.set_closed_nodes(1);
    assert!(scheduler.check_fits_ever(&job(1, 4)).is_ok());
    assert_eq!(
        scheduler.run([job(1, 4), job(2, 1)], 0),
        [id(2)],
        "it blocks nobody"
    );
    assert_eq!(scheduler.explain(&id(1), at(0)).unwrap().closed_nodes, 1);
    scheduler.set_closed_nodes(0);
    scheduler.change_node(NodeChange::Set(node("n1", 3, 6, 0)));
    assert_eq!(scheduler.run([], 1), [id(1)]);
}
