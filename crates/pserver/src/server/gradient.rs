//! Gradients between a push and the model: received, checked, decoded, and applied in order.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, Read};
use std::sync::Arc;

use crate::budget::{Budget, Buffer, OverBudget, Reserved};
use crate::codec;
use crate::dense::Dense;
use crate::message::{Code, Encoding, Entry, EntryKind, Refused};
use crate::optimizer::{Optimizer, Pace, Rule, all_finite};
use crate::placement::mix;
use crate::schedule::Counts;
use crate::sparse::Table;
use crate::wire::{bytes_of_ids_mut, bytes_of_mut};

use super::{Server, refused};

/// Elements read and checked at once, while they are in the CPU cache.
const CHECKED_AT_ONCE: usize = 64 * 1024;

/// A received gradient; it takes effect with its step.
#[derive(Debug)]
pub(super) struct Pushed {
    pace: Pace,
    /// The constants of this update, if not those of the declared optimizer.
    optimizer: Option<Arc<Optimizer>>,
    encoding: Encoding,
    values: Buffer,
    is_finite: bool,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Dense(Arc<Dense>),
    Rows(Arc<Table>, Ids),
}

#[derive(Debug)]
struct Ids {
    ids: Vec<u64>,
    _memory: Reserved,
}

/// What an entry of a push needs, computed before its body is read.
#[derive(Debug)]
pub(super) struct Expected {
    entry: Entry,
    target: ExpectedTarget,
    /// Bytes of its body.
    pub bytes: u64,
}

#[derive(Debug)]
enum ExpectedTarget {
    Dense(Arc<Dense>),
    Rows(Arc<Table>, u32),
}

impl Server {
    /// Checks an entry against its tensor.
    pub(super) fn expect(&self, mut entry: Entry) -> Result<Expected, Refused> {
        let (target, bytes) = match entry.kind {
            EntryKind::Dense(encoding) => {
                let dense = self.dense(entry.tensor)?;
                let elements = dense.local_elements as u64;
                if let Encoding::Sparse { count } = encoding
                    && u64::from(count) > elements
                {
                    let message = format!("`{}` has fewer than {count} elements on this server", dense.name);
                    return Err(refused(Code::Other, message));
                }
                (ExpectedTarget::Dense(dense), encoding.bytes(elements))
            }
            EntryKind::Rows { count, encoding } => {
                let table = self.table(entry.tensor)?;
                let elements = u64::from(count) * table.row() as u64;
                if matches!(encoding, Encoding::Sparse { .. }) {
                    let message = format!(
                        "gradients of `{}` are already rows, which cannot be sparse",
                        table.spec.name
                    );
                    return Err(refused(Code::Other, message));
                }
                let bytes = 8 * u64::from(count) + encoding.bytes(elements);
                (ExpectedTarget::Rows(table, count), bytes)
            }
        };
        let (name, optimizer) = match &target {
            ExpectedTarget::Dense(dense) => (&dense.name, dense.optimizer()),
            ExpectedTarget::Rows(table, _) => (&table.spec.name, table.optimizer()),
        };
        let used = entry.optimizer.as_deref().unwrap_or(&optimizer);
        if used.schedule.counts == Counts::Samples && (entry.samples, entry.rate) == (0, None) {
            let message = format!("the learning rate of `{name}` counts samples; push with `samples=`");
            return Err(refused(Code::Other, message));
        }
        if let (ExpectedTarget::Dense(_), Some(pushed)) = (&target, &mut entry.optimizer)
            && matches!(pushed.rule, Rule::RowAdagrad { .. })
        {
            *pushed = Arc::new(Optimizer::clone(pushed).of_dense());
        }
        match &entry.optimizer {
            Some(pushed) if !pushed.continues(&optimizer) => Err(refused(
                Code::Other,
                format!("`{name}` is declared with {optimizer}; a push cannot update it with {pushed}"),
            )),
            _ => Ok(Expected { entry, target, bytes }),
        }
    }
}

impl Expected {
    /// Allocates memory for the entry's body, which [`Pushed::read`] fills.
    pub fn allocate(self, budget: &Budget) -> Result<Pushed, OverBudget> {
        let (target, values) = match self.target {
            ExpectedTarget::Dense(dense) => {
                let values = budget.buffer(dense.local_elements, &dense.name)?;
                (Target::Dense(dense), values)
            }
            ExpectedTarget::Rows(table, count) => {
                let memory = budget.reserve(8 * u64::from(count), &table.spec.name)?;
                let values = budget.buffer(count as usize * table.row(), &table.spec.name)?;
                let ids = Ids {
                    ids: vec![0; count as usize],
                    _memory: memory,
                };
                (Target::Rows(table, ids), values)
            }
        };
        Ok(Pushed {
            pace: Pace {
                rate: self.entry.rate,
                samples: u64::from(self.entry.samples),
            },
            optimizer: self.entry.optimizer,
            encoding: match self.entry.kind {
                EntryKind::Dense(encoding) | EntryKind::Rows { encoding, .. } => encoding,
            },
            values,
            is_finite: false,
            target,
        })
    }
}

impl Pushed {
    /// Reads the entry's body from a connection.
    pub fn read(&mut self, stream: &mut impl Read) -> io::Result<()> {
        if let Target::Rows(_, ids) = &mut self.target {
            stream.read_exact(bytes_of_ids_mut(&mut ids.ids))?;
        }
        if self.encoding != Encoding::F32 {
            // A selection of elements leaves the others at 0.
            self.values.fill(0.0);
            codec::read(stream, self.encoding, &mut self.values)?;
            self.is_finite = all_finite(&self.values);
            return Ok(());
        }
        self.is_finite = true;
        for values in self.values.chunks_mut(CHECKED_AT_ONCE) {
            stream.read_exact(bytes_of_mut(values))?;
            self.is_finite &= all_finite(values);
        }
        Ok(())
    }

