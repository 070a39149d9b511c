//! The quotas and usage of users and user groups, and which of a user's jobs waits for a quota.
//!
//! Knows only the first job of each line of jobs; the queue reports which one that is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::queue::{JobGroupId, Key, Rank};
use super::quota::{ExceededLimit, GroupQuota, GroupUsage, Quota, RequestSum, StorageHold};
use super::summary_tree::{Summary, SummaryTree};
use crate::names::UserName;

/// Identifies a user inside the scheduler; names are long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct UserId(usize);

/// Identifies a user group with a quota, until these quotas are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TeamId(usize);

/// A user group with a quota on the sum of its members.
#[derive(Debug, Clone)]
struct Team {
    members: Vec<UserId>,
    quota: TeamQuota,
}

/// A group's quota, and what all its members have running. Every member's state has a copy.
#[derive(Debug, Clone)]
pub(super) struct TeamQuota {
    pub id: TeamId,
    group: Arc<str>,
    quota: Quota,
    pub used: RequestSum,
}

/// The state of one user.
#[derive(Debug, Clone, Default)]
pub(super) struct UserState {
    quota: Quota,
    used: RequestSum,
    /// No job starts because of the user's files.
    storage: Option<StorageHold>,
    /// The quotas of the user's groups.
    teams: Vec<TeamQuota>,
    /// The weighted dominant share of the running jobs. Set by [`Queue::reshare`](super::queue::Queue::reshare).
    share: u64,
    /// The number of queued jobs.
    pub waiting: u64,
    /// The first job that waits for a quota. No later job of the user overtakes it.
    hold: Option<Key>,
    /// The first job of each of the user's lines.
    lines: BTreeMap<Key, (JobGroupId, RequestSum)>,
    /// Those that the quota could ever allow, in order, with the largest request among them.
    possible: SummaryTree<Key, RequestSum>,
    /// Lines that are not offered because they waited for the quota when last checked.
    pub parked: BTreeMap<Key, JobGroupId>,
    /// The first parked job that no longer waits for the quota, as listed in the queue.
    pub sleeper: Option<Key>,
}

/// All users ever seen.
#[derive(Debug, Clone, Default)]
pub(super) struct UserStates {
    ids: HashMap<UserName, UserId>,
    states: Vec<UserState>,
    /// Users with a guarantee.
    guaranteed: BTreeSet<UserId>,
    teams: Vec<Team>,
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

impl TeamQuota {
    pub fn allows(&self, used: RequestSum, asked: RequestSum) -> bool {
        self.quota.allows(used, asked)
    }

    fn in_the_way(&self, used: RequestSum, asked: RequestSum) -> Option<ExceededLimit> {
        let limit = self.quota.in_the_way(used, asked)?;
        Some(ExceededLimit {
            group: Some(Arc::clone(&self.group)),
            ..limit
        })
    }
}

impl UserState {
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

    pub fn storage(&self) -> Option<&StorageHold> {
        self.storage.as_ref()
    }

    pub fn set_storage(&mut self, hold: Option<StorageHold>) {
        self.storage = hold;
        self.check_lines();
    }

    /// The rank of one of the user's jobs in the queue.
    pub fn rank(&self, key: Key) -> Rank {
        key.rank(self.share)
    }

