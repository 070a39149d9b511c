//! Estimates when a waiting job starts, by simulating the queue.
//!
//! Jobs ahead start in order, without backfilling. Jobs usually end early, so the real start is mostly earlier. There
//! is no estimate if it depends on a job without a maximum runtime, or if the simulation would take too long.

use std::collections::{BTreeMap, HashMap};
use std::iter::Peekable;
use std::sync::Arc;

use jiff::Timestamp;

use super::Scheduler;
use super::placing::{loads, may_fit, place};
use super::queue::{Fit, JobGroup, Key, Waiting};
use super::quota::RequestSum;
use super::room::{Load, Shape};
use super::running::{Run, after};
use super::tree::RoomTree;
use super::users::{TeamId, UserId};
use crate::names::JobId;

/// How many placed workers and ended jobs are simulated before giving up; a few milliseconds.
const EFFORT: u64 = 10_000;

/// `before` has the jobs ahead, in their order, here and below.
pub(super) fn estimate(
    scheduler: &Scheduler,
    key: Key,
    before: &[(Key, &Waiting)],
    now: Timestamp,
) -> Option<Timestamp> {
    Play::new(scheduler, scheduler.queue.get(key).user, now).turn_of(key, before)
}

/// Whether a job would start immediately if the job that runs alone ended.
pub(super) fn starts_without(
    scheduler: &Scheduler,
    alone: &JobId,
    key: Key,
    before: &[(Key, &Waiting)],
    now: Timestamp,
) -> bool {
    // Jobs ahead may be the first to use the quota that the ended job releases.
    let is_held = |(key, ahead): &(Key, &Waiting)| scheduler.users.get(ahead.user).holds(*key);
    if before.iter().any(is_held) {
        return false;
    }
    let play = Play::without(scheduler, alone, scheduler.queue.get(key).user, now);
    play.turn_of(key, before) == Some(now)
}

/// Whether a job ahead delays others. A job that waits for a quota, or forever, does not.
fn counts(scheduler: &Scheduler, key: Key, ahead: &Waiting) -> bool {
    let group = scheduler.queue.group(ahead.group);
    let state = scheduler.users.get(ahead.user);
    group.fit != Fit::Never && state.could_ever(group.asked) && !state.holds(key)
}

/// The simulated future, one start or end at a time.
struct Play<'a, Ends: Iterator<Item = (Timestamp, &'a Run)>> {
    scheduler: &'a Scheduler,
    user: UserId,
    used: RequestSum,
    /// What the user's groups use.
    teams: Vec<(TeamId, RequestSum)>,
    now: Timestamp,
    tree: RoomTree,
    /// What ended jobs released and what started jobs took, by node.
    gone: HashMap<usize, Load>,
    taken: HashMap<usize, Load>,
    ends: Peekable<Ends>,
    started: BTreeMap<(Timestamp, u64), Started>,
    /// The latest started job has all nodes to itself.
    is_alone: bool,
    /// A running job has no known end.
    has_unknown: bool,
    effort: u64,
}

/// A job that started during the simulation.
struct Started {
    loads: Vec<(usize, Load)>,
    user: UserId,
    asked: RequestSum,
}

