//! The simulated engine: what really happens to every attempt. It survives crashes of the server, keeps the promises of
//! [`crate::ports::Engine`], and reports orders that no correct server gives.

use std::collections::{BTreeMap, BTreeSet};

use crate::exit::Exit;
use crate::job::{Job, News, Role, WorkerKey};
use crate::names::{JobId, NodeName};
use crate::ports::{AttemptKey, EngineCommand, Report};
use crate::scheduler::{Inventory, Seat};
use crate::spec::Resources;
use crate::testing::rng::Rng;

use super::store::SimStore;
use super::{Finding, broken};

/// The real progress of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stage {
    Launched,
    /// It has no seat yet.
    Unseated,
    Up,
    Running,
    Ready,
    /// Contains the report of its end.
    Gone(News),
}

/// What the program of an attempt will do if nothing stops it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Script {
    /// The engine cannot start it.
    CannotStart,
    /// There is no room for it.
    NoRoom,
    /// A worker of a running job whose node is lost: it gets another one when no other job holds room.
    Stranded,
    /// Its node is lost while it runs.
    Disrupted,
    /// Its supervisor never starts.
    NeverUp,
    /// A parameter server that never listens.
    NeverReady,
    /// A correct parameter server: runs until it is stopped.
    Serves,
    /// Exits by itself like this.
    Ends(Exit),
    /// Its supervisor dies.
    Dies,
    /// A trainer that does not exit by itself.
    RunsOn,
}

#[derive(Debug, Clone)]
pub(super) struct SimAttempt {
    pub stage: Stage,
    script: Script,
    seat: Option<Seat>,
    needs: Resources,
    alone: bool,
    let_go: bool,
    stop_requested: bool,
    pub log: u64,
    /// It is no longer listed: it was cleaned, or its record vanished.
    pub unlisted: bool,
}

impl SimAttempt {
    pub(super) fn is_live(&self) -> bool {
        !matches!(self.stage, Stage::Gone(_))
    }

    fn news(&self) -> News {
        match &self.stage {
            Stage::Launched => News::Launched,
            Stage::Unseated => News::Unseated("no node has room".into()),
            Stage::Up => News::Up,
            Stage::Running => News::Started,
            Stage::Ready => News::Ready,
            Stage::Gone(news) => news.clone(),
        }
    }
}

pub(super) struct SimEngine {
    inventory: Inventory,
    /// Whether nodes are lost for so long that running jobs must make room for each other.
    loses_nodes: bool,
    /// Every attempt that ever existed.
    pub attempts: BTreeMap<AttemptKey, SimAttempt>,
    /// Attempts that can still change, so that a step need not visit all of them.
    live: BTreeSet<AttemptKey>,
    /// Workers that were ready at least once: supervisor running (trainers) or listening (parameter servers).
    arrived: BTreeSet<(JobId, WorkerKey)>,
    /// Runs whose folders exist. They outlive the server, as on a disk.
    pub prepared: BTreeSet<JobId>,
    /// Jobs with an attempt that misbehaves.
    pub unlucky: BTreeSet<JobId>,
    /// Jobs whose logs may be deleted while they are still in the history.
    pub discardable: BTreeSet<JobId>,
}

impl SimEngine {
    pub(super) fn new(inventory: Inventory, loses_nodes: bool) -> SimEngine {
        SimEngine {
            inventory,
            loses_nodes,
            attempts: BTreeMap::new(),
            live: BTreeSet::new(),
            arrived: BTreeSet::new(),
            prepared: BTreeSet::new(),
            unlucky: BTreeSet::new(),
            discardable: BTreeSet::new(),
        }
    }

    /// Creates the folders of a run; returns whether they were missing.
    pub(super) fn prepare(&mut self, job: &JobId) -> bool {
        self.prepared.insert(job.clone())
    }

    /// Whether a run is prepared but none of its workers was ever launched.
    pub(super) fn is_only_prepared(&self, job: &JobId) -> bool {
        self.prepared.contains(job) && !self.attempts.keys().any(|attempt| attempt.job == *job)
    }

