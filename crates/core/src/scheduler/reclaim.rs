//! Guarantees: a job within its owner's guarantee that has waited long enough is a claim.
//!
//! Claims start before all other jobs. For a claim that does not fit, this module chooses the jobs to stop: the newest
//! of those whose owners exceed their guarantee, as few as suffice, and none if all of them would not suffice. The
//! caller stops them and queues them again.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::Scheduler;
use super::placing::place;
use super::queue::{Fit, JobGroupId, Key};
use super::quota::RequestSum;
use super::request::Admission;
use super::room::{Load, Shape};
use super::running::{End, Run, after};
use super::tree::RoomTree;
use super::users::UserId;
use crate::names::JobId;
use crate::planted::{Planted, bug};

/// The search for jobs to stop walks over all running jobs, so it is not repeated at every event.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// A waiting job within its owner's guarantee.
#[derive(Clone, Copy)]
struct Claim {
    due: Timestamp,
    key: Key,
    group: JobGroupId,
}

impl Scheduler {
    /// Starts claims that are due, and returns the first that does not fit.
    pub(super) fn start_claims(&mut self, now: Timestamp, admitted: &mut Vec<Admission>) -> Option<Key> {
        while self.alone.is_none() {
            let Claim { key, group, .. } = self.first_claim().filter(|claim| claim.due <= now)?;
            let Some(shares) = self.place_first(key, group) else {
                return Some(key);
            };
            admitted.push(self.start(key, &shares, now));
        }
        None
    }

    /// Returns the running jobs to stop for the first due claim. They count as about to end from then on. Call after
    /// [`Scheduler::decide`].
    pub fn reclaim(&mut self, now: Timestamp) -> Vec<JobId> {
        let claim = self.first_claim().filter(|claim| claim.due <= now);
        let paused = self
            .reclaimed_at
            .is_some_and(|at| at <= now && now < after(at, PAUSE));
        let Some(claim) = claim.filter(|_| !paused && self.alone.is_none()) else {
            return Vec::new();
        };
        self.reclaimed_at = Some(now);
        let chosen = self.choose_for(&self.queue.group(claim.group).shape);
        for id in &chosen {
            self.leave(id, now);
        }
        chosen
    }

    /// When to call [`Scheduler::reclaim`] again, if nothing happens before.
    pub fn reclaim_at(&self) -> Option<Timestamp> {
        let due = self.first_claim()?.due;
        let pause = self.reclaimed_at.map(|at| after(at, PAUSE));
        Some(pause.map_or(due, |pause| due.max(pause)))
    }

    /// Marks a running job as being stopped to make room: it ends soon, whatever its runtime.
    pub fn leave(&mut self, id: &JobId, now: Timestamp) {
        let Some((turn, mut run)) = self.running.remove(id) else {
            return;
        };
        self.cluster.give(&run.holding);
        self.spare.ended(&self.cluster, turn, &run.holding.loads);
        run.leaving = true;
        self.cluster.take_for_now(&mut run.holding);
        let loads = run.holding.loads.clone();
        let turn = self.running.insert(run, End::By(now));
        self.spare.started(&self.cluster, turn, &loads);
    }

    /// The claim that is due first. Checks the first job of each line of the users with a guarantee.
    fn first_claim(&self) -> Option<Claim> {
        let wait = self.policy.reclaim?;
        let claims = self
            .users
            .guaranteed()
            .flat_map(|user| self.claims_of(user, wait));
        claims.min_by_key(|claim| (claim.due, claim.key))
    }

    fn claims_of(&self, user: UserId, wait: SignedDuration) -> impl Iterator<Item = Claim> {
        let state = self.users.get(user);
        let claims = state.heads().map(move |(key, group)| Claim {
            due: after(self.queue.get(key).since, wait),
            key,
            group,
        });
        claims.filter(move |claim| {
            let group = self.queue.group(claim.group);
            let with_it = state.used().plus(group.asked);
            group.fit == Fit::WithOthers && state.lets(claim.key) && state.quota().guarantee.covers(with_it)
        })
    }

    fn choose_for(&self, shape: &Shape) -> Vec<JobId> {
        let mut room = RoomWithout::of(self);
        let runs = self.running.newest_first();
        let mut left: HashMap<UserId, RequestSum> = HashMap::new();
        for run in runs.iter().filter(|run| run.leaving) {
            room.without(run);
            self.take_from(&mut left, run);
        }
        let mut chosen: Vec<&Run> = Vec::new();
        for run in runs.iter().filter(|run| !run.leaving) {
            if room.fits(shape) {
                break;
            }
            let used = left.get(&run.user).copied();
            let used = used.unwrap_or_else(|| self.users.get(run.user).used());
            let covered = self.users.get(run.user).quota().guarantee.covers(used);
            if !covered || bug(Planted::ReclaimFromTheGuaranteed) {
                room.without(run);
                self.take_from(&mut left, run);
                chosen.push(run);
            }
        }
        if !room.fits(shape) {
            return Vec::new();
        }
        // Jobs whose room is not needed after all keep running.
        let mut needed: Vec<JobId> = Vec::new();
        for run in chosen {
            room.with(run);
            if !room.fits(shape) {
                room.without(run);
                needed.push(run.id.clone());
            }
        }
        needed
    }

    fn take_from(&self, left: &mut HashMap<UserId, RequestSum>, run: &Run) {
        let used = left
            .entry(run.user)
            .or_insert_with(|| self.users.get(run.user).used());
        *used = used.minus(run.asked);
    }
}

/// What would be free without some of the running jobs.
struct RoomWithout<'a> {
    scheduler: &'a Scheduler,
    tree: RoomTree,
    gone: HashMap<usize, Load>,
}

impl<'a> RoomWithout<'a> {
    fn of(scheduler: &'a Scheduler) -> RoomWithout<'a> {
        RoomWithout {
            scheduler,
            tree: scheduler.cluster.free().clone(),
            gone: HashMap::new(),
        }
    }

    fn fits(&self, shape: &Shape) -> bool {
        place(&self.tree, shape).is_some()
    }

    fn without(&mut self, run: &Run) {
        self.change(run, Load::add);
    }

    fn with(&mut self, run: &Run) {
        self.change(run, Load::remove);
    }

    fn change(&mut self, run: &Run, change: impl Fn(&mut Load, &Load)) {
        for (node, load) in &run.holding.loads {
            let gone = self.gone.entry(*node).or_default();
            change(gone, load);
            self.tree
                .set(*node, self.scheduler.cluster.room_without(*node, gone));
        }
    }
}
