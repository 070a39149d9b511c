//! The seeded simulator: drives the conductor and the scheduler with a simulated store and engine through crashes,
//! refused writes, late, duplicated, reordered and lost reports, restarts of the machine, kills, reused names, retries
//! and clock jumps. At every step it checks that
//!
//! - an acknowledged submit is stored and never lost; one key creates one job; one name has one holder; a job without a
//!   name gets a free one;
//! - a final job never changes, and is written after its last worker and the last byte of its log;
//! - an old attempt changes nothing; a stored exit is what really happened;
//! - only a job whose owner uses more than the guarantee is stopped for another;
//! - a running job that lacks a worker is withdrawn only if others need its room, and then uses no retry;
//! - a job starts as a whole, on free resources, with its own GPU cards;
//! - a run is prepared before any of its workers is launched, even if the server dies in between, and is removed with
//!   its job;
//! - nothing is launched before it is stored, launched twice, or launched while an earlier attempt runs; nothing is left behind;
//! - a kill that was carried out while the store refused writes is stored later, unless the server dies in between;
//! - a job fails only for a reason, succeeds only if its trainers did, and everything ends once faults stop.
//!
//! Time is virtual and everything follows from the seed, so a failing seed fails again.

mod clients;
mod engine;
mod faults;
mod server;
mod store;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::thread;

use jiff::{SignedDuration, Timestamp};

use crate::conductor::{Conductor, Input, Unrecorded};
use crate::names::{JobId, UserName};
use crate::ports::{EngineCommand, Report};
use crate::quantity::{Bytes, Cpu};
use crate::scheduler::{GroupQuota, Inventory, Node, Policy, Quota};
use crate::testing::rng::Rng;

use clients::Clients;
use engine::SimEngine;
use faults::Faults;
use server::Asked;
use store::SimStore;

/// Nothing, or the invariant that was violated.
type Finding = Result<(), String>;

fn broken(what: String) -> Finding {
    Err(what)
}

/// Steps of a run before faults stop.
const STEPS: usize = 160;
/// Rounds within which everything must have ended once faults stopped.
const ROUNDS: usize = 3000;

/// A violated invariant.
#[derive(Debug, Clone)]
pub struct Violation {
    pub seed: u64,
    pub step: usize,
    pub what: String,
    /// What happened before, the latest last.
    pub trace: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, step {}: {}", self.seed, self.step, self.what)?;
        self.trace.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// What one run went through, to check that the simulator covers what it should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    pub steps: usize,
    pub accepted: usize,
    pub accepted_again: usize,
    pub name_refused: usize,
    pub other_name: usize,
    pub succeeded: usize,
    pub failed: usize,
    pub killed: usize,
    pub lost: usize,
    pub removed: usize,
    pub restarts: usize,
    pub withdrawn: usize,
    pub reclaimed: usize,
    pub unrecovered: usize,
    pub prepared: usize,
    pub crashes: usize,
    pub reboots: usize,
    pub clock_jumps: usize,
    pub dropped: usize,
    pub repeated: usize,
    pub vanished: usize,
    pub refused_writes: usize,
    pub unrecorded_kills: usize,
    pub forgotten_kills: usize,
}

impl std::ops::AddAssign for Coverage {
    fn add_assign(&mut self, other: Coverage) {
        self.steps += other.steps;
        self.accepted += other.accepted;
        self.accepted_again += other.accepted_again;
        self.name_refused += other.name_refused;
        self.other_name += other.other_name;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.killed += other.killed;
        self.lost += other.lost;
        self.removed += other.removed;
        self.restarts += other.restarts;
        self.withdrawn += other.withdrawn;
        self.reclaimed += other.reclaimed;
        self.unrecovered += other.unrecovered;
        self.prepared += other.prepared;
        self.crashes += other.crashes;
        self.reboots += other.reboots;
        self.clock_jumps += other.clock_jumps;
        self.dropped += other.dropped;
        self.repeated += other.repeated;
        self.vanished += other.vanished;
        self.refused_writes += other.refused_writes;
        self.unrecorded_kills += other.unrecorded_kills;
        self.forgotten_kills += other.forgotten_kills;
    }
}

/// Runs one world from beginning to end. A violation is reproduced with its trace.
pub fn run(seed: u64) -> Result<Coverage, Box<Violation>> {
    World::new(seed, Trace::Off)
        .run()
        .or_else(|_| World::new(seed, Trace::On(Vec::new())).run())
}

/// Runs many worlds on all cores. If there are several violations, returns the one with the smallest seed.
pub fn sweep(seeds: Range<u64>) -> Result<Coverage, Box<Violation>> {
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    let part = &|first: usize| {
        let mut total = Coverage::default();
        for seed in seeds.clone().skip(first).step_by(threads) {
            total += run(seed)?;
        }
        Ok(total)
    };
    let mut total = Coverage::default();
    let mut violations: Vec<Box<Violation>> = Vec::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || part(first)))
            .collect();
        for worker in workers {
            match worker.join().expect("a world does not panic") {
                Ok(coverage) => total += coverage,
                Err(violation) => violations.push(violation),
            }
        }
    });
    let first = violations.into_iter().min_by_key(|violation| violation.seed);
    first.map_or(Ok(total), Err)
}

