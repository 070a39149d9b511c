//! Finds the first job in the queue that may start behind a reservation, without trying every job.
//!
//! Looks into that part of the index first whose first job is the earliest, and nowhere where not even the least
//! that is asked for would fit. It changes nothing: what it learned about lines on the way, it reports.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, btree_set};
use std::iter::Peekable;
use std::ops::Bound;

use jiff::SignedDuration;

use super::accounts::{Accounts, UserId};
use super::demand::{Beside, Demand};
use super::placing::{Share, place};
use super::queue::{GroupId, Key, Queue, Rank};
use super::quota::Tally;
use super::summary_tree::{Branch, TreeIndex};

/// What a search looks at.
pub(super) struct Scene<'a> {
    pub queue: &'a Queue,
    pub accounts: &'a Accounts,
    /// The job ahead, which is not looked at again.
    pub stuck: Key,
    pub beside: Beside<'a>,
    pub quota_kept: QuotaKept,
}

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

/// A search under way.
struct Search<'a> {
    scene: &'a Scene<'a>,
    open: BinaryHeap<Reverse<(Rank, Item)>>,
    sleepers: Peekable<btree_set::Iter<'a, (Rank, UserId)>>,
    found: Found,
}

/// Something to look at when its turn comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// A part of the index; nodes before this one have no room for anything in it.
    Part(TreeIndex, usize),
    Group(GroupId),
    Sleeper(UserId),
}

pub(super) fn first_start(scene: &Scene) -> Found {
    let mut search = Search {
        scene,
        open: BinaryHeap::new(),
        sleepers: scene.queue.sleepers.iter().peekable(),
        found: Found::default(),
    };
    search.add_top();
    while let Some((rank, item)) = search.next() {
        if let Some(shares) = search.look(rank.key(), item) {
            search.found.start = Some((rank.key(), shares));
            break;
        }
    }
    search.found
}

impl Search<'_> {
    fn next(&mut self) -> Option<(Rank, Item)> {
        let open = self.open.peek().map(|Reverse((rank, _))| *rank);
        let is_earlier = |sleeper: &&(Rank, UserId)| open.is_none_or(|open| sleeper.0 < open);
        match self.sleepers.next_if(is_earlier) {
            Some((rank, user)) => Some((*rank, Item::Sleeper(*user))),
            None => self.open.pop().map(|Reverse(next)| next),
        }
    }

    /// Says where the job with this key may start, or adds what is to be looked at instead.
    fn look(&mut self, key: Key, item: Item) -> Option<Vec<Share>> {
        match item {
            Item::Part(part, from) => self.descend(part, from),
            Item::Group(group) => return self.scene.place(group),
            Item::Sleeper(user) => return self.look_at_sleeper(key, user),
        }
        None
    }

    fn add_top(&mut self) {
        let Some(top) = self.scene.queue.index.top() else {
            return;
        };
        let (demand, _) = self.scene.queue.index.at(top);
        let from = demand.first_node(0, &self.scene.beside);
        self.open
            .extend(from.map(|from| Reverse((demand.first.0, Item::Part(top, from)))));
    }

    /// Goes down to the group of the first job, as far as there is room. What lies aside is looked at when its
    /// turn comes.
    fn descend(&mut self, mut part: TreeIndex, mut from: usize) {
        loop {
            let (whole, parts) = match self.scene.queue.index.at(part) {
                (whole, Branch::Fork(parts)) => (whole, parts),
                (_, Branch::Leaf(group)) => return self.add_group(*group),
            };
            let mut next = None;
            for part in parts {
                let (demand, _) = self.scene.queue.index.at(part);
                let Some(node) = self.first_node(demand, whole, from) else {
                    continue;
                };
                match demand.first == whole.first {
                    true => next = Some((part, node)),
                    false => self.open.push(Reverse((demand.first.0, Item::Part(part, node)))),
                }
            }
            match next {
                Some(next) => (part, from) = next,
                None => return,
            }
        }
    }

    /// What asks for the same as the whole does, has room where the whole has.
    fn first_node(&self, demand: &Demand, whole: &Demand, from: usize) -> Option<usize> {
        match demand.asks_the_same(whole) {
            true => Some(from),
            false => demand.first_node(from, &self.scene.beside),
        }
    }

    /// A group's turn comes with its first job that no quota holds back.
    fn add_group(&mut self, id: GroupId) {
        let scene = self.scene;
        let group = scene.queue.group(id);
        for (rank, user) in &group.offered {
            let key = rank.key();
            if key == scene.stuck {
                continue;
            }
            if !scene.accounts.get(*user).lets(key) {
                self.found.waiting.push(key);
            } else if scene.leaves_quota(*user, group.asked) {
                self.open.push(Reverse((*rank, Item::Group(id))));
                return;
            }
        }
    }

    /// The next parked line of the same user is looked at when its own turn comes.
    fn look_at_sleeper(&mut self, key: Key, user: UserId) -> Option<Vec<Share>> {
        let account = self.scene.accounts.get(user);
        let (_, group) = account.next_sleeper(Bound::Included(key))?;
        let may_start = self.scene.leaves_quota(user, self.scene.queue.group(group).asked);
        let shares = may_start.then(|| self.scene.place(group)).flatten();
        if shares.is_none() {
            self.found.awake.push(key);
            let later = account.next_sleeper(Bound::Excluded(key));
            self.open
                .extend(later.map(|(key, _)| Reverse((account.rank(key), Item::Sleeper(user)))));
        }
        shares
    }
}

impl Scene<'_> {
    fn place(&self, group: GroupId) -> Option<Vec<Share>> {
        let group = self.queue.group(group);
        let tree = self
            .beside
            .tree(group.max_runtime.unwrap_or(SignedDuration::MAX))?;
        place(tree, &group.shape)
    }

    fn leaves_quota(&self, user: UserId, asked: Tally) -> bool {
        leaves_quota(self.accounts, self.quota_kept, user, asked)
    }
}

/// A job must not take the quota that the job ahead, if it is of the same user, will need.
pub(super) fn leaves_quota(accounts: &Accounts, kept: QuotaKept, user: UserId, asked: Tally) -> bool {
    let account = accounts.get(user);
    user != kept.user || account.quota().allows(account.used().plus(kept.asked), asked)
}
