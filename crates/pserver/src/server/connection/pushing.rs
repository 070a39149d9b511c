//! Requests that carry gradients, or take back those of a step that is repeated.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::{Arc, PoisonError};

use crate::message::{Code, Entry, Refused};
use crate::planted::Planted;
use crate::steps::{Mode, Sender, Verdict};
use crate::wire::Writer;

use super::super::gradient::Pushed;
use super::replies::{needs_values, no_values, waits_for};
use super::{Connection, Fault, broken};

impl<S: Read + Write> Connection<S> {
    pub(super) fn push(
        &mut self,
        epoch: u64,
        step: u64,
        part: u32,
        entries: Vec<Entry>,
    ) -> Result<(), Fault> {
        let sender = self.sender(epoch);
        // First: after a rollback its tensors may be gone.
        self.server.state().steps.check(sender)?;
        let pushed = self.receive(entries)?;
        self.wait_for_initial_values(sender, step, &pushed)?;
        self.count(sender, step, part, pushed)?;
        self.done(&mut Writer::new())
    }

    /// Reads gradients and checks them; nothing takes effect.
    fn receive(&mut self, entries: Vec<Entry>) -> Result<Vec<Pushed>, Fault> {
        let expected = entries
            .into_iter()
            .map(|entry| self.server.expect(entry))
            .collect::<Result<Vec<_>, _>>()?;
        self.expect_body(expected.iter().map(|entry| entry.bytes).sum())?;
        let mut pushed = Vec::with_capacity(expected.len());
        for entry in expected {
            let bytes = entry.bytes;
            let mut gradient = entry.allocate(&self.server.budget)?;
            gradient.read(&mut self.stream).map_err(broken)?;
            self.unread -= bytes;
            pushed.push(gradient);
        }
        match pushed.iter().find(|gradient| !gradient.is_finite()) {
            Some(bad) => Err(self.not_finite(bad.tensor_name()).into()),
            None => Ok(pushed),
        }
    }

    /// A gradient that takes effect before the initial values are set would be overwritten by them.
    fn wait_for_initial_values(&mut self, sender: Sender, step: u64, pushed: &[Pushed]) -> Result<(), Fault> {
        let unready = || pushed.iter().find(|gradient| !gradient.has_target());
        self.wait(
            |state| {
                // After a rollback nobody sets the values of these tensors.
                state.steps.check(sender)?;
                match unready() {
                    Some(gradient) => needs_values(state, sender.trainer, step, gradient.tensor_name()),
                    None => Ok(Verdict::Accept),
                }
            },
            |_| no_values(unready().map_or("", Pushed::tensor_name)),
        )
    }

    /// Counts a part once. Synchronous gradients wait for their step; others change the model now.
    fn count(&mut self, sender: Sender, step: u64, part: u32, mut pushed: Vec<Pushed>) -> Result<(), Fault> {
        let server = Arc::clone(&self.server);
        let is_sync = server.state().steps.mode() == Mode::Sync;
        // Taken only now: a checkpoint waits for holders of the gate, and trainer 0 waits for the checkpoint.
        let _gate = (!is_sync).then(|| server.gate.read().unwrap_or_else(PoisonError::into_inner));
        let mut apply_now = false;
        self.wait(
            |state| {
                let verdict = state.steps.push(sender, step, part)?;
                if verdict == Verdict::Accept {
                    if !server.has_bug(Planted::FirstRateWins)
                        && let Some(refusal) = contradiction(&state.pending, sender, step, &pushed)
                    {
                        state.steps.take_back(sender);
                        state.rejected = Some(refusal.clone());
                        server.changed.notify_all();
                        return Err(refusal);
                    }
                    state.pushes += 1;
                    match is_sync {
                        true => state.pending[sender.trainer as usize].append(&mut pushed),
                        false => apply_now = true,
                    }
                }
                Ok(verdict)
            },
            |state| waits_for(state.steps.awaited(step), step),
        )?;
        if apply_now {
            for gradient in &pushed {
                gradient.apply(server.config.cores);
            }
        }
        Ok(())
    }

    /// Another server found that the pushes for this step contradict each other: no server may commit it.
    pub(super) fn reject(&mut self, epoch: u64, step: u64, reason: String) -> Result<(), Fault> {
        self.expect_body(0)?;
        let sender = self.sender(epoch);
        let mut state = self.server.state();
        state.steps.check(sender)?;
        if state.steps.step() == step {
            state.rejected = Some(conflict(step, reason));
        }
        drop(state);
        self.server.changed.notify_all();
        self.done(&mut Writer::new())
    }

    /// Takes back the parts of an earlier attempt: the step is repeated.
    pub(super) fn discard(&mut self, epoch: u64, step: u64) -> Result<(), Fault> {
        self.expect_body(0)?;
        let sender = self.sender(epoch);
        {
            let mut state = self.server.state();
            if state.steps.discard(sender, step)? {
                state.pending[sender.trainer as usize].clear();
            }
        }
        self.done(&mut Writer::new())
    }
}

/// Why gradients cannot be part of the step: another part gives the same tensor another rate or other constants.
fn contradiction(pending: &[Vec<Pushed>], sender: Sender, step: u64, pushed: &[Pushed]) -> Option<Refused> {
    let mut by_tensor: HashMap<u32, &Pushed> = HashMap::with_capacity(pushed.len());
    for part in pushed {
        let first = by_tensor.entry(part.tensor()).or_insert(part);
        if first.contradicts(part) {
            return Some(contradict(
                [(sender.trainer, first), (sender.trainer, part)],
                step,
            ));
        }
    }
    for (parts, trainer) in pending.iter().zip(0..) {
        for part in parts {
            // Parts of the step agree with each other, so one of each tensor is enough.
            if let Some(other) = by_tensor.remove(&part.tensor())
                && part.contradicts(other)
            {
                return Some(contradict([(trainer, part), (sender.trainer, other)], step));
            }
        }
        if by_tensor.is_empty() {
            break;
        }
    }
    None
}

fn contradict(both: [(u32, &Pushed); 2], step: u64) -> Refused {
    let mut terms = both.map(|(trainer, part)| (trainer, part.terms()));
    terms.sort();
    let [(first, its), (second, others)] = terms;
    let name = both[0].1.tensor_name();
    let message = format!(
        "step {step} is refused: `{name}` is pushed with different rates or constants, by trainer {first} with {its} and \
         by trainer {second} with {others}"
    );
    conflict(step, message)
}

fn conflict(step: u64, message: String) -> Refused {
    Refused {
        code: Code::Conflict,
        step,
        message,
    }
}