    /// Whether another gradient of the same tensor and step has another rate or other constants.
    pub fn contradicts(&self, other: &Pushed) -> bool {
        self.pace.rate != other.pace.rate || self.optimizer != other.optimizer
    }

    /// The number of the tensor.
    pub fn tensor(&self) -> u32 {
        match &self.target {
            Target::Dense(dense) => dense.place.id,
            Target::Rows(table, _) => table.place.id,
        }
    }

    /// Rate and constants, for a message.
    pub fn terms(&self) -> String {
        match (self.pace.rate, &self.optimizer) {
            (None, None) => "those of the declared optimizer".to_owned(),
            (None, Some(optimizer)) => optimizer.to_string(),
            (Some(rate), None) => format!("lr={rate}"),
            (Some(rate), Some(optimizer)) => format!("lr={rate} and {optimizer}"),
        }
    }

    pub fn tensor_name(&self) -> &str {
        match &self.target {
            Target::Dense(dense) => &dense.name,
            Target::Rows(table, _) => &table.spec.name,
        }
    }

    /// Whether the tensor has its initial values.
    pub fn has_target(&self) -> bool {
        match &self.target {
            Target::Dense(dense) => dense.progress().assigned,
            Target::Rows(..) => true,
        }
    }

    pub fn is_finite(&self) -> bool {
        self.is_finite
    }

    /// Applies an asynchronous gradient to the model.
    pub fn apply(&self, threads: usize) {
        match &self.target {
            Target::Dense(dense) => {
                dense.update(
                    &[&self.values],
                    None,
                    self.pace,
                    self.optimizer.as_deref(),
                    threads,
                );
            }
            Target::Rows(table, ids) => {
                let update = table.begin(self.pace, self.optimizer.as_deref());
                table.update(&update, &ids.ids, &self.values);
            }
        }
    }
}

/// All gradients of one step, in order of trainer and part.
pub(super) struct Gradients {
    by_tensor: Vec<Vec<Pushed>>,
}

impl Gradients {
    pub fn new(pushed: Vec<Pushed>) -> Gradients {
        let mut by_tensor: Vec<Vec<Pushed>> = Vec::new();
        let mut positions: HashMap<u32, usize> = HashMap::new();
        for gradient in pushed {
            match positions.entry(gradient.tensor()) {
                MapEntry::Occupied(at) => by_tensor[*at.get()].push(gradient),
                MapEntry::Vacant(free) => {
                    free.insert(by_tensor.len());
                    by_tensor.push(vec![gradient]);
                }
            }
        }
        Gradients { by_tensor }
    }

    /// Applies one update per tensor. The order of tensors does not matter: they are independent.
    pub fn apply(&self, divisor: Option<f32>, threads: usize) {
        for of_tensor in &self.by_tensor {
            let pace = Pace {
                // All parts of a step have the same rate and constants.
                rate: of_tensor[0].pace.rate,
                samples: of_tensor.iter().map(|gradient| gradient.pace.samples).sum(),
            };
            match &of_tensor[0].target {
                Target::Dense(dense) => {
                    let values: Vec<&[f32]> = of_tensor.iter().map(|gradient| &gradient.values[..]).collect();
                    dense.update(&values, divisor, pace, of_tensor[0].optimizer.as_deref(), threads);
                }
                Target::Rows(table, _) => update_rows(table, of_tensor, divisor, pace),
            }
        }
    }
}

/// Sums the gradients of each row in order of trainer and part.
fn update_rows(table: &Table, gradients: &[Pushed], divisor: Option<f32>, pace: Pace) {
    let row = table.row();
    let update = table.begin(pace, gradients[0].optimizer.as_deref());
    if let ([only], None) = (gradients, divisor)
        && let Target::Rows(_, ids) = &only.target
    {
        return table.update(&update, &ids.ids, &only.values);
    }
    let most = gradients.iter().map(|gradient| gradient.values.len() / row).sum();
    let mut ids: Vec<u64> = Vec::with_capacity(most);
    let mut sums: Vec<f32> = Vec::with_capacity(most * row);
    let mut positions: HashMap<u64, usize, BuildHasherDefault<RowHasher>> =
        HashMap::with_capacity_and_hasher(most, BuildHasherDefault::default());
    for gradient in gradients {
        let Target::Rows(_, of_part) = &gradient.target else {
            unreachable!("a tensor is of one kind");
        };
        for (id, values) in of_part.ids.iter().zip(gradient.values.chunks_exact(row)) {
            match positions.entry(*id) {
                MapEntry::Vacant(free) => {
                    free.insert(ids.len());
                    ids.push(*id);
                    sums.extend_from_slice(values);
                }
                MapEntry::Occupied(at) => {
                    let sum = &mut sums[at.get() * row..][..row];
                    sum.iter_mut().zip(values).for_each(|(sum, g)| *sum += *g);
                }
            }
        }
    }
    if let Some(divisor) = divisor {
        sums.iter_mut().for_each(|sum| *sum /= divisor);
    }
    table.update(&update, &ids, &sums);
}

/// Hashes row ids with `mix`: cheaper than a hash that resists attacks, and a job has no reason to attack itself.
#[derive(Default)]
struct RowHasher(u64);

impl Hasher for RowHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = mix(self.0 ^ id);
    }
}
