//! Why a job waits, in words its owner understands.
//!
//! Looks only; costs up to a walk over the jobs ahead.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::queue::{Fit, Key, Waiting};
use super::quota::Limit;
use super::room::Shape;
use super::{Alone, Scheduler, change, estimate, placing, too_big, words};
use crate::names::JobId;

/// How many of the jobs ahead are named.
const NAMED_AHEAD: usize = 10;

/// Why a queued job does not run yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// One line: `waits for 3 cores: 4 asked, 1 free of 8`.
    pub reason: String,
    /// The first of the jobs whose turn comes before.
    pub ahead: Vec<JobId>,
    /// How many there are.
    pub ahead_total: usize,
    /// When its turn comes, where that can be told.
    pub estimate: Option<Estimate>,
    /// The smallest change that would start it now: a flag, or the end of a job that runs alone; `None` when nothing
    /// of the kind would do.
    pub change: Option<String>,
}

/// A time and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    pub at: Timestamp,
    pub basis: String,
}

/// What stands between a job and its start.
enum Obstacle {
    /// One job has all nodes to itself.
    Alone,
    /// The inventory shrank below it.
    Never(String),
    BeyondQuota(Limit),
    Quota(Limit),
    /// Another job of the same user waits for the quota.
    OwnJob(Key),
    /// It would run alone and something runs.
    NeedsAll,
    NoRoom,
    /// Room is kept for this job.
    Kept(Key),
    /// Nothing: the next round of decisions starts it.
    Nothing,
}

pub(super) fn explain(scheduler: &Scheduler, id: &JobId, now: Timestamp) -> Option<Why> {
    let key = scheduler.queue.key(id)?;
    let waiting = scheduler.queue.get(key);
    let obstacle = obstacle(scheduler, key, waiting);
    let ahead = Ahead::of(scheduler, key, waiting, &obstacle);
    let hopeless = matches!(obstacle, Obstacle::Never(_) | Obstacle::BeyondQuota(_));
    let estimate = if hopeless {
        None
    } else {
        estimate::estimate(scheduler, key, now)
    };
    Some(Why {
        reason: reason(scheduler, waiting, &obstacle, &ahead),
        ahead: ahead.named,
        ahead_total: ahead.total,
        estimate,
        change: match obstacle {
            Obstacle::Alone => change::end_what_runs_alone(scheduler, key, now),
            _ => change::smallest(scheduler, key, now),
        },
    })
}

fn obstacle(scheduler: &Scheduler, key: Key, waiting: &Waiting) -> Obstacle {
    let group = scheduler.queue.group(waiting.group);
    let account = scheduler.accounts.get(waiting.user);
    let limit = |used| account.quota().in_the_way(used, group.asked);
    if group.fit == Fit::Never {
        return Obstacle::Never(too_big::never_fits(scheduler, &group.shape));
    }
    if let Some(limit) = limit(Default::default()) {
        return Obstacle::BeyondQuota(limit);
    }
    if let Some(own) = account.hold().filter(|hold| *hold < key) {
        return Obstacle::OwnJob(own);
    }
    if let Some(limit) = limit(account.used()) {
        return Obstacle::Quota(limit);
    }
    if scheduler.alone.is_some() {
        return Obstacle::Alone;
    }
    if group.fit == Fit::Alone && !scheduler.running.is_empty() {
        return Obstacle::NeedsAll;
    }
    if group.fit == Fit::Beside && placing::place(scheduler.cluster.free(), &group.shape).is_none() {
        return Obstacle::NoRoom;
    }
    let stuck = scheduler.stuck().map(|(stuck, _)| stuck);
    match stuck.filter(|stuck| *stuck < key) {
        Some(stuck) => Obstacle::Kept(stuck),
        None => Obstacle::Nothing,
    }
}

/// The jobs whose turn comes before.
struct Ahead {
    named: Vec<JobId>,
    total: usize,
    /// How many of them have a higher priority.
    higher: usize,
}

