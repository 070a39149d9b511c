//! A run that continues another one: which tensors its program must declare, and what differs from the unbroken run.
//!
//! `checkpoints` loads the other run's checkpoint; it is a rollback.

use std::path::Path;

use crate::checkpoint;
use crate::message::{Code, Refused, Session};

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

    /// Refuses a folder with checkpoints that this server's first attempt cannot have written: those of another run would be
    /// deleted as old, or training would be rolled back into them. Jobs of our server have a folder of their own.
    pub(super) fn check_folder(&self, session: &Session) -> Result<(), Refused> {
        // The first servers of a run that continues another one may have written its first checkpoint already.
        let is_new = self.config.attempt <= 1 && session.resume.is_empty();
        if !is_new || session.checkpoints.is_empty() {
            return Ok(());
        }
        let folder = Path::new(&session.checkpoints);
        // A folder that cannot be read is reported when a checkpoint is written.
        let steps = checkpoint::steps(folder).unwrap_or_default();
        match steps.into_iter().max() {
            None | Some(0) => Ok(()),
            Some(latest) => {
                let message = format!(
                    "`{}` has checkpoints of an earlier run, the latest of step {latest}: delete it, train with another \
                     `checkpoints=`, or move it and continue that run with `resume=`",
                    folder.display()
                );
                Err(refused(Code::Other, message))
            }
        }
    }

    /// The names of all tensors, each followed by a 0 byte.
    pub(super) fn tensor_names(&self) -> String {
        let tensors = self.all_tensors();
        tensors.iter().flat_map(|tensor| [tensor.name(), "\0"]).collect()
    }

    pub(super) fn has_tensor(&self, name: &str) -> bool {
        self.tensors().by_name.contains_key(name)
    }

    /// Reports a tensor that the other run did not have at the step of its checkpoint: it created it in that step, or never.
    pub(super) fn report_new(&self, state: &State, name: &str) {
        if let Some(step) = state.resumed
            && self.config.index == 0
        {
            println!(
                "notice: the checkpoint of step {step} has no `{name}`, which begins with its initial values"
            );
        }
    }

    /// The checkpoint of the other run that a tensor comes from, if this run has not declared it yet.
    pub(super) fn resumed_as(&self, tensor: &Tensor) -> Option<String> {
        if !self.tensors().undeclared.contains(&tensor.place().id) {
            return None;
        }
        let state = self.state();
        let folder = &state.session.as_ref()?.resume;
        Some(format!("the checkpoint of step {} in `{folder}`", state.resumed?))
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
