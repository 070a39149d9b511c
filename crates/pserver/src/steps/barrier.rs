//! Barriers: where all trainers of a job wait for each other within a step.

use super::{Member, Mode, Refusal, Sender, Steps, Verdict};

impl Steps {
    /// Waits until every trainer that has not left has reached this barrier, the n-th within a step, or is ready with the
    /// step: a trainer that repeats it after a rollback may have passed its barriers before.
    pub fn barrier(&mut self, sender: Sender, at: (u64, u32)) -> Result<Verdict, Refusal> {
        let member = self.checked(sender)?;
        member.barrier = member.barrier.max(at);
        let all_there = self.members.iter().all(|member| !self.is_before(member, at));
        Ok(if all_there { Verdict::Accept } else { Verdict::Wait })
    }

    fn is_before(&self, member: &Member, at: (u64, u32)) -> bool {
        let is_ready = self.mode == Mode::Sync && member.next > at.0;
        member.left.is_none() && member.barrier < at && !is_ready
    }

    pub fn awaited_at_barrier(&self, at: (u64, u32)) -> Vec<u32> {
        self.numbered(|member| self.is_before(member, at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{by, joined};
    use super::*;

    #[test]
    fn a_barrier_opens_for_all_at_once_and_stays_open() {
        let mut steps = joined(Mode::Async, 2);
        assert_eq!(steps.barrier(by(0), (0, 1)), Ok(Verdict::Wait));
        assert_eq!(steps.awaited_at_barrier((0, 1)), [1]);
        assert_eq!(steps.barrier(by(1), (0, 1)), Ok(Verdict::Accept));
        assert_eq!(steps.barrier(by(0), (0, 1)), Ok(Verdict::Accept));
    }

    /// As after a rollback to the step in which it passed the barrier, while another trainer begins again.
    #[test]
    fn a_barrier_does_not_wait_for_a_trainer_that_is_ready_with_its_step() {
        let mut steps = joined(Mode::Sync, 2);
        assert_eq!(steps.barrier(by(0), (0, 1)), Ok(Verdict::Wait));
        assert_eq!(steps.ready(by(1), 0), Ok(Verdict::Accept));
        assert_eq!(steps.awaited_at_barrier((0, 1)), []);
        assert_eq!(steps.barrier(by(0), (0, 1)), Ok(Verdict::Accept));
        assert_eq!(steps.barrier(by(0), (1, 1)), Ok(Verdict::Wait));
    }
}
