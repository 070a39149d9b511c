//! Brings a client and all servers to the same step: when the client joins, and after a rollback.

use std::time::Instant;

use crate::message::{Code, Field, Origin, Request};
use crate::steps::Mode;
use crate::wire::{Reader, WireError};

use super::{Client, ClientError, Link, Sink};

impl Client {
    /// Joins all servers. If one was restarted, all roll back to a checkpoint that server 0 chooses.
    pub(super) fn agree(&mut self) -> Result<(), ClientError> {
        let known = self.epoch;
        let agreed = self.agree_since(known);
        if agreed.is_err() {
            // Servers refuse the next call too: it must not pass for one of the new epoch.
            self.epoch = known;
        }
        agreed
    }

    fn agree_since(&mut self, known: u64) -> Result<(), ClientError> {
        let deadline = Instant::now() + self.config.patience;
        loop {
            let epochs = match self.join() {
                Ok(epochs) => epochs,
                Err(ClientError::Restarted { .. }) if Instant::now() < deadline => continue,
                Err(other) => return Err(other),
            };
            let latest = epochs.iter().copied().max().unwrap_or(0);
            if latest > 0 && epochs.iter().all(|epoch| *epoch == latest) {
                let is_lost = self.start_epoch > known && !self.tensors.is_empty();
                return if is_lost { Err(ClientError::Lost) } else { Ok(()) };
            }
            match self.roll_back(latest, &epochs) {
                Ok(()) => {}
                // A concurrent client decided first: join again.
                Err(ClientError::Refused(refused))
                    if refused.code == Code::RolledBack && Instant::now() < deadline => {}
                Err(ClientError::Restarted { .. }) if Instant::now() < deadline => {}
                Err(other) => return Err(other),
            }
        }
    }

    fn roll_back(&mut self, above: u64, seen: &[u64]) -> Result<(), ClientError> {
        let incarnations = self.links.iter().map(Link::incarnation).collect();
        let recover = Request::Recover {
            above,
            seen: seen[0],
            incarnations,
            is_new: self.tensors.is_empty(),
        };
        let head = self.links[0].ask(&recover, &[], Sink::Nothing)?;
        let mut head = Reader::new(&head);
        let (epoch, step, origin) = (head.u64()?, head.u64()?, Origin::decode(&mut head)?);
        for (link, seen) in self.links.iter_mut().zip(seen).skip(1) {
            let request = Request::RollBack {
                epoch,
                step,
                seen: *seen,
                origin,
            };
            link.ask(&request, &[], Sink::Nothing)?;
        }
        Ok(())
    }

    /// Joins again after a rollback and reports the step at which training resumes.
    pub(super) fn handle_rollback<T>(&mut self, result: Result<T, ClientError>) -> Result<T, ClientError> {
        if !result.as_ref().is_err_and(is_rollback) {
            return result;
        }
        let result = loop {
            self.agree()?;
            let declared = self.declare_again();
            if !declared.as_ref().is_err_and(is_rollback) {
                break declared;
            }
        };
        self.drop_remainders();
        result?;
        Err(ClientError::RolledBack { step: self.step })
    }

    /// Joins all servers and finds the current step of this trainer.
    fn join(&mut self) -> Result<Vec<u64>, ClientError> {
        let join = Request::Join {
            session: self.config.session.clone(),
        };
        let mut standings = Vec::new();
        for link in &mut self.links {
            link.forget();
            let head = link.ask(&join, &[], Sink::Nothing)?;
            link.set_join(join.clone());
            standings.push(Standing::decode(&head)?);
        }
        let epochs: Vec<u64> = standings.iter().map(|standing| standing.epoch).collect();
        self.epoch = epochs.iter().copied().max().unwrap_or(0);
        self.start_epoch = standings
            .iter()
            .map(|standing| standing.start_epoch)
            .max()
            .unwrap_or(0);
        self.barriers = 0;
        if epochs.iter().any(|epoch| *epoch != self.epoch) {
            return Ok(epochs);
        }
        self.step = standings.iter().map(|standing| standing.next).max().unwrap_or(0);
        self.first_step = standings
            .iter()
            .map(|standing| standing.first_step)
            .min()
            .unwrap_or(0);
        let has_state = |standing: &Standing| standing.has_state && standing.next == self.step;
        self.keeper = standings.iter().position(has_state);
        // The step is repeated from its first part: servers do not count again what they have.
        self.parts.fill(0);
        // If one server has this trainer as ready with a step, all servers have its parts.
        let is_sync = self.config.session.mode == Mode::Sync;
        let is_behind = standings.iter().any(|standing| standing.next < self.step);
        let state = match is_sync && is_behind {
            true => self.kept_for_others()?,
            false => Vec::new(),
        };
        for (index, standing) in standings.iter().enumerate() {
            let (epoch, step) = (self.epoch, standing.next);
            let request = match step < self.step {
                true => Request::Ready {
                    epoch,
                    step,
                    pull: Vec::new(),
                },
                // The parts of the earlier attempt may differ from those of this one.
                false => Request::Discard { epoch, step },
            };
            if is_sync && (step < self.step || standing.parts > 0) {
                let body: &[&[u8]] = match &request {
                    Request::Ready { .. } => &[&state],
                    _ => &[],
                };
                self.links[index].ask(&request, body, Sink::Nothing)?;
            }
        }
        Ok(epochs)
    }

    /// This trainer's state, for servers that did not hear the end of the step before.
    fn kept_for_others(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        if let Some(keeper) = self.keeper {
            let request = Request::Kept { step: self.step };
            self.links[keeper].ask(&request, &[], Sink::Collect(&mut bytes))?;
        }
        Ok(bytes)
    }
}

/// Whether all have to agree on a step again.
fn is_rollback(error: &ClientError) -> bool {
    match error {
        ClientError::Restarted { .. } => true,
        ClientError::Refused(refused) => refused.code == Code::RolledBack,
        _ => false,
    }
}

/// The part of `steps::Standing` that a client needs.
struct Standing {
    epoch: u64,
    next: u64,
    parts: u32,
    /// The epoch in which training last began without a checkpoint.
    start_epoch: u64,
    /// The server has this trainer's state at the start of `next`.
    has_state: bool,
    /// The step at which this run began, as long as no step of it has ended; then 0.
    first_step: u64,
}

impl Standing {
    fn decode(head: &[u8]) -> Result<Standing, WireError> {
        let mut head = Reader::new(head);
        let (epoch, _step, next) = (head.u64()?, head.u64()?, head.u64()?);
        let (parts, _left) = (head.u32()?, head.flag("`left`")?);
        Ok(Standing {
            epoch,
            next,
            parts,
            start_epoch: head.u64()?,
            has_state: head.flag("`has_state`")?,
            first_step: head.u64()?,
        })
    }
}
