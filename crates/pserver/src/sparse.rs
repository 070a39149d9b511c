//! One server's rows of a table: any 64-bit id, created at its first training lookup, dropped when idle or when the
//! table is full.
//!
//! A table is divided into shards with a lock each. A shard keeps rows in slabs that never move, and finds them by an
//! open-addressing index of row numbers; the ids are stored beside the rows.

mod evicting;
mod initial;
mod shard;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::budget::{Budget, OverBudget};
use crate::message::{TableSpec, TensorId};
use crate::optimizer::{Optimizer, Pace, Progress, Update};
use crate::placement::mix;
use crate::saving::{Piece, Saving};
use initial::InitialValues;
pub(crate) use shard::SLAB_BYTES;
use shard::{CANDIDATE_BYTES, Candidate, FIRST_SLOTS, RowShape, Shard};

/// A full shard evicts one in this many of its rows at once, the least recently used.
const EVICTED_SHARE: usize = 16;

#[derive(Debug)]
pub struct Table {
    /// As first declared; `optimizer` has the constants that count.
    pub spec: TableSpec,
    /// A run that continues another one may bring other constants.
    optimizer: RwLock<Arc<Optimizer>>,
    pub place: TensorId,
    /// Maximum rows on this server; 0: limited only by memory.
    rows_here: u64,
    values: InitialValues,
    shards: Vec<Mutex<Shard>>,
    progress: Mutex<Progress>,
    /// The latest step of any trainer; rows are stamped with it.
    clock: AtomicU32,
    /// Rows are dropped at the end of a step, not when another one needs their place.
    evicts_by_step: bool,
}

impl Table {
    pub fn new(
        spec: TableSpec,
        place: TensorId,
        servers: u32,
        shards: usize,
        budget: &Budget,
        saving: &Arc<Saving>,
    ) -> Result<Table, OverBudget> {
        let width =
            spec.row as usize * (1 + spec.optimizer.state_per_element()) + spec.optimizer.state_per_row();
        let shape = RowShape {
            width,
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
            optimizer: RwLock::new(Arc::new(spec.optimizer.clone())),
            place,
            spec,
            progress: Mutex::default(),
            clock: AtomicU32::new(0),
            evicts_by_step: false,
        })
    }

    /// For synchronous training: a full table drops rows at the end of a step ([`Table::evict`]).
    pub fn by_step(self, evicts_by_step: bool) -> Table {
        Table {
            evicts_by_step,
            ..self
        }
    }

    fn evicts_by_step(&self) -> bool {
        self.evicts_by_step && self.spec.limits.evict && self.rows_here > 0
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

    /// Advances the clock with which rows are stamped; ignores an earlier step.
    pub fn set_clock(&self, step: u64) {
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        self.clock.fetch_max(step, Ordering::Relaxed);
    }

    /// Copies the rows of `ids` to `out`. Training creates missing rows; evaluation returns their initial values.
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

    /// Begins an update that may be applied in several portions, each with other ids. `optimizer`: the constants of this
    /// update, if not those of the declared one.
    pub fn begin(&self, pace: Pace, optimizer: Option<&Optimizer>) -> Update {
        match optimizer {
            Some(optimizer) => optimizer.begin(&mut self.progress(), pace),
            None => self.optimizer().begin(&mut self.progress(), pace),
        }
    }

    /// The declaration with the constants that count now.
    pub fn described(&self) -> TableSpec {
        TableSpec {
            optimizer: Optimizer::clone(&self.optimizer()),
            ..self.spec.clone()
        }
    }

    pub fn optimizer(&self) -> Arc<Optimizer> {
        Arc::clone(&self.optimizer.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the constants, which keep the state.
    pub fn set_optimizer(&self, optimizer: Optimizer) {
        *self.optimizer.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(optimizer);
    }

    /// Updates rows. Skips ids without a row (not admitted, or dropped meanwhile).
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

    /// Sets the values of rows, for example from a saved model.
    pub fn assign(&self, ids: &[u64], rows: &[f32]) -> Result<(), OverBudget> {
        let row = self.row();
        let stamp = self.clock.load(Ordering::Relaxed);
        self.by_shard(ids, |shard, positions| {
            for &at in positions {
                let number = self.create(shard, ids[at as usize])?;
                // Also of a row that exists: the next checkpoint of changed rows must have it.
                shard.set_stamp(number, stamp);
                let (values, state) = shard.data_mut(number).split_at_mut(row);
                values.copy_from_slice(&rows[at as usize * row..][..row]);
                self.optimizer().reset(values, state);
            }
            Ok(())
        })
    }

    /// Restores a row with its state from a checkpoint.
    pub fn restore(&self, id: u64, stamp: u32, data: &[f32]) -> Result<(), OverBudget> {
        let mut shard = self.shard(self.shard_of(id));
        // Even beyond the limit: on another number of servers, rows are divided differently.
        let number = match shard.find(id) {
            Some(number) => number,
            None => shard.insert(id, &self.spec.name)?,
        };
        shard.set_stamp(number, stamp);
        shard.data_mut(number).copy_from_slice(data);
        Ok(())
    }

    /// The ids without a row, and how often each was seen.
    pub fn sightings(&self) -> Vec<(u64, u32)> {
        let of_shard = |index| -> Vec<(u64, u32)> {
            let shard = self.shard(index);
            shard.candidates.iter().map(|(id, one)| (*id, one.seen)).collect()
        };
        (0..self.shards.len()).flat_map(of_shard).collect()
    }

    /// Restores from a checkpoint how often an id without a row was seen.
    pub fn restore_sightings(&self, id: u64, seen: u32) -> Result<(), OverBudget> {
        let mut shard = self.shard(self.shard_of(id));
        shard.memory.grow(CANDIDATE_BYTES, &self.spec.name)?;
        // A checkpoint is taken before the lookups of its step.
        let latest = None;
        shard.candidates.insert(id, Candidate { seen, latest });
        Ok(())
    }

    /// Floats per row, including its state.
    pub fn width(&self) -> usize {
        self.shard(0).shape.width
    }

    /// Visits the rows from `from` on and calls `each` with id, stamp and data for at most `limit` rows that were
    /// stamped at `since` or later. Returns where to continue, or `None` at the end.
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

    /// Marks all rows for a checkpoint and returns the number of pieces.
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

    /// Takes the next marked piece of a shard from `from` on, for the writer, and returns where to continue. `Err`
    /// while the shard is locked.
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

    /// Whether rows can be dropped: a checkpoint of changed rows would bring them back.
    pub fn drops_rows(&self) -> bool {
        let limits = self.spec.limits;
        limits.evict || limits.idle_steps > 0
    }

    pub fn clear(&self) {
        for index in 0..self.shards.len() {
            self.shard(index).clear();
        }
        *self.progress() = Progress::default();
        // Training may resume at an earlier step, and its rows must get the same stamps as the first time.
        self.clock.store(0, Ordering::Relaxed);
    }

    /// Drops rows that were not used within the table's limit. Visits all rows, so it does not run at every step.
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
        let (values, state) = shard.data_mut(number).split_at_mut(self.row());
        self.values.fill(id, values);
        self.optimizer().reset(values, state);
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
        if limit == 0 || shard.held < limit || self.evicts_by_step() {
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

/// The purpose of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Evaluate,
    Train {
        /// Counts an id without a row once per step: a synchronous step may be repeated, and several trainers take part in it.
        once_per_step: bool,
    },
}

/// Another thread changes the shard and will send the pieces that the writer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse;

#[cfg(test)]
mod tests;