    pub(super) fn carry_out(&mut self, command: &EngineCommand, store: &SimStore, rng: &mut Rng) -> Finding {
        match command {
            EngineCommand::Launch { job, worker, attempt } => {
                self.launch(job, &key(job, *worker, *attempt), store, rng)
            }
            EngineCommand::Go { attempt } => self.go(attempt, store),
            EngineCommand::Stop { attempt, .. } => {
                if let Some(attempt) = self.attempts.get_mut(attempt) {
                    attempt.stop_requested = true;
                }
                Ok(())
            }
            EngineCommand::Clean { attempt } => self.clean(attempt, store),
            EngineCommand::Discard { job } => self.discard(job, store),
        }
    }

    fn launch(&mut self, job: &Job, key: &AttemptKey, store: &SimStore, rng: &mut Rng) -> Finding {
        match self.attempts.get(key) {
            Some(known) if known.unlisted => return broken(format!("{key:?} is launched a second time")),
            Some(_) => return Ok(()),
            None => {}
        }
        if !self.prepared.contains(&key.job) {
            return broken(format!("{key:?} is launched before its run is prepared"));
        }
        let stored = store.get(&key.job).and_then(|job| job.worker(key.worker));
        if stored.is_none_or(|worker| worker.attempt < key.attempt) {
            return broken(format!("{key:?} is launched before that is stored"));
        }
        let same = |other: &&AttemptKey| other.job == key.job && other.worker == key.worker;
        if let Some(other) = self.live.iter().find(same) {
            return broken(format!("{key:?} is launched while {other:?} still runs"));
        }
        let attempt = self.new_attempt(job, key.worker, rng);
        if !attempt.script.is_fine(key.worker.role) {
            self.unlucky.insert(key.job.clone());
        }
        self.attempts.insert(key.clone(), attempt);
        self.live.insert(key.clone());
        self.check_room()
    }

    fn new_attempt(&self, job: &Job, worker: WorkerKey, rng: &mut Rng) -> SimAttempt {
        let position = job.position(worker).unwrap_or_default();
        let seat = job
            .placement
            .as_ref()
            .and_then(|placement| placement.workers.get(position));
        let needs = match worker.role {
            Role::Pserver => job.spec.pserver,
            Role::Trainer => job.spec.trainer,
        };
        SimAttempt {
            stage: Stage::Launched,
            script: self.script(job, worker.role, rng),
            seat: seat.cloned(),
            needs,
            alone: job.note.is_some(),
            let_go: false,
            stop_requested: false,
            log: 0,
            unlisted: false,
        }
    }

    fn script(&self, job: &Job, role: Role, rng: &mut Rng) -> Script {
        if self.loses_nodes && rng.chance(15) {
            return match job.is_under_way() {
                true => Script::Stranded,
                false => Script::Disrupted,
            };
        }
        Script::write(role, job.spec.max_runtime.is_some(), rng)
    }

    /// Running workers must fit the machines, each card has one user, and an oversubscribed job runs alone.
    fn check_room(&self) -> Finding {
        let live = || self.live.iter().map(|key| (key, &self.attempts[key]));
        if live().any(|(_, attempt)| attempt.alone) {
            let jobs: BTreeSet<&JobId> = live().map(|(key, _)| &key.job).collect();
            if jobs.len() > 1 {
                return broken(format!("an oversubscribed job does not run alone: {jobs:?}"));
            }
            return Ok(());
        }
        let mut cards = BTreeSet::new();
        let mut used: BTreeMap<&NodeName, (u64, u64)> = BTreeMap::new();
        for (key, attempt) in live() {
            let Some(Seat { node, gpus }) = &attempt.seat else {
                return broken(format!("{key:?} has no seat"));
            };
            let sum = used.entry(node).or_default();
            sum.0 += attempt.needs.cpu.as_millis();
            sum.1 += attempt.needs.memory.as_u64();
            if gpus.len() != attempt.needs.gpu as usize || !gpus.iter().all(|gpu| cards.insert((node, *gpu)))
            {
                return broken(format!("{key:?} does not have cards of its own: {gpus:?}"));
            }
        }
        let fits = |(name, (cpu, memory)): (&&NodeName, &(u64, u64))| {
            let node = self.inventory.nodes.iter().find(|node| node.name == **name);
            node.is_some_and(|node| *cpu <= node.cpu.as_millis() && *memory <= node.memory.as_u64())
        };
        match used.iter().all(fits) {
            true => Ok(()),
            false => broken(format!("more runs than fits: {used:?}")),
        }
    }

