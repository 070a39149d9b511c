//! Loads a checkpoint: creates its tensors and takes the blocks and rows that belong to this server.

use std::path::Path;

use crate::checkpoint::{CheckpointError, FileReader, Record};
use crate::dense::DenseProgress;
use crate::message::{DenseSpec, Field, Refused, TableSpec, TensorId};
use crate::optimizer::Progress;
use crate::placement::server_of_row;
use crate::planted::Planted;
use crate::wire::{Reader, WireError};

use super::super::trainer_state::TrainerState;
use super::super::{Config, Server, State, Tensor};
use super::kind;
use super::stored::Part;

impl Server {
    /// Loads the files of all servers: rows and blocks may have been on another one.
    pub(super) fn load(&self, parts: &[Part], state: &mut State) -> Result<(), CheckpointError> {
        let later_stay = self.has_bug(Planted::LaterTensorsStay);
        if !later_stay {
            self.keep_only(&described(&parts[0].path)?);
        }
        for tensor in self.all_tensors() {
            match tensor {
                Tensor::Table(table) => table.clear(),
                Tensor::Dense(_) if later_stay => {}
                Tensor::Dense(dense) => *dense.progress() = DenseProgress::default(),
            }
        }
        for part in parts {
            if let Some(base) = &part.base {
                self.load_file(base, state, |record| self.is_of_base(record))?;
            }
            self.load_file(&part.path, state, |_| true)?;
        }
        self.undeclare_all();
        Ok(())
    }

    /// Removes the tensors that a checkpoint does not have exactly like this: they were created later. The others keep
    /// their memory.
    fn keep_only(&self, described: &[Described]) {
        let is_described = |tensor: &Tensor| {
            described.iter().any(|one| match (one, tensor) {
                (Described::Dense(spec, place), Tensor::Dense(dense)) => {
                    *spec == dense.spec() && self.here(*place) == dense.place
                }
                (Described::Table(spec, place), Tensor::Table(table)) => {
                    *spec == table.described() && self.here(*place) == table.place
                }
                _ => false,
            })
        };
        self.tensors_mut().retain(is_described);
    }

    /// Whether a record of a base is still needed. Of tables that drop rows, the later file has all that are left.
    fn is_of_base(&self, record: &Record) -> bool {
        let drops_rows = |tensor| self.table(tensor).is_ok_and(|table| table.drops_rows());
        match record.kind {
            kind::TABLE => true,
            kind::ROWS => !Reader::new(&record.head).u32().is_ok_and(drops_rows),
            _ => false,
        }
    }

    fn load_file(
        &self,
        path: &Path,
        state: &mut State,
        is_wanted: impl Fn(&Record) -> bool,
    ) -> Result<(), CheckpointError> {
        let mut reader = FileReader::open(path)?;
        while let Some(record) = reader.next()? {
            if is_wanted(&record) {
                self.load_record(&record, state)
                    .map_err(|reason| reader.damaged(reason))?;
            }
        }
        Ok(())
    }

