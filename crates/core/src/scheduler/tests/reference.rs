//! The same rules, written as simply as possible: lists, loops, no state between rounds.
//!
//! Slow on purpose. If it and the scheduler differ, one of them is wrong.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::names::{JobId, UserName};
use crate::scheduler::{Admits, GroupQuota, Inventory, NodeTraits, Quota, Request};

/// Free room of a node: cpu, memory, cards.
pub type Free = [u64; 3];

/// A job with the node of each worker.
#[derive(Debug, Clone)]
pub struct Run {
    pub request: Request,
    pub nodes: Vec<usize>,
    pub started: Timestamp,
}

#[derive(Debug, Clone)]
pub struct Reference {
    pub nodes: Vec<Free>,
    /// What each node has, and whom it admits.
    pub traits: Vec<Arc<NodeTraits>>,
    pub waiting: Vec<Request>,
    /// In the order of their starts.
    pub running: Vec<Run>,
    pub quotas: HashMap<UserName, Quota>,
    pub group_quotas: Vec<GroupQuota>,
    /// Users whose files exceed their quota.
    pub over_storage: HashSet<UserName>,
    pub oversubscribe_alone: bool,
    pub fair_share: bool,
    /// The promise of the last round to the first job that did not fit.
    pub promise: Option<Promise>,
}

/// A start that no other job may delay.
#[derive(Debug, Clone)]
pub struct Promise {
    pub request: Request,
    pub start: Option<Timestamp>,
    /// The jobs that must have ended by then.
    pub gone: Vec<JobId>,
}

/// The reservation of the first job that does not fit.
struct Kept {
    request: Request,
    start: Option<Timestamp>,
    /// The room left on each node when it starts; `None` if it takes everything.
    remaining: Option<Vec<Free>>,
}

/// What one worker of each role needs.
pub fn needs(request: &Request) -> Vec<Free> {
    let need = |(count, each): &(u32, crate::spec::Resources)| {
        let need = [each.cpu.as_millis(), each.memory.as_u64(), u64::from(each.gpu)];
        std::iter::repeat_n(need, *count as usize)
    };
    request.roles.iter().flat_map(need).collect()
}

pub fn asked(request: &Request) -> [u64; 5] {
    let mut sum = [0, 0, 0, u64::from(request.roles.last().unwrap().0), 1];
    for need in needs(request) {
        (0..3).for_each(|kind| sum[kind] += need[kind]);
    }
    sum
}

fn take(free: &mut [Free], request: &Request, nodes: &[usize]) {
    for (need, node) in needs(request).iter().zip(nodes) {
        (0..3).for_each(|kind| free[*node][kind] = free[*node][kind].saturating_sub(need[kind]));
    }
}

/// Whether the last of these amounts is within the quota beside the others.
fn within(quota: &Quota, taken: &[[u64; 5]]) -> bool {
    let limits = [
        quota.cpu.map(|cpu| cpu.as_millis()),
        quota.memory.map(|memory| memory.as_u64()),
        quota.gpu.map(u64::from),
        quota.parallelism.map(u64::from),
        quota.jobs.map(u64::from),
    ];
    let asked = taken.last().unwrap();
    (0..5).all(|kind| {
        let sum = taken.iter().map(|taken| taken[kind]).sum::<u64>();
        asked[kind] == 0 || limits[kind].is_none_or(|limit| sum <= limit)
    })
}

fn holds(free: &Free, need: &Free) -> bool {
    (0..3).all(|kind| free[kind] >= need[kind])
}

impl Reference {
    pub fn new(inventory: &Inventory, oversubscribe_alone: bool) -> Reference {
        let room = |node: &crate::scheduler::Node| {
            [node.cpu.as_millis(), node.memory.as_u64(), u64::from(node.gpus)]
        };
        Reference {
            nodes: inventory.nodes.iter().map(room).collect(),
            traits: inventory.nodes.iter().map(|node| node.traits.clone()).collect(),
            waiting: Vec::new(),
            running: Vec::new(),
            quotas: HashMap::new(),
            group_quotas: Vec::new(),
            over_storage: HashSet::new(),
            oversubscribe_alone,
            fair_share: false,
            promise: None,
        }
    }

