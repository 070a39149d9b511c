//! One server's portion of a dense tensor: its blocks, their optimizer state, and how gradients reach them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::budget::{Budget, OverBudget, Reserved};
use crate::message::{DenseSpec, TensorId};
use crate::optimizer::{Optimizer, Pace, Progress, Update};
use crate::placement::{BLOCK, Layout};
use crate::saving::{Piece, Saving};

/// Updates of fewer elements are not worth a thread.
const PARALLEL_FROM: usize = 1 << 20;

/// A portion of a tensor. Blocks are locked one by one, so that pulls and pushes of other blocks can proceed.
#[derive(Debug)]
pub struct Dense {
    pub name: String,
    pub shape: Vec<u64>,
    /// The declared optimizer; a run that continues another one may bring other constants.
    optimizer: RwLock<Arc<Optimizer>>,
    pub place: TensorId,
    pub layout: Layout,
    /// Elements on this server.
    pub local_elements: usize,
    server: u32,
    saving: Arc<Saving>,
    blocks: Vec<RwLock<Block>>,
    progress: Mutex<DenseProgress>,
    _memory: Reserved,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct DenseProgress {
    /// Whether it has its initial values.
    pub assigned: bool,
    pub updates: Progress,
}

#[derive(Debug, Default, Clone)]
pub struct Block {
    pub values: Vec<f32>,
    /// Optimizer state: runs that are each as long as `values`.
    pub state: Vec<f32>,
    /// A checkpoint still needs the current content.
    marked: bool,
}

impl Dense {
    pub fn new(
        spec: DenseSpec,
        place: TensorId,
        server: u32,
        servers: u32,
        budget: &Budget,
        saving: &Arc<Saving>,
    ) -> Result<Dense, OverBudget> {
        let layout = Layout {
            elements: spec.elements(),
            first: place.first,
            servers,
        };
        let state = spec.optimizer.state_per_element();
        let bytes = layout.local_elements(server) * 4 * (1 + state as u64);
        let memory = budget.reserve(bytes, &spec.name)?;
        let block = |range: std::ops::Range<u64>| {
            let count = (range.end - range.start) as usize;
            RwLock::new(Block {
                values: vec![0.0; count],
                state: vec![0.0; count * state],
                marked: false,
            })
        };
        Ok(Dense {
            blocks: layout.ranges(server).map(block).collect(),
            local_elements: layout.local_elements(server) as usize,
            server,
            saving: Arc::clone(saving),
            layout,
            place,
            name: spec.name,
            shape: spec.shape,
            optimizer: RwLock::new(Arc::new(spec.optimizer)),
            progress: Mutex::default(),
            _memory: memory,
        })
    }

    pub fn spec(&self) -> DenseSpec {
        DenseSpec {
            name: self.name.clone(),
            shape: self.shape.clone(),
            optimizer: Optimizer::clone(&self.optimizer()),
        }
    }

    pub fn optimizer(&self) -> Arc<Optimizer> {
        Arc::clone(&self.optimizer.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the constants, which keep the state.
    pub fn set_optimizer(&self, optimizer: Optimizer) {
        *self.optimizer.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(optimizer);
    }

    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub fn block(&self, index: usize) -> RwLockReadGuard<'_, Block> {
        read(&self.blocks[index])
    }

    /// Locks a block for a change. If a checkpoint still needs it, a copy is sent first.
    fn block_mut(&self, index: usize) -> RwLockWriteGuard<'_, Block> {
        let mut block = self.blocks[index].write().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut block.marked) {
            self.saving.send(self.piece(index, &block));
        }
        block
    }

    fn piece(&self, index: usize, block: &Block) -> Piece {
        Piece::Block {
            tensor: self.place.id,
            number: self.layout.block_number(self.server, index as u64),
            values: block.values.clone(),
            state: block.state.clone(),
        }
    }