    fn load_record(&self, record: &Record, state: &mut State) -> Result<(), String> {
        let text = |error: WireError| error.to_string();
        let refusal = |refused: Refused| refused.message;
        let mut head = Reader::new(&record.head);
        match record.kind {
            kind::DENSE => {
                let (spec, place, assigned, updates) = decode_dense(&mut head).map_err(text)?;
                let place = self.create_dense(spec, Some(self.here(place))).map_err(refusal)?;
                let dense = self.dense(place.id).map_err(refusal)?;
                let mut progress = dense.progress();
                progress.assigned |= assigned;
                progress.updates = match self.has_bug(Planted::LastFileCounts) {
                    true => updates,
                    false => latest(progress.updates, updates),
                };
            }
            kind::TABLE => {
                let (spec, place, updates, clock) = decode_table(&mut head).map_err(text)?;
                if let Ok(base) = self.table(place.id) {
                    // A run that continues another one may have brought other constants after the base.
                    base.set_optimizer(spec.optimizer.clone());
                }
                let place = self.create_table(spec, Some(self.here(place))).map_err(refusal)?;
                let table = self.table(place.id).map_err(refusal)?;
                let mut progress = table.progress();
                *progress = latest(*progress, updates);
                drop(progress);
                table.set_clock(u64::from(clock));
            }
            kind::BLOCK => {
                let (tensor, number) = (head.u32().map_err(text)?, head.u64().map_err(text)?);
                let count = head.u32().map_err(text)? as usize;
                let dense = self.dense(tensor).map_err(refusal)?;
                let numbers = floats(&record.body);
                let (values, block) = numbers.split_at_checked(count).ok_or("a block is too short")?;
                if !dense.restore(number, values, block) {
                    return Err(format!("a block does not fit `{}`", dense.name));
                }
            }
            kind::ROWS => self.load_rows(&mut head, &record.body)?,
            kind::SIGHTINGS => {
                let table = self
                    .table(head.u32().map_err(text)?)
                    .map_err(|refused| refused.message)?;
                for entry in record.body.as_chunks::<12>().0 {
                    let mut entry = Reader::new(entry);
                    let (id, seen) = (entry.u64().map_err(text)?, entry.u32().map_err(text)?);
                    if server_of_row(id, self.config.servers) == self.config.index {
                        table
                            .restore_sightings(id, seen)
                            .map_err(|error| error.to_string())?;
                    }
                }
            }
            kind::KEPT => {
                let (trainer, step) = (head.u32().map_err(text)?, head.u64().map_err(text)?);
                // The first file counts: in asynchronous modes, trainers' steps are read from it too.
                if let Some(kept @ None) = state.kept.get_mut(trainer as usize) {
                    let bytes = record.body.clone();
                    let memory = TrainerState::reserve(&self.budget, trainer, bytes.len() as u64);
                    let memory = memory.map_err(|error| error.to_string())?;
                    *kept = Some(TrainerState::new(step, bytes, memory));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn load_rows(&self, head: &mut Reader<'_>, body: &[u8]) -> Result<(), String> {
        let text = |error: WireError| error.to_string();
        let (tensor, count) = (head.u32().map_err(text)?, head.u32().map_err(text)? as usize);
        let table = self.table(tensor).map_err(|refused| refused.message)?;
        let width = table.width();
        if body.len() != count * (12 + 4 * width) {
            return Err(format!("rows do not fit `{}`", table.spec.name));
        }
        let (ids, rest) = body.split_at(count * 8);
        let (stamps, data) = rest.split_at(count * 4);
        let data = floats(data);
        let Config { index, servers, .. } = self.config;
        for at in 0..count {
            let id = u64::from_le_bytes(ids.as_chunks::<8>().0[at]);
            let stamp = match self.has_bug(Planted::ForgetsLastUse) {
                true => table.clock(),
                false => u32::from_le_bytes(stamps.as_chunks::<4>().0[at]),
            };
            if server_of_row(id, servers) == index {
                table
                    .restore(id, stamp, &data[at * width..(at + 1) * width])
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// A checkpoint of another number of servers distributes its blocks again.
    fn here(&self, place: TensorId) -> TensorId {
        TensorId {
            first: place.first % self.config.servers,
            ..place
        }
    }
}

/// A server without a block of a tensor does not count its updates; in asynchronous modes servers differ anyway.
fn latest(one: Progress, other: Progress) -> Progress {
    match other.updates > one.updates {
        true => other,
        false => one,
    }
}

/// A tensor of a checkpoint.
enum Described {
    Dense(DenseSpec, TensorId),
    Table(TableSpec, TensorId),
}

/// All tensors of a checkpoint: every server's file describes them, before anything else but the header.
fn described(path: &Path) -> Result<Vec<Described>, CheckpointError> {
    let mut reader = FileReader::open(path)?;
    let mut all = Vec::new();
    while let Some(record) = reader.next()? {
        let mut head = Reader::new(&record.head);
        let one = match record.kind {
            kind::HEADER => continue,
            kind::DENSE => decode_dense(&mut head).map(|(spec, place, ..)| Described::Dense(spec, place)),
            kind::TABLE => decode_table(&mut head).map(|(spec, place, ..)| Described::Table(spec, place)),
            _ => break,
        };
        all.push(one.map_err(|error| reader.damaged(error))?);
    }
    Ok(all)
}

fn decode_dense(head: &mut Reader<'_>) -> Result<(DenseSpec, TensorId, bool, Progress), WireError> {
    let spec = DenseSpec::decode(head)?;
    let place = TensorId {
        id: head.u32()?,
        first: head.u32()?,
    };
    Ok((spec, place, head.flag("`assigned`")?, Progress::decode(head)?))
}

fn decode_table(head: &mut Reader<'_>) -> Result<(TableSpec, TensorId, Progress, u32), WireError> {
    let spec = TableSpec::decode(head)?;
    let place = TensorId {
        id: head.u32()?,
        first: head.u32()?,
    };
    Ok((spec, place, Progress::decode(head)?, head.u32()?))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let chunks = bytes.as_chunks::<4>().0;
    chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
