//! Serves one connection in its own thread: reads requests, calls the server, writes replies. Shares only the server.

mod declaring;
mod leaving;
mod opening;
mod optimizers;
mod pushing;
mod recorded;
mod replies;
mod rows;
mod stating;

use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::dense::Dense;
use crate::hello::{Identity, OBSERVER};
use crate::message::{Code, Refused, Request, Session, reply};
use crate::placement::BLOCK;
use crate::steps::{Mode, Sender, Verdict};
use crate::stream::write_vectored;
use crate::wire::{self, Frame, Writer, bytes_of, bytes_of_mut};

pub(super) use opening::{serve, serve_shared};
pub(super) use recorded::serve_bytes;
use replies::{describe, encode_rollback, encode_standing, names, needs_values, no_values, waits_for};

use super::checkpoints::Rollback;
use super::{Server, State, refused};

/// Blocks written to a connection at once.
const BLOCKS_AT_ONCE: usize = 16;

/// Why a request has no ordinary reply.
enum Fault {
    /// Reported to the client; the connection stays open.
    Refused(Refused),
    /// Closes the connection.
    Broken(io::Error),
}

impl<T: Into<Refused>> From<T> for Fault {
    fn from(refusal: T) -> Fault {
        Fault::Refused(refusal.into())
    }
}

fn broken(error: io::Error) -> Fault {
    Fault::Broken(error)
}

struct Connection<S> {
    server: Arc<Server>,
    stream: S,
    identity: Identity,
    /// Bytes of the current request's body that have not been read.
    unread: u64,
    /// The epoch in which this client joined.
    joined: Option<u64>,
}

pub(super) fn send(stream: &mut impl Write, kind: u8, head: &[u8]) -> io::Result<()> {
    let frame = Frame {
        kind,
        head: head.len(),
        body: 0,
    };
    write_vectored(stream, &mut [IoSlice::new(&frame.encode()), IoSlice::new(head)])
}

