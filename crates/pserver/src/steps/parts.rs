//! What refusals need to know about trainers and the parts of their steps.

use super::{Mode, Sender, Steps};

impl Steps {
    /// The latest attempt of a trainer; 0 if it never joined.
    pub fn attempt(&self, trainer: u32) -> u32 {
        self.members
            .get(trainer as usize)
            .map_or(0, |member| member.attempt)
    }

    /// Takes back the part that was just counted: it cannot be applied.
    pub fn take_back(&mut self, sender: Sender) {
        if let Ok(member) = self.member_mut(sender.trainer) {
            member.parts = member.parts.saturating_sub(1);
        }
    }

    /// Whether a trainer does nothing more until this step is committed: it has ended the step, or takes part in no more.
    /// An asynchronous trainer waits for nobody.
    pub fn has_ended(&self, trainer: u32, step: u64) -> bool {
        let waits = |next| self.mode == Mode::Sync && next > step;
        let member = self.members.get(trainer as usize);
        member.is_some_and(|member| member.left.is_some() || member.finished || waits(member.next))
    }
}
