//! Checkpoints of a server: when they are taken, who writes them, and how they are restored.
//!
//! Every server writes its own file at the same steps, independently of the others. When a server was restarted, server
//! 0 chooses the checkpoint to which all roll back; trainers pass the choice on to the other servers.

mod header;
pub(super) mod listing;
mod loading;
mod stored;
mod writing;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::checkpoint::{self, CheckpointError};
use crate::message::{Code, Field, Origin, Refused};
use crate::planted::Planted;
use crate::steps::Mode;
use crate::wire::Writer;

use super::trainer_state::TrainerState;
use super::{Config, Server, State, Tensor, Tensors, refused};
use header::Header;
use stored::{Latest, latest, parts};
use writing::Writing;

mod kind {
    pub const HEADER: u8 = 1;
    pub const DENSE: u8 = 2;
    pub const BLOCK: u8 = 3;
    pub const TABLE: u8 = 4;
    pub const ROWS: u8 = 5;
    pub const KEPT: u8 = 6;
    pub const SIGHTINGS: u8 = 7;
}

/// The number of checkpoints of changed rows between two complete ones.
const CHANGES_PER_BASE: u32 = 8;

/// The checkpoint being written, and what the next one can be based on.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// Returns whether the checkpoint was written.
    writer: Option<JoinHandle<bool>>,
    base: Option<u64>,
    changes: u32,
    /// For `stat`.
    outcome: Arc<Mutex<CheckpointOutcome>>,
}

/// How the writing of checkpoints went.
#[derive(Debug, Default, Clone)]
pub(super) struct CheckpointOutcome {
    /// The step of the latest one that was written.
    pub(super) written: Option<u64>,
    /// Why the latest one was not.
    pub(super) error: Option<String>,
}

impl CheckpointOutcome {
    fn record(&mut self, step: u64, result: &Result<(), CheckpointError>) {
        match result {
            Ok(()) => (self.written, self.error) = (Some(step), None),
            Err(error) => self.error = Some(error.to_string()),
        }
    }
}

impl Checkpoints {
    /// Waits for the checkpoint that is being written, if any. One that failed cannot be a base.
    fn wait(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let is_written = writer.join().unwrap_or(false);
        if !is_written && self.changes == 0 {
            self.base = None;
        }
    }

    /// After a rollback, the next checkpoint is complete.
    fn forget_base(&mut self) {
        (self.base, self.changes) = (None, 0);
    }
}

/// What all servers go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rollback {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) origin: Origin,
}

/// A checkpoint to load.
struct Chosen {
    folder: PathBuf,
    step: u64,
    origin: Origin,
}

impl Server {
    pub(super) fn checkpoint_is_due(&self, state: &State, step: u64) -> bool {
        let every = state
            .session
            .as_ref()
            .map_or(0, |session| session.checkpoint_every);
        every > 0 && step.is_multiple_of(every) && self.folder(state).is_some()
    }

    /// Starts a checkpoint of the current state if one is due. The caller holds the state's lock, or the gate of
    /// asynchronous pushes.
    pub(super) fn checkpoint_if_due(&self, state: &State, step: u64) {
        if self.checkpoint_is_due(state, step) {
            self.begin_checkpoint(state, step);
        }
    }

