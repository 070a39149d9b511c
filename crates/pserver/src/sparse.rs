//! One server's rows of a table: any 64-bit id, created at its first training lookup, dropped when old or too many.
//!
//! A table is divided into shards with a lock each. A shard keeps rows in slabs that never move, and finds them by an
//! open-addressing index of row numbers; the ids themselves lie beside the rows.

mod initial;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::budget::{Budget, OverBudget, Reserved};
use crate::message::{Place, TableSpec};
use crate::optimizer::{Pace, Progress, Update};
use crate::placement::mix;
use crate::saving::{Piece, Saving};
use initial::InitialValues;

/// About as many bytes of rows are in a slab, the unit in which a table grows. Larger ones waste less of their last page, smaller
/// ones less of a small table.
const SLAB_BYTES: usize = 512 * 1024;
/// Slots of a new shard's index.
const FIRST_SLOTS: usize = 1024;
/// What one id that waits for admission is counted as.
const CANDIDATE_BYTES: u64 = 40;
/// A full shard drops this share of its rows at once, the least recently used.
const EVICTED_SHARE: usize = 16;

#[derive(Debug)]
pub struct Table {
    pub spec: TableSpec,
    pub place: Place,
    /// Rows this server may hold; 0: no limit but memory.
    rows_here: u64,
    values: InitialValues,
    shards: Vec<Mutex<Shard>>,
    progress: Mutex<Progress>,
    /// The latest step anybody was at: what a row's stamp is set to.
    clock: AtomicU32,
}

impl Table {
    pub fn new(
        spec: TableSpec,
        place: Place,
        servers: u32,
        shards: usize,
        budget: &Budget,
        saving: &Arc<Saving>,
    ) -> Result<Table, OverBudget> {
        let width =
            spec.row as usize * (1 + spec.optimizer.state_per_element()) + spec.optimizer.state_per_row();
        let shape = RowShape {
            width,
            averaged: spec.optimizer.average > 0,
            slab_bits: (SLAB_BYTES / 4 / width.max(1)).clamp(16, 4096).ilog2(),
        };
        let shard = |_| {
            Ok(Mutex::new(Shard {
                shape,
                tensor: place.id,
                saving: Arc::clone(saving),
                slots: vec![0; FIRST_SLOTS],
                slabs: Vec::new(),
                free: Vec::new(),
                length: 0,
                held: 0,
                candidates: HashMap::new(),
                memory: budget.reserve(4 * FIRST_SLOTS as u64, &spec.name)?,
            }))
        };
        Ok(Table {
            shards: (0..shards.max(1)).map(shard).collect::<Result<_, OverBudget>>()?,
            rows_here: spec.limits.rows.div_ceil(u64::from(servers)),
            values: InitialValues::new(&spec),
            place,
            spec,
            progress: Mutex::default(),
            clock: AtomicU32::new(0),
        })
    }

    pub fn row(&self) -> usize {
        self.spec.row as usize
    }

    pub fn rows(&self) -> u64 {
        (0..self.shards.len())
            .map(|index| self.shard(index).held as u64)
            .sum()
    }

    pub fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rows are stamped with the latest step that was heard of.
    pub fn set_clock(&self, step: u64) {
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        self.clock.fetch_max(step, Ordering::Relaxed);
    }

    /// Puts the rows of `ids` into `out`. Training creates those that are missing; evaluation shows their initial values.
    pub fn lookup(&self, ids: &[u64], purpose: Purpose, out: &mut [f32]) -> Result<(), OverBudget> {
        let row = self.row();
        self.by_shard(ids, |shard, positions| {
            for &at in positions {
                let id = ids[at as usize];
                let out = &mut out[at as usize * row..][..row];
                let found = match purpose {
                    Purpose::Evaluate => shard.find(id),
                    Purpose::Train { once_per_step } => self.find_or_create(shard, id, once_per_step)?,
                };
                match found {
                    Some(number) => out.copy_from_slice(&shard.data(number)[..row]),
                    None => self.values.fill(id, out),
                }
            }
            Ok(())
        })
    }

    /// Begins an update that may come in several portions, each with other ids.
    pub fn begin(&self, pace: Pace) -> Update {
        self.spec.optimizer.begin(&mut self.progress(), pace)
    }

    /// Changes rows. An id that has no row (not admitted, or dropped meanwhile) is passed over.
    pub fn update(&self, update: &Update, ids: &[u64], gradients: &[f32]) {
        let row = self.row();
        let stamp = self.clock.load(Ordering::Relaxed);
        let done = self.by_shard(ids, |shard, positions| {
            for &at in positions {
                let Some(number) = shard.find(ids[at as usize]) else {
                    continue;
                };
                shard.set_stamp(number, stamp);
                let (values, state) = shard.data_mut(number).split_at_mut(row);
                update.apply_row(values, state, &gradients[at as usize * row..][..row]);
            }
            Ok(())
        });
        done.expect("nothing is allocated for rows that exist");
    }

