//! Requests that can never start, and the largest similar request that could.

use std::fmt;

use super::Scheduler;
use super::excess::Excess;
use super::placing::largest_below;
use super::queue::Fit;
use super::quota::{ExceededLimit, RequestSum};
use super::request::Request;
use super::room::{Load, Shape};
use crate::quantity::{counted, readable_cores};
use crate::spec::Resources;

/// A job that can never start, and the largest similar job that could.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}{}", .largest.as_ref().map(|largest| format!("; at most {largest}")).unwrap_or_default())]
pub struct TooBig {
    pub problem: TooMuch,
    pub largest: Option<Largest>,
}

/// What the request exceeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TooMuch {
    /// More than the machines have.
    Machines(Excess),
    /// More than the user or one of their groups may have.
    Quota(ExceededLimit),
}

/// The largest number of trainers with which a request would be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Largest {
    pub trainers: u32,
    pub each: Resources,
    pub pservers: u128,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TooMuch::Machines(excess) => excess.fmt(f),
            TooMuch::Quota(quota) => {
                let (asked, limit) = (quota.kind.amount(quota.asked), quota.kind.amount(quota.limit));
                match &quota.group {
                    None => write!(f, "{asked} requested, your quota is {limit}"),
                    Some(group) => write!(
                        f,
                        "{asked} requested, the total of your group `{group}` is {limit}"
                    ),
                }
            }
        }
    }
}

impl fmt::Display for Largest {
    /// `7 trainers of 2 cores and 4 GiB fit with 2 parameter servers`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Largest { each, pservers, .. } = self;
        write!(
            f,
            "{} of {} and {}",
            counted(u128::from(self.trainers), "trainer"),
            readable_cores(u128::from(each.cpu.as_millis())),
            each.memory.readable(),
        )?;
        if each.gpu > 0 {
            write!(f, " with {}", counted(u128::from(each.gpu), "GPU"))?;
        }
        f.write_str(if self.trainers == 1 { " fits" } else { " fit" })?;
        match pservers {
            0 => Ok(()),
            count => write!(f, " with {}", counted(*count, "parameter server")),
        }
    }
}

pub(super) fn check(scheduler: &Scheduler, request: &Request) -> Result<(), TooBig> {
    match problem(scheduler, request) {
        None => Ok(()),
        Some(problem) => Err(TooBig {
            problem,
            largest: largest(scheduler, request),
        }),
    }
}

fn problem(scheduler: &Scheduler, request: &Request) -> Option<TooMuch> {
    let shape = scheduler.cluster.shape(request);
    let state = scheduler.users.find(&request.user);
    if let Some(limit) = state.and_then(|state| state.never_allows(RequestSum::of(&shape))) {
        return Some(TooMuch::Quota(limit));
    }
    // Without any usable machine nothing is known: one may be about to join. Closed ones may open again.
    let has_machines = *scheduler.cluster.idle().total() != Load::default();
    let never = has_machines && scheduler.closed_nodes == 0 && scheduler.fit(&shape) == Fit::Never;
    never.then(|| TooMuch::Machines(never_fits(scheduler, &shape)))
}

/// How a shape exceeds the largest node, or all nodes together.
pub(super) fn never_fits(scheduler: &Scheduler, shape: &Shape) -> Excess {
    Excess::one_by_one(shape, &scheduler.cluster)
}

fn largest(scheduler: &Scheduler, request: &Request) -> Option<Largest> {
    let most = largest_below(u64::from(request.trainers()), |trainers| {
        problem(scheduler, &with_trainers(request, trainers)).is_none()
    })?;
    let ((_, each), servers) = request.roles.split_last()?;
    Some(Largest {
        trainers: u32::try_from(most).expect("fewer than were asked for"),
        each: *each,
        pservers: servers.iter().map(|(count, _)| u128::from(*count)).sum(),
    })
}

/// The same request with another number of trainers.
pub(super) fn with_trainers(request: &Request, trainers: u64) -> Request {
    let mut smaller = request.clone();
    if let Some((count, _)) = smaller.roles.last_mut() {
        *count = u32::try_from(trainers).unwrap_or(u32::MAX);
    }
    smaller
}
