//! Writes a checkpoint to disk: every marked piece once, from the tensors or from the thread that was about to change it.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use crate::checkpoint::{self, CheckpointError, FileWriter};
use crate::saving::Piece;
use crate::wire::{Writer, bytes_of, bytes_of_ids};

use super::super::Tensor;
use super::super::trainer_state::TrainerState;
use super::stored::remove_old;
use super::{Header, kind};

/// How long the writer waits for a piece that another thread is about to send.
const PIECE_PAUSE: Duration = Duration::from_millis(1);

/// A checkpoint of one server that is being written.
pub(super) struct Writing {
    pub(super) index: u32,
    pub(super) servers: u32,
    pub(super) folder: PathBuf,
    pub(super) header: Header,
    /// By trainer.
    pub(super) kept: Vec<(u32, TrainerState)>,
    pub(super) descriptions: Vec<(u8, Vec<u8>)>,
    pub(super) sightings: Vec<(u32, Vec<u8>)>,
    pub(super) tensors: Vec<Tensor>,
    /// The number of marked pieces still to come; each arrives once.
    pub(super) pieces: usize,
}

impl Writing {
    /// Writes the checkpoint. Training continues if that fails.
    pub(super) fn run(mut self, receiver: &Receiver<Piece>) -> Result<(), CheckpointError> {
        let step = self.header.step;
        let result = self.write(receiver);
        match &result {
            Ok(()) => {
                println!("wrote a checkpoint of step {step}");
                if self.index == 0 {
                    remove_old(&self.folder);
                }
            }
            Err(error) => {
                eprintln!("no checkpoint of step {step}: {error}");
                // Drain the channel: a thread that changes a marked piece must not wait for a writer that gave up.
                self.collect(receiver, |_| Ok(())).unwrap_or(());
            }
        }
        result
    }

    fn write(&mut self, receiver: &Receiver<Piece>) -> Result<(), CheckpointError> {
        let mut file = FileWriter::create(&self.folder, self.header.step, self.index, self.servers)?;
        file.record(kind::HEADER, &self.header.encode(), &[])?;
        for (kind, head) in std::mem::take(&mut self.descriptions) {
            file.record(kind, &head, &[])?;
        }
        for (tensor, body) in std::mem::take(&mut self.sightings) {
            file.record(kind::SIGHTINGS, &Writer::new().u32(tensor).finish(), &[&body])?;
        }
        for (trainer, kept) in std::mem::take(&mut self.kept) {
            let head = Writer::new().u32(trainer).u64(kept.step).finish();
            file.record(kind::KEPT, &head, &[kept.bytes()])?;
        }
        let base = self.header.base;
        let full: Vec<u32> = self
            .tensors
            .iter()
            .filter(|tensor| matches!(tensor, Tensor::Table(table) if table.drops_rows()))
            .map(|tensor| tensor.place().id)
            .collect();
        self.collect(receiver, |piece| write_piece(&mut file, piece, base, &full))?;
        file.finish()
    }

    /// Receives every piece once: from the tensors, or from the thread that was about to change it.
    fn collect(
        &mut self,
        receiver: &Receiver<Piece>,
        mut each: impl FnMut(Piece) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        let mut places = self.places();
        while self.pieces > 0 {
            match receiver.try_recv() {
                Ok(piece) => {
                    self.pieces -= 1;
                    each(piece)?;
                    continue;
                }
                Err(TryRecvError::Disconnected) => return Err(self.cut_short()),
                Err(TryRecvError::Empty) => {}
            }
            if let Some(piece) = self.next(&mut places) {
                self.pieces -= 1;
                each(piece)?;
                continue;
            }
            match receiver.recv_timeout(PIECE_PAUSE) {
                Ok(piece) => {
                    self.pieces -= 1;
                    each(piece)?;
                }
                Err(RecvTimeoutError::Timeout) => places = self.places(),
                Err(RecvTimeoutError::Disconnected) => return Err(self.cut_short()),
            }
        }
        Ok(())
    }

    /// Another checkpoint began, to which the other threads send their pieces.
    fn cut_short(&self) -> CheckpointError {
        CheckpointError::Write {
            path: checkpoint::file(&self.folder, self.header.step, self.index, self.servers),
            source: io::Error::other("another checkpoint began"),
        }
    }

    /// Where a search of the tensors starts: (tensor, shard, position).
    fn places(&self) -> (usize, usize, usize) {
        (0, 0, 0)
    }

    /// The next piece that is still marked and not locked.
    fn next(&self, (tensor, shard, at): &mut (usize, usize, usize)) -> Option<Piece> {
        while let Some(current) = self.tensors.get(*tensor) {
            match current {
                Tensor::Dense(dense) => {
                    while *at < dense.blocks() {
                        *at += 1;
                        if let Some(piece) = dense.take(*at - 1) {
                            return Some(piece);
                        }
                    }
                }
                Tensor::Table(table) => {
                    while *shard < table.shards() {
                        if let Ok(Some((piece, next))) = table.take(*shard, *at) {
                            *at = next;
                            return Some(piece);
                        }
                        (*shard, *at) = (*shard + 1, 0);
                    }
                }
            }
            (*tensor, *shard, *at) = (*tensor + 1, 0, 0);
        }
        None
    }
}

fn write_piece(
    file: &mut FileWriter,
    piece: Piece,
    base: Option<u64>,
    full: &[u32],
) -> Result<(), CheckpointError> {
    match piece {
        Piece::Block {
            tensor,
            number,
            values,
            state,
        } => {
            let head = Writer::new()
                .u32(tensor)
                .u64(number)
                .u32(values.len() as u32)
                .finish();
            file.record(kind::BLOCK, &head, &[bytes_of(&values), bytes_of(&state)])
        }
        Piece::Rows {
            tensor,
            mut ids,
            mut stamps,
            mut data,
        } => {
            if let Some(base) = base.filter(|_| !full.contains(&tensor)) {
                keep_changed(base, &mut ids, &mut stamps, &mut data);
            }
            if ids.is_empty() {
                return Ok(());
            }
            let head = Writer::new().u32(tensor).u32(ids.len() as u32).finish();
            let stamps: Vec<u8> = stamps.iter().flat_map(|stamp| stamp.to_le_bytes()).collect();
            file.record(kind::ROWS, &head, &[bytes_of_ids(&ids), &stamps, bytes_of(&data)])
        }
    }
}

/// Keeps only the rows that were seen since the base was taken.
fn keep_changed(base: u64, ids: &mut Vec<u64>, stamps: &mut Vec<u32>, data: &mut Vec<f32>) {
    let width = data.len() / ids.len().max(1);
    let mut kept = 0;
    for at in 0..ids.len() {
        if u64::from(stamps[at]) >= base {
            ids[kept] = ids[at];
            stamps[kept] = stamps[at];
            data.copy_within(at * width..(at + 1) * width, kept * width);
            kept += 1;
        }
    }
    ids.truncate(kept);
    stamps.truncate(kept);
    data.truncate(kept * width);
}