    /// What is free beside these jobs.
    pub fn free_with<'a>(&self, runs: impl IntoIterator<Item = &'a Run>) -> Vec<Free> {
        let mut free = self.nodes.clone();
        for run in runs {
            take(&mut free, &run.request, &run.nodes);
        }
        free
    }

    /// First fit, largest workers first, nodes with fewer cards first.
    pub fn place(&self, free: &[Free], request: &Request) -> Option<Vec<usize>> {
        let needs = needs(request);
        let mut workers: Vec<usize> = (0..needs.len()).collect();
        workers.sort_by_key(|worker| Reverse((needs[*worker][2], needs[*worker][0], needs[*worker][1])));
        let mut order: Vec<usize> = (0..free.len()).collect();
        order.sort_by_key(|node| self.nodes[*node][2]);
        let mut free = free.to_vec();
        let mut nodes = vec![0; needs.len()];
        for worker in workers {
            let need = &needs[worker];
            let suits = |node: &usize| holds(&free[*node], need) && self.admits(*node, request, need);
            nodes[worker] = order.iter().copied().find(suits)?;
            (0..3).for_each(|kind| free[nodes[worker]][kind] -= need[kind]);
        }
        Some(nodes)
    }

    /// Whether a worker with this need may use the node: it has all labels, and its GPUs are of the type.
    pub fn admits(&self, node: usize, request: &Request, need: &Free) -> bool {
        let traits = &self.traits[node];
        let has_label = |(key, value): (&String, &String)| traits.labels.get(key) == Some(value);
        let has_labels = request.required.labels.iter().all(has_label);
        let is_typed = need[2] > 0 && request.required.gpu_type.is_some();
        let is_open = match traits.admits {
            Admits::Anything => return true,
            _ if is_typed => {
                let asked = request.required.gpu_type.as_ref().unwrap();
                traits.gpu_types.contains(asked)
            }
            Admits::Everyone => true,
            Admits::GpusOnlyByType => need[2] == 0,
            Admits::OnlyByType => false,
        };
        is_open && has_labels
    }

    pub fn fits_idle(&self, request: &Request) -> bool {
        self.place(&self.nodes, request).is_some()
    }

    fn runs_alone(&self, request: &Request) -> bool {
        self.oversubscribe_alone && !self.fits_idle(request)
    }

    /// Whether it could start if nothing else ran.
    fn can_start(&self, request: &Request) -> bool {
        let matches = |need: &Free| (0..self.nodes.len()).any(|node| self.admits(node, request, need));
        self.fits_idle(request) || self.oversubscribe_alone && needs(request).iter().all(matches)
    }

    pub fn used(&self, user: &UserName) -> [u64; 5] {
        let mut sum = [0; 5];
        for run in self.running.iter().filter(|run| run.request.user == *user) {
            let asked = asked(&run.request);
            (0..5).for_each(|kind| sum[kind] += asked[kind]);
        }
        sum
    }

    pub fn within_quota(&self, user: &UserName, taken: &[[u64; 5]]) -> bool {
        within(&self.quotas.get(user).copied().unwrap_or_default(), taken)
    }

    /// Whether a request is within the quotas of all groups of its user, beside a job with a reservation.
    pub fn within_groups(&self, request: &Request, kept: Option<&Request>) -> bool {
        self.group_quotas.iter().all(|group| {
            if !group.members.contains(&request.user) {
                return true;
            }
            let mut taken: Vec<_> = group.members.iter().map(|member| self.used(member)).collect();
            let kept = kept.filter(|kept| group.members.contains(&kept.user));
            taken.extend(kept.map(asked));
            taken.push(asked(request));
            within(&group.quota, &taken)
        })
    }

    fn can_ever(&self, request: &Request) -> bool {
        let own = self.within_quota(&request.user, &[asked(request)]);
        let groups = self
            .group_quotas
            .iter()
            .filter(|group| group.members.contains(&request.user));
        own && groups
            .into_iter()
            .all(|group| within(&group.quota, &[asked(request)]))
    }

    fn is_let_now(&self, request: &Request) -> bool {
        let taken = [self.used(&request.user), asked(request)];
        let is_over = self.over_storage.contains(&request.user);
        !is_over && self.within_quota(&request.user, &taken) && self.within_groups(request, None)
    }

    fn waits_for_quota(&self, request: &Request) -> bool {
        self.can_ever(request) && !self.is_let_now(request)
    }

    /// One round: starts the first job that may start, until none may. Returns which jobs started where.
    pub fn decide(&mut self, now: Timestamp) -> Vec<(JobId, Vec<usize>)> {
        let mut admitted = Vec::new();
        let mut kept: Option<Kept> = None;
        self.promise = None;
        loop {
            self.sort_queue();
            let Some((request, nodes)) = self.first_start(&mut kept, now) else {
                break;
            };
            admitted.push((request.id.clone(), nodes.clone()));
            self.waiting.retain(|waiting| waiting.id != request.id);
            let started = now;
            self.running.push(Run {
                request,
                nodes,
                started,
            });
        }
        admitted
    }

    /// Sorts the queue again: every start may change whose turn is next.
    fn sort_queue(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|request| {
            (
                Reverse(request.priority),
                self.share(&request.user),
                request.order,
            )
        });
        self.waiting = waiting;
    }

    /// The user's weighted dominant share.
    fn share(&self, user: &UserName) -> u128 {
        if !self.fair_share {
            return 0;
        }
        let used = self.used(user);
        let parts = (0..3).filter_map(|kind| {
            let all: u128 = self.nodes.iter().map(|node| u128::from(node[kind])).sum();
            (u128::from(used[kind]) << 32).checked_div(all)
        });
        let weight = self.quotas.get(user).and_then(|quota| quota.weight);
        parts.max().unwrap_or(0) / u128::from(weight.unwrap_or(1).max(1))
    }

    /// The first job of the queue that may start. The first that does not fit gets a reservation for the round.
    fn first_start(&mut self, kept: &mut Option<Kept>, now: Timestamp) -> Option<(Request, Vec<usize>)> {
        if self.running.iter().any(|run| self.runs_alone(&run.request)) {
            return None;
        }
        for request in self.waiting.clone() {
            let is_kept = kept.as_ref().is_some_and(|kept| kept.request.id == request.id);
            if is_kept || !self.can_start(&request) || !self.quota_lets(&request) {
                continue;
            }
            let nodes = match kept {
                None => self.start_first(&request),
                Some(kept) => self.start_behind(kept, &request, now),
            };
            match nodes {
                Some(nodes) => return Some((request, nodes)),
                None if kept.is_none() => *kept = Some(self.keep(request, now)),
                None => {}
            }
        }
        None
    }

    fn quota_lets(&self, request: &Request) -> bool {
        let key = (Reverse(request.priority), request.order);
        let earlier = self
            .waiting
            .iter()
            .filter(|other| other.user == request.user && (Reverse(other.priority), other.order) < key);
        let held = earlier.into_iter().any(|other| self.waits_for_quota(other));
        !held && self.is_let_now(request)
    }

    fn start_first(&self, request: &Request) -> Option<Vec<usize>> {
        if self.runs_alone(request) {
            let workers = needs(request).len();
            return self.running.is_empty().then(|| vec![0; workers]);
        }
        self.place(&self.free_with(&self.running), request)
    }

    fn start_behind(&self, kept: &mut Kept, request: &Request, now: Timestamp) -> Option<Vec<usize>> {
        let taken = [self.used(&request.user), asked(&kept.request), asked(request)];
        let takes_own = kept.request.user == request.user && !self.within_quota(&request.user, &taken);
        let takes_quota = takes_own || !self.within_groups(request, Some(&kept.request));
        if self.runs_alone(request) || takes_quota {
            return None;
        }
        let free = self.free_with(&self.running);
        let end = request.max_runtime.map(|limit| now + limit);
        if end.zip(kept.start).is_some_and(|(end, start)| end < start) {
            return self.place(&free, request);
        }
        let remaining = kept.remaining.as_mut()?;
        let least = |(a, b): (&Free, &Free)| [a[0].min(b[0]), a[1].min(b[1]), a[2].min(b[2])];
        let spare: Vec<Free> = free.iter().zip(remaining.iter()).map(least).collect();
        let nodes = self.place(&spare, request)?;
        take(remaining, request, &nodes);
        Some(nodes)
    }

    fn keep(&mut self, request: Request, now: Timestamp) -> Kept {
        let (start, left) = self.start_of(&request, now).unwrap();
        let mut free = self.free_with(left.iter().copied());
        let is_gone = |run: &&Run| !left.iter().any(|left| left.request.id == run.request.id);
        let gone = self
            .running
            .iter()
            .filter(is_gone)
            .map(|run| run.request.id.clone());
        let gone = gone.collect();
        self.promise = Some(Promise {
            request: request.clone(),
            start,
            gone,
        });
        let remaining = (!self.runs_alone(&request)).then(|| {
            let nodes = self.place(&free, &request).unwrap();
            take(&mut free, &request, &nodes);
            free
        });
        Kept {
            request,
            start,
            remaining,
        }
    }

    /// When a job that does not fit now could start, and which jobs still run then.
    fn start_of(&self, request: &Request, now: Timestamp) -> Option<(Option<Timestamp>, Vec<&Run>)> {
        let (mut known, unknown): (Vec<&Run>, Vec<&Run>) = self
            .running
            .iter()
            .partition(|run| run.request.max_runtime.is_some());
        let end = |run: &Run| run.started + run.request.max_runtime.unwrap();
        known.sort_by_key(|run| end(run));
        for gone in 1..=known.len() {
            let last = end(known[gone - 1]);
            let left: Vec<&Run> = known[gone..].iter().chain(&unknown).copied().collect();
            if self.starts_with(request, &left) {
                return Some((Some(last.max(now)), left));
            }
        }
        let any: Vec<&Run> = self.running.iter().collect();
        let gone = (1..=any.len()).find(|gone| self.starts_with(request, &any[*gone..]))?;
        Some((None, any[gone..].to_vec()))
    }

    fn starts_with(&self, request: &Request, left: &[&Run]) -> bool {
        if self.runs_alone(request) {
            return left.is_empty();
        }
        let free = self.free_with(left.iter().copied());
        self.place(&free, request).is_some()
    }
}
