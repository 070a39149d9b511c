//! Rows of sparse tables: ids are divided among the servers, and a repeated id is sent only once.

use std::sync::Arc;

use crate::codec::encode_halves;
use crate::message::{Encoding, Entry, EntryKind, Request, TableSpec};
use crate::optimizer::{Optimizer, Pace};
use crate::placement::{mix, server_of_row};
use crate::wire::{Reader, bytes_of, bytes_of_ids, bytes_of_mut};

use super::pushing::{check_terms, samples};
use super::{Client, ClientError, Exchange, Gradients, KnownKind, Sink, exchange};

/// Maximum elements of a buffer that is kept for the next call.
const KEPT_ELEMENTS: usize = 16 << 20;

/// Distinct ids by server, and where each given id went.
#[derive(Debug, Default)]
pub struct Rows {
    ids: Vec<Vec<u64>>,
    /// Per given id: its server and its position in that server's list.
    places: Vec<(u32, u32)>,
}

impl Rows {
    pub fn new(ids: &[u64], servers: u32) -> Rows {
        let mut rows = Rows {
            ids: vec![Vec::with_capacity(ids.len() / servers as usize + 16); servers as usize],
            places: Vec::with_capacity(ids.len()),
        };
        // A hash table of positions in `places` + 1, at most half full.
        let mask = (ids.len() * 2).next_power_of_two() - 1;
        let mut slots = vec![0u32; mask + 1];
        for id in ids {
            let mut at = mix(*id) as usize & mask;
            let place = loop {
                match slots[at] {
                    0 => {
                        let server = server_of_row(*id, servers);
                        let list = &mut rows.ids[server as usize];
                        list.push(*id);
                        slots[at] = rows.places.len() as u32 + 1;
                        break (server, list.len() as u32 - 1);
                    }
                    seen => {
                        let (server, index) = rows.places[seen as usize - 1];
                        if rows.ids[server as usize][index as usize] == *id {
                            break (server, index);
                        }
                        at = (at + 1) & mask;
                    }
                }
            };
            rows.places.push(place);
        }
        rows
    }

    /// Copies the servers' rows to the positions of the given ids.
    fn spread(&self, found: &[Vec<f32>], row: usize, out: &mut [f32]) {
        for ((server, index), out) in self.places.iter().zip(out.chunks_exact_mut(row)) {
            out.copy_from_slice(&found[*server as usize][*index as usize * row..][..row]);
        }
    }

    /// Sums gradients by server; those of a repeated id are added in the given order.
    fn sum(&self, gradients: &[f32], row: usize, mut sums: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
        sums.resize_with(self.ids.len(), Vec::new);
        for (sums, ids) in sums.iter_mut().zip(&self.ids) {
            sums.clear();
            sums.reserve(ids.len() * row);
        }
        for ((server, index), gradient) in self.places.iter().zip(gradients.chunks_exact(row)) {
            let sums = &mut sums[*server as usize];
            let start = *index as usize * row;
            if start == sums.len() {
                sums.extend_from_slice(gradient);
                continue;
            }
            let sum = &mut sums[start..start + row];
            sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += *g);
        }
        sums
    }
}

impl Client {
    pub fn table(&self, name: &str) -> Result<(u32, &TableSpec), ClientError> {
        let known = self.tensor(name)?;
        match &known.kind {
            KnownKind::Table(spec) => Ok((known.place.id, spec)),
            KnownKind::Dense(..) => Err(ClientError::Kind {
                name: name.to_owned(),
                is: "dense tensor",
                wanted: "sparse table",
            }),
        }
    }