impl Ahead {
    /// A job that waits for its user's quota is behind jobs of that user only.
    fn of(scheduler: &Scheduler, key: Key, waiting: &Waiting, obstacle: &Obstacle) -> Ahead {
        let only_own = matches!(
            obstacle,
            Obstacle::BeyondQuota(_) | Obstacle::Quota(_) | Obstacle::OwnJob(_)
        );
        let mut ahead = Ahead {
            named: Vec::new(),
            total: 0,
            higher: 0,
        };
        for (other, job) in scheduler.queue.before(key) {
            if only_own && job.user != waiting.user {
                continue;
            }
            ahead.total += 1;
            ahead.higher += usize::from(other.priority < key.priority);
            if ahead.named.len() < NAMED_AHEAD {
                ahead.named.push(job.request.id.clone());
            }
        }
        ahead
    }

    /// `behind 2 jobs of higher priority`.
    fn words(&self) -> String {
        let jobs = words::counted(self.total as u128, "job");
        match self.higher {
            0 => format!("behind {jobs} that came first"),
            higher if higher == self.total => format!("behind {jobs} of higher priority"),
            higher => format!("behind {jobs}, {higher} of them of higher priority"),
        }
    }
}

fn reason(scheduler: &Scheduler, waiting: &Waiting, obstacle: &Obstacle, ahead: &Ahead) -> String {
    let shape = &scheduler.queue.group(waiting.group).shape;
    let idle = scheduler.cluster.idle();
    let id = |key: &Key| scheduler.queue.get(*key).request.id.clone();
    match obstacle {
        Obstacle::Alone => alone(scheduler),
        Obstacle::Never(problem) => format!("cannot start on these machines: {problem}"),
        Obstacle::BeyondQuota(limit) => format!(
            "cannot start within your quota of {}: {} asked",
            words::limit_words(limit),
            words::asked_words(limit)
        ),
        Obstacle::Quota(limit) => words::quota(limit),
        Obstacle::OwnJob(own) => format!("behind your job `{}`, which waits for your quota", id(own)),
        Obstacle::NeedsAll => format!(
            "waits until nothing else runs: {}",
            words::runs_alone(&words::more_than_here(shape, idle))
        ),
        Obstacle::NoRoom => {
            let sum = words::waits_for(shape, scheduler.cluster.free(), idle);
            sum.unwrap_or_else(|| scattered(scheduler, waiting, shape))
        }
        Obstacle::Kept(stuck) => format!("{}; what is free is kept for `{}`", ahead.words(), id(stuck)),
        Obstacle::Nothing => "starts with the next decision".to_owned(),
    }
}

/// Who has everything to itself, why, and until when.
fn alone(scheduler: &Scheduler) -> String {
    let Some(Alone { id, problem }) = &scheduler.alone else {
        return "waits for its turn".to_owned();
    };
    let end = match scheduler.running.end(id) {
        Some(end) => format!("its -max-runtime ends it by {end:.0}"),
        None => "it has no -max-runtime, so nobody knows when it ends".to_owned(),
    };
    format!("waits for `{id}`, which runs alone because it is larger than the machine ({problem}); {end}")
}

/// There is enough in sum, but not where whole workers could use it.
fn scattered(scheduler: &Scheduler, waiting: &Waiting, shape: &Shape) -> String {
    let free = scheduler.cluster.free();
    let asked = u64::from(waiting.request.trainers());
    let fitting = placing::largest_below(asked, |trainers| {
        let smaller = too_big::with_trainers(&waiting.request, trainers);
        placing::place(free, &Shape::of(&smaller)).is_some()
    });
    let workers = words::counted(u128::from(shape.workers()), "worker");
    match fitting {
        Some(count) => format!(
            "waits for room on single machines: {} asked, {count} would fit now",
            words::counted(u128::from(asked), "trainer")
        ),
        None => format!("waits for room on single machines: none has enough for its {workers}"),
    }
}
