//! What a checkpoint saves while training continues, with a bound on the copies that takes.
//!
//! A checkpoint marks every block and slab at one moment. The writer visits them one after another; a thread that is about to change a marked one
//! first sends a copy of it to the writer and removes the mark. The way there holds few copies: a change waits for the disk rather
//! than for memory.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{PoisonError, RwLock};

/// Copies on their way to the writer; of at most a few hundred KiB each, so that all fit into what a server keeps for itself.
const IN_FLIGHT: usize = 8;

/// A portion of a tensor as it was when the checkpoint began.
#[derive(Debug)]
pub enum Piece {
    Block {
        tensor: u32,
        /// Of the whole tensor's blocks.
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

/// The way from those who change tensors to the writer of a checkpoint.
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

    /// Called by the thread that removed a mark, under the lock of what it marks.
    pub fn send(&self, piece: Piece) {
        let sender = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            // A writer that gave up wants nothing more.
            let _ = sender.send(piece);
        }
    }
}