    /// Marks all blocks for a checkpoint and returns their number; never in the middle of an assignment.
    pub fn mark(&self) -> (DenseProgress, usize) {
        let progress = self.progress();
        for block in &self.blocks {
            block.write().unwrap_or_else(PoisonError::into_inner).marked = true;
        }
        (*progress, self.blocks.len())
    }

    /// Takes a block that is still marked, for the writer. `None` also while another thread changes it; that thread sends it.
    pub fn take(&self, index: usize) -> Option<Piece> {
        let mut block = self.blocks[index].try_write().ok()?;
        std::mem::take(&mut block.marked).then(|| self.piece(index, &block))
    }

    /// Restores a block of a checkpoint if it belongs to this server; false if it does not fit the tensor.
    pub fn restore(&self, number: u64, values: &[f32], state: &[f32]) -> bool {
        let Some(index) = self.layout.local_index(self.server, number) else {
            return number < self.layout.blocks();
        };
        let mut block = self.block_mut(index as usize);
        if (values.len(), state.len()) != (block.values.len(), block.state.len()) {
            return false;
        }
        block.values.copy_from_slice(values);
        block.state.copy_from_slice(state);
        true
    }

    pub fn progress(&self) -> MutexGuard<'_, DenseProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the values; without `replace`, only if the tensor has none.
    pub fn assign(&self, values: &[f32], replace: bool) {
        let optimizer = self.optimizer();
        let mut progress = self.progress();
        if progress.assigned && !replace {
            return;
        }
        for (index, chunk) in values.chunks(BLOCK as usize).enumerate() {
            let mut block = self.block_mut(index);
            block.values.copy_from_slice(chunk);
            optimizer.reset(chunk, &mut block.state);
        }
        *progress = DenseProgress {
            assigned: true,
            ..DenseProgress::default()
        };
    }

    /// Floats of state per element.
    pub fn slots(&self) -> usize {
        self.optimizer().state_per_element()
    }

    /// Calls `each` with the state of each block, slot after slot.
    pub fn each_state<E>(&self, mut each: impl FnMut(&[f32]) -> Result<(), E>) -> Result<(), E> {
        for slot in 0..self.slots() {
            for index in 0..self.blocks.len() {
                let block = self.block(index);
                let count = block.values.len();
                each(&block.state[slot * count..][..count])?;
            }
        }
        Ok(())
    }

    /// Replaces the state, in the order of [`Dense::each_state`], and the progress.
    pub fn set_state(&self, state: &[f32], updates: Progress) {
        let mut progress = self.progress();
        for index in 0..self.blocks.len() {
            let mut block = self.block_mut(index);
            let count = block.values.len();
            for slot in 0..self.slots() {
                let start = slot * self.local_elements + index * BLOCK as usize;
                block.state[slot * count..][..count].copy_from_slice(&state[start..][..count]);
            }
        }
        progress.updates = updates;
    }

    /// Applies one update with the sum of `gradients` in their order, divided by `divisor` if there is one. `optimizer`:
    /// the constants of this update, if not those of the declared one.
    pub fn update(
        &self,
        gradients: &[&[f32]],
        divisor: Option<f32>,
        pace: Pace,
        optimizer: Option<&Optimizer>,
        threads: usize,
    ) {
        let update = match optimizer {
            Some(optimizer) => optimizer.begin(&mut self.progress().updates, pace),
            None => self.optimizer().begin(&mut self.progress().updates, pace),
        };
        let elements = gradients.first().map_or(0, |gradient| gradient.len());
        let threads = match elements < PARALLEL_FROM {
            true => 1,
            false => threads.clamp(1, self.blocks.len()),
        };
        let each = self.blocks.len().div_ceil(threads).max(1);
        let apply = |start: usize| {
            let mut sum = Vec::new();
            for index in start..(start + each).min(self.blocks.len()) {
                self.update_block(index, &update, gradients, divisor, &mut sum);
            }
        };
        if threads == 1 {
            return apply(0);
        }
        std::thread::scope(|scope| {
            for start in (0..self.blocks.len()).step_by(each) {
                scope.spawn(move || apply(start));
            }
        });
    }

