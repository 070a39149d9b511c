//! What the refusal of a step needs to know about its parts.

use super::{Sender, Steps};

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
}