    /// Starts a checkpoint of the current state, if this run writes any.
    fn begin_checkpoint(&self, state: &State, step: u64) {
        let Some(folder) = self.folder(state) else { return };
        let mut checkpoints = self.checkpoints();
        // Wait for the previous checkpoint, so that all servers write the same checkpoints.
        checkpoints.wait();
        let base = checkpoints
            .base
            .filter(|_| checkpoints.changes < CHANGES_PER_BASE);
        match base {
            Some(_) => checkpoints.changes += 1,
            None => (checkpoints.base, checkpoints.changes) = (Some(step), 0),
        }
        let mut progress = state.steps.progress();
        if step == 0 {
            // Taken when that step ends: a trainer that has left since took part in it.
            for (_, left) in &mut progress {
                *left = left.filter(|left| *left == 0);
            }
        }
        let header = Header {
            step,
            base,
            progress,
            epoch: state.steps.epoch(),
        };
        let tensors = self.all_tensors();
        // The checkpoint of step 0 is taken when that step ends: after a rollback, its lookups are repeated.
        let sightings = match step {
            _ if self.has_bug(Planted::ForgetsSightings) => Vec::new(),
            0 => Vec::new(),
            _ => tensors.iter().filter_map(Tensor::sightings).collect(),
        };
        // From the first mark to the start of the writer, take no lock of a marked tensor: a thread that holds it may
        // wait for the writer.
        let receiver = self.saving.begin();
        let marked = tensors.iter().map(Tensor::mark);
        let (descriptions, pieces): (Vec<_>, Vec<usize>) = marked.unzip();
        let job = Writing {
            index: self.config.index,
            servers: self.config.servers,
            folder,
            descriptions,
            sightings,
            kept: self.states_to_save(state, step),
            tensors,
            header,
            pieces: pieces.into_iter().sum(),
        };
        let (saving, outcome) = (Arc::clone(&self.saving), Arc::clone(&checkpoints.outcome));
        let write = move || {
            let result = job.run(&receiver);
            saving.end();
            outcome
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .record(step, &result);
            result.is_ok()
        };
        let thread = std::thread::Builder::new()
            .name("ps-checkpoint".into())
            .spawn(write);
        match thread {
            Ok(thread) => checkpoints.writer = Some(thread),
            Err(error) => {
                eprintln!("no checkpoint of step {step}: {error}");
                self.saving.end();
                checkpoints.base = None;
            }
        }
    }

    /// Server 0: chooses the checkpoint to which all current servers roll back. Every caller with the same servers gets
    /// the same answer. If there is no checkpoint, a caller that knows no tensors begins again at step 0.
    pub(super) fn recover(
        &self,
        above: u64,
        seen: u64,
        incarnations: Vec<u64>,
        is_new: bool,
    ) -> Result<Rollback, Refused> {
        let mut state = self.state();
        if let Some((formed, rollback)) = &state.formed
            && *formed == incarnations
            && state.steps.epoch() >= above
        {
            return Ok(Rollback {
                epoch: state.steps.epoch(),
                ..*rollback
            });
        }
        if state.steps.epoch() != seen {
            let step = state.steps.step();
            return Err(crate::steps::Refusal::RolledBack { step }.into());
        }
        // Never reuse an epoch of an earlier process of this server: a late message could be mistaken for a new one.
        let of_attempt = u64::from(self.config.attempt) << 32;
        let epoch = state.steps.epoch().max(above).max(of_attempt).saturating_add(1);
        let found = self.latest_intact(&state, is_new)?;
        let rollback = Rollback {
            epoch,
            step: found.as_ref().map_or(0, |found| found.step),
            origin: found.as_ref().map_or(Origin::Start, |found| found.origin),
        };
        self.go_back(&mut state, rollback)?;
        state.formed = Some((incarnations, rollback));
        Ok(rollback)
    }

    pub(super) fn roll_back(&self, rollback: Rollback, seen: u64) -> Result<(), Refused> {
        let mut state = self.state();
        let epoch = rollback.epoch;
        let current = state.steps.epoch();
        if epoch <= current || current != seen {
            let is_made = epoch == current;
            let refusal = crate::steps::Refusal::RolledBack {
                step: state.steps.step(),
            };
            return if is_made { Ok(()) } else { Err(refusal.into()) };
        }
        self.go_back(&mut state, rollback)
    }

    fn go_back(&self, state: &mut State, rollback: Rollback) -> Result<(), Refused> {
        let Rollback { epoch, step, origin } = rollback;
        let folder = match origin {
            Origin::Start => None,
            Origin::ThisRun => self.folder(state),
            Origin::OtherRun => self.other_run(state),
        };
        let Some(folder) = folder else {
            self.restore(state, None, Some(epoch))?;
            *self.tensors_mut() = Tensors::default();
            state.start_epoch = epoch;
            self.remove_first_file(state);
            println!("there is no checkpoint: training begins at step 0");
            return Ok(());
        };
        let chosen = Chosen { folder, step, origin };
        self.restore(state, Some(chosen), Some(epoch))?;
        if origin == Origin::ThisRun {
            println!("rolled back to step {step}");
        }
        Ok(())
    }

    /// Removes this server's file of step 0, which other servers have not completed: beside theirs of the training that begins
    /// now, it would be a damaged checkpoint.
    fn remove_first_file(&self, state: &State) {
        if let Some(folder) = self.folder(state) {
            let Config { index, servers, .. } = self.config;
            let _ = std::fs::remove_file(checkpoint::file(&folder, 0, index, servers));
        }
    }

