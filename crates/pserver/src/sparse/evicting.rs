//! Which rows a full table drops in synchronous training: the least recently used of the whole table, at the end of a step.
//!
//! At the end of a step, all trainers have looked up what they need: the result does not depend on who was first.

use std::collections::BTreeMap;

use super::{EVICTED_SHARE, Table};

/// The last row to be dropped, in order of last use and id.
type Cut = (u32, u64);

impl Table {
    /// Drops rows if there are more than the limit, and a few more than needed, so that this does not happen at every step.
    /// For the end of a step.
    pub fn evict(&self) {
        let (limit, held) = (self.rows_here as usize, self.rows() as usize);
        if !self.evicts_by_step() || held <= limit {
            return;
        }
        let Some(cut) = self.cut(held - limit + limit / EVICTED_SHARE) else {
            return;
        };
        for index in 0..self.shards.len() {
            let mut shard = self.shard(index);
            for number in 0..shard.length as u32 {
                if shard.is_held(number) && (shard.stamp(number), shard.key(number)) <= cut {
                    shard.remove(number);
                }
            }
        }
    }

    /// The row that is at place `count` in order of last use and id. Counts rows by last use first: a list of all rows
    /// would need much memory.
    fn cut(&self, count: usize) -> Option<Cut> {
        let mut by_stamp: BTreeMap<u32, usize> = BTreeMap::new();
        self.each_held(|stamp, _| *by_stamp.entry(stamp).or_default() += 1);
        let mut left = count;
        for (stamp, rows) in by_stamp {
            if left > rows {
                left -= rows;
                continue;
            }
            let mut ids = Vec::with_capacity(rows);
            self.each_held(|of_row, id| {
                if of_row == stamp {
                    ids.push(id);
                }
            });
            let (_, last, _) = ids.select_nth_unstable(left.checked_sub(1)?);
            return Some((stamp, *last));
        }
        None
    }

    fn each_held(&self, mut each: impl FnMut(u32, u64)) {
        for index in 0..self.shards.len() {
            let shard = self.shard(index);
            for number in 0..shard.length as u32 {
                if shard.is_held(number) {
                    each(shard.stamp(number), shard.key(number));
                }
            }
        }
    }
}
