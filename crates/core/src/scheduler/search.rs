//! Finds the first job in the queue that may start behind a reservation, without trying every job.
//!
//! Visits the parts of the index in the order of their first jobs, and skips a part if not even its smallest demand
//! fits. It changes nothing: what it learns about lines is part of its result.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, btree_set};
use std::iter::Peekable;
use std::ops::Bound;

use jiff::SignedDuration;

use super::demand::{BackfillRoom, Demand};
use super::placing::{Share, place};
use super::queue::{JobGroupId, Key, Queue, Rank};
use super::quota::RequestSum;
use super::summary_tree::{Branch, TreeIndex};
use super::users::{UserId, UserStates};

/// The state that a search reads.
pub(super) struct Scene<'a> {
    pub queue: &'a Queue,
    pub users: &'a UserStates,
    /// The stuck job ahead, which is skipped.
    pub stuck: Key,
    pub backfill: BackfillRoom<'a>,
    pub quota_kept: QuotaKept,
}

/// The user whose quotas are reserved for the job ahead, and the reserved amount.
#[derive(Clone, Copy)]
pub(super) struct QuotaKept {
    pub user: UserId,
    pub asked: RequestSum,
}

/// The result of a search.
#[derive(Default)]
pub(super) struct Found {
    /// The job that may start, and where.
    pub start: Option<(Key, Vec<Share>)>,
    /// Offered lines that wait for the quota, by their first jobs.
    pub waiting: Vec<Key>,
    /// Parked lines that wait only for room, by their first jobs.
    pub awake: Vec<Key>,
}

/// A search in progress.
struct Search<'a> {
    scene: &'a Scene<'a>,
    open: BinaryHeap<Reverse<(Rank, Item)>>,
    sleepers: Peekable<btree_set::Iter<'a, (Rank, UserId)>>,
    found: Found,
}

/// Something to visit when its turn comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// A part of the index; no node before this one has room for anything in it.
    Part(TreeIndex, usize),
    Group(JobGroupId),
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

    /// Returns where the job with this key may start, or adds what to visit instead.
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
        let from = demand.first_node(0, &self.scene.backfill);
        self.open
            .extend(from.map(|from| Reverse((demand.first.0, Item::Part(top, from)))));
    }

    /// Descends to the group of the first job while there is room. Other branches are visited when their turn comes.
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

    /// A part with the same demand as the whole has room on the same node.
    fn first_node(&self, demand: &Demand, whole: &Demand, from: usize) -> Option<usize> {
        match demand.asks_the_same(whole) {
            true => Some(from),
            false => demand.first_node(from, &self.scene.backfill),
        }
    }

    /// Adds a group at the rank of its first job that no quota holds back.
    fn add_group(&mut self, id: JobGroupId) {
        let scene = self.scene;
        let group = scene.queue.group(id);
        for (rank, user) in &group.offered {
            let key = rank.key();
            if key == scene.stuck {
                continue;
            }
            if !scene.users.get(*user).lets(key) {
                self.found.waiting.push(key);
            } else if scene.leaves_quota(*user, group.asked) {
                self.open.push(Reverse((*rank, Item::Group(id))));
                return;
            }
        }
    }

    /// Tries a parked line. The user's next parked line is visited when its own turn comes.
    fn look_at_sleeper(&mut self, key: Key, user: UserId) -> Option<Vec<Share>> {
        let state = self.scene.users.get(user);
        let (_, group) = state.next_sleeper(Bound::Included(key))?;
        let may_start = self.scene.leaves_quota(user, self.scene.queue.group(group).asked);
        let shares = may_start.then(|| self.scene.place(group)).flatten();
        if shares.is_none() {
            self.found.awake.push(key);
            let later = state.next_sleeper(Bound::Excluded(key));
            self.open
                .extend(later.map(|(key, _)| Reverse((state.rank(key), Item::Sleeper(user)))));
        }
        shares
    }
}

impl Scene<'_> {
    fn place(&self, group: JobGroupId) -> Option<Vec<Share>> {
        let group = self.queue.group(group);
        let tree = self
            .backfill
            .tree(group.max_runtime.unwrap_or(SignedDuration::MAX))?;
        place(tree, &group.shape)
    }

    fn leaves_quota(&self, user: UserId, asked: RequestSum) -> bool {
        leaves_quota(self.users, self.quota_kept, user, asked)
    }
}

/// Whether a job leaves the quota that the job ahead needs, if both have the same user or a group in common.
pub(super) fn leaves_quota(users: &UserStates, kept: QuotaKept, user: UserId, asked: RequestSum) -> bool {
    let (state, ahead) = (users.get(user), users.get(kept.user));
    let own = || user != kept.user || state.quota().allows(state.used().plus(kept.asked), asked);
    let shared = || {
        let common = state.teams().iter().filter(|team| ahead.team(team.id).is_some());
        common
            .into_iter()
            .all(|team| team.allows(team.used.plus(kept.asked), asked))
    };
    own() && shared()
}
