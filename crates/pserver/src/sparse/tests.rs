//! Tables: creation, removal, limits and memory.

use super::*;
use crate::message::{Init, Limits};
use crate::optimizer::{Optimizer, Pace, Rule};

const TRAIN: Purpose = Purpose::Train { once_per_step: true };

fn spec(limits: Limits) -> TableSpec {
    TableSpec {
        name: "emb".into(),
        row: 4,
        optimizer: Optimizer::new(
            Rule::Adagrad {
                epsilon: 1e-6,
                lr_decay: 0.0,
                initial: 0.0,
            },
            0.1,
        ),
        init: Init::Uniform { low: -1.0, high: 1.0 },
        seed: 7,
        limits,
    }
}

fn table(limits: Limits, shards: usize, budget: &Budget) -> Table {
    Table::new(
        spec(limits),
        TensorId { id: 0, first: 0 },
        1,
        shards,
        budget,
        &Arc::default(),
    )
    .unwrap()
}

fn rows(table: &Table, ids: &[u64], train: bool) -> Vec<f32> {
    let mut out = vec![0.0; ids.len() * table.row()];
    let purpose = match train {
        true => TRAIN,
        false => Purpose::Evaluate,
    };
    table.lookup(ids, purpose, &mut out).unwrap();
    out
}

#[test]
fn a_row_begins_with_values_that_depend_on_its_id_alone() {
    let budget = Budget::new(1 << 30);
    let (one, other) = (
        table(Limits::default(), 1, &budget),
        table(Limits::default(), 5, &budget),
    );
    let ids = [0, 1, u64::MAX, 1 << 63];
    let first = rows(&one, &ids, true);
    let mut backwards = ids;
    backwards.reverse();
    rows(&other, &backwards, true);
    assert_eq!(rows(&other, &ids, true), first);
    assert!(first.iter().all(|x| (-1.0..1.0).contains(x)));
    assert_ne!(first[..4], first[4..8]);
}

#[test]
fn evaluation_creates_no_rows() {
    let budget = Budget::new(1 << 30);
    let table = table(Limits::default(), 2, &budget);
    let seen = rows(&table, &[5, 6], false);
    assert_eq!(table.rows(), 0);
    assert_eq!(rows(&table, &[5, 6], true), seen);
    assert_eq!(table.rows(), 2);
}

#[test]
fn many_rows_are_found_again_after_growth_and_removal() {
    let budget = Budget::new(1 << 30);
    let table = table(Limits::default(), 3, &budget);
    let ids: Vec<u64> = (0..20_000).map(|i| i * 64).collect();
    let first = rows(&table, &ids, true);
    for (at, id) in ids.iter().enumerate().filter(|(at, _)| at % 3 == 0) {
        let mut shard = table.shard(table.shard_of(*id));
        let number = shard.find(*id).unwrap();
        shard.remove(number);
        assert_eq!(shard.find(*id), None, "{at}");
    }
    for (at, id) in ids.iter().enumerate() {
        let found = table.shard(table.shard_of(*id)).find(*id);
        assert_eq!(found.is_some(), at % 3 != 0);
    }
    assert_eq!(rows(&table, &ids, true), first);
    assert_eq!(table.rows(), 20_000);
}

#[test]
fn an_update_changes_the_rows_it_names_once() {
    let budget = Budget::new(1 << 30);
    let table = table(Limits::default(), 2, &budget);
    let before = rows(&table, &[1, 2], true);
    let update = table.begin(Pace::default(), None);
    table.update(&update, &[2, 99], &[1.0; 8]);
    let after = rows(&table, &[1, 2], true);
    assert_eq!(after[..4], before[..4]);
    let expected = before[4] - 0.1 / (1.0f32.sqrt() + 1e-6);
    assert_eq!(after[4], expected);
    assert_eq!(table.rows(), 2, "a gradient creates no row");
}

#[test]
fn a_row_is_admitted_in_the_nth_step_that_asks_for_it() {
    let budget = Budget::new(1 << 30);
    let limits = Limits {
        admit_after: 3,
        ..Limits::default()
    };
    let table = table(limits, 1, &budget);
    for (step, expected) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        table.set_clock(step);
        // Lookups repeated within a step, by another trainer or after a restart, count once.
        rows(&table, &[8], true);
        rows(&table, &[8], true);
        assert_eq!(table.rows(), expected);
    }
}

#[test]
fn a_full_table_refuses_or_drops_the_least_recently_used() {
    let budget = Budget::new(1 << 30);
    let mut limits = Limits {
        rows: 100,
        ..Limits::default()
    };
    let refusing = table(limits, 1, &budget);
    rows(&refusing, &(0..100).collect::<Vec<_>>(), true);
    let error = refusing.lookup(&[100], TRAIN, &mut [0.0; 4]).unwrap_err();
    assert_eq!(error.what, "emb");
    limits.evict = true;
    let dropping = table(limits, 1, &budget);
    rows(&dropping, &(0..100).collect::<Vec<_>>(), true);
    dropping.set_clock(1);
    rows(&dropping, &[0, 1, 2], true);
    rows(&dropping, &[100], true);
    assert!(dropping.rows() <= 100);
    let shard = dropping.shard(0);
    assert!((0..3).chain([100]).all(|id| shard.find(id).is_some()));
    assert_eq!(shard.find(3), None);
}

#[test]
fn idle_rows_are_dropped() {
    let budget = Budget::new(1 << 30);
    let limits = Limits {
        idle_steps: 10,
        ..Limits::default()
    };
    let table = table(limits, 2, &budget);
    rows(&table, &[1, 2], true);
    table.set_clock(8);
    rows(&table, &[2], true);
    table.set_clock(15);
    table.drop_idle(15);
    assert_eq!(table.rows(), 1);
    assert_eq!(table.shard(table.shard_of(1)).find(1), None);
}

#[test]
fn memory_is_refused_before_it_is_allocated() {
    let budget = Budget::new(200_000);
    let table = table(Limits::default(), 1, &budget);
    let ids: Vec<u64> = (0..100_000).collect();
    let error = table.lookup(&ids, TRAIN, &mut vec![0.0; 400_000]).unwrap_err();
    assert_eq!(error.what, "emb");
    assert!(budget.used() <= 200_000);
    assert!(table.rows() > 0);
}

#[test]
fn a_scan_shows_every_row_once_in_portions() {
    let budget = Budget::new(1 << 30);
    let table = table(Limits::default(), 3, &budget);
    let ids: Vec<u64> = (0..5000).collect();
    rows(&table, &ids, true);
    let (mut seen, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        from = table.scan(at, 700, 0, |id, _, _| seen.push(id));
    }
    seen.sort_unstable();
    assert_eq!(seen, ids);
    table.set_clock(3);
    rows(&table, &[17], true);
    let mut changed = Vec::new();
    table.scan(0, 100, 3, |id, _, _| changed.push(id));
    assert_eq!(changed, [17]);
}

#[test]
fn an_assigned_row_counts_as_changed() {
    let table = table(Limits::default(), 1, &Budget::new(1 << 30));
    rows(&table, &[1, 2], true);
    table.set_clock(5);
    table.assign(&[2], &[0.5; 4]).unwrap();
    let mut changed = Vec::new();
    table.scan(0, 10, 5, |id, _, _| changed.push(id));
    assert_eq!(changed, [2]);
}
