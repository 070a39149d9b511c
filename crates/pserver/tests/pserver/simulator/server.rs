//! A simulated server: `steps::Steps` with a number for a model.

use std::collections::BTreeMap;

use paddlecloud_pserver::placement::mix;
use paddlecloud_pserver::steps::{Mode, Refusal, Sender, Steps, Verdict};

use super::{Answer, Ask, Bug, CHECKPOINT_EVERY, Request, SERVERS, TRAINERS};

pub struct Server {
    index: usize,
    steps: Steps,
    pub incarnation: u64,
    model: u64,
    /// Per trainer: what arrived, in order of arrival and part.
    pending: Vec<Vec<u64>>,
    formed: Option<([u64; SERVERS], u64)>,
}

/// What a checkpoint of one server holds: its model and who had left.
pub type Saved = (u64, Vec<Option<u64>>);

/// Checkpoints by step, one entry per server.
pub type Disk = BTreeMap<u64, [Option<Saved>; SERVERS]>;

impl Server {
    pub fn new(index: usize, incarnation: u64, epoch: u64, finished: &[u32]) -> Server {
        Server {
            index,
            steps: Steps::new(Mode::Sync, TRAINERS as u32, epoch, finished),
            incarnation,
            model: index as u64,
            pending: vec![Vec::new(); TRAINERS],
            formed: None,
        }
    }

    pub fn handle(&mut self, request: &Request, disk: &mut Disk, bug: Option<Bug>) -> Option<Answer> {
        let mut sender = request.sender;
        if bug == Some(Bug::NoEpoch) && self.steps.epoch() > 0 {
            sender.epoch = self.steps.epoch();
        }
        if bug == Some(Bug::NoFence) {
            // As if a later attempt had never been heard of.
            sender.attempt = (1..10)
                .rev()
                .find(|attempt| self.steps.clone().join(sender.trainer, *attempt).is_err())
                .map_or(1, |fenced| fenced + 1);
        }
        match self.decide(request.ask, sender, disk, bug) {
            Ok(answer) => answer,
            Err(Refusal::RolledBack { .. }) => Some(Answer::RolledBack),
            // For an attempt that has ended, or a trainer that has to join again: it will.
            Err(_) => None,
        }
    }

    fn decide(
        &mut self,
        ask: Ask,
        sender: Sender,
        disk: &mut Disk,
        bug: Option<Bug>,
    ) -> Result<Option<Answer>, Refusal> {
        let done = |verdict| (verdict != Verdict::Wait).then_some(Answer::Done);
        let trainer = sender.trainer as usize;
        Ok(match ask {
            Ask::Join => {
                let standing = self.steps.join(sender.trainer, sender.attempt)?;
                let incarnation = self.incarnation;
                Some(Answer::Joined {
                    standing,
                    incarnation,
                })
            }
            Ask::Recover {
                above,
                seen,
                incarnations,
            } => {
                if let Some((formed, step)) = self.formed
                    && formed == incarnations
                    && self.steps.epoch() >= above
                {
                    let epoch = self.steps.epoch();
                    return Ok(Some(Answer::Recovered { epoch, step }));
                }
                if self.steps.epoch() != seen {
                    return Err(Refusal::RolledBack { step: 0 });
                }
                let complete = disk
                    .iter()
                    .rev()
                    .find(|(_, saved)| saved.iter().all(Option::is_some));
                let step = complete.map_or(0, |(step, _)| *step);
                let epoch = self.steps.epoch().max(above).max(self.incarnation << 32) + 1;
                if !self.restore(epoch, step, disk) {
                    return Ok(Some(Answer::CannotRepeat));
                }
                self.formed = Some((incarnations, step));
                Some(Answer::Recovered { epoch, step })
            }
            Ask::RollBack { epoch, step, seen } => {
                if epoch != self.steps.epoch() && seen != self.steps.epoch() {
                    return Err(Refusal::RolledBack { step: 0 });
                }
                Some(match self.restore(epoch, step, disk) {
                    true => Answer::Done,
                    false => Answer::CannotRepeat,
                })
            }
            Ask::Pull { step } => match self.steps.pull(sender, step)? {
                Verdict::Wait => None,
                _ => Some(Answer::Model(self.model)),
            },
            Ask::Push { step, part, value } => {
                let verdict = self.steps.push(sender, step, part)?;
                if verdict == Verdict::Accept
                    || (bug == Some(Bug::CountsTwice) && verdict == Verdict::Duplicate)
                {
                    self.pending[trainer].push(value);
                }
                done(verdict)
            }
            Ask::Ready { step } => {
                let verdict = self.steps.ready(sender, step)?;
                self.commit(disk);
                done(verdict)
            }
            Ask::Discard { step } => {
                if self.steps.discard(sender, step)? {
                    self.pending[trainer].clear();
                }
                Some(Answer::Done)
            }
            Ask::Leave { step } => {
                self.steps.leave(sender, step)?;
                self.commit(disk);
                Some(Answer::Done)
            }
            Ask::Finish => done(self.steps.finish(sender)?),
        })
    }

    /// False: a trainer that has finished would be needed.
    fn restore(&mut self, epoch: u64, step: u64, disk: &Disk) -> bool {
        let none = (self.index as u64, Vec::new());
        let files = disk.get(&step);
        let (model, _) = files
            .and_then(|saved| saved[self.index].clone())
            .unwrap_or(none.clone());
        // Like the real server: who had left is read from the first file for all servers.
        let (_, left) = files.and_then(|saved| saved[0].clone()).unwrap_or(none);
        if self.steps.finished_but_needed(&left).is_some() {
            return false;
        }
        if self.steps.roll_back(epoch, step, &left) {
            self.model = model;
            self.pending.iter_mut().for_each(Vec::clear);
        }
        true
    }

    fn commit(&mut self, disk: &mut Disk) {
        while let Some(participants) = self.steps.participants() {
            for trainer in participants {
                for value in std::mem::take(&mut self.pending[trainer as usize]) {
                    self.model = mix(self.model ^ value);
                }
            }
            self.steps.committed();
            let step = self.steps.step();
            if step.is_multiple_of(CHECKPOINT_EVERY) {
                let left = self.steps.progress().into_iter().map(|(_, left)| left).collect();
                disk.entry(step).or_default()[self.index] = Some((self.model, left));
            }
        }
    }
}