    fn go(&mut self, key: &AttemptKey, store: &SimStore) -> Finding {
        let Some(job) = store.get(&key.job) else {
            return Ok(());
        };
        let pservers = (0..job.spec.pservers).map(WorkerKey::pserver);
        let mut all = pservers.chain((0..job.spec.parallelism).map(WorkerKey::trainer));
        if let Some(missing) = all.find(|worker| !self.arrived.contains(&(key.job.clone(), *worker))) {
            return broken(format!("{key:?} is let go while {missing} was never there"));
        }
        if let Some(attempt) = self.attempts.get_mut(key) {
            attempt.let_go = true;
        }
        Ok(())
    }

    fn clean(&mut self, key: &AttemptKey, store: &SimStore) -> Finding {
        let Some(attempt) = self.attempts.get_mut(key) else {
            return Ok(());
        };
        if attempt.is_live() {
            return broken(format!("{key:?} is cleaned while it runs"));
        }
        let stored = store.get(&key.job).and_then(|job| job.worker(key.worker));
        if stored.is_some_and(|worker| worker.attempt == key.attempt && worker.status.is_live()) {
            return broken(format!("{key:?} is cleaned before its end is stored"));
        }
        attempt.unlisted = true;
        Ok(())
    }

    fn discard(&mut self, job: &JobId, store: &SimStore) -> Finding {
        if store.get(job).is_some() && !self.discardable.contains(job) {
            return broken(format!(
                "the logs of {job} are dropped while it is in the history"
            ));
        }
        self.prepared.remove(job);
        Ok(())
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &AttemptKey> {
        self.live.iter()
    }

    /// Every listed attempt with its latest report.
    pub(super) fn listed(&self) -> Vec<Report> {
        let listed = self.attempts.iter().filter(|(_, attempt)| !attempt.unlisted);
        listed
            .map(|(key, attempt)| Report {
                attempt: key.clone(),
                news: attempt.news(),
            })
            .collect()
    }

    /// One event happens to a live attempt, if any can.
    pub(super) fn progress(&mut self, key: &AttemptKey, rng: &mut Rng) -> Option<Report> {
        let is_alone = self.live.iter().all(|other| other.job == key.job);
        let attempt = self.attempts.get_mut(key)?;
        attempt.stage = attempt.next_stage(key.worker.role, is_alone, rng)?;
        let report = Report {
            attempt: key.clone(),
            news: attempt.news(),
        };
        match (&attempt.stage, key.worker.role) {
            (Stage::Gone(_), _) => {
                self.live.remove(key);
            }
            (Stage::Ready, _) | (Stage::Up, Role::Trainer) => {
                self.arrived.insert((key.job.clone(), key.worker));
            }
            _ => {}
        }
        Some(report)
    }

    /// The machine restarts: everything that ran is gone, and no exit was observed.
    pub(super) fn reboot(&mut self) {
        for key in std::mem::take(&mut self.live) {
            if let Some(attempt) = self.attempts.get_mut(&key) {
                attempt.stage = Stage::Gone(News::Lost("the machine restarted".into()));
            }
        }
    }

    /// An attempt and every trace of it disappear.
    pub(super) fn vanish(&mut self, key: &AttemptKey) {
        self.live.remove(key);
        self.unlucky.insert(key.job.clone());
        if let Some(attempt) = self.attempts.get_mut(key) {
            attempt.stage = Stage::Gone(News::Lost("vanished".into()));
            attempt.unlisted = true;
        }
    }

    /// Whether a worker of a job still runs.
    pub(super) fn runs(&self, job: &JobId) -> bool {
        self.live.iter().any(|key| key.job == *job)
    }
}

impl SimAttempt {
    fn next_stage(&mut self, role: Role, is_alone: bool, rng: &mut Rng) -> Option<Stage> {
        if !self.is_live() {
            return None;
        }
        if self.stop_requested {
            let signal = if rng.chance(70) { 15 } else { 9 };
            return Some(self.ends(Exit::by_signal(signal)));
        }
        match (&self.stage, role) {
            (Stage::Launched, _) => match self.script {
                Script::NeverUp => None,
                Script::Stranded => Some(Stage::Unseated),
                Script::NoRoom => Some(Stage::Gone(News::NoRoom("others were faster".into()))),
                Script::CannotStart => {
                    let reason = Some("no such folder".into());
                    Some(self.ends(Exit {
                        message: reason,
                        ..Exit::with_code(127)
                    }))
                }
                _ => Some(Stage::Up),
            },
            (Stage::Unseated, _) => is_alone.then_some(Stage::Up),
            (Stage::Up, Role::Trainer) if !self.let_go => None,
            (Stage::Up, _) => Some(Stage::Running),
            (Stage::Running, Role::Pserver) if self.script == Script::NeverReady => None,
            (Stage::Running, Role::Pserver) => Some(Stage::Ready),
            _ => self.end_by_itself(role, rng),
        }
    }