    /// Gives rows values, as from a saved model.
    pub fn assign(&self, ids: &[u64], rows: &[f32]) -> Result<(), OverBudget> {
        let row = self.row();
        self.by_shard(ids, |shard, positions| {
            for &at in positions {
                let number = self.create(shard, ids[at as usize])?;
                let data = shard.data_mut(number);
                let values = &rows[at as usize * row..][..row];
                data.fill(0.0);
                data[..row].copy_from_slice(values);
                self.start_average(shard, number);
            }
            Ok(())
        })
    }

    /// Puts a row back with its state, as from a checkpoint.
    pub fn restore(&self, id: u64, stamp: u32, data: &[f32]) -> Result<(), OverBudget> {
        let mut shard = self.shard(self.shard_of(id));
        let number = self.create(&mut shard, id)?;
        shard.set_stamp(number, stamp);
        shard.data_mut(number).copy_from_slice(data);
        Ok(())
    }

    /// The ids that wait for a row, and how often each was seen.
    pub fn sightings(&self) -> Vec<(u64, u32)> {
        let of_shard = |index| -> Vec<(u64, u32)> {
            let shard = self.shard(index);
            shard.candidates.iter().map(|(id, one)| (*id, one.seen)).collect()
        };
        (0..self.shards.len()).flat_map(of_shard).collect()
    }

    /// Puts back how often an id without a row was seen, as from a checkpoint.
    pub fn restore_sightings(&self, id: u64, seen: u32) -> Result<(), OverBudget> {
        let mut shard = self.shard(self.shard_of(id));
        shard.memory.grow(CANDIDATE_BYTES, &self.spec.name)?;
        // A checkpoint is taken before the lookups of its step.
        let latest = None;
        shard.candidates.insert(id, Candidate { seen, latest });
        Ok(())
    }

    /// Floats of a row with its state.
    pub fn width(&self) -> usize {
        self.shard(0).shape.width
    }

    /// Walks over the rows from `from` on and calls `each` with id, stamp and data for at most `limit` of them that
    /// were stamped at `since` or later. Returns where to go on, or `None` at the end.
    pub fn scan(
        &self,
        from: u64,
        limit: usize,
        since: u32,
        mut each: impl FnMut(u64, u32, &[f32]),
    ) -> Option<u64> {
        let (mut index, mut number) = ((from >> 40) as usize, (from & ((1 << 40) - 1)) as u32);
        let mut seen = 0;
        while index < self.shards.len() {
            let shard = self.shard(index);
            while (number as usize) < shard.length {
                if seen == limit {
                    return Some(((index as u64) << 40) | u64::from(number));
                }
                if shard.is_held(number) && shard.stamp(number) >= since {
                    each(shard.key(number), shard.stamp(number), shard.data(number));
                    seen += 1;
                }
                number += 1;
            }
            (index, number) = (index + 1, 0);
        }
        None
    }

    /// Marks all rows for a checkpoint and says in how many pieces.
    pub fn mark(&self) -> usize {
        let mark = |index| {
            let mut shard = self.shard(index);
            shard.slabs.iter_mut().for_each(|slab| slab.marked = true);
            shard.slabs.len()
        };
        (0..self.shards.len()).map(mark).sum()
    }

    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The next marked piece of a shard from `from` on, for the writer, and where to go on. `Err` while the shard is in use.
    pub fn take(&self, shard: usize, from: usize) -> Result<Option<(Piece, usize)>, InUse> {
        let mut shard = self.shards[shard].try_lock().map_err(|_| InUse)?;
        let marked = (from..shard.slabs.len()).find(|index| shard.slabs[*index].marked);
        Ok(marked.map(|index| {
            shard.slabs[index].marked = false;
            (shard.piece(index), index + 1)
        }))
    }

