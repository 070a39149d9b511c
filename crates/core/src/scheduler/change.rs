//! Finds the smallest change to a waiting job that would start it now.
//!
//! Every proposal is tried with the same rules and the same placement as a real decision.

use jiff::{SignedDuration, Timestamp};

use super::demand::BackfillRoom;
use super::placing::{largest_below, place};
use super::queue::{Fit, JobGroupId, Key, Waiting};
use super::quota::RequestSum;
use super::request::Request;
use super::reservation::{Reservation, Spare};
use super::room::Shape;
use super::search::{QuotaKept, leaves_quota};
use super::too_big::with_trainers;
use super::why::Change;
use super::{Scheduler, estimate};
use crate::quantity::{Bytes, Cpu};

/// A change that would start the job, and how much of the request it keeps, in thousandths.
struct Proposal {
    change: Change,
    kept: u64,
}

/// What a shorter runtime counts as. It costs nothing if the job is short anyway: better than losing half of the workers.
const KEPT_WITH_SHORTER_RUNTIME: u64 = 500;
const MINUTE: i128 = 60_000_000_000;

/// The smallest change of the job itself; `None` if no single change is enough.
pub(super) fn smallest(scheduler: &Scheduler, key: Key, now: Timestamp) -> Option<Change> {
    let trial = Trial::new(scheduler, key, now);
    let request = &scheduler.queue.get(key).request;
    let proposals = [
        fewer_trainers(&trial, request),
        fewer_servers(&trial, request),
        fewer_cards(&trial, request),
        less_memory(&trial, request),
        less_cpu(&trial, request),
        shorter(&trial, request),
    ];
    let best = proposals.into_iter().flatten().rev().max_by_key(|p| p.kept)?;
    Some(best.change)
}

/// Ends the job that runs alone, if that is enough: beside such a job, no smaller request helps.
pub(super) fn end_what_runs_alone(
    scheduler: &Scheduler,
    key: Key,
    before: &[(Key, &Waiting)],
    now: Timestamp,
) -> Option<Change> {
    let alone = scheduler.alone.as_ref()?;
    estimate::starts_without(scheduler, &alone.id, key, before, now).then(|| Change::End(alone.id.clone()))
}

fn fewer_trainers(trial: &Trial, request: &Request) -> Option<Proposal> {
    let asked = u64::from(request.trainers());
    let trainers = largest_below(asked, |trainers| trial.starts(&with_trainers(request, trainers)))?;
    Some(Proposal {
        change: Change::Trainers(fewer(trainers)),
        kept: kept(trainers, asked),
    })
}

/// Fewer parameter servers, but at least one: a job without them is a different kind of job.
fn fewer_servers(trial: &Trial, request: &Request) -> Option<Proposal> {
    let [(asked, _), _] = request.roles.as_slice() else {
        return None;
    };
    let with = |servers: u64| {
        let mut smaller = request.clone();
        smaller.roles[0].0 = u32::try_from(servers).unwrap_or(*asked);
        smaller
    };
    let asked = u64::from(*asked);
    let servers = largest_below(asked, |servers| trial.starts(&with(servers)))?;
    Some(Proposal {
        change: Change::Pservers(fewer(servers)),
        kept: kept(servers, asked),
    })
}

/// Fewer GPU cards per trainer, but at least one: a GPU program needs one.
fn fewer_cards(trial: &Trial, request: &Request) -> Option<Proposal> {
    let asked = request.roles.last()?.1.gpu;
    let with = |cards: u64| {
        let mut smaller = request.clone();
        smaller.roles.last_mut()?.1.gpu = u32::try_from(cards).ok()?;
        Some(smaller)
    };
    let starts = |cards: u64| with(cards).is_some_and(|smaller| trial.starts(&smaller));
    let cards = largest_below(u64::from(asked), starts)?;
    Some(Proposal {
        change: Change::Gpu(fewer(cards)),
        kept: kept(cards, u64::from(asked)),
    })
}

fn less_cpu(trial: &Trial, request: &Request) -> Option<Proposal> {
    let asked = request.roles.last()?.1.cpu.as_millis();
    let with = |millis: u64| {
        let mut smaller = request.clone();
        smaller.roles.last_mut()?.1.cpu = Cpu::millis(millis);
        Some(smaller)
    };
    let starts = |millis: u64| with(millis).is_some_and(|smaller| trial.starts(&smaller));
    let millis = largest_multiple(asked, &[1000, 100], starts)?;
    Some(Proposal {
        change: Change::Cpu(Cpu::millis(millis)),
        kept: kept(millis, asked),
    })
}