    fn update_block(
        &self,
        index: usize,
        update: &Update,
        gradients: &[&[f32]],
        divisor: Option<f32>,
        sum: &mut Vec<f32>,
    ) {
        let mut block = self.block_mut(index);
        let Block { values, state, .. } = &mut *block;
        let start = index * BLOCK as usize;
        let range = start..start + values.len();
        if let ([gradient], None) = (gradients, divisor) {
            return update.apply(values, state, &gradient[range]);
        }
        sum.clear();
        sum.extend_from_slice(&gradients[0][range.clone()]);
        for gradient in &gradients[1..] {
            for (sum, g) in sum.iter_mut().zip(&gradient[range.clone()]) {
                *sum += *g;
            }
        }
        if let Some(divisor) = divisor {
            for sum in sum.iter_mut() {
                *sum /= divisor;
            }
        }
        update.apply(values, state, sum);
    }

    /// The values, or their running average if `averaged` is set and an average is kept.
    pub fn shown<'a>(&self, block: &'a Block, averaged: bool) -> &'a [f32] {
        match averaged && self.optimizer().average > 0 {
            true => &block.state[block.state.len() - block.values.len()..],
            false => &block.values,
        }
    }
}

fn read(block: &RwLock<Block>) -> RwLockReadGuard<'_, Block> {
    block.read().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::Rule;

    fn dense(elements: u64, server: u32, servers: u32) -> Dense {
        let spec = DenseSpec {
            name: "w".into(),
            shape: vec![elements],
            optimizer: Optimizer::new(Rule::Sgd, 1.0),
        };
        let place = TensorId { id: 0, first: 0 };
        Dense::new(
            spec,
            place,
            server,
            servers,
            &Budget::new(1 << 40),
            &Arc::default(),
        )
        .unwrap()
    }

    fn values(dense: &Dense) -> Vec<f32> {
        (0..dense.blocks())
            .flat_map(|index| dense.block(index).values.clone())
            .collect()
    }

    #[test]
    fn the_first_values_count_unless_replaced() {
        let dense = dense(2, 0, 1);
        dense.assign(&[1.0, 2.0], false);
        dense.assign(&[3.0, 4.0], false);
        assert_eq!(values(&dense), [1.0, 2.0]);
        dense.assign(&[3.0, 4.0], true);
        assert_eq!(values(&dense), [3.0, 4.0]);
    }

    #[test]
    fn gradients_are_summed_in_their_order() {
        let dense = dense(1, 0, 1);
        dense.assign(&[0.0], false);
        // In another order, the small value would be lost.
        dense.update(&[&[1e8], &[-1e8], &[1.0]], None, Pace::default(), None, 1);
        assert_eq!(values(&dense), [-1.0]);
        dense.update(&[&[2.0], &[4.0]], Some(2.0), Pace::default(), None, 1);
        assert_eq!(values(&dense), [-4.0]);
    }

    #[test]
    fn threads_change_nothing() {
        let elements = 40 * BLOCK + 5;
        let gradient: Vec<f32> = (0..elements).map(|i| (i as f32).sin()).collect();
        let run = |threads| {
            let dense = dense(elements, 0, 1);
            dense.assign(&vec![1.0; elements as usize], false);
            dense.update(
                &[&gradient, &gradient, &gradient],
                Some(3.0),
                Pace::default(),
                None,
                threads,
            );
            values(&dense)
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn a_tensor_beyond_the_memory_limit_is_refused_before_it_is_allocated() {
        let spec = DenseSpec {
            name: "huge".into(),
            shape: vec![1 << 20, 1 << 20],
            optimizer: Optimizer::new(Rule::Sgd, 1.0),
        };
        let error = Dense::new(
            spec,
            TensorId { id: 0, first: 0 },
            0,
            1,
            &Budget::new(1 << 30),
            &Arc::default(),
        )
        .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("`huge` needs 4398046511104 more bytes")
        );
    }
}
