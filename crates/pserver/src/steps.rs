//! Steps and membership of one server, as a pure state machine: no I/O, no time, no tensors.
//!
//! A trainer pushes the parts of a step to every server and reports `ready` only when all of them have acknowledged all
//! parts. A server commits a step when every participant is ready. Therefore two servers are never more than one step
//! apart, and if one has committed a step, the others hold everything they need to commit it too.

mod barrier;
mod parts;

use std::fmt;

/// How the pushes of several trainers are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A step changes the model when all trainers are ready; the result does not depend on the order of arrival.
    Sync,
    /// A push changes the model immediately.
    Async,
    /// As `Async`, but a trainer waits before it pulls if it is more than this many steps ahead of the slowest.
    Bounded(u32),
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Sync => f.write_str("sync"),
            Mode::Async => f.write_str("async"),
            Mode::Bounded(bound) => write!(f, "bounded staleness {bound}"),
        }
    }
}

/// The sender of a message. A later attempt of a trainer fences off the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    pub trainer: u32,
    pub attempt: u32,
    /// Counts rollbacks. A message with an earlier epoch is about steps that no longer exist.
    pub epoch: u64,
}

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("attempt {attempt} of trainer {trainer} was replaced by attempt {current}")]
    Fenced {
        trainer: u32,
        attempt: u32,
        current: u32,
    },
    #[error("trainer {trainer} does not exist: the job has {trainers}")]
    NoSuchTrainer { trainer: u32, trainers: u32 },
    #[error("trainer {trainer} has not joined")]
    NotJoined { trainer: u32 },
    #[error("training was rolled back to step {step}")]
    RolledBack { step: u64 },
    #[error("trainer {trainer} sent part {part} of step {step} before part {expected}")]
    Gap {
        trainer: u32,
        step: u64,
        part: u32,
        expected: u32,
    },
    #[error("trainer {trainer} left before step {step}")]
    Left { trainer: u32, step: u64 },
    #[error("trainer {trainer} asks for step {step}, but the server is at step {current}")]
    Behind { trainer: u32, step: u64, current: u64 },
}

/// What to do with a message that is not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accept,
    /// Already counted: acknowledge it and change nothing.
    Duplicate,
    /// Ask again after the next change.
    Wait,
}

/// What a joining trainer learns about its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub epoch: u64,
    /// The next step to be committed here.
    pub step: u64,
    /// The first step this trainer has not finished here.
    pub next: u64,
    /// Parts of `next` that are already counted.
    pub parts: u32,
    pub left: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Member {
    /// 0: never joined.
    attempt: u32,
    /// The first step this trainer is not ready with.
    next: u64,
    /// Received parts of `next`, and the attempt that sent them.
    parts: u32,
    parts_by: u32,
    left: Option<u64>,
    barrier: (u64, u32),
    /// Its program has succeeded: it never joins again.
    finished: bool,
}

/// The steps of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    mode: Mode,
    epoch: u64,
    step: u64,
    members: Vec<Member>,
}