    /// A restarted asynchronous server resumes from its latest checkpoint, in its epoch, without the other servers. If there
    /// is none, its epoch stays 0, and trainers ask server 0 what to do.
    pub(super) fn resume_alone(&self, state: &mut State) -> Result<(), Refused> {
        match self.latest_intact(state, true)? {
            Some(chosen) => self.restore(state, Some(chosen), None),
            None => Ok(()),
        }
    }

    /// The trainers' states that this server's file contains. In synchronous training all servers have the same ones and
    /// divide them.
    fn states_to_save(&self, state: &State, step: u64) -> Vec<(u32, TrainerState)> {
        let is_sync = state.steps.mode() == Mode::Sync;
        let is_saved = |trainer: u32, kept: &TrainerState| {
            if self.has_bug(Planted::ForgetsStates) {
                return false;
            }
            // What is saved as step 0 is taken when that step ends: the states are already of step 1.
            !is_sync || (kept.step <= step && trainer % self.config.servers == self.config.index)
        };
        let kept = state.kept.iter().enumerate();
        kept.filter_map(|(trainer, kept)| Some((trainer as u32, kept.clone()?)))
            .filter(|(trainer, kept)| is_saved(*trainer, kept))
            .collect()
    }

    /// Waits for the checkpoint that is being written, if any.
    pub(super) fn wait_for_writer(&self) {
        self.checkpoints().wait();
    }

    pub(super) fn checkpoint_outcome(&self) -> CheckpointOutcome {
        let outcome = Arc::clone(&self.checkpoints().outcome);
        let outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.clone()
    }

