//! A run that continues another one: which tensors its program must declare, and what differs from the unbroken run.
//!
//! `checkpoints` loads the other run's checkpoint; it is a rollback.

use std::path::Path;

use crate::message::{Code, Refused};

use super::{Server, State, Tensor, refused};

impl Server {
    /// Loaded tensors count as undeclared: the first declaration may bring other constants.
    pub(super) fn undeclare_all(&self) {
        let mut tensors = self.tensors_mut();
        tensors.undeclared = tensors
            .by_id
            .iter()
            .flatten()
            .map(|tensor| tensor.place().id)
            .collect();
    }

    /// The names of all tensors, each followed by a 0 byte.
    pub(super) fn tensor_names(&self) -> String {
        let tensors = self.all_tensors();
        tensors.iter().flat_map(|tensor| [tensor.name(), "\0"]).collect()
    }

    pub(super) fn has_tensor(&self, name: &str) -> bool {
        self.tensors().by_name.contains_key(name)
    }

    /// Before its first step, a run that continues another one declares the tensors of the checkpoint, and no others.
    pub(super) fn check_new(&self, state: &State, name: &str) -> Result<(), Refused> {
        let Some(step) = state.resumed else { return Ok(()) };
        let message = format!(
            "the checkpoint of step {step}, at which this run continues another one, has no `{name}`: it is of another model"
        );
        Err(refused(Code::Other, message))
    }

    /// Refuses the end of the first step of a run that continues another one, if the program does not know a tensor of it.
    pub(super) fn check_declared(&self, state: &State) -> Result<(), Refused> {
        let Some(step) = state.resumed else { return Ok(()) };
        let tensors = self.tensors();
        let Some(first) = tensors.undeclared.first() else {
            return Ok(());
        };
        let name = tensors.by_id[*first as usize].as_ref().map_or("", Tensor::name);
        let message = format!(
            "the checkpoint of step {step}, at which this run continues another one, has `{name}`, which this program does \
             not declare: it is of another model"
        );
        Err(refused(Code::Other, message))
    }

    /// Reports that another run's checkpoint was loaded, and what differs from the unbroken run. One server is enough.
    pub(super) fn report_resumed(&self, folder: &Path, step: u64, trainers_then: usize, servers: usize) {
        println!(
            "resumed from the checkpoint of step {step} in `{}`",
            folder.display()
        );
        if self.config.index != 0 {
            return;
        }
        let trainers = self.config.trainers as usize;
        if trainers_then != trainers {
            let lost = match trainers < trainers_then {
                true => format!(
                    "; the states of trainers {trainers} to {} are dropped",
                    trainers_then - 1
                ),
                false => String::new(),
            };
            println!(
                "notice: {trainers} trainers continue a run of {trainers_then}: the result is not that of the unbroken \
                 run{lost}"
            );
        }
        for tensor in self.all_tensors() {
            if let Tensor::Table(table) = tensor
                && table.spec.limits.evict
                && servers != self.config.servers as usize
            {
                println!(
                    "notice: {} servers continue a run of {servers}: `{}` evicts other rows, so the result is not that of \
                     the unbroken run",
                    self.config.servers, table.spec.name
                );
            }
        }
    }
}