impl Steps {
    /// `finished`: trainers that had succeeded before this server was started again.
    pub fn new(mode: Mode, trainers: u32, epoch: u64, finished: &[u32]) -> Steps {
        let member = |trainer| Member {
            finished: finished.contains(&trainer),
            ..Member::default()
        };
        Steps {
            mode,
            epoch,
            step: 0,
            members: (0..trainers).map(member).collect(),
        }
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Synchronous: the next step to be committed. Otherwise: the step of the slowest trainer.
    pub fn step(&self) -> u64 {
        match self.mode {
            Mode::Sync => self.step,
            Mode::Async | Mode::Bounded(_) => self.slowest(),
        }
    }

    /// Admits an attempt of a trainer, also after its connection broke.
    pub fn join(&mut self, trainer: u32, attempt: u32) -> Result<Standing, Refusal> {
        let (step, epoch) = (self.step(), self.epoch);
        let member = self.member_mut(trainer)?;
        if attempt < member.attempt {
            return Err(Refusal::Fenced {
                trainer,
                attempt,
                current: member.attempt,
            });
        }
        member.attempt = attempt;
        Ok(Standing {
            epoch,
            step,
            next: member.next,
            parts: member.parts,
            left: member.left.is_some(),
        })
    }

    /// Discards the parts of an earlier attempt, because its step is repeated. Returns whether there were any.
    ///
    /// Not for a step that another server has as ready: that step needs all parts, from every sender.
    pub fn discard(&mut self, sender: Sender, step: u64) -> Result<bool, Refusal> {
        let member = self.checked(sender)?;
        let is_stale = step == member.next && member.parts > 0 && member.parts_by < sender.attempt;
        if is_stale {
            member.parts = 0;
        }
        Ok(is_stale)
    }

    /// Counts a part of a step once.
    pub fn push(&mut self, sender: Sender, step: u64, part: u32) -> Result<Verdict, Refusal> {
        let (mode, current) = (self.mode, self.step);
        let member = self.checked(sender)?;
        if step < member.next || (step == member.next && part < member.parts) {
            return Ok(Verdict::Duplicate);
        }
        if let Some(left) = member.left {
            return Err(Refusal::Left {
                trainer: sender.trainer,
                step: left,
            });
        }
        if mode == Mode::Sync && step > current {
            return Ok(Verdict::Wait);
        }
        if step > member.next {
            // An asynchronous trainer that does not report the end of its steps.
            (member.next, member.parts) = (step, 0);
        }
        // An asynchronous server that resumed from a checkpoint has lost the parts in between.
        if mode != Mode::Sync {
            member.parts = part;
        }
        if part != member.parts {
            return Err(Refusal::Gap {
                trainer: sender.trainer,
                step,
                part,
                expected: member.parts,
            });
        }
        member.parts = member.parts.saturating_add(1);
        member.parts_by = sender.attempt;
        Ok(Verdict::Accept)
    }

    /// Records that all servers have all parts of a trainer's step. The step can be committed once
    /// [`Steps::participants`] returns them.
    pub fn ready(&mut self, sender: Sender, step: u64) -> Result<Verdict, Refusal> {
        let (mode, current) = (self.mode, self.step);
        let member = self.checked(sender)?;
        if step < member.next {
            return Ok(Verdict::Duplicate);
        }
        if mode == Mode::Sync && step > current {
            return Ok(Verdict::Wait);
        }
        (member.next, member.parts) = (step.saturating_add(1), 0);
        Ok(Verdict::Accept)
    }

    /// The trainers whose parts make up the current step, in order, if it can be committed now.
    pub fn participants(&self) -> Option<Vec<u32>> {
        if self.mode != Mode::Sync {
            return None;
        }
        let takes_part = |member: &Member| member.left.is_none_or(|left| self.step < left);
        let of_step: Vec<u32> = self.numbered(takes_part).collect();
        let all_ready = of_step
            .iter()
            .all(|trainer| self.members[*trainer as usize].next > self.step);
        (all_ready && !of_step.is_empty()).then_some(of_step)
    }

    /// Whether a trainer is ready with the current step, which others have not ended.
    pub fn is_ahead(&self, trainer: u32) -> bool {
        let member = self.members.get(trainer as usize);
        self.mode == Mode::Sync
            && member.is_some_and(|member| member.left.is_none() && member.next > self.step)
    }

    /// Records that the current step has changed the model.
    pub fn committed(&mut self) {
        self.step += 1;
    }

    /// Whether a trainer may see the model of its step.
    pub fn pull(&mut self, sender: Sender, step: u64) -> Result<Verdict, Refusal> {
        let is_sync = self.mode == Mode::Sync;
        let member = self.checked(sender)?;
        // A trainer that has left sees the current model.
        if member.left.is_some() {
            return Ok(Verdict::Accept);
        }
        // An asynchronous server that resumed from a checkpoint has forgotten steps that the trainer has ended.
        if !is_sync && step > member.next {
            (member.next, member.parts) = (step, 0);
        }
        let ahead = match self.mode {
            Mode::Sync => {
                if step < self.step {
                    return Err(Refusal::Behind {
                        trainer: sender.trainer,
                        step,
                        current: self.step,
                    });
                }
                step > self.step
            }
            Mode::Async => false,
            Mode::Bounded(bound) => step > self.slowest().saturating_add(u64::from(bound)),
        };
        Ok(if ahead { Verdict::Wait } else { Verdict::Accept })
    }

    /// Removes a trainer from `step` and all later ones.
    pub fn leave(&mut self, sender: Sender, step: u64) -> Result<(), Refusal> {
        let member = self.checked(sender)?;
        let left = member.left.unwrap_or(step).min(step);
        member.left = Some(left.max(member.next));
        Ok(())
    }

    /// Waits until every trainer has left. One that asks has left too, even if an asynchronous server forgot it in a restart.
    pub fn finish(&mut self, sender: Sender) -> Result<Verdict, Refusal> {
        let is_sync = self.mode == Mode::Sync;
        let member = self.checked(sender)?;
        if !is_sync {
            member.left.get_or_insert(member.next);
        }
        Ok(match self.all_left() {
            true => Verdict::Accept,
            false => Verdict::Wait,
        })
    }

    pub fn all_left(&self) -> bool {
        self.members.iter().all(|member| member.left.is_some())
    }

    pub fn still_training(&self) -> Vec<u32> {
        self.numbered(|member| member.left.is_none()).collect()
    }

    /// The first finished trainer whose steps would have to be repeated after a rollback: nobody can. `left`: per
    /// trainer, the step before which it left, as of the checkpoint.
    pub fn finished_but_needed(&self, left: &[Option<u64>]) -> Option<u32> {
        let has_left = |trainer: &u32| left.get(*trainer as usize).copied().flatten().is_some();
        self.numbered(|member| member.finished)
            .find(|trainer| !has_left(trainer))
    }

    /// Rolls back to a checkpoint. Repeating a rollback changes nothing.
    pub fn roll_back(&mut self, epoch: u64, step: u64, left: &[Option<u64>]) -> bool {
        if epoch <= self.epoch {
            return false;
        }
        (self.epoch, self.step) = (epoch, step);
        for (number, member) in self.members.iter_mut().enumerate() {
            *member = Member {
                attempt: member.attempt,
                finished: member.finished,
                next: step,
                left: left.get(number).copied().flatten(),
                ..Member::default()
            };
        }
        true
    }

    /// Restores the trainers' progress from an asynchronous checkpoint. Nobody waits for a trainer that has finished.
    pub fn restore_progress(&mut self, next: &[u64]) {
        for (member, next) in self.members.iter_mut().zip(next) {
            (member.next, member.parts) = (*next, 0);
            if member.finished {
                member.left.get_or_insert(*next);
            }
        }
    }

    /// Per trainer: the first step it has not finished, and the step before which it left.
    pub fn progress(&self) -> Vec<(u64, Option<u64>)> {
        self.members
            .iter()
            .map(|member| (member.next, member.left))
            .collect()
    }

    /// The trainers that keep `step` from being committed, or a trainer at `step` from continuing.
    pub fn awaited(&self, step: u64) -> Vec<u32> {
        let reached = match self.mode {
            Mode::Sync => self.step.min(step) + 1,
            Mode::Async => 0,
            Mode::Bounded(bound) => step.saturating_sub(u64::from(bound)),
        };
        self.numbered(|member| member.left.is_none() && member.next < reached)
            .collect()
    }

    fn numbered(&self, which: impl Fn(&Member) -> bool) -> impl Iterator<Item = u32> {
        let numbers = self.members.iter().enumerate();
        numbers.filter_map(move |(number, member)| which(member).then_some(number as u32))
    }

    fn slowest(&self) -> u64 {
        let active = self.members.iter().filter(|member| member.left.is_none());
        let slowest = active.map(|member| member.next).min();
        slowest.unwrap_or_else(|| self.members.iter().map(|member| member.next).max().unwrap_or(0))
    }

    fn member_mut(&mut self, trainer: u32) -> Result<&mut Member, Refusal> {
        let trainers = self.members.len() as u32;
        self.members
            .get_mut(trainer as usize)
            .ok_or(Refusal::NoSuchTrainer { trainer, trainers })
    }

    /// Checks that the sender's attempt and epoch are current.
    pub fn check(&mut self, sender: Sender) -> Result<(), Refusal> {
        self.checked(sender).map(drop)
    }

    fn checked(&mut self, sender: Sender) -> Result<&mut Member, Refusal> {
        let (epoch, step) = (self.epoch, self.step);
        let Sender { trainer, attempt, .. } = sender;
        let member = self.member_mut(trainer)?;
        if attempt < member.attempt {
            return Err(Refusal::Fenced {
                trainer,
                attempt,
                current: member.attempt,
            });
        }
        if attempt > member.attempt {
            return Err(Refusal::NotJoined { trainer });
        }
        if sender.epoch != epoch {
            return Err(Refusal::RolledBack { step });
        }
        Ok(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn by(trainer: u32) -> Sender {
        Sender {
            trainer,
            attempt: 1,
            epoch: 1,
        }
    }

    pub(super) fn joined(mode: Mode, trainers: u32) -> Steps {
        let mut steps = Steps::new(mode, trainers, 1, &[]);
        for trainer in 0..trainers {
            steps.join(trainer, 1).unwrap();
        }
        steps
    }

    fn finish(steps: &mut Steps, trainer: u32, step: u64) {
        assert_eq!(steps.push(by(trainer), step, 0), Ok(Verdict::Accept));
        assert_eq!(steps.ready(by(trainer), step), Ok(Verdict::Accept));
    }

    #[test]
    fn a_step_commits_when_every_trainer_is_ready() {
        let mut steps = joined(Mode::Sync, 2);
        finish(&mut steps, 1, 0);
        assert_eq!(steps.participants(), None);
        assert_eq!(steps.awaited(0), [0]);
        assert_eq!(steps.pull(by(1), 1), Ok(Verdict::Wait));
        finish(&mut steps, 0, 0);
        assert_eq!(steps.participants(), Some(vec![0, 1]));
        steps.committed();
        assert_eq!(steps.pull(by(1), 1), Ok(Verdict::Accept));
    }

    #[test]
    fn a_repeated_push_counts_once() {
        let mut steps = joined(Mode::Sync, 2);
        finish(&mut steps, 0, 0);
        assert_eq!(steps.push(by(0), 0, 0), Ok(Verdict::Duplicate));
        assert_eq!(steps.ready(by(0), 0), Ok(Verdict::Duplicate));
        assert_eq!(steps.push(by(0), 1, 0), Ok(Verdict::Wait));
    }

    #[test]
    fn a_part_that_skips_one_is_refused() {
        let mut steps = joined(Mode::Sync, 1);
        assert!(matches!(steps.push(by(0), 0, 1), Err(Refusal::Gap { .. })));
    }

    #[test]
    fn a_later_attempt_fences_the_earlier_and_repeats_its_unfinished_step() {
        let mut steps = joined(Mode::Sync, 2);
        steps.push(by(0), 0, 0).unwrap();
        let standing = steps.join(0, 2).unwrap();
        assert_eq!((standing.next, standing.parts), (0, 1));
        let again = Sender { attempt: 2, ..by(0) };
        assert_eq!(steps.discard(again, 0), Ok(true));
        assert_eq!(steps.push(again, 0, 0), Ok(Verdict::Accept));
        assert_eq!(
            steps.discard(again, 0),
            Ok(false),
            "late, and about parts of its own"
        );
        assert!(matches!(steps.push(by(0), 0, 0), Err(Refusal::Fenced { .. })));
        assert!(matches!(steps.join(0, 1), Err(Refusal::Fenced { .. })));
    }

    #[test]
    fn a_later_attempt_does_not_repeat_a_step_it_was_ready_with() {
        let mut steps = joined(Mode::Sync, 2);
        finish(&mut steps, 0, 0);
        let standing = steps.join(0, 2).unwrap();
        assert_eq!(standing.next, 1);
        finish(&mut steps, 1, 0);
        assert_eq!(steps.participants(), Some(vec![0, 1]));
    }

    #[test]
    fn an_asynchronous_part_counts_once_across_attempts() {
        let mut steps = joined(Mode::Async, 2);
        assert_eq!(steps.push(by(0), 0, 0), Ok(Verdict::Accept));
        let standing = steps.join(0, 2).unwrap();
        assert_eq!((standing.next, standing.parts), (0, 1));
        let again = Sender { attempt: 2, ..by(0) };
        assert_eq!(steps.push(again, 0, 0), Ok(Verdict::Duplicate));
        assert_eq!(steps.push(again, 0, 1), Ok(Verdict::Accept));
    }

    #[test]
    fn a_trainer_that_left_is_not_waited_for() {
        let mut steps = joined(Mode::Sync, 2);
        finish(&mut steps, 1, 0);
        steps.leave(by(1), 1).unwrap();
        finish(&mut steps, 0, 0);
        assert_eq!(steps.participants(), Some(vec![0, 1]));
        steps.committed();
        finish(&mut steps, 0, 1);
        assert_eq!(steps.participants(), Some(vec![0]));
        steps.committed();
        assert_eq!(steps.pull(by(1), 1), Ok(Verdict::Accept));
        assert_eq!(steps.still_training(), [0]);
        assert!(!steps.all_left());
    }

    #[test]
    fn bounded_staleness_holds_the_fast_trainer_back() {
        let mut steps = joined(Mode::Bounded(2), 2);
        for step in 0..3 {
            finish(&mut steps, 0, step);
        }
        assert_eq!(steps.pull(by(0), 2), Ok(Verdict::Accept));
        assert_eq!(steps.pull(by(0), 3), Ok(Verdict::Wait));
        assert_eq!(steps.awaited(3), [1]);
        finish(&mut steps, 1, 0);
        assert_eq!(steps.pull(by(0), 3), Ok(Verdict::Accept));
    }

    #[test]
    fn a_rollback_refuses_what_was_sent_before_it() {
        let mut steps = joined(Mode::Sync, 1);
        finish(&mut steps, 0, 0);
        steps.committed();
        assert!(steps.roll_back(2, 0, &[None]));
        assert!(!steps.roll_back(2, 0, &[None]), "made once");
        assert_eq!(steps.push(by(0), 1, 0), Err(Refusal::RolledBack { step: 0 }));
        let now = Sender { epoch: 2, ..by(0) };
        assert_eq!(steps.push(now, 0, 0), Ok(Verdict::Accept));
    }

    #[test]
    fn a_rollback_needs_the_finished_trainers_that_had_not_left() {
        let steps = Steps::new(Mode::Sync, 3, 0, &[0, 2]);
        assert_eq!(steps.finished_but_needed(&[]), Some(0));
        assert_eq!(steps.finished_but_needed(&[Some(5), None, None]), Some(2));
        assert_eq!(steps.finished_but_needed(&[Some(5), None, Some(9)]), None);
    }

    #[test]
    fn an_asynchronous_server_that_forgot_departures_does_not_block_trainers() {
        let mut steps = Steps::new(Mode::Bounded(1), 3, 0, &[0]);
        steps.roll_back(1, 0, &[None; 3]);
        steps.restore_progress(&[4, 2, 2]);
        for trainer in [1, 2] {
            steps.join(trainer, 1).unwrap();
        }
        assert_eq!(
            steps.finish(by(1)),
            Ok(Verdict::Wait),
            "it left before the restart"
        );
        assert_eq!(steps.still_training(), [2]);
        // It has ended the steps before, which this server forgot.
        assert_eq!(steps.pull(by(2), 9), Ok(Verdict::Accept));
        assert_eq!(steps.finish(by(2)), Ok(Verdict::Accept));
    }
}
