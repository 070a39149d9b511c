//! The server: what it holds, which trainers use it, and when a step changes the model.
//!
//! Each connection has its own thread (`connection`). `crate::steps` decides about steps under one lock; tensors have
//! their own locks. A thread that must wait for other trainers sleeps until the state changes.

mod checkpoints;
mod connection;
mod declaring;
mod gradient;
mod listen;
mod metrics;
mod resuming;
mod stat;
mod trainer_state;
mod unproved;

use std::collections::{BTreeSet, HashMap};
#[cfg(test)]
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use crate::budget::{Budget, OverBudget};
use crate::dense::Dense;
use crate::hello::{RunSecret, random};
use crate::message::{Code, Refused, Session, TableSpec, TensorId};
#[cfg(test)]
use crate::planted::Planted;
use crate::saving::Saving;
use crate::sparse::{SLAB_BYTES, Table};
use crate::steps::{Mode, Refusal, Sender, Steps, Verdict};

pub use checkpoints::listing::{CheckpointState, ListedCheckpoint, list_checkpoints};
use checkpoints::{CheckpointsLock, Rollback};
use gradient::{Gradients, Pushed};
pub use listen::{Admission, ListenError, Listening, UserOf, listen};
pub use metrics::serve_metrics;
use trainer_state::TrainerState;

/// The least rows that a shard of a limited table may have.
const ROWS_PER_SHARD: u64 = 64;

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The index of this server, and the number of servers.
    pub index: u32,
    pub servers: u32,
    pub trainers: u32,
    /// The attempt number of this worker. From the second attempt on, earlier tensors are lost.
    pub attempt: u32,
    /// Trainers that had succeeded when this attempt was started: they never join again.
    pub finished: Vec<u32>,
    /// The number of threads for large updates; the number of shards of a table depends on it.
    pub cores: usize,
    /// Bytes for tensors, their state and gradients in flight.
    pub memory: u64,
    pub secret: Option<RunSecret>,
    /// How long a trainer waits before the server reports what it waits for.
    pub patience: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            index: 0,
            servers: 1,
            trainers: 1,
            attempt: 1,
            finished: Vec::new(),
            cores: 1,
            memory: u64::MAX,
            secret: None,
            patience: Duration::from_secs(30),
        }
    }
}

impl Config {
    fn steps(&self, mode: Mode, epoch: u64) -> Steps {
        Steps::new(mode, self.trainers, epoch, &self.finished)
    }

    /// The shards of a table: several even on one core, since trainers that look up rows at the same time wait for
    /// each other's shard. But the first slabs of all its shards take at most an eighth of the memory, the less the more
    /// tables there are before it, and a shard of a table with a limit has at least `ROWS_PER_SHARD`: shards do not fill
    /// evenly.
    fn shards(&self, spec: &TableSpec, tables_before: u64) -> usize {
        let by_cores = (2 * self.cores as u64).clamp(8, 128);
        let by_memory = self.memory / 8 / SLAB_BYTES as u64 / (tables_before + 1);
        let by_limit = match spec.limits.rows {
            0 => by_cores,
            rows => rows / u64::from(self.servers) / ROWS_PER_SHARD,
        };
        by_cores.min(by_memory).min(by_limit).max(1) as usize
    }
}

/// A parameter server. Shared by the threads of its connections.
#[derive(Debug)]
pub struct Server {
    config: Config,
    /// Distinguishes this process from one that replaced it.
    incarnation: u64,
    budget: Budget,
    state: Mutex<State>,
    changed: Condvar,
    tensors: RwLock<Tensors>,
    saving: Arc<Saving>,
    checkpoints: CheckpointsLock,
    #[cfg(test)]
    pub(crate) planted: OnceLock<crate::planted::Planted>,
    /// The mode of the session, for tables: known before the first one is created.
    is_synchronous: AtomicBool,
    /// Asynchronous pushes hold the read lock from when they are counted until they have changed the model. A
    /// checkpoint takes the write lock, so it falls between pushes.
    gate: RwLock<()>,
}

#[derive(Debug)]
struct State {
    /// The session of the first trainer that joined; all others must join with the same one.
    session: Option<Session>,
    steps: Steps,
    /// Per trainer: the parts of its step that are not committed yet.
    pending: Vec<Vec<Pushed>>,
    /// Per trainer: the state it sent with the end of its latest step.
    kept: Vec<Option<TrainerState>>,
    /// The servers that took part in the latest rollback.
    formed: Option<(Vec<u64>, Rollback)>,
    /// The tensors are those of a checkpoint, and of the steps since.
    is_loaded: bool,
    /// The step at which this run continues another one, until that step has ended.
    resumed: Option<u64>,
    /// Why the current step cannot be committed, until a trainer joins again or training is rolled back.
    rejected: Option<Refused>,
    /// The epoch in which training last began at step 0 because there was no checkpoint.
    start_epoch: u64,
    /// Pushes that were counted, for `stat`.
    pushes: u64,
    /// Open connections of trainers.
    connected: u32,
}

