//! Who may take how much, and which of a user's jobs waits for their quota.
//!
//! Knows of each line of jobs only the first one; the queue tells it which that is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use super::queue::{GroupId, Key, Rank};
use super::quota::{Quota, Tally};
use super::summary_tree::{Summary, SummaryTree};
use crate::names::UserName;

/// Stands for a user in here; names are long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct UserId(usize);

/// What is known about one user.
#[derive(Debug, Clone, Default)]
pub(super) struct Account {
    quota: Quota,
    used: Tally,
    /// The weighted dominant share of what runs; the queue knows it, see [`Queue::reshare`](super::queue::Queue::reshare).
    share: u64,
    /// Jobs that wait.
    pub waiting: u64,
    /// The first job that waits for the quota. No later job of the user passes it.
    hold: Option<Key>,
    /// Where in the queue this user has jobs: the first of each line.
    lines: BTreeMap<Key, (GroupId, Tally)>,
    /// Those that the quota could ever allow, in order, with the most that any of them asks for.
    possible: SummaryTree<Key, Tally>,
    /// Lines that are not offered because they had to wait for the quota when last checked.
    pub parked: BTreeMap<Key, GroupId>,
    /// The first parked job that need not wait any more, as the queue knows it.
    pub sleeper: Option<Key>,
}

/// All users ever seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts {
    ids: HashMap<UserName, UserId>,
    accounts: Vec<Account>,
    /// Those with a guarantee.
    guaranteed: BTreeSet<UserId>,
}

impl Summary for Tally {
    fn with(&self, other: &Tally) -> Tally {
        Tally {
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

    pub fn used(&self) -> Tally {
        self.used
    }

    pub fn share(&self) -> u64 {
        self.share
    }

    /// To be called by the queue only, which has listed the user's jobs by it.
    pub fn set_share(&mut self, share: u64) {
        self.share = share;
    }

    /// Where a job of the user stands in the queue.
    pub fn rank(&self, key: Key) -> Rank {
        key.rank(self.share)
    }

    /// The first jobs of the user's lines.
    pub fn heads(&self) -> impl Iterator<Item = (Key, GroupId)> {
        self.lines.iter().map(|(key, (group, _))| (*key, *group))
    }

    pub fn hold(&self) -> Option<Key> {
        self.hold
    }

    /// Whether a job of the user waits for the quota, or behind one that does.
    pub fn holds(&self, key: Key) -> bool {
        self.hold.is_some_and(|hold| hold <= key)
    }

    /// The groups in which the user has jobs.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.lines.values().map(|(group, _)| *group)
    }

    /// False when even an idle user could not start it.
    pub fn could_ever(&self, asked: Tally) -> bool {
        self.quota.is_unlimited() || self.quota.allows(Tally::default(), asked)
    }

    /// Whether a job need not wait for the quota.
    pub fn lets(&self, key: Key) -> bool {
        self.hold.is_none_or(|hold| key < hold)
    }

    /// The first parked job from here on, if it need not wait any more.
    pub fn next_sleeper(&self, from: Bound<Key>) -> Option<(Key, GroupId)> {
        let (key, group) = self.parked.range((from, Bound::Unbounded)).next()?;
        self.lets(*key).then_some((*key, *group))
    }

    /// Another job became the first of a line.
    pub fn change_line(&mut self, before: Option<Key>, after: Option<Key>, group: GroupId, asked: Tally) {
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

    fn add_possible(&mut self, key: Key, asked: Tally) {
        if !self.quota.is_unlimited() && self.could_ever(asked) {
            self.possible.insert(key.code(), key, asked);
        }
    }

    pub fn set_used(&mut self, used: Tally) {
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

    /// The limits are looked at one by one, so the most that several jobs ask for breaks one if any of them does.
    fn find_hold(&self) -> Option<Key> {
        let waits = |asked: &Tally| !self.quota.allows(self.used, *asked);
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

    /// To be called when a user's quota was set.
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
