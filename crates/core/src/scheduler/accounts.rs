//! The quotas and usage of users, and which of a user's jobs waits for the quota.
//!
//! Knows only the first job of each line of jobs; the queue reports which one that is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use super::queue::{GroupId, Key, Rank};
use super::quota::{Quota, RequestSum};
use super::summary_tree::{Summary, SummaryTree};
use crate::names::UserName;

/// Identifies a user inside the scheduler; names are long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct UserId(usize);

/// The state of one user.
#[derive(Debug, Clone, Default)]
pub(super) struct Account {
    quota: Quota,
    used: RequestSum,
    /// The weighted dominant share of the running jobs. Set by [`Queue::reshare`](super::queue::Queue::reshare).
    share: u64,
    /// The number of queued jobs.
    pub waiting: u64,
    /// The first job that waits for the quota. No later job of the user overtakes it.
    hold: Option<Key>,
    /// The first job of each of the user's lines.
    lines: BTreeMap<Key, (GroupId, RequestSum)>,
    /// Those that the quota could ever allow, in order, with the largest request among them.
    possible: SummaryTree<Key, RequestSum>,
    /// Lines that are not offered because they waited for the quota when last checked.
    pub parked: BTreeMap<Key, GroupId>,
    /// The first parked job that no longer waits for the quota, as listed in the queue.
    pub sleeper: Option<Key>,
}

/// All users ever seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts {
    ids: HashMap<UserName, UserId>,
    accounts: Vec<Account>,
    /// Users with a guarantee.
    guaranteed: BTreeSet<UserId>,
}

impl Summary for RequestSum {
    fn with(&self, other: &RequestSum) -> RequestSum {
        RequestSum {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
            gpu: self.gpu.max(other.gpu),
            trainers: self.trainers.max(other.trainers),
            jobs: self.jobs.max(other.jobs),
        }
    }
}

impl Account {
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    pub fn used(&self) -> RequestSum {
        self.used
    }

    pub fn share(&self) -> u64 {
        self.share
    }

    /// Called only by the queue, which sorts the user's jobs by the share.
    pub fn set_share(&mut self, share: u64) {
        self.share = share;
    }

    /// The rank of one of the user's jobs in the queue.
    pub fn rank(&self, key: Key) -> Rank {
        key.rank(self.share)
    }

    /// The first job of each of the user's lines.
    pub fn heads(&self) -> impl Iterator<Item = (Key, GroupId)> {
        self.lines.iter().map(|(key, (group, _))| (*key, *group))
    }

    pub fn hold(&self) -> Option<Key> {
        self.hold
    }

    /// Whether a job of the user waits for the quota, or behind a job that does.
    pub fn holds(&self, key: Key) -> bool {
        self.hold.is_some_and(|hold| hold <= key)
    }

    /// The groups in which the user has jobs.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.lines.values().map(|(group, _)| *group)
    }

    /// False if the quota would not allow the job even if the user had nothing running.
    pub fn could_ever(&self, asked: RequestSum) -> bool {
        self.quota.is_unlimited() || self.quota.allows(RequestSum::default(), asked)
    }

    /// Whether a job does not have to wait for the quota.
    pub fn lets(&self, key: Key) -> bool {
        self.hold.is_none_or(|hold| key < hold)
    }

    /// The first parked job in the range, if it no longer waits for the quota.
    pub fn next_sleeper(&self, from: Bound<Key>) -> Option<(Key, GroupId)> {
        let (key, group) = self.parked.range((from, Bound::Unbounded)).next()?;
        self.lets(*key).then_some((*key, *group))
    }

    /// Replaces the first job of a line.
    pub fn change_line(
        &mut self,
        before: Option<Key>,
        after: Option<Key>,
        group: GroupId,
        asked: RequestSum,
    ) {
        if let Some(before) = before {
            self.lines.remove(&before);
            self.possible.remove(&before.code());
        }
        if let Some(after) = after {
            self.lines.insert(after, (group, asked));
            self.add_possible(after, asked);
        }
        self.hold = self.find_hold();
    }

    fn add_possible(&mut self, key: Key, asked: RequestSum) {
        if !self.quota.is_unlimited() && self.could_ever(asked) {
            self.possible.insert(key.code(), key, asked);
        }
    }

    pub fn set_used(&mut self, used: RequestSum) {
        self.used = used;
        self.hold = self.find_hold();
    }

    pub fn set_quota(&mut self, quota: Quota) {
        self.quota = quota;
        self.possible = SummaryTree::default();
        let lines = std::mem::take(&mut self.lines);
        for (key, (_, asked)) in &lines {
            self.add_possible(*key, *asked);
        }
        self.lines = lines;
        self.hold = self.find_hold();
    }

    /// Finds the first job that waits for the quota. Each limit is checked separately, so the maximum over several jobs
    /// exceeds a limit exactly if one of them does.
    fn find_hold(&self) -> Option<Key> {
        let waits = |asked: &RequestSum| !self.quota.allows(self.used, *asked);
        self.possible.first(waits).copied()
    }
}

impl Accounts {
    pub fn find(&self, user: &UserName) -> Option<&Account> {
        self.ids.get(user).map(|id| self.get(*id))
    }

    pub fn id(&mut self, user: &UserName) -> UserId {
        if let Some(id) = self.ids.get(user) {
            return *id;
        }
        let id = UserId(self.accounts.len());
        self.accounts.push(Account::default());
        self.ids.insert(user.clone(), id);
        id
    }

    pub fn all(&self) -> impl Iterator<Item = UserId> + use<> {
        (0..self.accounts.len()).map(UserId)
    }

    /// Users with a guarantee.
    pub fn guaranteed(&self) -> impl Iterator<Item = UserId> {
        self.guaranteed.iter().copied()
    }

    /// Called after a user's quota was set.
    pub fn list_guarantee(&mut self, id: UserId) {
        match self.get(id).quota().guarantee.is_nothing() {
            true => self.guaranteed.remove(&id),
            false => self.guaranteed.insert(id),
        };
    }

    pub fn get(&self, id: UserId) -> &Account {
        &self.accounts[id.0]
    }

    pub fn get_mut(&mut self, id: UserId) -> &mut Account {
        &mut self.accounts[id.0]
    }
}
