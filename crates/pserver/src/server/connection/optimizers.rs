//! Requests about the optimizer state of dense tensors.

use std::io::{IoSlice, Read, Write};
use std::sync::Arc;

use crate::message::reply;
use crate::optimizer::{Progress, all_finite};
use crate::stream::write_vectored;
use crate::wire::{Frame, Writer, bytes_of, bytes_of_mut};

use super::replies::{needs_values, no_values, waits_for};
use super::{Connection, Fault, broken};

impl<S: Read + Write> Connection<S> {
    /// Sends progress and state of a tensor at a trainer's step.
    pub(super) fn state(&mut self, epoch: u64, step: u64, tensor: u32) -> Result<(), Fault> {
        self.expect_body(0)?;
        let sender = self.sender(epoch);
        self.server.state().steps.check(sender)?;
        let dense = self.server.dense(tensor)?;
        let server = Arc::clone(&self.server);
        self.wait(
            |state| {
                state.steps.check(sender)?;
                match dense.progress().assigned {
                    true => Ok(server.pull(state, sender, step)?),
                    false => needs_values(state, sender.trainer, step, &dense.name),
                }
            },
            |state| match dense.progress().assigned {
                true => waits_for(
                    state.steps.awaited(step.saturating_sub(1)),
                    step.saturating_sub(1),
                ),
                false => no_values(&dense.name),
            },
        )?;
        let mut head = Writer::new();
        dense.progress().updates.encode(&mut head);
        let head = head.finish();
        let frame = Frame {
            kind: reply::DONE,
            head: head.len(),
            body: 4 * (dense.local_elements * dense.slots()) as u64,
        };
        let frame = frame.encode();
        let mut start = [IoSlice::new(&frame), IoSlice::new(&head)];
        write_vectored(&mut self.stream, &mut start).map_err(broken)?;
        // Copied, so that a slow connection does not block pushes.
        let mut copy = Vec::new();
        dense
            .each_state(|state| {
                copy.clear();
                copy.extend_from_slice(state);
                self.stream.write_all(bytes_of(&copy))
            })
            .map_err(broken)
    }

    pub(super) fn set_state(&mut self, tensor: u32, progress: Progress) -> Result<(), Fault> {
        self.wait_for_own_step(None)?;
        let dense = self.server.dense(tensor)?;
        let elements = dense.local_elements * dense.slots();
        self.expect_body(4 * elements as u64)?;
        let mut state = self.server.budget.buffer(elements, &dense.name)?;
        self.read_body(bytes_of_mut(&mut state))?;
        let is_finite = all_finite(&state);
        if is_finite {
            dense.set_state(&state, progress);
        }
        // Set seldom; kept, the buffer would double the memory of the state.
        state.discard();
        match is_finite {
            true => self.done(&mut Writer::new()),
            false => Err(self.not_finite(&dense.name).into()),
        }
    }
}
