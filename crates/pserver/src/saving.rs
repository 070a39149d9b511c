//! How a checkpoint is saved while training continues, with a bound on the copies.
//!
//! A checkpoint marks all blocks and slabs at one moment. The writer visits them one after another. A thread that is
//! about to change a marked one first sends a copy to the writer and removes the mark. The channel holds few copies: a
//! change waits for the disk rather than using more memory.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{PoisonError, RwLock};

/// Copies in flight to the writer. Each has at most a few hundred KiB, so all fit into what a server keeps for itself.
const IN_FLIGHT: usize = 8;

/// A portion of a tensor as it was when the checkpoint began.
#[derive(Debug)]
pub enum Piece {
    Block {
        tensor: u32,
        /// The number of the block in the whole tensor.
        number: u64,
        values: Vec<f32>,
        state: Vec<f32>,
    },
    Rows {
        tensor: u32,
        ids: Vec<u64>,
        stamps: Vec<u32>,
        data: Vec<f32>,
    },
}

/// The channel from threads that change tensors to the writer of a checkpoint.
#[derive(Debug, Default)]
pub struct Saving(RwLock<Option<SyncSender<Piece>>>);

impl Saving {
    pub fn begin(&self) -> Receiver<Piece> {
        let (sender, receiver) = sync_channel(IN_FLIGHT);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    pub fn end(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Called by the thread that removed a mark, while it holds the lock of the marked piece.
    pub fn send(&self, piece: Piece) {
        let sender = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            // A writer that gave up needs no more pieces.
            let _ = sender.send(piece);
        }
    }
}
