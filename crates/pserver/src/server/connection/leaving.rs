//! Requests of trainers that are done: to leave, and to wait for the others.

use std::io::{Read, Write};

use super::replies::names;
use super::{Connection, Fault};
use crate::wire::Writer;

impl<S: Read + Write> Connection<S> {
    pub(super) fn leave(&mut self, epoch: u64, step: u64) -> Result<(), Fault> {
        self.expect_body(0)?;
        let sender = self.sender(epoch);
        {
            let mut state = self.server.state();
            state.steps.leave(sender, step)?;
            // The others may have waited only for this trainer.
            self.server.commit_if_complete(&mut state);
        }
        self.server.changed.notify_all();
        self.done(&mut Writer::new())
    }

    pub(super) fn finish(&mut self, epoch: u64) -> Result<(), Fault> {
        self.expect_body(0)?;
        let sender = self.sender(epoch);
        self.server.state().steps.finish(sender)?;
        self.server.changed.notify_all();
        self.wait(
            |state| Ok(state.steps.finish(sender)?),
            |state| format!("the shutdown waits for {}", names(&state.steps.still_training())),
        )?;
        self.done(&mut Writer::new())
    }
}
