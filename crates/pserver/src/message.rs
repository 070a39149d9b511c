//! Requests of clients, replies of servers, and their encoding in a head.
//!
//! A body follows the head where the comment says so. Its size follows from the head and the server's tensors, and is
//! compared with the frame's before it is read.

mod field;
mod request;

use std::sync::Arc;

use crate::optimizer::{Optimizer, OutOfRange, Range, ranged};
use crate::steps::Mode;

pub use crate::refusal::{Code, Refused, reply};
pub use crate::tensor_name::{NameError, check_name, file_name, name_of_file};
pub use field::Field;
pub use request::Request;

/// Maximum floats in a row.
pub const MAX_ROW: u32 = 1 << 16;
/// Maximum elements of one dense tensor.
pub const MAX_ELEMENTS: u64 = 1 << 40;
/// Maximum dimensions of a dense tensor: those of numpy.
pub const MAX_RANK: usize = 64;

/// What all trainers of a job agree on; the first to join decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub mode: Mode,
    /// Synchronous gradients are averaged over the trainers of the step, not summed.
    pub mean: bool,
    /// The folder for checkpoints, as the servers see it; empty: no checkpoints.
    pub checkpoints: String,
    /// Steps between two checkpoints; 0: no checkpoints.
    pub checkpoint_every: u64,
    /// The checkpoints of the run that this one continues, as the servers see them; empty: it begins at step 0.
    pub resume: String,
}

/// What all servers go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// There is no checkpoint: training restarts without any tensors.
    Start,
    /// A checkpoint of this run.
    ThisRun,
    /// A checkpoint of [`Session::resume`].
    OtherRun,
}

/// The values of a row that is looked up for the first time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    Zero,
    Uniform { low: f32, high: f32 },
    Normal { mean: f32, deviation: f32 },
}

impl Init {
    /// Checks that rows can be drawn.
    pub fn check(&self) -> Result<(), OutOfRange> {
        match *self {
            Init::Zero => Ok(()),
            Init::Uniform { low, high } => {
                ranged("low", f64::from(low), Range::Finite)?;
                ranged("high", f64::from(high), Range::Finite)?;
                match low <= high {
                    true => Ok(()),
                    false => Err(OutOfRange {
                        name: "low",
                        range: "at most `high`",
                        value: f64::from(low),
                    }),
                }
            }
            Init::Normal { mean, deviation } => {
                ranged("mean", f64::from(mean), Range::Finite)?;
                ranged("deviation", f64::from(deviation), Range::NotNegative)
            }
        }
    }
}

/// When a table drops rows: when it is full, or when they are old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// A row is created at its n-th training lookup; earlier lookups return its initial values. 0 and 1: at the first.
    pub admit_after: u32,
    /// Maximum rows on all servers together; 0: no limit.
    pub rows: u64,
    /// A full table drops its least recently used rows instead of refusing new ones.
    pub evict: bool,
    /// Rows unseen for this many steps are dropped; 0: never.
    pub idle_steps: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DenseSpec {
    pub name: String,
    pub shape: Vec<u64>,
    pub optimizer: Optimizer,
}

impl DenseSpec {
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TableSpec {
    pub name: String,
    pub row: u32,
    pub optimizer: Optimizer,
    pub init: Init,
    pub seed: u64,
    pub limits: Limits,
}

/// A tensor's number in messages and, for a dense one, the server of its first block. Server 0 assigns both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorId {
    pub id: u32,
    pub first: u32,
}

/// How the numbers of a gradient are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    F32,
    Bf16,
    F16,
    /// `count` pairs of a local position (u32) and a value (f32); the others are 0.
    Sparse {
        count: u32,
    },
}

/// One gradient of a push.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub tensor: u32,
    /// Overrides the schedule.
    pub rate: Option<f32>,
    /// Rate and constants of this update, instead of those of the declared optimizer.
    pub optimizer: Option<Arc<Optimizer>>,
    /// The number of samples of the gradient, for schedules that count them.
    pub samples: u32,
    pub kind: EntryKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EntryKind {
    Dense(Encoding),
    /// Body: the ids, then the rows.
    Rows {
        count: u32,
        encoding: Encoding,
    },
}

impl Encoding {
    /// The size of `elements` numbers in bytes.
    pub fn bytes(self, elements: u64) -> u64 {
        match self {
            Encoding::F32 => 4 * elements,
            Encoding::Bf16 | Encoding::F16 => 2 * elements,
            Encoding::Sparse { count } => 8 * u64::from(count),
        }
    }
}

#[cfg(test)]
mod tests;
