//! Decides which queued job starts, when and where.
//!
//! Jobs start as a whole (all workers or none), each worker on one node, within the user's quota, by priority. Within
//! one priority the user with the smallest weighted dominant share is next, and within a user it is first in, first
//! out. The first job that does not fit gets a reservation; a later job overtakes it only if it does not use the reserved
//! room or ends before the reservation begins. A job that waits for the quota of its user, or of a group of users,
//! reserves nothing, and no later job of that user overtakes it. A user whose files exceed their quota starts nothing. A job within its owner's guarantee that has waited long
//! enough goes before all others, and borrowing jobs are stopped for it (`reclaim`).
//!
//! Values in, values out: it starts nothing and reads no clock.

mod change;
mod cluster;
mod decide;
mod demand;
mod eligible;
mod estimate;
mod excess;
mod explain;
mod future;
mod placing;
mod queue;
mod quota;
mod reclaim;
mod request;
mod reservation;
mod reserved_nodes;
mod room;
mod running;
mod search;
mod summary_tree;
#[cfg(test)]
mod tests;
mod too_big;
mod tree;
mod unmatched;
mod users;
mod why;

use jiff::{SignedDuration, Timestamp};

pub use eligible::{Admits, NodeTraits, Requirement};
pub use excess::{Excess, ResourceKind, Shortage};
pub use quota::{
    ExceededLimit, GroupQuota, GroupUsage, Guarantee, LimitKind, Quota, StorageExcess, StorageHold, Usage,
};
pub use request::{Admission, Inventory, Node, NodeChange, Placement, Policy, Request, Seat, Taken};
pub use too_big::{Largest, TooBig, TooMuch};
pub use unmatched::{Matching, Unmatched};
pub use why::{Change, Holders, Outside, Reason, Reasons, Why};

use crate::names::{JobId, UserName};
use crate::quantity::{Bytes, Cpu};
use cluster::{Cluster, Difference};
use queue::{Fit, JobGroupId, Key, Queue};
use quota::RequestSum;
use reservation::Spare;
use room::Shape;
use running::{End, Run, Running, Turn};
use users::{UserId, UserStates};

/// The queue, the nodes and the running jobs.
///
/// The cost of every call except [`Scheduler::explain`], [`Scheduler::reasons`], [`Scheduler::change_node`] and those that set
/// quotas grows at most logarithmically with the queue: see `docs/design/0009-scheduler.md`.
#[derive(Debug, Clone)]
pub struct Scheduler {
    policy: Policy,
    cluster: Cluster,
    queue: Queue,
    running: Running,
    users: UserStates,
    /// The running job that has all nodes to itself.
    alone: Option<Alone>,
    /// The first job that did not fit in the last round: room is reserved for it.
    stuck: Option<Key>,
    spare: Spare,
    /// When jobs to stop were last searched for.
    reclaimed_at: Option<Timestamp>,
    /// How many nodes are closed for now, for example cordoned. They are not in the cluster.
    closed_nodes: usize,
}

/// A running job that is larger than all nodes together.
#[derive(Debug, Clone)]
struct Alone {
    id: JobId,
    excess: Excess,
}

impl Scheduler {
    pub fn new(inventory: Inventory, policy: Policy) -> Self {
        let cluster = Cluster::new(inventory);
        Scheduler {
            policy,
            spare: Spare::new(&cluster),
            cluster,
            queue: Queue::default(),
            running: Running::default(),
            users: UserStates::default(),
            alone: None,
            stuck: None,
            reclaimed_at: None,
            closed_nodes: 0,
        }
    }

    /// How many nodes may not be used for now. While there are some, no job is refused because of its size.
    pub fn set_closed_nodes(&mut self, count: usize) {
        self.closed_nodes = count;
    }

    /// How long a running job may lack a worker while other jobs need its room; `None`: for ever.
    pub fn recovery_limit(&self) -> Option<SignedDuration> {
        self.policy.recovery
    }

    /// Whether a job that its owner's quota permits waits for room. Call after [`Scheduler::decide`].
    pub fn has_job_without_room(&self) -> bool {
        self.stuck().is_some()
    }

