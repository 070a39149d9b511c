//! One shard of a table: rows in slabs that never move, an index of row numbers, and ids that wait for a row.
//!
//! It has no lock of its own; the table locks it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::budget::{OverBudget, Reserved};
use crate::placement::mix;
use crate::saving::{Piece, Saving};

/// The approximate bytes of rows in a slab, the unit in which a table grows. Larger slabs waste less of their last
/// page, smaller ones waste less in a small table.
pub(crate) const SLAB_BYTES: usize = 512 * 1024;
/// Slots of a new shard's index.
pub(super) const FIRST_SLOTS: usize = 1024;
/// Bytes counted for an id that waits for admission.
pub(super) const CANDIDATE_BYTES: u64 = 40;

#[derive(Debug, Clone, Copy)]
pub(super) struct RowShape {
    pub(super) width: usize,
    /// A slab has `1 << slab_bits` rows.
    pub(super) slab_bits: u32,
}

impl RowShape {
    pub(super) fn slab_rows(self) -> usize {
        1 << self.slab_bits
    }

    /// The slab of a row, and the row's position there.
    pub(super) fn place(self, number: u32) -> (usize, usize) {
        let number = number as usize;
        (number >> self.slab_bits, number & (self.slab_rows() - 1))
    }
}

#[derive(Debug)]
pub(super) struct Slab {
    pub(super) keys: Box<[u64]>,
    pub(super) stamps: Box<[u32]>,
    pub(super) data: Box<[f32]>,
    /// A checkpoint still needs the current content.
    pub(super) marked: bool,
}

/// The stamp of a dropped row; no step reaches it.
pub(super) const DROPPED: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Shard {
    pub(super) shape: RowShape,
    pub(super) tensor: u32,
    pub(super) saving: Arc<Saving>,
    /// Row number + 1; 0: empty. At most 4/5 full.
    pub(super) slots: Vec<u32>,
    pub(super) slabs: Vec<Slab>,
    pub(super) free: Vec<u32>,
    /// Assigned row numbers, including those of dropped rows.
    pub(super) length: usize,
    pub(super) held: usize,
    pub(super) candidates: HashMap<u64, Candidate>,
    pub(super) memory: Reserved,
}

/// An id that has no row yet.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) seen: u32,
    /// The step in which it was last counted, if it counts once per step.
    pub(super) latest: Option<u32>,
}

