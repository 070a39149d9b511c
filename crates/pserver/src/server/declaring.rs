//! Declarations of tensors: the first one creates the tensor, the others must agree with it.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::budget::OverBudget;
use crate::dense::Dense;
use crate::message::{Code, DenseSpec, Refused, TableSpec, TensorId};
use crate::optimizer::Optimizer;
use crate::planted::Planted;
use crate::sparse::Table;

use super::{Config, MAX_TENSORS, Server, Tensor, refused};

impl Server {
    pub(super) fn create_dense(
        &self,
        mut spec: DenseSpec,
        place: Option<TensorId>,
    ) -> Result<TensorId, Refused> {
        // A dense tensor has no rows.
        spec.optimizer = spec.optimizer.of_dense();
        let blocks = spec.elements().div_ceil(crate::placement::BLOCK);
        let tensor = self.create(&spec.name, place, blocks, |place| {
            let Config { index, servers, .. } = self.config;
            let dense = Dense::new(spec.clone(), place, index, servers, &self.budget, &self.saving)?;
            Ok(Tensor::Dense(Arc::new(dense)))
        })?;
        let Tensor::Dense(found) = &tensor else {
            return Err(self.differs(&tensor, "a sparse table", "a dense tensor"));
        };
        if found.shape != spec.shape {
            let [was, is] = [&found.shape, &spec.shape].map(|shape| format!("shape {shape:?}"));
            return Err(self.differs(&tensor, was, is));
        }
        if let Some(constants) = self.constants(&tensor, &found.optimizer(), &spec.optimizer)? {
            found.set_optimizer(constants);
        }
        Ok(tensor.place())
    }

    pub(super) fn create_table(&self, spec: TableSpec, place: Option<TensorId>) -> Result<TensorId, Refused> {
        let tensors = self.all_tensors();
        let tables = tensors.iter().filter(|tensor| matches!(tensor, Tensor::Table(_)));
        let shards = self.config.shards(&spec, tables.count() as u64);
        let tensor = self.create(&spec.name, place, 0, |place| {
            let servers = self.config.servers;
            let table = Table::new(spec.clone(), place, servers, shards, &self.budget, &self.saving)?;
            let by_step = self.is_synchronous.load(Ordering::Relaxed);
            let table = table.by_step(by_step && !self.has_bug(Planted::EvictsAtOnce));
            Ok(Tensor::Table(Arc::new(table)))
        })?;
        let Tensor::Table(found) = &tensor else {
            return Err(self.differs(&tensor, "a dense tensor", "a sparse table"));
        };
        if let Some([was, is]) = different_rows(&found.spec, &spec) {
            return Err(self.differs(&tensor, was, is));
        }
        if let Some(constants) = self.constants(&tensor, &found.optimizer(), &spec.optimizer)? {
            found.set_optimizer(constants);
        }
        Ok(tensor.place())
    }

    /// The only place that decides whether a tensor may get other constants than those of its first declaration: once,
    /// after it was loaded from a checkpoint, if they keep its state. `None`: it keeps what it has.
    fn constants(
        &self,
        tensor: &Tensor,
        found: &Optimizer,
        declared: &Optimizer,
    ) -> Result<Option<Optimizer>, Refused> {
        let id = tensor.place().id;
        let is_same = found == declared;
        let mut tensors = self.tensors_mut();
        let may_change = tensors.undeclared.contains(&id) && declared.continues(found);
        if !is_same && !may_change {
            drop(tensors);
            return Err(self.differs(tensor, found, declared));
        }
        tensors.undeclared.remove(&id);
        drop(tensors);
        if is_same {
            return Ok(None);
        }
        if self.config.index == 0 {
            let name = tensor.name();
            println!("`{name}` was trained with {found}; from here on, it is trained with {declared}");
        }
        Ok(Some(declared.clone()))
    }

    /// Refuses a declaration that does not agree with the tensor that exists: with another trainer's declaration, or with the
    /// checkpoint of the run that this one continues.
    fn differs(&self, tensor: &Tensor, was: impl Display, is: impl Display) -> Refused {
        let name = tensor.name();
        let message = match self.resumed_as(tensor) {
            Some(checkpoint) => format!(
                "`{name}` is declared as {is}, but {checkpoint}, which this run resumes, has it as {was}: resume with the \
                 same model and the same kinds of optimizers"
            ),
            None => format!("`{name}` is declared as {was}; another declaration says {is}"),
        };
        refused(Code::Other, message)
    }

    /// Returns the tensor with that name; creates it if it does not exist.
    fn create(
        &self,
        name: &str,
        place: Option<TensorId>,
        blocks: u64,
        make: impl FnOnce(TensorId) -> Result<Tensor, OverBudget>,
    ) -> Result<Tensor, Refused> {
        let mut tensors = self.tensors_mut();
        if let Some(id) = tensors.by_name.get(name).copied() {
            let found = tensors.by_id[id as usize].clone();
            return Ok(found.expect("a name leads to a tensor"));
        }
        let place = match place {
            Some(place) => place,
            None => tensors.next_place(self.config.servers),
        };
        let id = place.id as usize;
        if id >= MAX_TENSORS || place.first >= self.config.servers {
            return Err(refused(
                Code::Other,
                format!("a job has at most {MAX_TENSORS} tensors"),
            ));
        }
        let tensor = make(place)?;
        if tensors.by_id.len() <= id {
            tensors.by_id.resize(id + 1, None);
        }
        if let Some(other) = &tensors.by_id[id] {
            let message = format!("`{name}` has the same number as `{}`", other.name());
            return Err(refused(Code::Other, message));
        }
        tensors.by_id[id] = Some(tensor.clone());
        tensors.by_name.insert(name.to_owned(), place.id);
        tensors.blocks += blocks;
        Ok(tensor)
    }
}

/// What a declaration says otherwise than the table that exists, apart from its optimizer.
fn different_rows(found: &TableSpec, declared: &TableSpec) -> Option<[String; 2]> {
    let both = [found, declared];
    if found.row != declared.row {
        Some(both.map(|spec| format!("rows of {}", spec.row)))
    } else if (found.init, found.seed) != (declared.init, declared.seed) {
        Some(both.map(|spec| format!("rows from {:?} with seed {}", spec.init, spec.seed)))
    } else if found.limits != declared.limits {
        Some(both.map(|spec| format!("{:?}", spec.limits)))
    } else {
        None
    }
}