fn less_memory(trial: &Trial, request: &Request) -> Option<Proposal> {
    let asked = request.roles.last()?.1.memory.as_u64();
    let with = |bytes: u64| {
        let mut smaller = request.clone();
        smaller.roles.last_mut()?.1.memory = Bytes::new(bytes);
        Some(smaller)
    };
    let starts = |bytes: u64| with(bytes).is_some_and(|smaller| trial.starts(&smaller));
    let bytes = largest_multiple(asked, &[1 << 30, 64 << 20], starts)?;
    Some(Proposal {
        change: Change::Memory(Bytes::new(bytes)),
        kept: kept(bytes, asked),
    })
}

/// A runtime that ends before the job ahead could start.
fn shorter(trial: &Trial, request: &Request) -> Option<Proposal> {
    let start = trial.ahead.as_ref()?.kept.start?;
    let nanos = start.duration_since(trial.now).as_nanos() - 1;
    let minutes = i64::try_from(nanos / MINUTE).ok()?;
    let limit = SignedDuration::from_mins(minutes);
    let is_shorter = request.max_runtime.is_none_or(|asked| limit < asked);
    let shorter = Request {
        max_runtime: Some(limit),
        ..request.clone()
    };
    (minutes > 0 && is_shorter && trial.starts(&shorter)).then_some(Proposal {
        change: Change::MaxRuntime(limit),
        kept: KEPT_WITH_SHORTER_RUNTIME,
    })
}

/// Converts a count that is smaller than the requested one.
fn fewer(count: u64) -> u32 {
    u32::try_from(count).expect("fewer than were asked for")
}

/// The largest multiple of a unit that passes, trying the units in order.
fn largest_multiple(asked: u64, units: &[u64], passes: impl Fn(u64) -> bool) -> Option<u64> {
    units.iter().find_map(|unit| {
        let bound = asked.div_ceil(*unit);
        Some(largest_below(bound, |count| passes(count * unit))? * unit)
    })
}

fn kept(left: u64, asked: u64) -> u64 {
    u64::try_from(u128::from(left) * 1000 / u128::from(asked.max(1))).unwrap_or(1000)
}

/// The state in which changed requests are tried in place of a waiting job.
struct Trial<'a> {
    scheduler: &'a Scheduler,
    key: Key,
    waiting: &'a Waiting,
    ahead: Option<StuckJob>,
    now: Timestamp,
}

/// The stuck job ahead and its reservation.
struct StuckJob {
    quota_kept: QuotaKept,
    kept: Reservation,
    spare: Spare,
}

impl<'a> Trial<'a> {
    fn new(scheduler: &'a Scheduler, key: Key, now: Timestamp) -> Trial<'a> {
        let stuck = scheduler
            .stuck()
            .filter(|(stuck, _)| scheduler.is_before(*stuck, key));
        Trial {
            scheduler,
            key,
            waiting: scheduler.queue.get(key),
            ahead: stuck.map(|stuck| StuckJob::new(scheduler, stuck, now)),
            now,
        }
    }

    /// Whether the changed request would start in the next round of decisions.
    fn starts(&self, changed: &Request) -> bool {
        let shape = self.scheduler.cluster.shape(changed);
        self.scheduler.alone.is_none()
            && self.quota_lets(RequestSum::of(&shape))
            && self.scheduler.fit(&shape) == Fit::WithOthers
            && self.has_place(changed, &shape)
    }

    fn quota_lets(&self, asked: RequestSum) -> bool {
        let state = self.scheduler.users.get(self.waiting.user);
        let is_held = state.hold().is_some_and(|hold| hold < self.key);
        !is_held && state.storage().is_none() && state.in_the_way(asked).is_none()
    }

    fn has_place(&self, changed: &Request, shape: &Shape) -> bool {
        let free = self.scheduler.cluster.free();
        let Some(ahead) = &self.ahead else {
            return place(free, shape).is_some();
        };
        let backfill = BackfillRoom {
            kept: &ahead.kept,
            free,
            spare: ahead.spare.tree(),
            now: self.now,
        };
        let tree = backfill.tree(changed.max_runtime.unwrap_or(SignedDuration::MAX));
        let (users, user) = (&self.scheduler.users, self.waiting.user);
        leaves_quota(users, ahead.quota_kept, user, RequestSum::of(shape))
            && tree.is_some_and(|tree| place(tree, shape).is_some())
    }
}

impl StuckJob {
    fn new(scheduler: &Scheduler, stuck: (Key, JobGroupId), now: Timestamp) -> StuckJob {
        let mut spare = scheduler.spare.clone();
        StuckJob {
            quota_kept: scheduler.quota_kept(stuck),
            kept: scheduler.reserve(stuck, &mut spare, now),
            spare,
        }
    }
}
