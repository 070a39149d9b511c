//! The smallest demand of the groups in one part of the queue.
//!
//! If not even that fits, none of these groups fits, and the search skips all of them together.

use std::cmp::min;

use jiff::{SignedDuration, Timestamp};

use super::eligible::{Eligible, Nodes};
use super::queue::{JobGroup, JobGroupId, Rank};
use super::reservation::Reservation;
use super::room::{Load, Need, Part, Room};
use super::running::after;
use super::summary_tree::{Code, Summary};
use super::tree::RoomTree;

/// Lower bounds, each computed separately: they may come from different groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Demand {
    /// The first job in queue order.
    pub first: (Rank, JobGroupId),
    runtime: SignedDuration,
    /// One worker of the largest part, and the number of such workers.
    worker: Room,
    nodes: Nodes,
    count: u32,
    /// The most of each resource that one worker of any part needs.
    widest: Room,
    total: Room,
}

impl Demand {
    pub fn of(group: &JobGroup, first: (Rank, JobGroupId)) -> Demand {
        let main = main_part(group);
        let parts = group.shape.parts.iter();
        Demand {
            first,
            runtime: group.max_runtime.unwrap_or(SignedDuration::MAX),
            worker: main.need,
            nodes: main.eligible.nodes,
            count: main.count,
            widest: parts.fold(Room::default(), |most, part| most.highest(&part.need)),
            total: narrow(&group.shape.total),
        }
    }

    /// The first node at or after `from` with room for one of the workers; `None` if certainly none of the groups can
    /// start behind this reservation.
    pub fn first_node(&self, from: usize, backfill: &BackfillRoom) -> Option<usize> {
        self.first_in(from, backfill.tree(self.runtime)?)
    }

    /// The same without a reservation.
    pub fn first_in(&self, from: usize, tree: &RoomTree) -> Option<usize> {
        let may_fit = tree.total().holds(&Load::of(&self.total, 1)) && tree.most().holds(&self.widest);
        may_fit.then(|| tree.first_of(from, Need::new(&self.worker, &self.nodes), self.count))?
    }

    /// Whether both demands get the same answer about room.
    pub fn asks_the_same(&self, other: &Demand) -> bool {
        (self.runtime, self.worker, self.count) == (other.runtime, other.worker, other.count)
            && (self.widest, self.total) == (other.widest, other.total)
            && self.nodes == other.nodes
    }
}

impl Summary for Demand {
    fn with(&self, other: &Demand) -> Demand {
        Demand {
            first: min(self.first, other.first),
            runtime: min(self.runtime, other.runtime),
            worker: self.worker.lowest(&other.worker),
            nodes: self.nodes.common(&other.nodes),
            count: min(self.count, other.count),
            widest: self.widest.lowest(&other.widest),
            total: self.total.lowest(&other.total),
        }
    }
}

/// The room that jobs behind a reservation may use.
#[derive(Clone, Copy)]
pub(super) struct BackfillRoom<'a> {
    pub kept: &'a Reservation,
    /// For jobs that end before it begins.
    pub free: &'a RoomTree,
    /// For all other jobs.
    pub spare: &'a RoomTree,
    pub now: Timestamp,
}

impl<'a> BackfillRoom<'a> {
    /// The room for a job with this runtime; [`SignedDuration::MAX`] means no maximum.
    pub fn tree(&self, runtime: SignedDuration) -> Option<&'a RoomTree> {
        let is_over = runtime < SignedDuration::MAX
            && self
                .kept
                .start
                .is_some_and(|start| after(self.now, runtime) < start);
        match is_over {
            true => Some(self.free),
            false => (!self.kept.everything).then_some(self.spare),
        }
    }
}

/// Similar groups get similar codes, so that groups below one fork of the index have similar demands. Groups with the same
/// requirement are below one fork: a bound for several requirements knows nothing of nodes.
pub(super) fn code(group: &JobGroup, id: JobGroupId) -> Code {
    let main = main_part(group);
    let seconds = group.max_runtime.map_or(u64::MAX, |limit| {
        u64::try_from(limit.as_secs()).unwrap_or_default()
    });
    let near = [
        level(main.need.cpu),
        level(u64::from(main.count)),
        level(main.need.memory),
        level(main.need.gpu),
        level(seconds),
    ];
    let place = main.eligible.code() << (5 * LEVEL_BITS);
    [place | interleave(near), id.number(), 0]
}

/// The part with the largest total.
fn main_part(group: &JobGroup) -> Part {
    let sum = |part: &&Part| {
        let sum = Load::of(&part.need, part.count);
        (sum.gpu, sum.cpu, sum.memory)
    };
    let empty = Part {
        role: 0,
        count: 0,
        need: Room::default(),
        eligible: Eligible::default(),
    };
    group.shape.parts.iter().max_by_key(sum).cloned().unwrap_or(empty)
}

/// Clamps sums that are too large: a smaller bound is still a lower bound.
fn narrow(load: &Load) -> Room {
    let cut = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
    Room {
        gpu: cut(load.gpu),
        cpu: cut(load.cpu),
        memory: cut(load.memory),
    }
}

const LEVEL_BITS: u32 = 9;

/// The magnitude of a number: eight levels per power of two.
fn level(amount: u64) -> u64 {
    match amount.checked_ilog2() {
        Some(power) if power >= 3 => u64::from(power - 2) * 8 + (amount >> (power - 3)) % 8,
        _ => amount,
    }
}

/// The highest bit of each level, then the next bit of each.
fn interleave(levels: [u64; 5]) -> u64 {
    let bits = (0..LEVEL_BITS)
        .rev()
        .flat_map(|bit| levels.map(|level| level >> bit & 1));
    bits.fold(0, |code, bit| code << 1 | bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_the_order_of_the_numbers() {
        let numbers = [0, 1, 7, 8, 9, 15, 16, 18, 31, 32, 1000, 1 << 40, u64::MAX];
        let levels = numbers.map(level);
        assert!(levels.is_sorted(), "{levels:?}");
        assert!(levels.iter().all(|level| *level < 1 << LEVEL_BITS), "{levels:?}");
    }

    #[test]
    fn the_highest_bits_come_first() {
        assert_eq!(interleave([1, 0, 0, 0, 0]), 0b10000);
        assert_eq!(interleave([0, 0, 0, 0, 2]), 0b00001_00000);
        assert_eq!(interleave([1 << 8, 0, 0, 0, 1]), 1 << 44 | 1);
    }
}
