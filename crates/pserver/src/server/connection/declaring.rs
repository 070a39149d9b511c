//! Requests that create tensors, and the wait of all requests that belong to a step of their trainer.
//!
//! A trainer may be ready with a step that others have not ended. What it does next belongs to the following step: what it
//! creates must neither be in the checkpoint that begins with it nor be changed by the gradients of the step before, and what
//! it reads must have them.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::message::{DenseSpec, TableSpec, TensorId};
use crate::steps::{Refusal, Verdict};
use crate::wire::Writer;

use super::replies::waits_for;
use super::{Connection, Fault};

impl<S: Read + Write> Connection<S> {
    pub(super) fn create_dense(&mut self, spec: DenseSpec, place: Option<TensorId>) -> Result<(), Fault> {
        self.wait_for_own_step(Some(&spec.name))?;
        let place = self.server.create_dense(spec, place)?;
        self.done(Writer::new().u32(place.id).u32(place.first))
    }

    pub(super) fn create_table(&mut self, spec: TableSpec, place: Option<TensorId>) -> Result<(), Fault> {
        self.wait_for_own_step(Some(&spec.name))?;
        let place = self.server.create_table(spec, place)?;
        self.done(Writer::new().u32(place.id).u32(place.first))
    }

    /// Waits until the steps before this trainer's have ended. Not for a tensor that exists and is only declared again.
    pub(super) fn wait_for_own_step(&mut self, creates: Option<&str>) -> Result<(), Fault> {
        let server = Arc::clone(&self.server);
        let (trainer, joined) = (self.identity.trainer, self.joined);
        self.wait(
            |state| {
                if creates.is_some_and(|name| server.has_tensor(name)) {
                    return Ok(Verdict::Accept);
                }
                if joined.is_some_and(|epoch| epoch != state.steps.epoch()) {
                    let step = state.steps.step();
                    return Err(Refusal::RolledBack { step }.into());
                }
                if state.steps.is_ahead(trainer) {
                    return Ok(Verdict::Wait);
                }
                if let Some(name) = creates {
                    server.report_new(state, name);
                }
                Ok(Verdict::Accept)
            },
            |state| waits_for(state.steps.awaited(state.steps.step()), state.steps.step()),
        )
    }
}