impl<S: Read + Write> Connection<S> {
    fn welcome(&mut self, proof: [u8; 32]) -> io::Result<()> {
        let Identity {
            trainer,
            trainers,
            server,
            servers,
            ..
        } = self.identity;
        let config = &self.server.config;
        let expects = (config.trainers, config.index, config.servers);
        if trainer != OBSERVER && (trainers, server, servers) != expects {
            let message = format!(
                "trainer {trainer} of {trainers} expects parameter server {server} of {servers}; \
                 this is {} of {} for {} trainer{}",
                config.index,
                config.servers,
                config.trainers,
                if config.trainers == 1 { "" } else { "s" }
            );
            let refusal = refused(Code::Other, message);
            send(&mut self.stream, reply::REFUSED, &refusal.encode())?;
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut head = Writer::new();
        head.bytes(&proof)
            .u64(self.server.incarnation)
            .u32(config.trainers)
            .u32(config.index)
            .u32(config.servers);
        send(&mut self.stream, reply::DONE, &head.finish())
    }

    /// Serves one request. Returns whether another may follow.
    fn serve_one(&mut self) -> io::Result<bool> {
        let Some(frame) = wire::read_frame(&mut self.stream)? else {
            return Ok(false);
        };
        let mut head = vec![0; frame.head];
        self.stream.read_exact(&mut head)?;
        self.unread = frame.body;
        let answer = match Request::decode(frame.kind, &head) {
            Ok(request) => self.answer(request),
            Err(error) => Err(refused(Code::Other, error.to_string()).into()),
        };
        match answer {
            Ok(()) => Ok(true),
            Err(Fault::Broken(error)) => Err(error),
            Err(Fault::Refused(refusal)) => {
                self.skip_body()?;
                send(&mut self.stream, reply::REFUSED, &refusal.encode())?;
                Ok(true)
            }
        }
    }

    fn answer(&mut self, request: Request) -> Result<(), Fault> {
        let server = Arc::clone(&self.server);
        match request {
            Request::Join { session } => self.join(session),
            Request::CreateDense { spec, place } => self.create_dense(spec, place),
            Request::CreateTable { spec, place } => self.create_table(spec, place),
            Request::Assign { tensor, replace } => {
                let dense = server.dense(tensor)?;
                if replace {
                    self.wait_for_own_step(None)?;
                }
                self.assign(&dense, replace)
            }
            Request::AssignRows { tensor, count } => self.assign_rows(tensor, count),
            Request::Push {
                epoch,
                step,
                part,
                entries,
            } => self.push(epoch, step, part, entries),
            Request::Ready { epoch, step, pull } => self.ready(epoch, step, &pull),
            Request::Pull {
                epoch,
                step,
                averaged,
                tensors,
            } => self.pull(epoch, step, &tensors, averaged),
            Request::Leave { epoch, step } => self.leave(epoch, step),
            Request::Barrier { epoch, step, number } => self.barrier(epoch, (step, number)),
            Request::Lookup {
                epoch,
                step,
                tensor,
                count,
                train,
            } => self.lookup(epoch, step, tensor, count, train),
            Request::Scan {
                tensor,
                from,
                limit,
                changed_since,
            } => self.scan(tensor, from, limit, changed_since),
            Request::Finish { epoch } => self.finish(epoch),
            Request::Stat => {
                let text = server.stat();
                self.done_with(&mut Writer::new(), &[text.as_bytes()])
            }
            Request::Tensors => {
                self.expect_body(0)?;
                let names = server.tensor_names();
                self.done_with(&mut Writer::new(), &[names.as_bytes()])
            }
            Request::Discard { epoch, step } => self.discard(epoch, step),
            Request::Kept { step } => self.kept(step),
            Request::Reject { epoch, step, reason } => self.reject(epoch, step, reason),
            Request::State { epoch, step, tensor } => self.state(epoch, step, tensor),
            Request::SetState { tensor, progress } => self.set_state(tensor, progress),
            Request::Recover {
                above,
                seen,
                incarnations,
                is_new,
            } => {
                self.expect_body(0)?;
                let chosen = server.recover(above, seen, incarnations, is_new)?;
                self.done(&mut encode_rollback(chosen))
            }
            Request::RollBack {
                epoch,
                step,
                seen,
                origin,
            } => {
                self.expect_body(0)?;
                let rollback = Rollback { epoch, step, origin };
                server.roll_back(rollback, seen)?;
                self.done(&mut Writer::new())
            }
        }
    }

    fn join(&mut self, session: Session) -> Result<(), Fault> {
        self.expect_body(0)?;
        let Identity { trainer, attempt, .. } = self.identity;
        let mut state = self.server.state();
        match &state.session {
            None => {
                self.server.check_folder(&session)?;
                // With a run to continue, a new server is like one that was lost: the checkpoint is that run's.
                let epoch = match session.resume.is_empty() {
                    true => state.steps.epoch(),
                    false => 0,
                };
                state.steps = self.server.config.steps(session.mode, epoch);
                let is_synchronous = session.mode == Mode::Sync;
                self.server
                    .is_synchronous
                    .store(is_synchronous, Ordering::Relaxed);
                state.session = Some(session);
            }
            Some(known) if *known != session => {
                let message = format!(
                    "trainer {trainer} joins with {}, but this job trains with {}",
                    describe(&session),
                    describe(known)
                );
                return Err(refused(Code::Other, message).into());
            }
            Some(_) => {}
        }
        if state.steps.epoch() == 0 && state.steps.mode() != Mode::Sync {
            self.server.resume_alone(&mut state)?;
        }
        self.joined = Some(state.steps.epoch());
        let is_restarted = state.steps.attempt(trainer) < attempt;
        let standing = state.steps.join(trainer, attempt)?;
        if is_restarted {
            // It repeats its parts of the step.
            state.rejected = None;
        }
        let has_state = state.has_kept(trainer, standing.next);
        let reply = &mut encode_standing(&standing, &state, has_state);
        drop(state);
        // Ends requests that wait on behalf of an earlier attempt.
        self.server.changed.notify_all();
        self.done(reply)
    }

    fn assign(&mut self, dense: &Dense, replace: bool) -> Result<(), Fault> {
        self.expect_body(4 * dense.local_elements as u64)?;
        let mut values = self.server.budget.buffer(dense.local_elements, &dense.name)?;
        self.read_body(bytes_of_mut(&mut values))?;
        let is_finite = crate::optimizer::all_finite(&values);
        if is_finite {
            dense.assign(&values, replace);
        }
        // Values are set once; kept, their buffer would double the memory of the tensor.
        values.discard();
        if !is_finite {
            return Err(self.not_finite(&dense.name).into());
        }
        // Pulls check for initial values under the state's lock: taking it once ensures that none misses the notification.
        drop(self.server.state());
        self.server.changed.notify_all();
        self.done(&mut Writer::new())
    }

    fn ready(&mut self, epoch: u64, step: u64, pull: &[u32]) -> Result<(), Fault> {
        let mut sent = self.receive_state(step.saturating_add(1))?;
        let sender = self.sender(epoch);
        let server = Arc::clone(&self.server);
        self.wait(
            |state| {
                state.steps.check(sender)?;
                server.check_declared(state)?;
                let verdict = state.steps.ready(sender, step)?;
                if verdict == Verdict::Accept {
                    // Before the commit, which may begin a checkpoint.
                    server.keep(state, sender.trainer, sent.take());
                    server.commit_if_complete(state);
                    server.changed.notify_all();
                }
                Ok(verdict)
            },
            |state| waits_for(state.steps.awaited(step), step),
        )?;
        if sender.trainer == 0 && server.state().steps.mode() != Mode::Sync {
            server.end_asynchronous_step(step.saturating_add(1));
        }
        match pull.is_empty() {
            true => self.done(&mut Writer::new()),
            false => self.pull(epoch, step.saturating_add(1), pull, false),
        }
    }

    fn pull(&mut self, epoch: u64, step: u64, tensors: &[u32], averaged: bool) -> Result<(), Fault> {
        self.expect_body(0)?;
        let sender = self.sender(epoch);
        let is_observer = sender.trainer == OBSERVER;
        if !is_observer {
            // First: after a rollback its tensors may be gone.
            self.server.state().steps.check(sender)?;
        }
        let server = Arc::clone(&self.server);
        let tensors = tensors
            .iter()
            .map(|id| server.dense(*id))
            .collect::<Result<Vec<_>, _>>()?;
        self.wait(
            |state| {
                if !is_observer {
                    // After a rollback nobody sets the values of these tensors.
                    state.steps.check(sender)?;
                }
                if let Some(dense) = tensors.iter().find(|dense| !dense.progress().assigned) {
                    return needs_values(state, sender.trainer, step, &dense.name);
                }
                match is_observer {
                    true => Ok(Verdict::Accept),
                    false => Ok(server.pull(state, sender, step)?),
                }
            },
            |state| match tensors.iter().find(|dense| !dense.progress().assigned) {
                Some(dense) => no_values(&dense.name),
                None => waits_for(
                    state.steps.awaited(step.saturating_sub(1)),
                    step.saturating_sub(1),
                ),
            },
        )?;
        let is_sync = self.server.state().steps.mode() == Mode::Sync && !is_observer;
        self.send_values(&tensors, averaged, is_sync).map_err(broken)
    }

    /// In a synchronous step nothing changes before this trainer is ready, so blocks are written in place. Otherwise
    /// they are copied, so that a slow connection does not block pushes.
    fn send_values(&mut self, tensors: &[Arc<Dense>], averaged: bool, in_place: bool) -> io::Result<()> {
        let elements: usize = tensors.iter().map(|dense| dense.local_elements).sum();
        let frame = Frame {
            kind: reply::DONE,
            head: 0,
            body: 4 * elements as u64,
        };
        self.stream.write_all(&frame.encode())?;
        let mut copy = Vec::new();
        for dense in tensors {
            for first in (0..dense.blocks()).step_by(BLOCKS_AT_ONCE) {
                let indices = first..(first + BLOCKS_AT_ONCE).min(dense.blocks());
                if in_place {
                    let blocks: Vec<_> = indices.map(|index| dense.block(index)).collect();
                    let mut slices: Vec<IoSlice<'_>> = blocks
                        .iter()
                        .map(|block| IoSlice::new(bytes_of(dense.shown(block, averaged))))
                        .collect();
                    write_vectored(&mut self.stream, &mut slices)?;
                    continue;
                }
                for index in indices {
                    copy.clear();
                    copy.reserve(BLOCK as usize);
                    copy.extend_from_slice(dense.shown(&dense.block(index), averaged));
                    self.stream.write_all(bytes_of(&copy))?;
                }
            }
        }
        Ok(())
    }

    fn barrier(&mut self, epoch: u64, at: (u64, u32)) -> Result<(), Fault> {
        self.expect_body(0)?;
        let sender = self.sender(epoch);
        let server = Arc::clone(&self.server);
        self.wait(
            |state| {
                let verdict = state.steps.barrier(sender, at)?;
                server.changed.notify_all();
                Ok(verdict)
            },
            |state| {
                format!(
                    "the barrier waits for {}",
                    names(&state.steps.awaited_at_barrier(at))
                )
            },
        )?;
        self.done(&mut Writer::new())
    }

    /// Asks again after every change until the answer is not `Wait`, and reports regularly to the client what it waits for.
    fn wait(
        &mut self,
        mut ask: impl FnMut(&mut State) -> Result<Verdict, Refused>,
        whom: impl Fn(&State) -> String,
    ) -> Result<(), Fault> {
        let server = Arc::clone(&self.server);
        let mut state = server.state();
        loop {
            if let Some(refusal) = state
                .rejected
                .clone()
                .filter(|_| self.identity.trainer != OBSERVER)
            {
                return Err(refusal.into());
            }
            if ask(&mut state)? != Verdict::Wait {
                return Ok(());
            }
            let waited = server.changed.wait_timeout(state, server.config.patience);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if timeout.timed_out() {
                let message = whom(&state);
                drop(state);
                println!("trainer {} waits: {message}", self.identity.trainer);
                let head = Writer::new().text(&message).finish();
                send(&mut self.stream, reply::WAITING, &head).map_err(broken)?;
                state = server.state();
            }
        }
    }

    fn sender(&self, epoch: u64) -> Sender {
        Sender {
            trainer: self.identity.trainer,
            attempt: self.identity.attempt,
            epoch,
        }
    }

    fn not_finite(&self, tensor: &str) -> Refused {
        let trainer = self.identity.trainer;
        refused(
            Code::NotFinite,
            format!("trainer {trainer} sent NaN or infinite values for `{tensor}`"),
        )
    }

    fn expect_body(&self, bytes: u64) -> Result<(), Fault> {
        match self.unread == bytes {
            true => Ok(()),
            false => {
                let found = self.unread;
                let message = format!("a request has a body of {found} bytes instead of {bytes}");
                Err(refused(Code::Other, message).into())
            }
        }
    }

    fn read_body(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        self.stream.read_exact(bytes).map_err(broken)?;
        self.unread -= bytes.len() as u64;
        Ok(())
    }

    fn skip_body(&mut self) -> io::Result<()> {
        let mut rest = (&mut self.stream).take(self.unread);
        let skipped = io::copy(&mut rest, &mut io::sink())?;
        self.unread -= skipped;
        Ok(())
    }

    fn done(&mut self, head: &mut Writer) -> Result<(), Fault> {
        self.done_with(head, &[])
    }

    fn done_with(&mut self, head: &mut Writer, body: &[&[u8]]) -> Result<(), Fault> {
        let head = head.finish();
        let frame = Frame {
            kind: reply::DONE,
            head: head.len(),
            body: body.iter().map(|bytes| bytes.len() as u64).sum(),
        };
        let frame = frame.encode();
        let mut slices = vec![IoSlice::new(&frame), IoSlice::new(&head)];
        slices.extend(body.iter().map(|bytes| IoSlice::new(bytes)));
        write_vectored(&mut self.stream, &mut slices).map_err(broken)
    }
}
