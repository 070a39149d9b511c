//! The waiting jobs, arranged so that a decision touches only those that could change it.
//!
//! Jobs with the same shape and runtime form a group: they fit or fail together. Within a group every user has a line,
//! which its first job represents. Groups are indexed by their demand, see `demand.rs`.
//!
//! A line that has to wait for its user's quota is parked when a search finds it, and offered again when its turn
//! comes, so the cost of a quota change does not depend on the number of waiting jobs. Where a job would run is not
//! decided here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::demand::{Demand, code};
use super::quota::RequestSum;
use super::request::Request;
use super::room::Shape;
use super::summary_tree::{Code, SummaryTree};
use super::users::{UserId, UserStates};
use crate::names::JobId;

/// The order of one user's jobs: higher priority first, then first in, first out. Also identifies the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub priority: Reverse<i32>,
    pub order: u64,
    /// Breaks ties between jobs of the same order.
    serial: u64,
}

impl Key {
    /// The rank of the job in the queue if its user has this share.
    pub fn rank(self, share: u64) -> Rank {
        Rank {
            priority: self.priority,
            share,
            order: self.order,
            serial: self.serial,
        }
    }

    /// The same order for a [`SummaryTree`].
    pub fn code(&self) -> Code {
        let priority = i64::from(i32::MAX) - i64::from(self.priority.0);
        let priority = u64::try_from(priority).expect("no number is above the largest");
        [priority, self.order, self.serial]
    }
}

/// The order of the queue: higher priority first, then the user with the smallest share, then first in, first out.
///
/// A rank changes with the user's share; its key does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: Reverse<i32>,
    share: u64,
    order: u64,
    serial: u64,
}

impl Rank {
    pub fn key(self) -> Key {
        Key {
            priority: self.priority,
            order: self.order,
            serial: self.serial,
        }
    }
}

/// The ranks of all waiting jobs, sorted.
pub(super) struct QueueOrder(Vec<Rank>);

impl QueueOrder {
    /// How many jobs are ahead of a rank, and how many of them have a higher priority.
    pub fn ahead_of(&self, rank: Rank) -> (usize, usize) {
        let QueueOrder(ranks) = self;
        (
            ranks.partition_point(|other| *other < rank),
            ranks.partition_point(|other| other.priority < rank.priority),
        )
    }
}

/// Identifies a group while it has jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct JobGroupId(usize);

impl JobGroupId {
    pub fn number(self) -> u64 {
        self.0 as u64
    }
}

/// How a shape relates to all nodes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Fits when enough other jobs have ended.
    WithOthers,
    /// Larger than all nodes; may run alone on less than it requested.
    Alone,
    /// Cannot run on these nodes.
    Never,
}

/// One waiting job.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub request: Request,
    pub user: UserId,
    pub group: JobGroupId,
    pub since: Timestamp,
}

/// Jobs that fit or fail together.
#[derive(Debug, Clone)]
pub(super) struct JobGroup {
    pub shape: Arc<Shape>,
    pub asked: RequestSum,
    pub max_runtime: Option<SignedDuration>,
    pub fit: Fit,
    lines: HashMap<UserId, Line>,
    /// The first job of every offered line.
    pub offered: BTreeMap<Rank, UserId>,
    /// The rank under which the group is listed.
    listed: Option<Rank>,
}

/// The jobs of one user in one group.
#[derive(Debug, Clone, Default)]
struct Line {
    jobs: BTreeSet<Key>,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Standing {
    /// Listed in the index, although it may have to wait for the quota.
    #[default]
    Offered,
    /// Waited for the quota when last checked.
    Parked,
    /// Exceeds the whole quota.
    Beyond,
}

type Kind = (Arc<Shape>, Option<SignedDuration>);

/// Why looking up a group cannot fail.
const ALIVE: &str = "a group lives as long as jobs name it";

/// All waiting jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Key, Waiting>,
    keys: HashMap<JobId, Key>,
    groups: Vec<Option<JobGroup>>,
    /// Free slots in `groups`.
    vacant: Vec<JobGroupId>,
    kinds: HashMap<Kind, JobGroupId>,
    /// The groups with an offered job, by demand.
    pub index: SummaryTree<JobGroupId, Demand>,
    /// The groups with an offered job that can only run alone.
    alone: BTreeSet<(Rank, JobGroupId)>,
    /// For every user, the first parked job that no longer waits for the quota.
    pub sleepers: BTreeSet<(Rank, UserId)>,
    serial: u64,
}

