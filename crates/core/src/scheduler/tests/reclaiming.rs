//! Guarantees: who reclaims room, from whom, and when.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::build::*;
use crate::quantity::{Bytes, Cpu};
use crate::scheduler::{Guarantee, Inventory, Policy, Quota, Scheduler};

fn reclaiming(inventory: Inventory, seconds: i64) -> Scheduler {
    let policy = Policy {
        fair_share: true,
        reclaim: Some(SignedDuration::from_secs(seconds)),
        ..Policy::default()
    };
    Scheduler::new(inventory, policy)
}

fn guaranteed(cores: u64) -> Quota {
    Quota {
        guarantee: Guarantee {
            cpu: Cpu::cores(cores),
            memory: Bytes::new(cores * GI),
            gpu: 0,
        },
        ..Quota::default()
    }
}

#[test]
fn the_newest_borrowing_job_makes_room_after_the_wait() {
    let mut scheduler = reclaiming(nodes(&[4]), 10);
    scheduler.set_quota(user("ann"), guaranteed(2));
    scheduler.run([job(1, 2).by("bob")], 0);
    scheduler.run([job(2, 2).by("bob")], 1);
    assert_eq!(scheduler.run([job(3, 2).by("ann")], 2), []);
    assert_eq!(scheduler.reclaim_at(), Some(at(12)));
    assert_eq!(scheduler.reclaim(at(11)), []);
    assert_eq!(scheduler.decide(at(12)), []);
    assert_eq!(scheduler.reclaim(at(12)), [id(2)]);
    assert_eq!(scheduler.reclaim(at(14)), [], "job 2 is about to go");
    scheduler.release(&id(2), at(15));
    let started = scheduler.run([job(2, 2).by("bob")], 15);
    assert_eq!(started, [id(3)], "and does not come back first");
    assert_eq!(scheduler.reclaim_at(), None);
}

#[test]
fn nothing_is_taken_for_a_job_beyond_the_guarantee() {
    let mut scheduler = reclaiming(nodes(&[4]), 0);
    scheduler.set_quota(user("ann"), guaranteed(2));
    scheduler.run([job(1, 4).by("bob")], 0);
    assert_eq!(scheduler.run([job(2, 3).by("ann")], 0), []);
    assert_eq!(scheduler.reclaim(at(100)), []);
    let mut off = fair(nodes(&[4]));
    off.set_quota(user("ann"), guaranteed(2));
    off.run([job(1, 4).by("bob"), job(2, 1).by("ann")], 0);
    assert_eq!((off.reclaim(at(100)), off.reclaim_at()), (vec![], None));
}

#[test]
fn users_within_their_guarantee_keep_their_jobs() {
    let mut scheduler = reclaiming(nodes(&[4]), 0);
    scheduler.set_quota(user("ann"), guaranteed(2));
    scheduler.set_quota(user("bob"), guaranteed(2));
    scheduler.run([job(1, 2).by("eve")], 0);
    scheduler.run([job(2, 2).by("bob")], 1);
    scheduler.run([job(3, 2).by("ann")], 2);
    assert_eq!(scheduler.reclaim(at(3)), [id(1)], "bob's is newer, but his own");
}

#[test]
fn only_jobs_whose_room_helps_are_stopped() {
    let mut scheduler = reclaiming(nodes(&[2, 2]), 0);
    scheduler.set_quota(user("ann"), guaranteed(2));
    scheduler.run([job(1, 1).of_size(size(2, 2, 0)).by("bob")], 0);
    scheduler.run([job(2, 1).by("bob")], 1);
    scheduler.run([job(3, 1).by("bob")], 2);
    // On one node: stop either jobs 2 and 3, which are newer, or job 1.
    scheduler.run([job(4, 1).of_size(size(2, 2, 0)).by("ann")], 3);
    assert_eq!(scheduler.reclaim(at(3)), [id(3), id(2)]);
    let mut scheduler = reclaiming(nodes(&[2, 4]), 0);
    scheduler.set_quota(user("ann"), guaranteed(4));
    scheduler.run([job(1, 1).of_size(size(4, 4, 0)).by("bob")], 0);
    scheduler.run([job(2, 2).by("bob")], 1);
    scheduler.run([job(3, 1).of_size(size(4, 4, 0)).by("ann")], 2);
    assert_eq!(
        scheduler.reclaim(at(2)),
        [id(1)],
        "job 2 is newer and on the smaller node"
    );
}

#[test]
fn a_claim_precedes_jobs_of_a_higher_priority() {
    let mut scheduler = reclaiming(nodes(&[2]), 5);
    scheduler.set_quota(user("ann"), guaranteed(2));
    scheduler.run([job(1, 2).by("bob")], 0);
    scheduler.run([job(2, 2).by("ann"), job(3, 2).urgent(9).by("bob")], 1);
    assert_eq!(scheduler.reclaim(at(6)), [id(1)]);
    scheduler.release(&id(1), at(7));
    assert_eq!(scheduler.run([job(1, 2).by("bob")], 7), [id(2)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// A job that waits within a guarantee runs once the chosen jobs have ended, and only borrowing jobs are chosen.
    #[test]
    fn guaranteed_resources_are_obtained(
        sizes in prop::collection::vec((0usize..3, 1u32..4), 1..20),
        asked in 1u32..5,
    ) {
        let names = ["bob", "eve", "ann"];
        let mut owners = Vec::new();
        let mut scheduler = reclaiming(nodes(&[4, 4]), 0);
        scheduler.set_quota(user("ann"), guaranteed(5));
        scheduler.set_quota(user("bob"), guaranteed(3));
        for (second, (name, trainers)) in sizes.into_iter().enumerate() {
            let second = second as i64;
            owners.push(names[name]);
            scheduler.run([job(second as u64 + 1, trainers).by(names[name])], second);
            for gone in scheduler.reclaim(at(second * 2)) {
                scheduler.release(&gone, at(second));
            }
        }
        scheduler.run([job(99, asked).by("ann").urgent(5)], 100);
        let bob = scheduler.usage(&user("bob")).cpu;
        let chosen = scheduler.reclaim(at(200));
        if bob <= Cpu::cores(3) {
            let mut of_bob = (1..).zip(&owners).filter(|(_, owner)| **owner == "bob");
            prop_assert!(!of_bob.any(|(number, _)| chosen.contains(&id(number))));
        }
        for gone in &chosen {
            scheduler.release(gone, at(200));
        }
        let started = scheduler.decide(at(201));
        // Which one: a claim that was due earlier goes first.
        prop_assert!(chosen.is_empty() || !started.is_empty(), "{chosen:?}");
    }
}