impl<'a> Play<'a, Box<dyn Iterator<Item = (Timestamp, &'a Run)> + 'a>> {
    fn new(scheduler: &'a Scheduler, user: UserId, now: Timestamp) -> Self {
        let ends: Box<dyn Iterator<Item = (Timestamp, &'a Run)>> = Box::new(scheduler.running.known());
        let state = scheduler.users.get(user);
        Play {
            scheduler,
            user,
            used: state.used(),
            teams: state.teams().iter().map(|team| (team.id, team.used)).collect(),
            now,
            tree: scheduler.cluster.free().clone(),
            gone: HashMap::new(),
            taken: HashMap::new(),
            ends: ends.peekable(),
            started: BTreeMap::new(),
            is_alone: scheduler.alone.is_some(),
            has_unknown: scheduler.running.has_unknown(),
            effort: 0,
        }
    }

    /// Simulates as if the job that runs alone had ended.
    fn without(scheduler: &'a Scheduler, alone: &'a JobId, user: UserId, now: Timestamp) -> Self {
        let running = &scheduler.running;
        let rest = running.known().filter(move |(_, run)| run.id != *alone);
        let ends: Box<dyn Iterator<Item = (Timestamp, &'a Run)>> = Box::new(rest);
        let mut play = Play {
            ends: ends.peekable(),
            is_alone: false,
            has_unknown: running.unknown().any(|run| run.id != *alone),
            ..Play::new(scheduler, user, now)
        };
        if let Some(run) = running.find(alone) {
            play.give_back(run.user, run.asked);
            play.release(&run.holding.loads);
        }
        play
    }
}

impl<'a, Ends: Iterator<Item = (Timestamp, &'a Run)>> Play<'a, Ends> {
    /// Simulates until the job starts, after those ahead of it.
    fn turn_of(mut self, key: Key, before: &[(Key, &Waiting)]) -> Option<Timestamp> {
        let scheduler = self.scheduler;
        for (key, ahead) in before {
            self.spend(1)?;
            if counts(scheduler, *key, ahead) {
                self.start(ahead)?;
            }
        }
        self.start(scheduler.queue.get(key))
    }

    /// Waits until the job fits, starts it, and returns the time.
    fn start(&mut self, waiting: &Waiting) -> Option<Timestamp> {
        let group = self.scheduler.queue.group(waiting.group);
        let runs_alone = group.fit != Fit::WithOthers;
        if self.is_alone || runs_alone {
            self.end_all()?;
        }
        self.is_alone = runs_alone;
        if runs_alone {
            self.remember(waiting, group, Vec::new());
            return Some(self.now);
        }
        let shape = Arc::clone(&group.shape);
        loop {
            if let Some(loads) = self.find_place(waiting.user, group, &shape)? {
                self.change(&loads, Load::add);
                self.remember(waiting, group, loads);
                return Some(self.now);
            }
            self.end_next()?;
        }
    }

    fn find_place(
        &mut self,
        user: UserId,
        group: &JobGroup,
        shape: &Shape,
    ) -> Option<Option<Vec<(usize, Load)>>> {
        self.spend(1)?;
        if !self.quotas_allow(user, group.asked) || !may_fit(&self.tree, shape) {
            return Some(None);
        }
        self.spend(shape.workers())?;
        Some(place(&self.tree, shape).map(|shares| loads(&shape.parts, &shares)))
    }

    fn remember(&mut self, waiting: &Waiting, group: &JobGroup, loads: Vec<(usize, Load)>) {
        let user = waiting.user;
        let asked = group.asked;
        self.use_quotas(user, |used| used.plus(asked));
        let end = group
            .max_runtime
            .map_or(Timestamp::MAX, |limit| after(self.now, limit));
        let key = (end, self.effort);
        self.started.insert(key, Started { loads, user, asked });
    }

    /// Ends the next job; `None` if its end is unknown.
    fn end_next(&mut self) -> Option<()> {
        let running = self.ends.peek().map(|(end, _)| *end);
        let started = self.started.first_key_value().map(|((end, _), _)| *end);
        let started = started.filter(|end| *end < Timestamp::MAX);
        let next = [running, started].into_iter().flatten().min()?;
        self.now = self.now.max(next);
        if running == Some(next) {
            let (_, run) = self.ends.next()?;
            self.give_back(run.user, run.asked);
            self.release(&run.holding.loads);
        } else {
            let (_, job) = self.started.pop_first()?;
            self.give_back(job.user, job.asked);
            self.change(&job.loads, Load::remove);
        }
        Some(())
    }

    fn end_all(&mut self) -> Option<()> {
        if self.has_unknown {
            return None;
        }
        while self.ends.peek().is_some() || !self.started.is_empty() {
            self.spend(1)?;
            self.end_next()?;
        }
        Some(())
    }

    fn give_back(&mut self, user: UserId, asked: RequestSum) {
        self.use_quotas(user, |used| used.minus(asked));
    }

    /// Checks the quotas that concern the job to be estimated: those of its user and their groups.
    fn quotas_allow(&self, user: UserId, asked: RequestSum) -> bool {
        let state = self.scheduler.users.get(user);
        let allows = |(id, used): &(TeamId, RequestSum)| {
            let team = state.team(*id);
            team.is_none_or(|team| team.allows(*used, asked))
        };
        (user != self.user || state.quota().allows(self.used, asked)) && self.teams.iter().all(allows)
    }

    fn use_quotas(&mut self, user: UserId, change: impl Fn(RequestSum) -> RequestSum) {
        if user == self.user {
            self.used = change(self.used);
        }
        let state = self.scheduler.users.get(user);
        for (_, used) in self.teams.iter_mut().filter(|(id, _)| state.team(*id).is_some()) {
            *used = change(*used);
        }
    }

    fn release(&mut self, loads: &[(usize, Load)]) {
        for (node, load) in loads {
            self.gone.entry(*node).or_default().add(load);
            self.refresh(*node);
        }
    }

    fn change(&mut self, loads: &[(usize, Load)], how: fn(&mut Load, &Load)) {
        for (node, load) in loads {
            how(self.taken.entry(*node).or_default(), load);
            self.refresh(*node);
        }
    }

    fn refresh(&mut self, node: usize) {
        let nothing = Load::default();
        let gone = self.gone.get(&node).unwrap_or(&nothing);
        let taken = self.taken.get(&node).unwrap_or(&nothing);
        let room = self.scheduler.cluster.room_without(node, gone).minus(taken);
        self.tree.set(node, room);
    }

    fn spend(&mut self, effort: u64) -> Option<()> {
        self.effort += effort;
        (self.effort <= EFFORT).then_some(())
    }
}