enum Trace {
    Off,
    On(Vec<String>),
}

struct World {
    seed: u64,
    users: [UserName; 2],
    rng: Rng,
    faults: Faults,
    /// Elapsed time in milliseconds.
    steady: i64,
    /// The error of the clock in milliseconds.
    clock_error: i64,
    inventory: Inventory,
    policy: Policy,
    quotas: Vec<(UserName, Quota)>,
    group_quotas: Vec<GroupQuota>,
    store: SimStore,
    engine: SimEngine,
    server: Option<Conductor>,
    /// The machine restarted and no server has noticed it yet.
    boot_changed: bool,
    /// Orders the server has not carried out; a crash loses them.
    commands: VecDeque<EngineCommand>,
    /// Kills and removals that the server carried out but could not store; a crash loses them.
    unrecorded: Unrecorded,
    /// Reports in flight to the server.
    reports: Vec<Report>,
    wake_at: Option<Timestamp>,
    clients: Clients,
    /// Jobs that have a reason to fail.
    unlucky: BTreeSet<JobId>,
    rebooted: BTreeSet<JobId>,
    coverage: Coverage,
    trace: Trace,
}

impl World {
    fn new(seed: u64, trace: Trace) -> World {
        let mut rng = Rng::new(seed);
        let nodes = 1 + rng.below(2);
        let node = |number: usize| Node {
            name: format!("node-{number}").as_str().into(),
            cpu: Cpu::cores(4),
            memory: Bytes::mib(4096),
            gpus: 2,
            taken: Default::default(),
            traits: Default::default(),
        };
        let inventory = Inventory {
            nodes: (0..nodes).map(node).collect(),
        };
        let recovery = rng
            .chance(50)
            .then(|| SignedDuration::from_secs(1 + rng.below(5) as i64));
        World {
            seed,
            users: clients::users(),
            faults: Faults::choose(&mut rng),
            steady: 0,
            clock_error: 0,
            policy: Policy {
                oversubscribe_alone: rng.chance(50),
                fair_share: rng.chance(50),
                reclaim: rng
                    .chance(50)
                    .then(|| SignedDuration::from_secs(rng.below(2) as i64)),
                recovery,
            },
            quotas: clients::guarantees(&mut rng),
            group_quotas: Vec::new(),
            store: SimStore::default(),
            engine: SimEngine::new(inventory.clone(), recovery.is_some()),
            inventory,
            server: None,
            boot_changed: false,
            commands: VecDeque::new(),
            unrecorded: Unrecorded::default(),
            reports: Vec::new(),
            wake_at: None,
            clients: Clients::default(),
            unlucky: BTreeSet::new(),
            rebooted: BTreeSet::new(),
            coverage: Coverage::default(),
            trace,
            rng,
        }
    }

    fn run(mut self) -> Result<Coverage, Box<Violation>> {
        let finding = self
            .live()
            .and_then(|()| self.drain())
            .and_then(|()| self.check_rest());
        match finding {
            Ok(()) => Ok(self.coverage),
            Err(what) => Err(Box::new(Violation {
                seed: self.seed,
                step: self.coverage.steps,
                what,
                trace: match self.trace {
                    Trace::On(lines) => lines,
                    Trace::Off => Vec::new(),
                },
            })),
        }
    }

    fn live(&mut self) -> Finding {
        for _ in 0..STEPS {
            self.coverage.steps += 1;
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Finding {
        if self.server.is_none() && self.rng.chance(40) {
            return self.start_server();
        }
        if self.rng.chance(12) {
            return self.misfortune();
        }
        match self.rng.below(100) {
            0..14 => self.submit(),
            14..18 => self.submit_again(),
            18..22 => self.kill(),
            22..24 => self.remove(),
            24 => self.change_quota(),
            25 => self.change_group_quota(),
            26..50 => self.carry_out_one(),
            50..74 => self.progress_one(),
            74..94 => self.deliver_some(),
            _ => self.let_time_pass(),
        }
    }

    /// The wall clock as the server sees it.
    fn clock(&self) -> Timestamp {
        let start = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50);
        start + SignedDuration::from_millis(self.steady + self.clock_error)
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Trace::On(lines) = &mut self.trace {
            lines.push(line());
        }
    }

    fn let_time_pass(&mut self) -> Finding {
        self.steady += self.rng.below(4000) as i64;
        self.tick_when_due()
    }

    fn tick_when_due(&mut self) -> Finding {
        if self.wake_at.is_some_and(|at| at <= self.clock()) {
            return self.serve(vec![Asked::without_client(Input::Tick)]);
        }
        Ok(())
    }

    fn progress_one(&mut self) -> Finding {
        let live: Vec<_> = self.engine.live().cloned().collect();
        if let Some(key) = self.rng.pick(&live).cloned()
            && let Some(report) = self.engine.progress(&key, &mut self.rng)
        {
            self.note(|| format!("engine: {report:?}"));
            self.send(report);
        }
        Ok(())
    }

    /// Delivers a few reports to the server in any order.
    fn deliver_some(&mut self) -> Finding {
        if self.server.is_none() {
            return Ok(());
        }
        let mut asked = Vec::new();
        for _ in 0..=self.rng.below(3) {
            if self.reports.is_empty() {
                break;
            }
            let at = self.rng.below(self.reports.len());
            let report = match self.faults.repeats(&mut self.rng) {
                true => {
                    self.coverage.repeated += 1;
                    self.reports[at].clone()
                }
                false => self.reports.swap_remove(at),
            };
            asked.push(Asked::without_client(Input::Report(report)));
        }
        self.serve(asked)
    }

    fn carry_out_one(&mut self) -> Finding {
        if self.commands.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.commands.len());
        // Orders for one worker keep their order, and a job's folders are removed last.
        let chosen = self.commands[at].clone();
        let first = self
            .commands
            .iter()
            .position(|other| must_precede(other, &chosen))
            .unwrap_or(at);
        let command = self.commands.remove(first).expect("the position is in the queue");
        if let EngineCommand::Launch { job, .. } = &command
            && self.engine.prepare(&job.id)
        {
            // The launch itself is a separate step: the server may crash before it.
            self.note(|| format!("prepared: {}", worker_of(&command).0));
            self.commands.insert(first, command);
            return Ok(());
        }
        self.note(|| format!("order: {}", brief(&command)));
        self.engine.carry_out(&command, &self.store, &mut self.rng)
    }