impl Queue {
    pub fn get(&self, key: Key) -> &Waiting {
        &self.waiting[&key]
    }

    pub fn contains(&self, key: Key) -> bool {
        self.waiting.contains_key(&key)
    }

    pub fn key(&self, id: &JobId) -> Option<Key> {
        self.keys.get(id).copied()
    }

    pub fn group(&self, id: JobGroupId) -> &JobGroup {
        self.groups[id.0].as_ref().expect(ALIVE)
    }

    /// The jobs ahead of this one, in the current queue order.
    pub fn before(&self, key: Key, users: &UserStates) -> Vec<(Key, &Waiting)> {
        let rank = |key: Key, waiting: &Waiting| users.get(waiting.user).rank(key);
        let own = rank(key, self.get(key));
        // No job of a lower priority is ahead.
        let last = Key {
            priority: key.priority,
            order: u64::MAX,
            serial: u64::MAX,
        };
        let mut before: Vec<(Rank, &Waiting)> = self
            .waiting
            .range(..=last)
            .map(|(key, waiting)| (rank(*key, waiting), waiting))
            .filter(|(rank, _)| *rank < own)
            .collect();
        before.sort_unstable_by_key(|(rank, _)| *rank);
        before
            .into_iter()
            .map(|(rank, waiting)| (rank.key(), waiting))
            .collect()
    }

    /// The current queue order.
    pub fn order(&self, users: &UserStates) -> QueueOrder {
        let rank = |(key, waiting): (&Key, &Waiting)| users.get(waiting.user).rank(*key);
        let mut ranks: Vec<Rank> = self.waiting.iter().map(rank).collect();
        ranks.sort_unstable();
        QueueOrder(ranks)
    }

    /// Adds a job; `fit` is called only for a new group.
    pub fn insert(
        &mut self,
        (request, shape): (Request, Shape),
        (user, since): (UserId, Timestamp),
        users: &mut UserStates,
        fit: impl FnOnce(&Shape) -> Fit,
    ) {
        self.serial += 1;
        let key = Key {
            priority: Reverse(request.priority),
            order: request.order,
            serial: self.serial,
        };
        let group = self.group_of((Arc::new(shape), request.max_runtime), fit);
        let before = self.open_line(group, user, users).jobs.first().copied();
        self.line_mut(group, user).jobs.insert(key);
        users.get_mut(user).waiting += 1;
        self.keys.insert(request.id.clone(), key);
        let waiting = Waiting {
            request,
            user,
            group,
            since,
        };
        self.waiting.insert(key, waiting);
        self.line_changed(group, user, before, users);
    }