    fn end_by_itself(&mut self, role: Role, rng: &mut Rng) -> Option<Stage> {
        self.log += rng.number() % 1000;
        match self.script.clone() {
            Script::Ends(exit) => Some(self.ends(exit)),
            Script::Stranded if role == Role::Trainer => Some(self.ends(Exit::with_code(0))),
            Script::Disrupted => Some(Stage::Gone(News::Disrupted("its node is lost".into()))),
            Script::Dies => Some(Stage::Gone(News::Lost("its supervisor is gone".into()))),
            _ => None,
        }
    }

    fn ends(&mut self, exit: Exit) -> Stage {
        self.log += 1;
        Stage::Gone(News::Exited(Exit {
            log_end: self.log,
            ..exit
        }))
    }
}

impl Script {
    fn write(role: Role, has_max_runtime: bool, rng: &mut Rng) -> Script {
        match (rng.below(100), role) {
            (0..3, _) => Script::CannotStart,
            (3..5, _) => Script::NeverUp,
            (5..8, _) => Script::Dies,
            (96.., _) => Script::NoRoom,
            (8..10, Role::Pserver) => Script::NeverReady,
            (10..14, Role::Pserver) => Script::Ends(Exit::with_code(0)),
            (14..17, Role::Pserver) => Script::Ends(Exit::by_signal(11)),
            (_, Role::Pserver) => Script::Serves,
            (8..16, Role::Trainer) => Script::Ends(Exit::with_code(1)),
            (16..18, Role::Trainer) => Script::Ends(Exit {
                oom: true,
                ..Exit::by_signal(9)
            }),
            (18..35, Role::Trainer) if has_max_runtime => Script::RunsOn,
            (_, Role::Trainer) => Script::Ends(Exit::with_code(0)),
        }
    }

    fn is_fine(&self, role: Role) -> bool {
        match self {
            Script::Serves | Script::Stranded | Script::Disrupted => true,
            Script::Ends(exit) => role == Role::Trainer && exit.is_success(),
            _ => false,
        }
    }
}

fn key(job: &Job, worker: WorkerKey, attempt: u32) -> AttemptKey {
    AttemptKey {
        job: job.id.clone(),
        worker,
        attempt,
    }
}