    /// Stops all faults; from then on everything must end.
    fn drain(&mut self) -> Finding {
        self.faults = Faults::none();
        self.clock_error = self.clock_error.min(0);
        self.quotas.clear();
        self.group_quotas.clear();
        self.note(|| "faults stop".into());
        self.crash();
        self.start_server()?;
        for _ in 0..ROUNDS {
            if !self.settle_everything()? && !self.wait_for_deadline()? {
                return Ok(());
            }
        }
        broken("not everything ends although faults stopped".into())
    }

    /// Whether anything happened.
    fn settle_everything(&mut self) -> Result<bool, String> {
        let mut happened = false;
        while !self.commands.is_empty() {
            self.carry_out_one()?;
            happened = true;
        }
        let live: Vec<_> = self.engine.live().cloned().collect();
        for key in live {
            if let Some(report) = self.engine.progress(&key, &mut self.rng) {
                self.note(|| format!("engine: {report:?}"));
                self.reports.push(report);
                happened = true;
            }
        }
        while !self.reports.is_empty() {
            self.deliver_some()?;
            happened = true;
        }
        Ok(happened)
    }

    /// Whether anything is left to wait for.
    fn wait_for_deadline(&mut self) -> Result<bool, String> {
        let Some(at) = self.wake_at else {
            return Ok(false);
        };
        let wait = at.duration_since(self.clock()).as_millis().max(0);
        self.steady += i64::try_from(wait).unwrap_or(i64::MAX) + 1;
        self.tick_when_due()?;
        Ok(true)
    }

    fn check_rest(&mut self) -> Finding {
        if let Some(job) = self.store.active().next() {
            return broken(format!("{} never ends: {:?}, {}", job.id, job.phase, job.message));
        }
        if let Some(left) = self.engine.live().next() {
            return broken(format!("{left:?} is left behind"));
        }
        if let Some(left) = self.engine.listed().first() {
            return broken(format!("{:?} is never cleaned", left.attempt));
        }
        if let Some(left) = self
            .engine
            .prepared
            .iter()
            .find(|run| self.store.get(run).is_none())
        {
            return broken(format!("the folders of {left} are left behind"));
        }
        self.check_acknowledged()?;
        let server = self.server.as_ref().expect("it was started for the drain");
        if let Some(job) = server.jobs().next() {
            return broken(format!("the conductor still has {}", job.id));
        }
        for user in &self.users {
            if server.usage(user) != Default::default() {
                return broken(format!("{user} still uses {:?}", server.usage(user)));
            }
        }
        Ok(())
    }
}

fn worker_of(command: &EngineCommand) -> (&JobId, Option<crate::job::WorkerKey>) {
    match command {
        EngineCommand::Launch { job, worker, .. } => (&job.id, Some(*worker)),
        EngineCommand::Go { attempt }
        | EngineCommand::Stop { attempt, .. }
        | EngineCommand::Clean { attempt } => (&attempt.job, Some(attempt.worker)),
        EngineCommand::Discard { job } => (job, None),
    }
}

/// Whether the first order must precede the second.
fn must_precede(first: &EngineCommand, second: &EngineCommand) -> bool {
    let (job, worker) = worker_of(first);
    let (other_job, other_worker) = worker_of(second);
    job == other_job && (worker == other_worker || other_worker.is_none())
}

fn brief(command: &EngineCommand) -> String {
    match command {
        EngineCommand::Launch { job, worker, attempt } => format!("launch {} {worker} #{attempt}", job.id),
        other => format!("{other:?}"),
    }
}