#[derive(Debug, Default)]
struct Tensors {
    by_id: Vec<Option<Tensor>>,
    by_name: HashMap<String, u32>,
    /// Blocks placed so far; the next tensor begins at the next server.
    blocks: u64,
    /// Loaded from a checkpoint, and not declared by a program since.
    undeclared: BTreeSet<u32>,
}

/// A tensor of either kind. Cheap to clone.
#[derive(Debug, Clone)]
enum Tensor {
    Dense(Arc<Dense>),
    Table(Arc<Table>),
}

impl Tensor {
    fn place(&self) -> TensorId {
        match self {
            Tensor::Dense(dense) => dense.place,
            Tensor::Table(table) => table.place,
        }
    }

    /// Blocks on all servers.
    fn blocks(&self) -> u64 {
        match self {
            Tensor::Dense(dense) => dense.layout.blocks(),
            Tensor::Table(_) => 0,
        }
    }

    fn name(&self) -> &str {
        match self {
            Tensor::Dense(dense) => &dense.name,
            Tensor::Table(table) => &table.spec.name,
        }
    }
}

/// Maximum tensors of a job: ids are positions in a list.
const MAX_TENSORS: usize = 1 << 20;

impl Server {
    pub fn new(config: Config) -> Arc<Server> {
        // Epoch 0 after a restart: the tensors are lost, and no trainer's message is about the current ones.
        let epoch = u64::from(config.attempt <= 1);
        let steps = config.steps(Mode::Sync, epoch);
        let mut incarnation = [0; 8];
        incarnation.copy_from_slice(&random()[..8]);
        Arc::new(Server {
            incarnation: u64::from_le_bytes(incarnation),
            budget: Budget::new(config.memory),
            state: Mutex::new(State {
                session: None,
                steps,
                pending: (0..config.trainers).map(|_| Vec::new()).collect(),
                kept: vec![None; config.trainers as usize],
                formed: None,
                is_loaded: false,
                resumed: None,
                rejected: None,
                start_epoch: 0,
                pushes: 0,
                connected: 0,
            }),
            changed: Condvar::new(),
            tensors: RwLock::default(),
            saving: Arc::default(),
            checkpoints: CheckpointsLock::default(),
            #[cfg(test)]
            planted: OnceLock::new(),
            is_synchronous: AtomicBool::new(true),
            gate: RwLock::default(),
            config,
        })
    }

    /// Serves requests from memory, for fuzzing.
    #[doc(hidden)]
    pub fn serve_bytes(self: &Arc<Server>, identity: crate::hello::Identity, requests: &[u8]) {
        connection::serve_bytes(Arc::clone(self), identity, requests);
    }

