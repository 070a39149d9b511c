//! The state of a trainer's program, as bytes that only the trainer understands: it travels with the end of a step and
//! belongs to the step that begins then. A restarted trainer gets that of its step; a checkpoint has that of its step.

use std::sync::Arc;

use crate::budget::{Budget, OverBudget, Reserved};

/// Maximum bytes of one trainer's state.
pub(super) const MAX_STATE: u64 = 64 << 20;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct TrainerState {
    /// The step that begins with this state.
    pub(super) step: u64,
    counted: Arc<(Vec<u8>, Reserved)>,
}

impl TrainerState {
    /// Counts the memory of a state before it is read.
    pub(super) fn reserve(budget: &Budget, trainer: u32, length: u64) -> Result<Reserved, OverBudget> {
        budget.reserve(length, &format!("the state of trainer {trainer}"))
    }

    pub(super) fn new(step: u64, bytes: Vec<u8>, memory: Reserved) -> TrainerState {
        TrainerState {
            step,
            counted: Arc::new((bytes, memory)),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.counted.0
    }
}