    /// Refuses a job that could not start even if nothing else ran.
    ///
    /// If the policy lets large jobs run alone, too much cpu or memory is not a reason; missing GPUs and the user's
    /// quota always are.
    pub fn check_fits_ever(&self, request: &Request) -> Result<(), TooBig> {
        too_big::check(self, request)
    }

    /// By how much a job exceeds the machines, if it would run alone because of that.
    pub fn would_run_alone(&self, request: &Request) -> Option<Excess> {
        let shape = self.cluster.shape(request);
        (self.fit(&shape) == Fit::Alone).then(|| self.excess(&shape))
    }

    /// Queues a job that has waited since then. Replaces a queued job with the same id; a running job is not queued.
    pub fn enqueue(&mut self, request: Request, since: Timestamp) {
        if self.running.contains(&request.id) {
            return;
        }
        self.withdraw(&request.id);
        let user = self.users.id(&request.user);
        let shape = self.cluster.shape(&request);
        self.cluster.remember(&shape);
        let (cluster, policy) = (&self.cluster, self.policy);
        self.queue
            .insert((request, shape), (user, since), &mut self.users, |shape| {
                fit(cluster, policy, shape)
            });
    }

    /// Removes a queued job. Ignores unknown and running jobs.
    pub fn withdraw(&mut self, id: &JobId) {
        if let Some(key) = self.queue.key(id) {
            self.queue.remove(key, &mut self.users);
        }
    }

    /// Adopts a job that already runs, whether or not there is room for it.
    pub fn occupy(&mut self, request: Request, placement: Placement, started: Timestamp) {
        self.withdraw(&request.id);
        self.end(&request.id);
        let shape = self.cluster.shape(&request);
        if self.fit(&shape) == Fit::Alone {
            self.alone = Some(Alone {
                id: request.id.clone(),
                excess: self.excess(&shape),
            });
        }
        let holding = self.cluster.adopt(&request, &placement);
        let loads = holding.loads.clone();
        let run = Run {
            user: self.users.id(&request.user),
            id: request.id,
            asked: RequestSum::of(&shape),
            holding,
            started,
            leaving: false,
        };
        let turn = self.count(run, End::of(started, request.max_runtime));
        self.spare.started(&self.cluster, turn, &loads);
    }

    /// Releases what a job held, once its last process is gone. Ignores jobs that do not run.
    pub fn release(&mut self, id: &JobId, _now: Timestamp) {
        self.end(id);
    }

    /// Returns the jobs that start now, in the order of the decisions. They count as running from then on.
    pub fn decide(&mut self, now: Timestamp) -> Vec<Admission> {
        self.decide_round(now)
    }

    /// Why a queued job does not run; `None` for a job that is not queued. Call after [`Scheduler::decide`].
    pub fn explain(&self, id: &JobId, now: Timestamp) -> Option<Why> {
        explain::explain(self, id, now)
    }

    /// The reasons of [`Scheduler::explain`] for several jobs, at little more than the cost of one.
    pub fn reasons(&self, ids: &[JobId]) -> Reasons {
        explain::reasons(self, ids)
    }

    pub fn set_quota(&mut self, user: UserName, quota: Quota) {
        let user = self.users.id(&user);
        self.users.get_mut(user).set_quota(quota);
        self.queue.quotas_changed(user, &mut self.users);
        self.users.list_guarantee(user);
        self.reshare(user);
    }

    /// Starts none of the user's jobs while there is a hold.
    pub fn hold_for_storage(&mut self, user: &UserName, hold: Option<StorageHold>) {
        let user = self.users.id(user);
        if self.users.get(user).storage() == hold.as_ref() {
            return;
        }
        self.users.get_mut(user).set_storage(hold);
        self.queue.quotas_changed(user, &mut self.users);
    }

    /// Replaces the quotas of all user groups.
    pub fn set_group_quotas(&mut self, quotas: Vec<GroupQuota>) {
        for user in self.users.set_group_quotas(quotas) {
            self.queue.quotas_changed(user, &mut self.users);
        }
    }

    /// How many jobs of the user are queued.
    pub fn queued(&self, user: &UserName) -> u64 {
        self.users.find(user).map_or(0, |state| state.waiting)
    }

    pub fn quota(&self, user: &UserName) -> Quota {
        self.users
            .find(user)
            .map(|state| *state.quota())
            .unwrap_or_default()
    }