    /// Reads the rows of `ids`, in their order. Training creates missing rows.
    pub fn lookup(
        &mut self,
        name: &str,
        ids: &[u64],
        train: bool,
        out: &mut [f32],
    ) -> Result<(), ClientError> {
        let (tensor, spec) = self.table(name)?;
        let row = spec.row as usize;
        check_count(ids.len(), row, out.len())?;
        let rows = Rows::new(ids, self.servers());
        let mut found = self.take_buffers();
        for (found, ids) in found.iter_mut().zip(&rows.ids) {
            found.resize(ids.len() * row, 0.0);
        }
        let (epoch, step) = (self.epoch, self.step);
        let exchanges = rows.ids.iter().zip(&mut found).map(|(ids, found)| {
            let request = Request::Lookup {
                epoch,
                step,
                tensor,
                count: ids.len() as u32,
                train,
            };
            (!ids.is_empty()).then(|| Exchange {
                request,
                body: vec![bytes_of_ids(ids)],
                sink: Sink::Into(vec![bytes_of_mut(found)]),
            })
        });
        let exchanges = exchanges.collect();
        let answered = self.run(exchanges, out.len() * 4);
        if answered.is_ok() {
            rows.spread(&found, row, out);
        }
        self.keep_buffers(found);
        answered.map(drop)
    }

    /// A buffer per server, used again: fresh memory costs more than filling it.
    fn take_buffers(&mut self) -> Vec<Vec<f32>> {
        let mut buffers = std::mem::take(&mut self.row_buffers);
        buffers.resize_with(self.links.len(), Vec::new);
        buffers
    }

    fn keep_buffers(&mut self, mut buffers: Vec<Vec<f32>>) {
        buffers.retain(|buffer| buffer.capacity() <= KEPT_ELEMENTS);
        self.row_buffers = buffers;
    }

    /// Adds the gradients of rows to this trainer's step; repeated ids are summed.
    pub fn push_rows(
        &mut self,
        name: &str,
        ids: &[u64],
        gradients: &[f32],
        pace: Pace,
    ) -> Result<(), ClientError> {
        self.push_rows_with(name, ids, gradients, pace, None)
    }

    /// The same with rate and constants of its own for this update.
    pub fn push_rows_with(
        &mut self,
        name: &str,
        ids: &[u64],
        gradients: &[f32],
        pace: Pace,
        optimizer: Option<Arc<Optimizer>>,
    ) -> Result<(), ClientError> {
        check_terms(pace, optimizer.as_deref())?;
        let (tensor, spec) = self.table(name)?;
        let row = spec.row as usize;
        check_count(ids.len(), row, gradients.len())?;
        let rows = Rows::new(ids, self.servers());
        let sums = rows.sum(gradients, row, self.take_buffers());
        let (encoding, halves) = self.halve_rows(&sums);
        let mut exchanges = Vec::new();
        for (server, (ids, sums)) in rows.ids.iter().zip(&sums).enumerate() {
            let entry = Entry {
                tensor,
                rate: pace.rate,
                optimizer: optimizer.clone(),
                samples: samples(pace),
                kind: EntryKind::Rows {
                    count: ids.len() as u32,
                    encoding,
                },
            };
            // Sent to servers that hold none of the rows too, so that all count the same updates.
            let numbers = halves.get(server).map_or(bytes_of(sums), |halves| &halves[..]);
            let body = vec![bytes_of_ids(ids), numbers];
            exchanges.push(self.push_exchange(server as u32, vec![entry], body));
        }
        let pushed = self.run_push(exchanges, gradients.len() * 4);
        self.keep_buffers(sums);
        pushed
    }

    /// The rows in half precision, if gradients are sent that way; otherwise empty.
    fn halve_rows(&self, sums: &[Vec<f32>]) -> (Encoding, Vec<Vec<u8>>) {
        let encoding = match self.config.gradients {
            Gradients::F32 | Gradients::TopK(_) => return (Encoding::F32, Vec::new()),
            Gradients::Bf16 => Encoding::Bf16,
            Gradients::F16 => Encoding::F16,
        };
        let halve = |sums: &Vec<f32>| {
            let mut bytes = Vec::new();
            encode_halves(sums, encoding, &mut bytes);
            bytes
        };
        (encoding, sums.iter().map(halve).collect())
    }

