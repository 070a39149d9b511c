//! Finds out why a job waits.
//!
//! Read-only; costs at most a sort of the queue and a walk over the running jobs. `server::app::why` writes the sentences.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use jiff::Timestamp;

use super::eligible::Nodes;
use super::excess::{Excess, ResourceKind, Shortage};
use super::queue::{Fit, Key, Waiting};
use super::room::{Load, Shape};
use super::running::Run;
use super::unmatched::Matching;
use super::why::{Holders, Outside, Reason, Reasons, Why};
use super::{Scheduler, change, estimate, placing, too_big};
use crate::names::JobId;

/// How many jobs ahead are named.
const NAMED_AHEAD: usize = 10;
/// How many jobs that hold the missing resource are named.
const NAMED_HOLDERS: usize = 3;

pub(super) fn explain(scheduler: &Scheduler, id: &JobId, now: Timestamp) -> Option<Why> {
    let key = scheduler.queue.key(id)?;
    let waiting = scheduler.queue.get(key);
    let before = scheduler.queue.before(key, &scheduler.users);
    let mut reason = reason(scheduler, key, waiting, || lack_of_room(scheduler, waiting));
    let only_own = waits_for_quota(&reason);
    let ahead = Ahead::of(&before, key, |other| !only_own || other.user == waiting.user);
    reason.count_ahead(|| (ahead.total, ahead.higher));
    let is_unknown = matches!(
        reason,
        Reason::TooBig(_) | Reason::BeyondQuota(_) | Reason::Storage(_)
    );
    let estimate = match is_unknown {
        true => None,
        false => estimate::estimate(scheduler, key, &before, now),
    };
    let change = match reason {
        Reason::Alone { .. } => change::end_what_runs_alone(scheduler, key, &before, now),
        _ => change::smallest(scheduler, key, now),
    };
    Some(Why {
        reason,
        ahead: ahead.named,
        ahead_total: ahead.total,
        estimate,
        change,
        closed_nodes: scheduler.closed_nodes,
        matching: matching(scheduler, waiting),
    })
}

/// The reasons of [`explain`] for several jobs: sorts the queue at most once, and searches for room once for equal jobs of a user.
pub(super) fn reasons(scheduler: &Scheduler, ids: &[JobId]) -> Reasons {
    let (mut lacks, mut order) = (HashMap::new(), None);
    let reason_of = |id: &JobId| {
        let key = scheduler.queue.key(id)?;
        let waiting = scheduler.queue.get(key);
        let lack = || {
            let known = lacks.entry((waiting.group, waiting.user));
            known.or_insert_with(|| lack_of_room(scheduler, waiting)).clone()
        };
        let mut reason = reason(scheduler, key, waiting, lack);
        reason.count_ahead(|| {
            let order = order.get_or_insert_with(|| scheduler.queue.order(&scheduler.users));
            order.ahead_of(scheduler.users.get(waiting.user).rank(key))
        });
        Some((reason, matching(scheduler, waiting)))
    };
    Reasons {
        of: ids.iter().map(reason_of).collect(),
        closed_nodes: scheduler.closed_nodes,
    }
}

/// Whether a job waits for a quota. Then only jobs of that user are ahead of it.
fn waits_for_quota(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::BeyondQuota(_) | Reason::Quota(_) | Reason::Storage(_) | Reason::BehindOwn(_)
    )
}

/// The reason without the number of jobs ahead; `lack` is called only if nothing else blocks the job.
fn reason(
    scheduler: &Scheduler,
    key: Key,
    waiting: &Waiting,
    lack: impl FnOnce() -> Option<Reason>,
) -> Reason {
    let group = scheduler.queue.group(waiting.group);
    let state = scheduler.users.get(waiting.user);
    let id = |key: Key| scheduler.queue.get(key).request.id.clone();
    if group.fit == Fit::Never {
        return Reason::TooBig(too_big::never_fits(scheduler, &group.shape));
    }
    if let Some(limit) = state.never_allows(group.asked) {
        return Reason::BeyondQuota(limit);
    }
    if let Some(hold) = state.storage() {
        return Reason::Storage(hold.clone());
    }
    if let Some(own) = state.hold().filter(|hold| *hold < key) {
        return Reason::BehindOwn(id(own));
    }
    if let Some(limit) = state.in_the_way(group.asked) {
        return Reason::Quota(limit);
    }
    if let Some(alone) = &scheduler.alone {
        return Reason::Alone {
            job: alone.id.clone(),
            excess: alone.excess.clone(),
            ends_by: scheduler.running.end(&alone.id),
        };
    }
    if let Some(lack) = lack() {
        return lack;
    }
    let stuck = scheduler.stuck().map(|(stuck, _)| stuck);
    match stuck.filter(|stuck| scheduler.is_before(*stuck, key)) {
        Some(stuck) => Reason::Kept {
            job: id(stuck),
            ahead: 0,
            higher: 0,
        },
        None => Reason::NextRound,
    }
}

/// Why the free room is not enough for a job; the same for all jobs of its user in its group.
fn lack_of_room(scheduler: &Scheduler, waiting: &Waiting) -> Option<Reason> {
    let group = scheduler.queue.group(waiting.group);
    if group.fit == Fit::Alone && !scheduler.running.is_empty() {
        return Some(Reason::NeedsEverything {
            excess: Excess::together(&group.shape, &scheduler.cluster),
            held_by: holders(scheduler, waiting, ResourceKind::Cpu, &Nodes::default()),
        });
    }
    let lacks =
        group.fit == Fit::WithOthers && placing::place(scheduler.cluster.free(), &group.shape).is_none();
    lacks.then(|| no_room(scheduler, waiting, &group.shape))
}

