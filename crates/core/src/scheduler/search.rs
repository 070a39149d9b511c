//! Finds the first job in the queue that may start behind a reservation, without trying every job.
//!
//! Looks into that part of the index first whose first job is the earliest, and nowhere where not even the least
//! that is asked for would fit. Looks only: what it learned about lines on the way, it reports.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::ops::Bound;

use jiff::SignedDuration;

use super::accounts::{Accounts, UserId};
use super::demand::{Beside, Demand};
use super::placing::{Share, place};
use super::queue::{GroupId, Key, Queue};
use super::quota::Tally;
use super::summary_tree::{Branch, Place};

/// Whose quota must not be taken, and how much of it is kept.
#[derive(Clone, Copy)]
pub(super) struct QuotaKept {
    pub user: UserId,
    pub asked: Tally,
}

/// What a search found out.
#[derive(Default)]
pub(super) struct Found {
    /// The job that may start, and where.
    pub start: Option<(Key, Vec<Share>)>,
    /// Lines on offer, by their first jobs, that wait for the quota.
    pub waiting: Vec<Key>,
    /// Parked lines, by their first jobs, that wait for room only.
    pub awake: Vec<Key>,
}

/// Something to look at when its turn comes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// A part of the index; nodes before this one have no room for anything in it.
    Part(Place, usize),
    Group(GroupId),
    Sleeper(UserId),
}

/// The jobs behind a reservation.
pub(super) struct Search<'a, Sleepers: Iterator<Item = &'a (Key, UserId)>> {
    queue: &'a Queue,
    accounts: &'a Accounts,
    beside: Beside<'a>,
    quota_kept: QuotaKept,
    open: BinaryHeap<Reverse<(Key, Item)>>,
    sleepers: Peekable<Sleepers>,
    found: Found,
}

pub(super) fn first_behind(
    queue: &Queue,
    accounts: &Accounts,
    beside: Beside,
    quota_kept: QuotaKept,
) -> Found {
    let mut search = Search {
        queue,
        accounts,
        beside,
        quota_kept,
        open: BinaryHeap::new(),
        sleepers: queue.sleepers.iter().peekable(),
        found: Found::default(),
    };
    search.add_top();
    while let Some((key, item)) = search.next() {
        if let Some(shares) = search.look(key, item) {
            search.found.start = Some((key, shares));
            break;
        }
    }
    search.found
}

impl<'a, Sleepers: Iterator<Item = &'a (Key, UserId)>> Search<'a, Sleepers> {
    fn next(&mut self) -> Option<(Key, Item)> {
        let open = self.open.peek().map(|Reverse((key, _))| *key);
        let is_earlier = |sleeper: &&(Key, UserId)| open.is_none_or(|open| sleeper.0 < open);
        match self.sleepers.next_if(is_earlier) {
            Some((key, user)) => Some((*key, Item::Sleeper(*user))),
            None => self.open.pop().map(|Reverse(next)| next),
        }
    }

    /// Says where the job with this key may start, or adds what is to be looked at instead.
    fn look(&mut self, key: Key, item: Item) -> Option<Vec<Share>> {
        match item {
            Item::Part(place, from) => match self.queue.index.at(place) {
                (demand, Branch::Fork(parts)) => self.add_parts(parts, demand, from),
                (_, Branch::Leaf(group)) => self.add_group(*group),
            },
            Item::Group(group) => return self.place(group),
            Item::Sleeper(user) => return self.look_at_sleeper(key, user),
        }
        None
    }

    fn add_top(&mut self) {
        if let Some(top) = self.queue.index.top() {
            let (demand, _) = self.queue.index.at(top);
            let node = demand.first_node(0, &self.beside);
            self.add_part(top, demand, node);
        }
    }

    /// What asks for the same as the whole did, passes like the whole.
    fn add_parts(&mut self, parts: [Place; 2], whole: &Demand, from: usize) {
        for part in parts {
            let (demand, _) = self.queue.index.at(part);
            let node = match demand.asks_the_same(whole) {
                true => Some(from),
                false => demand.first_node(from, &self.beside),
            };
            self.add_part(part, demand, node);
        }
    }

    fn add_part(&mut self, part: Place, demand: &Demand, node: Option<usize>) {
        let item = node.map(|node| Reverse((demand.first.0, Item::Part(part, node))));
        self.open.extend(item);
    }

    /// A group's turn comes with its first job that no quota holds back.
    fn add_group(&mut self, id: GroupId) {
        let group = self.queue.group(id);
        for (key, user) in &group.offered {
            if !self.accounts.get(*user).lets(*key) {
                self.found.waiting.push(*key);
            } else if self.leaves_quota(*user, group.asked) {
                self.open.push(Reverse((*key, Item::Group(id))));
                return;
            }
        }
    }

    fn look_at_sleeper(&mut self, key: Key, user: UserId) -> Option<Vec<Share>> {
        let account = self.accounts.get(user);
        let (_, group) = account.next_sleeper(Bound::Included(key))?;
        if self.leaves_quota(user, self.queue.group(group).asked)
            && let Some(shares) = self.place(group)
        {
            return Some(shares);
        }
        self.found.awake.push(key);
        let later = account.next_sleeper(Bound::Excluded(key));
        self.open
            .extend(later.map(|(key, _)| Reverse((key, Item::Sleeper(user)))));
        None
    }

    fn place(&self, group: GroupId) -> Option<Vec<Share>> {
        let group = self.queue.group(group);
        let tree = self
            .beside
            .tree(group.max_runtime.unwrap_or(SignedDuration::MAX))?;
        place(tree, &group.shape)
    }

    /// A job of the same user must not take the quota that the job ahead will need.
    fn leaves_quota(&self, user: UserId, asked: Tally) -> bool {
        leaves_quota(self.accounts, self.quota_kept, user, asked)
    }
}

/// Whether a job leaves the job ahead, if that is of the same user, the quota that it will need.
pub(super) fn leaves_quota(accounts: &Accounts, kept: QuotaKept, user: UserId, asked: Tally) -> bool {
    let account = accounts.get(user);
    user != kept.user || account.quota().allows(account.used().plus(kept.asked), asked)
}
