//! Thousands of worlds, and the proof that the simulator finds each planted bug.

use super::{run, sweep};
use crate::planted::{Planted, with_bug};

/// Seeds of the ordinary test run. `SIMULATOR_SEEDS` sets another number.
const SEEDS: u64 = 1000;

fn seeds() -> u64 {
    std::env::var("SIMULATOR_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(SEEDS)
}

#[test]
fn no_seed_breaks_a_promise() {
    let total = sweep(0..seeds()).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{total:?}");
    let reached = [
        ("accepted", total.accepted),
        ("accepted again", total.accepted_again),
        ("name refused", total.name_refused),
        ("named otherwise than its folder", total.other_name),
        ("succeeded", total.succeeded),
        ("failed", total.failed),
        ("killed", total.killed),
        ("lost", total.lost),
        ("removed", total.removed),
        ("restarts", total.restarts),
        ("withdrawn", total.withdrawn),
        ("reclaimed", total.reclaimed),
        ("withdrawn without one of its workers", total.unrecovered),
        ("crashes between preparing and launching", total.prepared),
        ("crashes", total.crashes),
        ("reboots", total.reboots),
        ("clock jumps", total.clock_jumps),
        ("dropped reports", total.dropped),
        ("repeated reports", total.repeated),
        ("vanished attempts", total.vanished),
        ("refused writes", total.refused_writes),
        ("unrecorded kills", total.unrecorded_kills),
        ("forgotten kills", total.forgotten_kills),
    ];
    for (what, count) in reached {
        assert!(count > 20, "the simulator hardly ever reaches: {what} ({count})");
    }
}

#[test]
fn every_planted_bug_is_found() {
    for planted in Planted::ALL {
        let found = with_bug(*planted, || (0..seeds()).find_map(|seed| run(seed).err()));
        match found {
            Some(violation) => println!("{planted:?}: seed {}, {}", violation.seed, violation.what),
            None => panic!("{planted:?} is not found in {} seeds", seeds()),
        }
    }
}

#[test]
fn the_same_seed_runs_the_same_world() {
    for seed in 0..50 {
        let (one, other) = (run(seed), run(seed));
        assert_eq!(
            one.map_err(|violation| violation.what),
            other.map_err(|violation| violation.what)
        );
    }
}