    /// What the user's running jobs use.
    pub fn usage(&self, user: &UserName) -> Usage {
        let used = self.users.find(user).map(|state| state.used());
        used.unwrap_or_default().usage()
    }

    /// The quotas of the user's groups, and what all their members use together.
    pub fn group_usage(&self, user: &UserName) -> Vec<GroupUsage> {
        let state = self.users.find(user);
        state.map(|state| state.group_usage()).unwrap_or_default()
    }

    /// What all nodes have together.
    pub fn capacity(&self) -> Guarantee {
        let all = self.cluster.idle().total();
        Guarantee {
            cpu: Cpu::millis(u64::try_from(all.cpu).unwrap_or(u64::MAX)),
            memory: Bytes::new(u64::try_from(all.memory).unwrap_or(u64::MAX)),
            gpu: u32::try_from(all.gpu).unwrap_or(u32::MAX),
        }
    }

    /// A node was added, changed or removed. Running jobs stay on nodes with the same name.
    pub fn change_node(&mut self, change: NodeChange) {
        let difference = self.cluster.change(change, self.running.holdings_mut());
        if difference == Difference::None {
            return;
        }
        self.spare = Spare::new(&self.cluster);
        if difference == Difference::Capacity {
            let (cluster, policy) = (&mut self.cluster, self.policy);
            self.queue.refit(|shape| {
                let shape = cluster.renewed(shape);
                cluster.remember(&shape);
                let fit = fit(cluster, policy, &shape);
                (shape, fit)
            });
            self.users.all().for_each(|user| self.reshare(user));
        }
    }

    fn fit(&self, shape: &Shape) -> Fit {
        fit(&self.cluster, self.policy, shape)
    }

    /// How a shape exceeds all nodes together.
    fn excess(&self, shape: &Shape) -> Excess {
        Excess::together(shape, &self.cluster)
    }

    /// The job that has the reservation, if it is still queued.
    fn stuck(&self) -> Option<(Key, JobGroupId)> {
        let stuck = self.stuck.filter(|stuck| self.queue.contains(*stuck))?;
        Some((stuck, self.queue.get(stuck).group))
    }

    /// Adds a running job.
    fn count(&mut self, run: Run, end: End) -> Turn {
        let (user, asked) = (run.user, run.asked);
        let turn = self.running.insert(run, end);
        self.use_quota(user, |used| used.plus(asked));
        turn
    }

    fn end(&mut self, id: &JobId) {
        let Some((turn, run)) = self.running.remove(id) else {
            return;
        };
        self.cluster.give(&run.holding);
        self.spare.ended(&self.cluster, turn, &run.holding.loads);
        self.use_quota(run.user, |used| used.minus(run.asked));
        if self.alone.as_ref().is_some_and(|alone| alone.id == *id) {
            self.alone = None;
        }
    }

    fn use_quota(&mut self, user: UserId, change: impl Fn(RequestSum) -> RequestSum) {
        let state = self.users.get_mut(user);
        state.set_used(change(state.used()));
        self.reshare(user);
        self.queue.quota_moved(user, &mut self.users);
        for member in self.users.use_teams(user, change) {
            self.queue.quota_moved(member, &mut self.users);
        }
    }

    /// Moves a user's jobs to the ranks of their current share.
    fn reshare(&mut self, user: UserId) {
        if !self.policy.fair_share {
            return;
        }
        let state = self.users.get(user);
        let weight = u128::from(state.quota().weight.unwrap_or(1).max(1));
        let share = state.used().dominant_share(self.cluster.idle().total()) / weight;
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        self.queue.reshare(user, share, &mut self.users);
    }

    /// Whether one waiting job is ahead of another.
    fn is_before(&self, one: Key, other: Key) -> bool {
        let rank = |key: Key| self.users.get(self.queue.get(key).user).rank(key);
        rank(one) < rank(other)
    }
}

/// How a shape relates to all nodes together.
fn fit(cluster: &Cluster, policy: Policy, shape: &Shape) -> Fit {
    if placing::place(cluster.idle(), shape).is_some() {
        return Fit::WithOthers;
    }
    if policy.oversubscribe_alone && cluster.squeeze(shape).is_some() {
        return Fit::Alone;
    }
    Fit::Never
}