    pub fn memory_used(&self) -> u64 {
        self.budget.used()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Waits until every trainer has left and closed its connections: it then neither waits for others nor saves the model.
    pub fn wait_until_all_left(&self) {
        let mut state = self.state();
        while !state.steps.all_left() || state.connected > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until no trainer is connected and no checkpoint is being written: a process that was killed does neither.
    #[cfg(test)]
    pub(crate) fn wait_until_idle(&self) {
        let mut state = self.state();
        while state.connected > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.wait_for_writer();
    }

    #[cfg(test)]
    pub(crate) fn plant(&self, bug: Planted) {
        self.planted.set(bug).expect("one bug at a time");
    }

    /// Counts an opened (+1) or closed (-1) connection of a trainer.
    fn count_connection(&self, change: i32) {
        let mut state = self.state();
        state.connected = state.connected.saturating_add_signed(change);
        drop(state);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tensor(&self, id: u32) -> Result<Tensor, Refused> {
        let tensors = self.tensors.read().unwrap_or_else(PoisonError::into_inner);
        let found = tensors.by_id.get(id as usize).cloned().flatten();
        found.ok_or_else(|| refused(Code::Other, format!("there is no tensor {id}")))
    }

    fn dense(&self, id: u32) -> Result<Arc<Dense>, Refused> {
        match self.tensor(id)? {
            Tensor::Dense(dense) => Ok(dense),
            Tensor::Table(table) => Err(refused(
                Code::Other,
                format!("`{}` is a sparse table, not a dense tensor", table.spec.name),
            )),
        }
    }

    fn table(&self, id: u32) -> Result<Arc<Table>, Refused> {
        match self.tensor(id)? {
            Tensor::Table(table) => Ok(table),
            Tensor::Dense(dense) => Err(refused(
                Code::Other,
                format!("`{}` is a dense tensor, not a sparse table", dense.name),
            )),
        }
    }

    fn all_tensors(&self) -> Vec<Tensor> {
        let tensors = self.tensors.read().unwrap_or_else(PoisonError::into_inner);
        tensors.by_id.iter().flatten().cloned().collect()
    }

    fn tensors(&self) -> RwLockReadGuard<'_, Tensors> {
        self.tensors.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tensors_mut(&self) -> RwLockWriteGuard<'_, Tensors> {
        self.tensors.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a trainer may see the model of its step. Wakes the others if it is further than this server knew.
    fn pull(&self, state: &mut State, sender: Sender, step: u64) -> Result<Verdict, Refusal> {
        let before = state.steps.step();
        let verdict = state.steps.pull(sender, step)?;
        if state.steps.step() != before {
            self.changed.notify_all();
        }
        Ok(verdict)
    }

    /// Commits the current step if all participants are ready. The model changes before any trainer is notified.
    fn commit_if_complete(&self, state: &mut State) {
        let Some(participants) = state.steps.participants() else {
            return;
        };
        // The very first state is saved too, so that there is always one to roll back to: it is on disk before the model
        // changes. Once: while its files are replaced, there would be none.
        if state.steps.step() == 0 && !state.is_loaded {
            self.checkpoint_if_due(state, 0);
            self.wait_for_writer();
        }
        let mean = state.session.as_ref().is_some_and(|session| session.mean);
        let divisor = mean.then_some(participants.len() as f32);
        let gradients = participants
            .iter()
            .flat_map(|trainer| std::mem::take(&mut state.pending[*trainer as usize]))
            .collect();
        Gradients::new(gradients).apply(divisor, self.config.cores);
        state.steps.committed();
        state.resumed = None;
        let step = state.steps.step();
        self.tick(step);
        self.checkpoint_if_due(state, step);
    }

    /// Ends a step of trainer 0 in asynchronous training: its steps are the clock of tables and checkpoints.
    fn end_asynchronous_step(&self, step: u64) {
        // A statement of its own, which releases the state: a push takes the gate first, then the state.
        let is_due = self.checkpoint_is_due(&self.state(), step);
        let gate = is_due.then(|| {
            // Wait for pushes in flight: the checkpoint contains each push with all its rows or not at all.
            self.gate.write().unwrap_or_else(PoisonError::into_inner)
        });
        // Before the checkpoint, so that the next checkpoint includes rows that change after this one.
        self.tick(step);
        if gate.is_some() {
            self.checkpoint_if_due(&self.state(), step);
        }
    }

    /// Advances the clock of all tables and drops idle rows.
    fn tick(&self, step: u64) {
        for tensor in self.all_tensors() {
            if let Tensor::Table(table) = tensor {
                table.set_clock(step);
                table.drop_idle(step);
                table.evict();
            }
        }
    }
}

impl Tensors {
    /// Removes the other tensors, as if they had never been created.
    fn retain(&mut self, is_kept: impl Fn(&Tensor) -> bool) {
        for tensor in &mut self.by_id {
            *tensor = tensor.take().filter(&is_kept);
        }
        let last = self.by_id.iter().rposition(Option::is_some);
        self.by_id.truncate(last.map_or(0, |last| last + 1));
        let tensors = self.by_id.iter().flatten();
        self.by_name = tensors
            .clone()
            .map(|tensor| (tensor.name().to_owned(), tensor.place().id))
            .collect();
        self.blocks = tensors.map(Tensor::blocks).sum();
    }

    fn next_place(&self, servers: u32) -> TensorId {
        TensorId {
            id: self.by_id.len() as u32,
            first: (self.blocks % u64::from(servers)) as u32,
        }
    }
}

fn refused(code: Code, message: String) -> Refused {
    Refused {
        code,
        step: 0,
        message,
    }
}

impl From<OverBudget> for Refused {
    fn from(error: OverBudget) -> Refused {
        refused(Code::Memory, error.to_string())
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        let (code, step) = match refusal {
            Refusal::RolledBack { step } => (Code::RolledBack, step),
            Refusal::Fenced { .. } => (Code::Fenced, 0),
            _ => (Code::Other, 0),
        };
        Refused {
            code,
            step,
            message: refusal.to_string(),
        }
    }
}