    /// Sets the values of rows, for example from a saved model.
    pub fn assign_rows(&mut self, name: &str, ids: &[u64], values: &[f32]) -> Result<(), ClientError> {
        let (tensor, spec) = self.table(name)?;
        let row = spec.row as usize;
        check_count(ids.len(), row, values.len())?;
        let rows = Rows::new(ids, self.servers());
        let mut of_server: Vec<Vec<f32>> = rows.ids.iter().map(|ids| vec![0.0; ids.len() * row]).collect();
        for ((server, index), values) in rows.places.iter().zip(values.chunks_exact(row)) {
            of_server[*server as usize][*index as usize * row..][..row].copy_from_slice(values);
        }
        let exchanges = rows.ids.iter().zip(&of_server).map(|(ids, values)| {
            let count = ids.len() as u32;
            let request = Request::AssignRows { tensor, count };
            (count > 0).then(|| exchange(request, vec![bytes_of_ids(ids), bytes_of(values)]))
        });
        let exchanges = exchanges.collect();
        self.run(exchanges, values.len() * 4)?;
        Ok(())
    }

    /// Calls `each` with ids and rows of a table, in portions; only rows seen at step `since` or later.
    pub fn scan<E: From<ClientError>>(
        &mut self,
        name: &str,
        since: u64,
        mut each: impl FnMut(&[u64], &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (tensor, spec) = self.table(name)?;
        let row = spec.row as usize;
        let limit = ((1 << 22) / (row as u32 * 4 + 8)).max(1);
        for link in &mut self.links {
            let mut from = Some(0);
            while let Some(at) = from {
                let request = Request::Scan {
                    tensor,
                    from: at,
                    limit,
                    changed_since: since,
                };
                let mut body = Vec::new();
                let head = link.ask(&request, &[], Sink::Collect(&mut body))?;
                let (next, count) = scan_head(&head).map_err(ClientError::from)?;
                from = next;
                let (ids, rows) = split_rows(&body, count, row).ok_or(ClientError::Size {
                    server: link.server(),
                    bytes: body.len() as u64,
                })?;
                each(&ids, &rows)?;
            }
        }
        Ok(())
    }
}

fn scan_head(head: &[u8]) -> Result<(Option<u64>, usize), crate::wire::WireError> {
    let mut head = Reader::new(head);
    let (more, next, count) = (head.flag("`more`")?, head.u64()?, head.u32()?);
    Ok((more.then_some(next), count as usize))
}

fn split_rows(body: &[u8], count: usize, row: usize) -> Option<(Vec<u64>, Vec<f32>)> {
    if body.len() != count * (8 + 4 * row) {
        return None;
    }
    let (ids, rows) = body.split_at(count * 8);
    let ids = ids
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes));
    let rows = rows
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes));
    Some((ids.collect(), rows.collect()))
}

fn check_count(ids: usize, row: usize, numbers: usize) -> Result<(), ClientError> {
    match ids * row == numbers {
        true => Ok(()),
        false => Err(ClientError::RowCount {
            found: ids,
            expected: ids * row,
            numbers,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_ids_are_asked_for_once_and_summed_in_order() {
        let ids = [7, 3, 7, 7];
        let rows = Rows::new(&ids, 3);
        assert_eq!(rows.ids.iter().map(Vec::len).sum::<usize>(), 2);
        let sums = rows.sum(&[1e8, 5.0, -1e8, 1.0], 1, Vec::new());
        let mut out = [0.0; 4];
        rows.spread(&sums, 1, &mut out);
        assert_eq!(out, [1.0, 5.0, 1.0, 1.0]);
    }

    #[test]
    fn an_empty_list_of_ids_is_accepted() {
        let rows = Rows::new(&[], 2);
        rows.spread(&[vec![], vec![]], 4, &mut []);
        assert_eq!(rows.sum(&[], 4, Vec::new()), [vec![], Vec::<f32>::new()]);
    }
}