impl Shard {
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        let mut at = self.home(id);
        loop {
            match self.slots[at] {
                0 => return None,
                number if self.key(number - 1) == id => return Some(number - 1),
                _ => at = self.after(at),
            }
        }
    }

    pub(super) fn insert(&mut self, id: u64, table: &str) -> Result<u32, OverBudget> {
        if (self.held + 1) * 5 > self.slots.len() * 4 {
            self.grow_index(table)?;
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                if self.length == self.slabs.len() * self.shape.slab_rows() {
                    self.add_slab(table)?;
                }
                self.length += 1;
                (self.length - 1) as u32
            }
        };
        let (_, at) = self.shape.place(number);
        self.slab_mut(number).keys[at] = id;
        self.data_mut(number).fill(0.0);
        self.place(id, number);
        self.held += 1;
        Ok(number)
    }

    pub(super) fn place(&mut self, id: u64, number: u32) {
        let mut at = self.home(id);
        while self.slots[at] != 0 {
            at = self.after(at);
        }
        self.slots[at] = number + 1;
    }

    /// The first slot for an id; the id is there or in one of the following slots.
    pub(super) fn home(&self, id: u64) -> usize {
        // Uses neither end of the mixed id: they chose the server and the shard, so they are the same for many ids here.
        let spread = mix(id).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((spread * self.slots.len() as u64) >> 32) as usize
    }

    pub(super) fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// How many slots `to` is after `from`, wrapping around the end.
    pub(super) fn distance(&self, from: usize, to: usize) -> usize {
        match to >= from {
            true => to - from,
            false => to + self.slots.len() - from,
        }
    }

    pub(super) fn add_slab(&mut self, table: &str) -> Result<(), OverBudget> {
        let rows = self.shape.slab_rows();
        self.memory
            .grow((rows * (12 + 4 * self.shape.width)) as u64, table)?;
        self.slabs.push(Slab {
            keys: vec![0; rows].into(),
            stamps: vec![DROPPED; rows].into(),
            data: vec![0.0; rows * self.shape.width].into(),
            marked: false,
        });
        Ok(())
    }

    pub(super) fn grow_index(&mut self, table: &str) -> Result<(), OverBudget> {
        // Grow to less than double the size, so that a shard that has just grown has fewer empty slots.
        let added = self.slots.len() * 2 / 5;
        self.memory.grow(4 * added as u64, table)?;
        let length = self.slots.len() + added;
        self.slots = Vec::new();
        self.slots = vec![0; length];
        for number in 0..self.length as u32 {
            if self.is_held(number) {
                self.place(self.key(number), number);
            }
        }
        Ok(())
    }

    /// Counts a sighting of an id without a row, at most once per step if `step` is given. Returns whether the id may
    /// get a row now.
    pub(super) fn admit(
        &mut self,
        id: u64,
        step: Option<u32>,
        after: u32,
        table: &str,
    ) -> Result<bool, OverBudget> {
        if let Some(candidate) = self.candidates.get_mut(&id) {
            candidate.seen += u32::from(step.is_none() || candidate.latest != step);
            candidate.latest = step;
            if candidate.seen < after {
                return Ok(false);
            }
            self.candidates.remove(&id);
            self.memory.shrink(CANDIDATE_BYTES);
            return Ok(true);
        }
        self.memory.grow(CANDIDATE_BYTES, table)?;
        let first = Candidate {
            seen: 1,
            latest: step,
        };
        self.candidates.insert(id, first);
        Ok(false)
    }

    pub(super) fn drop_older_than(&mut self, oldest: u32) {
        for number in 0..self.length as u32 {
            if self.is_held(number) && self.stamp(number) < oldest {
                self.remove(number);
            }
        }
    }

    pub(super) fn drop_least_recent(&mut self, count: usize) {
        let held = (0..self.length as u32).filter(|number| self.is_held(*number));
        let mut by_age: Vec<(u32, u64, u32)> = held
            .map(|number| (self.stamp(number), self.key(number), number))
            .collect();
        by_age.sort_unstable();
        for (_, _, number) in by_age.into_iter().take(count) {
            self.remove(number);
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        let mut hole = self.home(self.key(number));
        while self.slots[hole] != number + 1 {
            hole = self.after(hole);
        }
        // Close the gap: a following entry whose home is at the hole or before it moves there.
        let mut at = self.after(hole);
        while self.slots[at] != 0 {
            let home = self.home(self.key(self.slots[at] - 1));
            if self.distance(home, at) >= self.distance(hole, at) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.slots[hole] = 0;
        let (_, place) = self.shape.place(number);
        self.slab_mut(number).stamps[place] = DROPPED;
        self.free.push(number);
        self.held -= 1;
    }

    pub(super) fn clear(&mut self) {
        self.slots = vec![0; FIRST_SLOTS];
        self.slabs = Vec::new();
        self.free = Vec::new();
        self.candidates = HashMap::new();
        (self.length, self.held) = (0, 0);
        let kept = 4 * FIRST_SLOTS as u64;
        self.memory.shrink(self.memory.bytes() - kept);
    }

    pub(super) fn is_held(&self, number: u32) -> bool {
        self.stamp(number) != DROPPED
    }

    pub(super) fn key(&self, number: u32) -> u64 {
        let (slab, at) = self.shape.place(number);
        self.slabs[slab].keys[at]
    }

    pub(super) fn stamp(&self, number: u32) -> u32 {
        let (slab, at) = self.shape.place(number);
        self.slabs[slab].stamps[at]
    }

    pub(super) fn set_stamp(&mut self, number: u32, stamp: u32) {
        let (slab, at) = self.shape.place(number);
        self.slabs[slab].stamps[at] = stamp;
    }

    pub(super) fn data(&self, number: u32) -> &[f32] {
        let width = self.shape.width;
        let (slab, at) = self.shape.place(number);
        &self.slabs[slab].data[at * width..][..width]
    }

    pub(super) fn data_mut(&mut self, number: u32) -> &mut [f32] {
        let width = self.shape.width;
        let (_, at) = self.shape.place(number);
        &mut self.slab_mut(number).data[at * width..][..width]
    }

    /// The slab of a row that is about to change. If a checkpoint still needs it, a copy is sent first.
    pub(super) fn slab_mut(&mut self, number: u32) -> &mut Slab {
        let (index, _) = self.shape.place(number);
        if std::mem::take(&mut self.slabs[index].marked) {
            self.saving.send(self.piece(index));
        }
        &mut self.slabs[index]
    }

    pub(super) fn piece(&self, index: usize) -> Piece {
        let slab = &self.slabs[index];
        let rows = self.shape.slab_rows();
        let length = (self.length - index * rows).min(rows);
        let held: Vec<usize> = (0..length).filter(|at| slab.stamps[*at] != DROPPED).collect();
        let width = self.shape.width;
        Piece::Rows {
            tensor: self.tensor,
            ids: held.iter().map(|at| slab.keys[*at]).collect(),
            stamps: held.iter().map(|at| slab.stamps[*at]).collect(),
            data: held
                .iter()
                .flat_map(|at| &slab.data[at * width..(at + 1) * width])
                .copied()
                .collect(),
        }
    }
}