    fn checkpoints(&self) -> MutexGuard<'_, Checkpoints> {
        self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, state: &State) -> Option<PathBuf> {
        let session = state.session.as_ref()?;
        (!session.checkpoints.is_empty()).then(|| PathBuf::from(&session.checkpoints))
    }

    /// The folder of the run that this one continues.
    fn other_run(&self, state: &State) -> Option<PathBuf> {
        let session = state.session.as_ref()?;
        (!session.resume.is_empty()).then(|| PathBuf::from(&session.resume))
    }

    /// The latest intact checkpoint of this run, or of the one it continues; `None` if there is none, and nothing was lost
    /// or `may_begin_again`.
    fn latest_intact(&self, state: &State, may_begin_again: bool) -> Result<Option<Chosen>, Refused> {
        let unusable = |error: CheckpointError| refused(Code::NoCheckpoint, error.to_string());
        let folder = self.folder(state);
        self.checkpoints().wait();
        let own = match folder.as_deref() {
            Some(folder) => latest(folder).map_err(unusable)?,
            None => Latest::default(),
        };
        let chosen = |folder, step, origin| Chosen { folder, step, origin };
        if let (Some(step), Some(folder)) = (own.intact, &folder) {
            return Ok(Some(chosen(folder.clone(), step, Origin::ThisRun)));
        }
        if let Some(folder) = self.other_run(state) {
            let other = latest(&folder).map_err(unusable)?;
            return match (other.intact, other.damage) {
                (Some(step), _) => Ok(Some(chosen(folder, step, Origin::OtherRun))),
                (None, damage) => {
                    let error = damage.unwrap_or(CheckpointError::None(folder));
                    Err(refused(
                        Code::NoCheckpoint,
                        format!("the run cannot be resumed: {error}"),
                    ))
                }
            };
        }
        let may_begin_again = may_begin_again && own.damage.is_none();
        let nothing_lost =
            state.steps.step() == 0 && self.all_tensors().is_empty() && state.steps.epoch() > 0;
        if nothing_lost || may_begin_again {
            return Ok(None);
        }
        let message = match folder {
            Some(folder) => CheckpointError::None(folder).to_string(),
            None => "a parameter server was restarted, and this job writes no checkpoints".to_owned(),
        };
        Err(refused(Code::NoCheckpoint, message))
    }

    /// Replaces the server's state by a checkpoint; without one, the server begins at step 0. Without `epoch`, it is that of
    /// the checkpoint.
    fn restore(
        &self,
        state: &mut State,
        checkpoint: Option<Chosen>,
        epoch: Option<u64>,
    ) -> Result<(), Refused> {
        let unusable = |error: CheckpointError| refused(Code::NoCheckpoint, error.to_string());
        let parts = match &checkpoint {
            Some(chosen) => parts(&chosen.folder, chosen.step).map_err(unusable)?,
            None => Vec::new(),
        };
        let other_run = checkpoint
            .as_ref()
            .filter(|chosen| chosen.origin == Origin::OtherRun);
        // Who had left is read from the first file for all servers. All take part in a run that continues.
        let start = Header::start();
        let header = parts.first().map_or(&start, |part| &part.header);
        let left: Vec<Option<u64>> = match other_run {
            Some(_) => Vec::new(),
            None => header.progress.iter().map(|(_, left)| *left).collect(),
        };
        let mode = state.steps.mode();
        if (mode == Mode::Sync || checkpoint.is_none())
            && let Some(trainer) = state.steps.finished_but_needed(&left)
        {
            return Err(self.cannot_repeat(checkpoint.map(|chosen| chosen.step), trainer));
        }
        // It still needs the tensors as they are.
        self.checkpoints().wait();
        if !self.has_bug(Planted::KeepsPending) {
            state.pending.iter_mut().for_each(Vec::clear);
        }
        state.rejected = None;
        state.kept.fill(None);
        if checkpoint.is_some() {
            self.load(&parts, state).map_err(unusable)?;
        }
        let epoch = epoch.unwrap_or(header.epoch);
        if state.steps.epoch() == epoch {
            state.steps = self.config.steps(mode, 0);
        }
        state.steps.roll_back(epoch, header.step, &left);
        if mode != Mode::Sync {
            let next: Vec<u64> = header.progress.iter().map(|(next, _)| *next).collect();
            state.steps.restore_progress(&next);
        }
        self.checkpoints().forget_base();
        state.is_loaded = checkpoint.is_some();
        state.resumed = other_run.map(|chosen| chosen.step);
        state.adopt_states(&header.progress);
        if let Some(chosen) = other_run {
            self.report_resumed(&chosen.folder, header.step, header.progress.len(), parts.len());
            // Complete, for there is no base: from now on the other run's files are not needed.
            self.begin_checkpoint(state, header.step);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Why training cannot go back to a checkpoint, or to its start.
    fn cannot_repeat(&self, checkpoint: Option<u64>, trainer: u32) -> Refused {
        let index = self.config.index;
        let message = match checkpoint {
            None => format!(
                "parameter server {index} was lost and there is no checkpoint; training cannot restart, because \
                 trainer {trainer} has finished. Submit the job again; `ps.connect(checkpoint_every=...)` would have saved it"
            ),
            Some(step) => format!(
                "parameter server {index} was lost; training cannot go back to the checkpoint of step {step}, because \
                 trainer {trainer}, which took part in the steps after it, has finished. Submit the job again"
            ),
        };
        refused(Code::NoCheckpoint, message)
    }
}

impl Tensor {
    /// The tensor, and how often each id without a row was seen; `None` if there are no such ids.
    fn sightings(&self) -> Option<(u32, Vec<u8>)> {
        let Tensor::Table(table) = self else { return None };
        let mut body = Writer::new();
        for (id, seen) in table.sightings() {
            body.u64(id).u32(seen);
        }
        let body = body.finish();
        (!body.is_empty()).then_some((table.place.id, body))
    }

    /// Marks the tensor for a checkpoint. Returns the record that recreates it, and the number of pieces.
    fn mark(&self) -> ((u8, Vec<u8>), usize) {
        let mut head = Writer::new();
        match self {
            Tensor::Dense(dense) => {
                let (progress, pieces) = dense.mark();
                dense.spec().encode(&mut head);
                head.u32(dense.place.id)
                    .u32(dense.place.first)
                    .u8(u8::from(progress.assigned));
                progress.updates.encode(&mut head);
                ((kind::DENSE, head.finish()), pieces)
            }
            Tensor::Table(table) => {
                table.described().encode(&mut head);
                head.u32(table.place.id).u32(table.place.first);
                table.progress().encode(&mut head);
                head.u32(table.clock());
                ((kind::TABLE, head.finish()), table.mark())
            }
        }
    }
}

/// Never held while a connection waits.
pub(super) type CheckpointsLock = Mutex<Checkpoints>;

#[cfg(test)]
mod tests;
