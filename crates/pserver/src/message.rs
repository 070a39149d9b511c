//! Requests of clients, replies of servers, and their encoding in a head.
//!
//! A body follows the head where the comment says so. Its size follows from the head and the server's tensors, and is
//! compared with the frame's before it is read.

mod field;
mod request;

use crate::optimizer::Optimizer;
use crate::steps::Mode;

pub use crate::refusal::{Code, Refused, reply};
pub use crate::tensor_name::is_name;
pub use field::Field;
pub use request::Request;

/// Maximum floats in a row.
pub const MAX_ROW: u32 = 1 << 16;
/// Maximum elements of one dense tensor.
pub const MAX_ELEMENTS: u64 = 1 << 40;

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
    pub elements: u64,
    pub optimizer: Optimizer,
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    pub tensor: u32,
    /// Overrides the schedule.
    pub rate: Option<f32>,
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
