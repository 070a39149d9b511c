//! The waiting jobs, arranged so that a decision touches only those that could change it.
//!
//! Jobs of one shape and one runtime form a group: they fit or fail together, so a group is tried once and not
//! again before something changed that could help it. In a group every user has a line, and only the first job
//! of each line stands for it. Where a job would go is not decided here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::SignedDuration;

use super::accounts::{Accounts, UserId};
use super::quota::Tally;
use super::request::Request;
use super::room::Shape;
use crate::names::JobId;

/// The order of the queue: higher priority first, then first in, first out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub priority: Reverse<i32>,
    pub order: u64,
    /// Breaks ties between jobs of the same order.
    serial: u64,
}

/// Stands for a group as long as it has jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupId(usize);

/// How a shape relates to all nodes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Fits when enough of the others are gone.
    Beside,
    /// Larger than everything; may run alone on less than it asked for.
    Alone,
    /// Cannot run on these nodes.
    Never,
}

/// What is known about a group's chance to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not tried since something changed.
    Ready,
    /// Would fit, but what is free is kept for a job ahead.
    Blocked,
    /// Does not fit into what is free.
    Stuck,
}

/// One waiting job.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub request: Request,
    pub user: UserId,
    pub group: GroupId,
}

/// Jobs that fit or fail together.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub shape: Arc<Shape>,
    pub asked: Tally,
    pub max_runtime: Option<SignedDuration>,
    pub fit: Fit,
    standing: Standing,
    lines: HashMap<UserId, Line>,
    /// The first job of every line that may start as far as quotas go.
    firsts: BTreeMap<Key, UserId>,
    /// Under which job the group is listed.
    listed: Option<Key>,
}

#[derive(Debug, Clone, Default)]
struct Line {
    jobs: BTreeSet<Key>,
    offered: Option<Key>,
    /// Passed over until the current round of decisions ends.
    aside: bool,
}

type Kind = (Arc<Shape>, Option<SignedDuration>);

/// Why looking up a group cannot fail.
const ALIVE: &str = "a group lives as long as jobs name it";

/// Groups by the first job of each.
type List = BTreeSet<(Key, GroupId)>;

/// All waiting jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Key, Waiting>,
    keys: HashMap<JobId, Key>,
    groups: Vec<Option<Group>>,
    /// Places in `groups` that can be used again.
    vacant: Vec<GroupId>,
    kinds: HashMap<Kind, GroupId>,
    ready: List,
    blocked: List,
    stuck: List,
    /// Stuck groups by the cpu they need, so that a little free room wakes only the small ones.
    stuck_by_cpu: BTreeSet<(u128, GroupId)>,
    aside: Vec<(GroupId, UserId)>,
    serial: u64,
}

impl Queue {
    pub fn get(&self, key: Key) -> &Waiting {
        &self.waiting[&key]
    }

    pub fn key(&self, id: &JobId) -> Option<Key> {
        self.keys.get(id).copied()
    }

    pub fn group(&self, id: GroupId) -> &Group {
        self.groups[id.0].as_ref().expect(ALIVE)
    }

    /// The jobs before this one, in order.
    pub fn before(&self, key: Key) -> impl DoubleEndedIterator<Item = (Key, &Waiting)> {
        self.waiting.range(..key).map(|(key, waiting)| (*key, waiting))
    }

    /// The first job worth trying.
    pub fn first_ready(&self) -> Option<(Key, GroupId)> {
        self.ready.first().copied()
    }

    /// The first job that does not fit: what it needs is kept for it.
    pub fn first_stuck(&self) -> Option<(Key, GroupId)> {
        self.stuck.first().copied()
    }

    /// Adds a job; `fit` is asked only for a shape that is not queued yet.
    pub fn insert(
        &mut self,
        request: Request,
        user: UserId,
        accounts: &mut Accounts,
        fit: impl FnOnce(&Shape) -> Fit,
    ) {
        self.serial += 1;
        let key = Key {
            priority: Reverse(request.priority),
            order: request.order,
            serial: self.serial,
        };
        let group = self.group_of(&request, fit);
        let line = self.line_mut(group, user);
        line.jobs.insert(key);
        self.keys.insert(request.id.clone(), key);
        let waiting = Waiting { request, user, group };
        self.waiting.insert(key, waiting);
        self.line_changed(group, user, accounts);
    }

