//! The bytes of a trainer's state: received with the end of a step, sent to its next attempt.

use std::io::{Read, Write};

use crate::message::Code;
use crate::planted::Planted;
use crate::wire::Writer;

use super::super::trainer_state::{MAX_STATE, TrainerState};
use super::super::{Server, State, refused};
use super::{Connection, Fault};

impl<S: Read + Write> Connection<S> {
    /// Reads the state that this trainer has at the start of `step`, if it sent one.
    pub(super) fn receive_state(&mut self, step: u64) -> Result<Option<TrainerState>, Fault> {
        if self.unread == 0 {
            return Ok(None);
        }
        let trainer = self.identity.trainer;
        if self.unread > MAX_STATE {
            let message = format!(
                "the state of trainer {trainer} has {} bytes; the limit is {MAX_STATE}",
                self.unread
            );
            return Err(refused(Code::Memory, message).into());
        }
        let memory = TrainerState::reserve(&self.server.budget, trainer, self.unread)?;
        let mut bytes = vec![0; self.unread as usize];
        self.read_body(&mut bytes)?;
        Ok(Some(TrainerState::new(step, bytes, memory)))
    }

    pub(super) fn kept(&mut self, step: u64) -> Result<(), Fault> {
        self.expect_body(0)?;
        let kept = self.server.state().kept_of(self.identity.trainer, step);
        let bytes = kept.as_ref().map_or(&[][..], TrainerState::bytes);
        self.done_with(&mut Writer::new(), &[bytes])
    }
}

impl Server {
    pub(super) fn keep(&self, state: &mut State, trainer: u32, sent: Option<TrainerState>) {
        let is_due = |sent: &TrainerState| self.checkpoint_is_due(state, sent.step);
        if self.has_bug(Planted::StateOfCheckpoint) && !sent.as_ref().is_some_and(is_due) {
            if let Some(kept) = &mut state.kept[trainer as usize] {
                kept.step += 1;
            }
            return;
        }
        state.kept[trainer as usize] = sent;
    }
}

impl State {
    /// After a rollback, or in a run that continues another one: a trainer that had left by then has the state it left with.
    pub(in crate::server) fn adopt_states(&mut self, then: &[(u64, Option<u64>)]) {
        let now = self.steps.progress();
        for ((kept, (next, _)), (_, left)) in self.kept.iter_mut().zip(now).zip(then) {
            if let Some(kept) = kept
                && left.is_some()
            {
                kept.step = next;
            }
        }
    }

    /// What a trainer sent for the start of exactly this step.
    fn kept_of(&self, trainer: u32, step: u64) -> Option<TrainerState> {
        let kept = self.kept.get(trainer as usize)?.clone();
        kept.filter(|kept| kept.step == step)
    }

    pub(super) fn has_kept(&self, trainer: u32, step: u64) -> bool {
        self.kept_of(trainer, step).is_some()
    }
}
