//! The least that the groups of one part of the queue ask for.
//!
//! Where not even that fits, none of them does: the search passes over all of them at once.

use std::cmp::min;

use jiff::{SignedDuration, Timestamp};

use super::queue::{Group, GroupId, Rank};
use super::reservation::Reservation;
use super::room::{Load, Part, Room};
use super::running::after;
use super::summary_tree::{Code, Summary};
use super::tree::RoomTree;

/// Lower bounds, each taken for itself: no single group need have all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Demand {
    /// The first job in the order of the queue.
    pub first: (Rank, GroupId),
    runtime: SignedDuration,
    /// One worker of the part that needs most, and how many such workers there are.
    worker: Room,
    count: u32,
    /// The most of each kind that one worker of any part needs.
    widest: Room,
    total: Room,
}

impl Demand {
    pub fn of(group: &Group, first: (Rank, GroupId)) -> Demand {
        let main = main_part(group);
        let parts = group.shape.parts.iter();
        Demand {
            first,
            runtime: group.max_runtime.unwrap_or(SignedDuration::MAX),
            worker: main.need,
            count: main.count,
            widest: parts.fold(Room::default(), |most, part| most.highest(&part.need)),
            total: narrow(&group.shape.total),
        }
    }

    /// The first node at or after `from` with room for any of the workers, or `None` when certainly none of the groups
    /// can start behind this reservation.
    pub fn first_node(&self, from: usize, beside: &Beside) -> Option<usize> {
        self.first_in(from, beside.tree(self.runtime)?)
    }

    /// The same without a reservation.
    pub fn first_in(&self, from: usize, tree: &RoomTree) -> Option<usize> {
        let may_fit = tree.total().holds(&Load::of(&self.total, 1)) && tree.most().holds(&self.widest);
        may_fit.then(|| tree.first_of(from, &self.worker, self.count))?
    }

    /// True when both say the same about whether there is room.
    pub fn asks_the_same(&self, other: &Demand) -> bool {
        (self.runtime, self.worker, self.count) == (other.runtime, other.worker, other.count)
            && (self.widest, self.total) == (other.widest, other.total)
    }
}

impl Summary for Demand {
    fn with(&self, other: &Demand) -> Demand {
        Demand {
            first: min(self.first, other.first),
            runtime: min(self.runtime, other.runtime),
            worker: self.worker.lowest(&other.worker),
            count: min(self.count, other.count),
            widest: self.widest.lowest(&other.widest),
            total: self.total.lowest(&other.total),
        }
    }
}

/// What jobs behind a reservation may take.
#[derive(Clone, Copy)]
pub(super) struct Beside<'a> {
    pub kept: &'a Reservation,
    /// For those that are over before it begins.
    pub free: &'a RoomTree,
    /// For the others.
    pub spare: &'a RoomTree,
    pub now: Timestamp,
}

impl<'a> Beside<'a> {
    /// Where a job of this runtime may go; [`SignedDuration::MAX`] stands for no end.
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

/// Similar groups get similar codes: those below one fork of the index ask for about the same.
pub(super) fn code(group: &Group, id: GroupId) -> Code {
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
    [interleave(near), id.number(), 0]
}

/// The part with the largest sum.
fn main_part(group: &Group) -> Part {
    let sum = |part: &&Part| {
        let sum = Load::of(&part.need, part.count);
        (sum.gpu, sum.cpu, sum.memory)
    };
    let nobody = Part {
        role: 0,
        count: 0,
        need: Room::default(),
    };
    group
        .shape
        .parts
        .iter()
        .max_by_key(sum)
        .copied()
        .unwrap_or(nobody)
}

/// Too large sums are cut: a smaller bound is still a bound.
fn narrow(load: &Load) -> Room {
    let cut = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
    Room {
        gpu: cut(load.gpu),
        cpu: cut(load.cpu),
        memory: cut(load.memory),
    }
}

const LEVEL_BITS: u32 = 9;

/// The size of a number: eight steps from each power of two to the next.
fn level(amount: u64) -> u64 {
    match amount.checked_ilog2() {
        Some(power) if power >= 3 => u64::from(power - 2) * 8 + (amount >> (power - 3)) % 8,
        _ => amount,
    }
}

/// The highest bit of each, then the next of each.
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