    fn group_of(&mut self, request: &Request, fit: impl FnOnce(&Shape) -> Fit) -> GroupId {
        let kind = (Arc::new(Shape::of(request)), request.max_runtime);
        if let Some(id) = self.kinds.get(&kind) {
            return *id;
        }
        let group = Group {
            shape: kind.0.clone(),
            asked: Tally::of(&kind.0),
            max_runtime: kind.1,
            fit: fit(&kind.0),
            standing: Standing::Ready,
            lines: HashMap::new(),
            firsts: BTreeMap::new(),
            listed: None,
        };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.groups.push(None);
            GroupId(self.groups.len() - 1)
        });
        self.groups[id.0] = Some(group);
        self.kinds.insert(kind, id);
        id
    }

    fn line_mut(&mut self, group: GroupId, user: UserId) -> &mut Line {
        self.group_mut(group).lines.entry(user).or_default()
    }

    fn group_mut(&mut self, id: GroupId) -> &mut Group {
        self.groups[id.0].as_mut().expect(ALIVE)
    }

    /// Takes a job out.
    pub fn remove(&mut self, key: Key, accounts: &mut Accounts) -> Waiting {
        let waiting = self.waiting.remove(&key).expect("only queued jobs are removed");
        self.keys.remove(&waiting.request.id);
        let (group, user) = (waiting.group, waiting.user);
        self.line_mut(group, user).jobs.remove(&key);
        self.line_changed(group, user, accounts);
        self.drop_if_empty(group, user);
        waiting
    }

    fn drop_if_empty(&mut self, id: GroupId, user: UserId) {
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

    /// Tells the account which job is now the first of a line.
    fn line_changed(&mut self, id: GroupId, user: UserId, accounts: &mut Accounts) {
        let group = self.group(id);
        let first = group.lines[&user].jobs.first().copied();
        let account = accounts.get_mut(user);
        if first == account.lines.get(&id).map(|(key, _)| *key) {
            return;
        }
        match first {
            Some(first) => account.lines.insert(id, (first, group.asked)),
            None => account.lines.remove(&id),
        };
        self.usage_changed(user, accounts);
        self.offer_first(id, user, accounts);
    }

    /// Looks again at which job waits for its user's quota. Costs as much as the user has lines.
    pub fn usage_changed(&mut self, user: UserId, accounts: &mut Accounts) {
        let account = accounts.get_mut(user);
        let hold = account.find_hold();
        if std::mem::replace(&mut account.hold, hold) != hold {
            self.offer_all(user, accounts);
        }
    }

    /// Looks again at everything the user has, after another quota was set.
    pub fn quota_changed(&mut self, user: UserId, accounts: &mut Accounts) {
        let account = accounts.get_mut(user);
        account.hold = account.find_hold();
        self.offer_all(user, accounts);
    }

    fn offer_all(&mut self, user: UserId, accounts: &Accounts) {
        for group in accounts.get(user).lines.keys() {
            self.offer_first(*group, user, accounts);
        }
    }

    fn offer_first(&mut self, id: GroupId, user: UserId, accounts: &Accounts) {
        let account = accounts.get(user);
        let group = self.group(id);
        let line = &group.lines[&user];
        let lets = |key: &Key| !line.aside && account.lets(*key, group.asked);
        let first = line.jobs.first().copied().filter(lets);
        self.offer(id, user, first);
    }

    fn offer(&mut self, id: GroupId, user: UserId, key: Option<Key>) {
        let line = self.line_mut(id, user);
        let offered = std::mem::replace(&mut line.offered, key);
        if offered == key {
            return;
        }
        let group = self.group_mut(id);
        offered.map(|old| group.firsts.remove(&old));
        group.firsts.extend(key.map(|key| (key, user)));
        let first = group.first();
        // A new first job gets a try of its own, unless there is no room for any of them. What happens to a group
        // while nobody stands for it goes unseen.
        let standing = match group.standing {
            Standing::Stuck if first.is_some() => Standing::Stuck,
            _ => Standing::Ready,
        };
        if (first, standing) != (group.listed, group.standing) {
            self.relist(id, first, standing);
        }
    }

    /// Notes the outcome of a try.
    pub fn set_standing(&mut self, id: GroupId, standing: Standing) {
        let listed = self.group(id).listed;
        self.relist(id, listed, standing);
    }

    fn relist(&mut self, id: GroupId, key: Option<Key>, standing: Standing) {
        let group = self.group_mut(id);
        let before = (group.listed, group.standing);
        (group.listed, group.standing) = (key, standing);
        let cpu = match group.fit {
            Fit::Beside => group.shape.total.cpu,
            Fit::Alone | Fit::Never => 0,
        };
        if let (Some(old), standing) = before {
            self.list(standing).remove(&(old, id));
            self.stuck_by_cpu.remove(&(cpu, id));
        }
        if let Some(key) = key {
            self.list(standing).insert((key, id));
            if standing == Standing::Stuck {
                self.stuck_by_cpu.insert((cpu, id));
            }
        }
    }

    fn list(&mut self, standing: Standing) -> &mut List {
        match standing {
            Standing::Ready => &mut self.ready,
            Standing::Blocked => &mut self.blocked,
            Standing::Stuck => &mut self.stuck,
        }
    }

    /// Passes over the line whose job stands for the group until [`Queue::end_round`].
    pub fn put_aside(&mut self, id: GroupId) {
        let Some(user) = self.group(id).first_user() else {
            return;
        };
        self.line_mut(id, user).aside = true;
        self.aside.push((id, user));
        self.offer(id, user, None);
    }

    /// Takes back who was put aside: they wait for the same thing as blocked jobs.
    pub fn end_round(&mut self, accounts: &Accounts) {
        for (id, user) in std::mem::take(&mut self.aside) {
            self.line_mut(id, user).aside = false;
            self.offer_first(id, user, accounts);
            if self.group(id).standing == Standing::Ready {
                self.set_standing(id, Standing::Blocked);
            }
        }
    }

    /// Blocked jobs may try again: what is kept for the job ahead is worked out anew.
    pub fn unblock(&mut self) {
        while let Some((_, id)) = self.blocked.first().copied() {
            self.set_standing(id, Standing::Ready);
        }
    }

    /// Stuck groups that need no more cpu than this may try again, if they also pass the look.
    pub fn unstick(&mut self, free_cpu: u128, look: impl Fn(&Group) -> bool) {
        let small = self.stuck_by_cpu.iter().take_while(|(cpu, _)| *cpu <= free_cpu);
        let awake: Vec<GroupId> = small
            .map(|(_, id)| *id)
            .filter(|id| look(self.group(*id)))
            .collect();
        for id in awake {
            self.set_standing(id, Standing::Ready);
        }
    }

    /// Looks anew at all blocked groups, and at the stuck ones that need no more cpu than this.
    pub fn wake(&mut self, except: GroupId, free_cpu: u128, look: impl Fn(&Group) -> Standing) {
        let blocked = self.blocked.iter().map(|(_, id)| *id);
        let small = self.stuck_by_cpu.iter().take_while(|(cpu, _)| *cpu <= free_cpu);
        let changed: Vec<(GroupId, Standing)> = blocked
            .chain(small.map(|(_, id)| *id))
            .filter(|id| *id != except)
            .map(|id| (id, look(self.group(id))))
            .filter(|(id, standing)| self.group(*id).standing != *standing)
            .collect();
        for (id, standing) in changed {
            self.set_standing(id, standing);
        }
    }

    /// Everything may try again, on other nodes.
    pub fn refit(&mut self, fit: impl Fn(&Shape) -> Fit) {
        for id in self.kinds.values().copied().collect::<Vec<_>>() {
            self.relist(id, None, Standing::Ready);
            let group = self.group_mut(id);
            group.fit = fit(&group.shape);
            let first = group.first();
            self.relist(id, first, Standing::Ready);
        }
    }
}

impl Group {
    /// The job that stands for the group, unless it cannot run at all.
    fn first(&self) -> Option<Key> {
        let first = self.firsts.first_key_value().map(|(key, _)| *key);
        first.filter(|_| self.fit != Fit::Never)
    }

    /// Whose job stands for the group.
    pub fn first_user(&self) -> Option<UserId> {
        self.firsts.first_key_value().map(|(_, user)| *user)
    }
}