/// Too little room is free in total, or it is free where no whole worker fits.
fn no_room(scheduler: &Scheduler, waiting: &Waiting, shape: &Shape) -> Reason {
    let (free, idle) = (scheduler.cluster.free(), scheduler.cluster.idle());
    let on_some_nodes = shape.parts.iter().find_map(|part| {
        let nodes = &part.eligible.nodes;
        let free = nodes.set().map(|_| free.total_of(nodes))?;
        let short = Shortage::all(&Load::of(&part.need, part.count), &free);
        Some((short.into_iter().next()?, idle.total_of(nodes), nodes.clone()))
    });
    let on_all_nodes = || {
        let short = Shortage::all(&shape.total, free.total()).into_iter().next()?;
        Some((short, *idle.total(), Nodes::default()))
    };
    if let Some((short, all, nodes)) = on_some_nodes.or_else(on_all_nodes) {
        return Reason::Room {
            short,
            of: part_of(&all, short.kind),
            held_by: holders(scheduler, waiting, short.kind, &nodes),
        };
    }
    let trainers = waiting.request.trainers();
    let fitting = placing::largest_below(u64::from(trainers), |fewer| {
        let smaller = too_big::with_trainers(&waiting.request, fewer);
        placing::place(free, &scheduler.cluster.shape(&smaller)).is_some()
    });
    Reason::Scattered {
        trainers,
        workers: shape.workers(),
        fitting: fitting.and_then(|count| u32::try_from(count).ok()),
        held_by: holders(
            scheduler,
            waiting,
            ResourceKind::Cpu,
            &trainers_nodes(waiting, shape),
        ),
    }
}

/// The nodes that the job's trainers may use.
fn trainers_nodes(waiting: &Waiting, shape: &Shape) -> Nodes {
    let last = waiting.request.roles.len() - 1;
    let trainers = shape.parts.iter().find(|part| part.role == last);
    trainers
        .map(|part| part.eligible.nodes.clone())
        .unwrap_or_default()
}

/// How many nodes match what the trainers require, or else another role.
fn matching(scheduler: &Scheduler, waiting: &Waiting) -> Option<Matching> {
    let shape = &scheduler.queue.group(waiting.group).shape;
    let parts = shape.parts.iter().filter(|part| part.eligible.required.is_some());
    let part = parts.max_by_key(|part| part.role)?;
    Matching::of(part, &scheduler.cluster)
}

fn part_of(load: &Load, kind: ResourceKind) -> u128 {
    match kind {
        ResourceKind::Memory => load.memory,
        ResourceKind::Gpu => load.gpu,
        ResourceKind::Cpu => load.cpu,
    }
}

/// The running jobs that hold a resource of these nodes: those of the same user first, then those that hold most.
fn holders(scheduler: &Scheduler, waiting: &Waiting, kind: ResourceKind, nodes: &Nodes) -> Holders {
    let everywhere = |run: &Run| match kind {
        ResourceKind::Cpu => run.asked.cpu,
        ResourceKind::Memory => run.asked.memory,
        ResourceKind::Gpu => run.asked.gpu,
    };
    let held = |run: &Run| match nodes.set() {
        None => everywhere(run),
        Some(set) => {
            let loads = run.holding.loads.iter();
            let here = loads.filter(|(node, _)| set.has(*node));
            here.map(|(_, load)| part_of(load, kind)).sum()
        }
    };
    let known = scheduler.running.known().map(|(_, run)| run);
    let runs = known.chain(scheduler.running.unknown());
    let mut runs: Vec<&Run> = runs.filter(|run| held(run) > 0).collect();
    let total = runs.len();
    let order = |left: &&Run, right: &&Run| -> Ordering {
        let coarse = |run: &Run| (run.user != waiting.user, Reverse(held(run)));
        coarse(left)
            .cmp(&coarse(right))
            .then_with(|| left.id.cmp(&right.id))
    };
    if total > NAMED_HOLDERS {
        runs.select_nth_unstable_by(NAMED_HOLDERS, order);
        runs.truncate(NAMED_HOLDERS);
    }
    runs.sort_unstable_by(order);
    let outside = part_of(&scheduler.cluster.taken(nodes), kind);
    Holders {
        outside: (outside > 0).then_some(Outside {
            kind,
            amount: outside,
        }),
        total,
        jobs: runs.iter().map(|run| run.id.clone()).collect(),
    }
}

/// The jobs ahead in the queue.
struct Ahead {
    named: Vec<JobId>,
    total: usize,
    /// How many of them have a higher priority.
    higher: usize,
}

impl Ahead {
    /// Counts those of the jobs before this one that matter to it.
    fn of(before: &[(Key, &Waiting)], key: Key, matters: impl Fn(&Waiting) -> bool) -> Ahead {
        let mut ahead = Ahead {
            named: Vec::new(),
            total: 0,
            higher: 0,
        };
        for (other, job) in before.iter().filter(|(_, job)| matters(job)) {
            ahead.total += 1;
            ahead.higher += usize::from(other.priority < key.priority);
            if ahead.named.len() < NAMED_AHEAD {
                ahead.named.push(job.request.id.clone());
            }
        }
        ahead
    }
}