    fn group_of(&mut self, kind: Kind, fit: impl FnOnce(&Shape) -> Fit) -> JobGroupId {
        if let Some(id) = self.kinds.get(&kind) {
            return *id;
        }
        let group = JobGroup {
            shape: kind.0.clone(),
            asked: RequestSum::of(&kind.0),
            max_runtime: kind.1,
            fit: fit(&kind.0),
            lines: HashMap::new(),
            offered: BTreeMap::new(),
            listed: None,
        };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.groups.push(None);
            JobGroupId(self.groups.len() - 1)
        });
        self.groups[id.0] = Some(group);
        self.kinds.insert(kind, id);
        id
    }

    fn open_line(&mut self, id: JobGroupId, user: UserId, users: &UserStates) -> &Line {
        let group = self.group_mut(id);
        let standing = standing_of(group, user, users);
        group.lines.entry(user).or_insert_with(|| Line {
            jobs: BTreeSet::new(),
            standing,
        })
    }

    fn line_mut(&mut self, group: JobGroupId, user: UserId) -> &mut Line {
        let line = self.group_mut(group).lines.get_mut(&user);
        line.expect("a line lives as long as it has jobs")
    }

    fn group_mut(&mut self, id: JobGroupId) -> &mut JobGroup {
        self.groups[id.0].as_mut().expect(ALIVE)
    }

    /// Removes a job.
    pub fn remove(&mut self, key: Key, users: &mut UserStates) -> Waiting {
        let waiting = self.waiting.remove(&key).expect("only queued jobs are removed");
        self.keys.remove(&waiting.request.id);
        let (group, user) = (waiting.group, waiting.user);
        users.get_mut(user).waiting -= 1;
        let line = self.line_mut(group, user);
        let before = line.jobs.first().copied();
        line.jobs.remove(&key);
        self.line_changed(group, user, before, users);
        self.drop_if_empty(group, user);
        waiting
    }

    fn drop_if_empty(&mut self, id: JobGroupId, user: UserId) {
        let group = self.group_mut(id);
        if group.lines[&user].jobs.is_empty() {
            group.lines.remove(&user);
        }
        if group.lines.is_empty() {
            let group = self.groups[id.0].take().expect(ALIVE);
            self.kinds.remove(&(group.shape, group.max_runtime));
            self.vacant.push(id);
        }
    }

    /// Updates the user's state and the index after the first job of a line changed.
    fn line_changed(&mut self, id: JobGroupId, user: UserId, before: Option<Key>, users: &mut UserStates) {
        let group = self.group_mut(id);
        let (first, standing, asked) = (
            group.lines[&user].first(),
            group.lines[&user].standing,
            group.asked,
        );
        if first == before {
            return;
        }
        let state = users.get_mut(user);
        state.change_line(before, first, id, asked);
        if standing == Standing::Parked {
            before.map(|before| state.parked.remove(&before));
            state.parked.extend(first.map(|first| (first, id)));
        }
        if standing == Standing::Offered {
            let share = state.share();
            before.map(|before| group.offered.remove(&before.rank(share)));
            group.offered.extend(first.map(|first| (first.rank(share), user)));
            self.relist(id);
        }
        self.quota_moved(user, users);
    }

    /// Lists a group under its first offered job.
    fn relist(&mut self, id: JobGroupId) {
        let group = self.group_mut(id);
        let first = group.offered.first_key_value().map(|(rank, _)| *rank);
        let before = std::mem::replace(&mut group.listed, first);
        if before != first {
            self.list(id, before, first);
        }
    }

    fn list(&mut self, id: JobGroupId, before: Option<Rank>, first: Option<Rank>) {
        let group = self.groups[id.0].as_ref().expect(ALIVE);
        match (group.fit, first) {
            (Fit::WithOthers, Some(first)) => {
                let demand = Demand::of(group, (first, id));
                self.index.insert(code(group, id), id, demand);
            }
            (Fit::WithOthers, None) => self.index.remove(&code(group, id)),
            (Fit::Alone, first) => {
                before.map(|before| self.alone.remove(&(before, id)));
                self.alone.extend(first.map(|first| (first, id)));
            }
            (Fit::Never, _) => {}
        }
    }

    /// Called after a change of what a user has running.
    pub fn quota_moved(&mut self, user: UserId, users: &mut UserStates) {
        let state = users.get_mut(user);
        let sleeper = state.next_sleeper(Bound::Unbounded).map(|(key, _)| key);
        let before = std::mem::replace(&mut state.sleeper, sleeper);
        if before != sleeper {
            let share = state.share();
            before.map(|before| self.sleepers.remove(&(before.rank(share), user)));
            self.sleepers
                .extend(sleeper.map(|sleeper| (sleeper.rank(share), user)));
        }
    }

    /// Moves the user's offered jobs to the ranks of a new share. Costs a step for each of the user's lines.
    pub fn reshare(&mut self, user: UserId, share: u64, users: &mut UserStates) {
        let state = users.get_mut(user);
        let before = state.share();
        if before == share {
            return;
        }
        if let Some(sleeper) = state.sleeper {
            self.sleepers.remove(&(sleeper.rank(before), user));
            self.sleepers.insert((sleeper.rank(share), user));
        }
        state.set_share(share);
        for (first, id) in users.get(user).heads().collect::<Vec<_>>() {
            let group = self.group_mut(id);
            if group.offered.remove(&first.rank(before)).is_some() {
                group.offered.insert(first.rank(share), user);
                self.relist(id);
            }
        }
    }

    /// Re-evaluates all lines of a user after a change of quotas.
    pub fn quotas_changed(&mut self, user: UserId, users: &mut UserStates) {
        users.get_mut(user).parked.clear();
        for id in users.get(user).groups().collect::<Vec<_>>() {
            let group = self.group_mut(id);
            let standing = standing_of(group, user, users);
            let line = group
                .lines
                .get_mut(&user)
                .expect("a user's state lists existing lines");
            line.standing = standing;
            let first = line.first().expect("only lines with jobs are known");
            let first = users.get(user).rank(first);
            match standing {
                Standing::Offered => group.offered.insert(first, user),
                Standing::Parked | Standing::Beyond => group.offered.remove(&first),
            };
            self.relist(id);
        }
        self.quota_moved(user, users);
    }

    /// The first job that does not wait for a quota and can run on these nodes.
    pub fn first(&mut self, users: &mut UserStates) -> Option<(Key, JobGroupId)> {
        loop {
            let fitting = self.index.summary().map(|demand| demand.first);
            let listed = fitting.into_iter().chain(self.alone.first().copied()).min();
            let asleep = self.sleepers.first().copied();
            if let Some((rank, _)) = asleep.filter(|(rank, _)| listed.is_none_or(|(first, _)| *rank < first))
            {
                self.wake(rank.key(), users);
                continue;
            }
            let (rank, group) = listed?;
            let key = rank.key();
            if users.get(self.get(key).user).lets(key) {
                return Some((key, group));
            }
            self.park(key, users);
        }
    }

    /// Stops offering the line with this first job, because it waits for the quota.
    pub fn park(&mut self, first: Key, users: &mut UserStates) {
        let Waiting { user, group: id, .. } = *self.get(first);
        self.line_mut(id, user).standing = Standing::Parked;
        self.group_mut(id).offered.remove(&users.get(user).rank(first));
        users.get_mut(user).parked.insert(first, id);
        self.relist(id);
        self.quota_moved(user, users);
    }

    /// Offers the parked line with this first job again.
    pub fn wake(&mut self, first: Key, users: &mut UserStates) {
        let Waiting { user, group: id, .. } = *self.get(first);
        self.line_mut(id, user).standing = Standing::Offered;
        self.group_mut(id)
            .offered
            .insert(users.get(user).rank(first), user);
        users.get_mut(user).parked.remove(&first);
        self.relist(id);
        self.quota_moved(user, users);
    }

    /// Reclassifies all groups after a change of nodes.
    pub fn refit(&mut self, mut fit: impl FnMut(&Shape) -> (Shape, Fit)) {
        for id in self.kinds.values().copied().collect::<Vec<_>>() {
            let listed = self.group_mut(id).listed.take();
            self.list(id, listed, None);
            let group = self.group_mut(id);
            let (shape, fit) = fit(&group.shape);
            (group.shape, group.fit) = (Arc::new(shape), fit);
            self.relist(id);
        }
    }
}

/// The initial standing of a line.
fn standing_of(group: &JobGroup, user: UserId, users: &UserStates) -> Standing {
    match users.get(user).could_ever(group.asked) {
        true => Standing::Offered,
        false => Standing::Beyond,
    }
}

impl Line {
    fn first(&self) -> Option<Key> {
        self.jobs.first().copied()
    }
}