    pub fn clock(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Whether a row can disappear: then a checkpoint of changed rows would bring it back.
    pub fn drops_rows(&self) -> bool {
        let limits = self.spec.limits;
        limits.evict || limits.idle_steps > 0
    }

    pub fn clear(&self) {
        for index in 0..self.shards.len() {
            self.shard(index).clear();
        }
        *self.progress() = Progress::default();
        // What comes next may be an earlier step: its rows are to be as old as they were the first time.
        self.clock.store(0, Ordering::Relaxed);
    }

    /// Drops rows that nobody has asked for within the table's limit. All rows are looked at, so not at every step.
    pub fn drop_idle(&self, step: u64) {
        let idle = u32::try_from(self.spec.limits.idle_steps).unwrap_or(u32::MAX);
        if idle == 0 || !step.is_multiple_of(u64::from(idle / 8).max(1)) {
            return;
        }
        let oldest = self.clock.load(Ordering::Relaxed).saturating_sub(idle);
        for index in 0..self.shards.len() {
            self.shard(index).drop_older_than(oldest);
        }
    }

    fn find_or_create(
        &self,
        shard: &mut Shard,
        id: u64,
        once_per_step: bool,
    ) -> Result<Option<u32>, OverBudget> {
        let stamp = self.clock.load(Ordering::Relaxed);
        if let Some(number) = shard.find(id) {
            shard.set_stamp(number, stamp);
            return Ok(Some(number));
        }
        let after = self.spec.limits.admit_after;
        if after > 1 && !shard.admit(id, once_per_step.then_some(stamp), after, &self.spec.name)? {
            return Ok(None);
        }
        let number = self.create(shard, id)?;
        let row = self.row();
        self.values.fill(id, &mut shard.data_mut(number)[..row]);
        self.start_average(shard, number);
        Ok(Some(number))
    }

    fn create(&self, shard: &mut Shard, id: u64) -> Result<u32, OverBudget> {
        if let Some(number) = shard.find(id) {
            return Ok(number);
        }
        self.make_room(shard)?;
        let number = shard.insert(id, &self.spec.name)?;
        shard.set_stamp(number, self.clock.load(Ordering::Relaxed));
        Ok(number)
    }

    fn make_room(&self, shard: &mut Shard) -> Result<(), OverBudget> {
        let limit = (self.rows_here as usize).div_ceil(self.shards.len());
        if limit == 0 || shard.held < limit {
            return Ok(());
        }
        if self.spec.limits.evict {
            shard.drop_least_recent(shard.held / EVICTED_SHARE + 1);
            return Ok(());
        }
        let width = shard.shape.width as u64 * 4;
        Err(OverBudget {
            what: self.spec.name.clone(),
            wanted: width,
            used: shard.held as u64 * width,
            limit: limit as u64 * width,
        })
    }

    fn start_average(&self, shard: &mut Shard, number: u32) {
        if shard.shape.averaged {
            let row = self.row();
            let data = shard.data_mut(number);
            let (start, end) = (data.len() - row, data.len());
            data.copy_within(..row, start);
            debug_assert_eq!(data[start..end].len(), row);
        }
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard_of(&self, id: u64) -> usize {
        (mix(id) & 0xffff) as usize % self.shards.len()
    }

    /// Calls `each` once per shard with the positions in `ids` that belong to it.
    fn by_shard(
        &self,
        ids: &[u64],
        mut each: impl FnMut(&mut Shard, &[u32]) -> Result<(), OverBudget>,
    ) -> Result<(), OverBudget> {
        let mut positions = vec![Vec::new(); self.shards.len()];
        let share = ids.len() / self.shards.len();
        positions
            .iter_mut()
            .for_each(|list| list.reserve(share + share / 4));
        for (at, id) in ids.iter().enumerate() {
            positions[self.shard_of(*id)].push(at as u32);
        }
        for (index, positions) in positions.iter().enumerate() {
            if !positions.is_empty() {
                each(&mut self.shard(index), positions)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
struct RowShape {
    width: usize,
    averaged: bool,
    /// A slab has this power of two rows.
    slab_bits: u32,
}

impl RowShape {
    fn slab_rows(self) -> usize {
        1 << self.slab_bits
    }

    /// The slab of a row, and the row's position there.
    fn place(self, number: u32) -> (usize, usize) {
        let number = number as usize;
        (number >> self.slab_bits, number & (self.slab_rows() - 1))
    }
}

#[derive(Debug)]
struct Slab {
    keys: Box<[u64]>,
    stamps: Box<[u32]>,
    data: Box<[f32]>,
    /// A checkpoint wants it as it is.
    marked: bool,
}

/// Why rows are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Evaluate,
    Train {
        /// A synchronous step may be repeated, and several trainers take part in it: an id that waits for a row is counted once.
        once_per_step: bool,
    },
}

/// Somebody changes the shard and will send what the writer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse;

/// A stamp no step reaches: the row was dropped.
const DROPPED: u32 = u32::MAX;

#[derive(Debug)]
struct Shard {
    shape: RowShape,
    tensor: u32,
    saving: Arc<Saving>,
    /// Row number + 1; 0: empty. At most 4/5 full.
    slots: Vec<u32>,
    slabs: Vec<Slab>,
    free: Vec<u32>,
    /// Row numbers given out, dropped ones included.
    length: usize,
    held: usize,
    candidates: HashMap<u64, Candidate>,
    memory: Reserved,
}

/// An id that has no row yet.
#[derive(Debug)]
struct Candidate {
    seen: u32,
    /// The step it was counted in last, where it counts once per step.
    latest: Option<u32>,
}

impl Shard {
    fn find(&self, id: u64) -> Option<u32> {
        let mut at = self.home(id);
        loop {
            match self.slots[at] {
                0 => return None,
                number if self.key(number - 1) == id => return Some(number - 1),
                _ => at = self.after(at),
            }
        }
    }

    fn insert(&mut self, id: u64, table: &str) -> Result<u32, OverBudget> {
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

    fn place(&mut self, id: u64, number: u32) {
        let mut at = self.home(id);
        while self.slots[at] != 0 {
            at = self.after(at);
        }
        self.slots[at] = number + 1;
    }

    /// The slot an id belongs at; it is there or in one of those that follow.
    fn home(&self, id: u64) -> usize {
        // Both ends of the mixed id are the same for many ids here: they chose the server and the shard.
        let spread = mix(id).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((spread * self.slots.len() as u64) >> 32) as usize
    }

    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// How many slots `to` is behind `from`, around the end.
    fn distance(&self, from: usize, to: usize) -> usize {
        match to >= from {
            true => to - from,
            false => to + self.slots.len() - from,
        }
    }

    fn add_slab(&mut self, table: &str) -> Result<(), OverBudget> {
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

    fn grow_index(&mut self, table: &str) -> Result<(), OverBudget> {
        // By less than twice: a shard that has just grown has fewer empty slots.
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

    /// Counts a sighting of an id without a row, once per step where one is given; whether it may have a row now.
    fn admit(&mut self, id: u64, step: Option<u32>, after: u32, table: &str) -> Result<bool, OverBudget> {
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

    fn drop_older_than(&mut self, oldest: u32) {
        for number in 0..self.length as u32 {
            if self.is_held(number) && self.stamp(number) < oldest {
                self.remove(number);
            }
        }
    }

    fn drop_least_recent(&mut self, count: usize) {
        let held = (0..self.length as u32).filter(|number| self.is_held(*number));
        let mut by_age: Vec<(u32, u64, u32)> = held
            .map(|number| (self.stamp(number), self.key(number), number))
            .collect();
        by_age.sort_unstable();
        for (_, _, number) in by_age.into_iter().take(count) {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u32) {
        let mut hole = self.home(self.key(number));
        while self.slots[hole] != number + 1 {
            hole = self.after(hole);
        }
        // Close the gap: an entry that follows and belongs at the hole or before it moves there.
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

    fn clear(&mut self) {
        self.slots = vec![0; FIRST_SLOTS];
        self.slabs = Vec::new();
        self.free = Vec::new();
        self.candidates = HashMap::new();
        (self.length, self.held) = (0, 0);
        let kept = 4 * FIRST_SLOTS as u64;
        self.memory.shrink(self.memory.bytes() - kept);
    }

    fn is_held(&self, number: u32) -> bool {
        self.stamp(number) != DROPPED
    }

    fn key(&self, number: u32) -> u64 {
        let (slab, at) = self.shape.place(number);
        self.slabs[slab].keys[at]
    }

    fn stamp(&self, number: u32) -> u32 {
        let (slab, at) = self.shape.place(number);
        self.slabs[slab].stamps[at]
    }

    fn set_stamp(&mut self, number: u32, stamp: u32) {
        let (slab, at) = self.shape.place(number);
        self.slabs[slab].stamps[at] = stamp;
    }

    fn data(&self, number: u32) -> &[f32] {
        let width = self.shape.width;
        let (slab, at) = self.shape.place(number);
        &self.slabs[slab].data[at * width..][..width]
    }

    fn data_mut(&mut self, number: u32) -> &mut [f32] {
        let width = self.shape.width;
        let (_, at) = self.shape.place(number);
        &mut self.slab_mut(number).data[at * width..][..width]
    }

    /// The slab of a row that is about to change. A checkpoint that wants it as it is gets a copy first.
    fn slab_mut(&mut self, number: u32) -> &mut Slab {
        let (index, _) = self.shape.place(number);
        if std::mem::take(&mut self.slabs[index].marked) {
            self.saving.send(self.piece(index));
        }
        &mut self.slabs[index]
    }

    fn piece(&self, index: usize) -> Piece {
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

#[cfg(test)]
mod tests;