    /// The first job of each of the user's lines.
    pub fn heads(&self) -> impl Iterator<Item = (Key, JobGroupId)> {
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
    pub fn groups(&self) -> impl Iterator<Item = JobGroupId> {
        self.lines.values().map(|(group, _)| *group)
    }

    /// The quotas of the user's groups.
    pub fn teams(&self) -> &[TeamQuota] {
        &self.teams
    }

    pub fn team(&self, id: TeamId) -> Option<&TeamQuota> {
        self.teams.iter().find(|team| team.id == id)
    }

    /// The first limit that forbids the request now: the user's own, or one of their groups.
    pub fn in_the_way(&self, asked: RequestSum) -> Option<ExceededLimit> {
        let own = self.quota.in_the_way(self.used, asked);
        own.or_else(|| {
            self.teams
                .iter()
                .find_map(|team| team.in_the_way(team.used, asked))
        })
    }

    /// The first limit that forbids the request even if nothing ran.
    pub fn never_allows(&self, asked: RequestSum) -> Option<ExceededLimit> {
        let nothing = RequestSum::default();
        let own = self.quota.in_the_way(nothing, asked);
        own.or_else(|| self.teams.iter().find_map(|team| team.in_the_way(nothing, asked)))
    }

    /// False if a quota would not allow the job even if nothing ran.
    pub fn could_ever(&self, asked: RequestSum) -> bool {
        self.is_unlimited() || self.never_allows(asked).is_none()
    }

    fn is_unlimited(&self) -> bool {
        self.quota.is_unlimited() && self.teams.is_empty() && self.storage.is_none()
    }

    /// Whether a job does not have to wait for the quota.
    pub fn lets(&self, key: Key) -> bool {
        self.hold.is_none_or(|hold| key < hold)
    }

    /// The first parked job in the range, if it no longer waits for the quota.
    pub fn next_sleeper(&self, from: Bound<Key>) -> Option<(Key, JobGroupId)> {
        let (key, group) = self.parked.range((from, Bound::Unbounded)).next()?;
        self.lets(*key).then_some((*key, *group))
    }

    /// Replaces the first job of a line.
    pub fn change_line(
        &mut self,
        before: Option<Key>,
        after: Option<Key>,
        group: JobGroupId,
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
        if !self.is_unlimited() && self.could_ever(asked) {
            self.possible.insert(key.code(), key, asked);
        }
    }

    pub fn set_used(&mut self, used: RequestSum) {
        self.used = used;
        self.hold = self.find_hold();
    }

    fn set_team_used(&mut self, id: TeamId, used: RequestSum) {
        let team = self.teams.iter_mut().find(|team| team.id == id);
        team.expect("a member has its group's quota").used = used;
        self.hold = self.find_hold();
    }

    /// What the user's groups have running.
    pub fn group_usage(&self) -> Vec<GroupUsage> {
        let usage = |team: &TeamQuota| GroupUsage {
            group: Arc::clone(&team.group),
            quota: team.quota,
            usage: team.used.usage(),
        };
        self.teams.iter().map(usage).collect()
    }

    pub fn set_quota(&mut self, quota: Quota) {
        self.quota = quota;
        self.check_lines();
    }

    /// Checks all lines again after a change of quotas or storage.
    fn check_lines(&mut self) {
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
        let waits = |asked: &RequestSum| self.storage.is_some() || self.in_the_way(*asked).is_some();
        self.possible.first(waits).copied()
    }
}

impl UserStates {
    pub fn find(&self, user: &UserName) -> Option<&UserState> {
        self.ids.get(user).map(|id| self.get(*id))
    }

    pub fn id(&mut self, user: &UserName) -> UserId {
        if let Some(id) = self.ids.get(user) {
            return *id;
        }
        let id = UserId(self.states.len());
        self.states.push(UserState::default());
        self.ids.insert(user.clone(), id);
        id
    }

    pub fn all(&self) -> impl Iterator<Item = UserId> + use<> {
        (0..self.states.len()).map(UserId)
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

    /// Replaces the quotas of all user groups, and returns the users who had or have one.
    pub fn set_group_quotas(&mut self, quotas: Vec<GroupQuota>) -> BTreeSet<UserId> {
        let members = |teams: &[Team]| teams.iter().flat_map(|team| team.members.clone()).collect();
        let mut changed: BTreeSet<UserId> = members(&self.teams);
        for user in &changed {
            self.get_mut(*user).teams.clear();
        }
        let quotas = quotas.into_iter().filter(|quota| !quota.quota.is_unlimited());
        self.teams = quotas
            .enumerate()
            .map(|(index, quota)| self.team(index, quota))
            .collect();
        changed.extend(members(&self.teams));
        for team in &self.teams {
            for member in &team.members {
                self.states[member.0].teams.push(team.quota.clone());
            }
        }
        for user in &changed {
            self.get_mut(*user).check_lines();
        }
        changed
    }

    fn team(&mut self, index: usize, quota: GroupQuota) -> Team {
        let members: BTreeSet<UserId> = quota.members.iter().map(|user| self.id(user)).collect();
        let used = members.iter().map(|user| self.get(*user).used());
        Team {
            quota: TeamQuota {
                id: TeamId(index),
                group: quota.group,
                quota: quota.quota,
                used: used.fold(RequestSum::default(), RequestSum::plus),
            },
            members: members.into_iter().collect(),
        }
    }

    /// Changes what a user's groups have running, and returns their members. Costs a step per member.
    pub fn use_teams(&mut self, user: UserId, change: impl Fn(RequestSum) -> RequestSum) -> BTreeSet<UserId> {
        let mut changed = BTreeSet::new();
        for id in self
            .get(user)
            .teams
            .iter()
            .map(|team| team.id)
            .collect::<Vec<_>>()
        {
            let team = &mut self.teams[id.0];
            team.quota.used = change(team.quota.used);
            let used = team.quota.used;
            for member in &team.members {
                let state = &mut self.states[member.0];
                state.set_team_used(id, used);
                changed.insert(*member);
            }
        }
        changed
    }

    pub fn get(&self, id: UserId) -> &UserState {
        &self.states[id.0]
    }

    pub fn get_mut(&mut self, id: UserId) -> &mut UserState {
        &mut self.states[id.0]
    }
}
