//! A request that no amount of waiting would start, and the largest that could.

use super::Scheduler;
use super::placing::largest_below;
use super::queue::Fit;
use super::quota::Tally;
use super::request::Request;
use super::room::Shape;
use super::words;

/// Says that a job can never start, and the largest of its kind that could.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}{}", .largest.as_ref().map(|text| format!("; {text}")).unwrap_or_default())]
pub struct TooBig {
    /// What is asked and what there is: `20 cores asked, 16 here`.
    pub problem: String,
    /// `at most 7 trainers of 2 cores and 4Gi fit beside 2 parameter servers`.
    pub largest: Option<String>,
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

fn problem(scheduler: &Scheduler, request: &Request) -> Option<String> {
    let shape = Shape::of(request);
    let quota = scheduler.quota(&request.user);
    if let Some(limit) = quota.in_the_way(Tally::default(), Tally::of(&shape)) {
        let (asked, allowed) = (words::asked_words(&limit), words::limit_words(&limit));
        return Some(format!("{asked} asked, your quota is {allowed}"));
    }
    (scheduler.fit(&shape) == Fit::Never).then(|| never_fits(scheduler, &shape))
}

/// Why a shape fits on no node or not on all of them together.
pub(super) fn never_fits(scheduler: &Scheduler, shape: &Shape) -> String {
    let idle = scheduler.cluster.idle();
    words::larger_than_any(shape, idle).unwrap_or_else(|| words::more_than_here(shape, idle))
}

fn largest(scheduler: &Scheduler, request: &Request) -> Option<String> {
    let most = largest_below(u64::from(request.trainers()), |trainers| {
        problem(scheduler, &with_trainers(request, trainers)).is_none()
    })?;
    let most = u32::try_from(most).expect("fewer than were asked for");
    Some(format!("at most {}", words::trainers_beside(request, most)))
}

/// The same request with another number of trainers.
pub(super) fn with_trainers(request: &Request, trainers: u64) -> Request {
    let mut smaller = request.clone();
    if let Some((count, _)) = smaller.roles.last_mut() {
        *count = u32::try_from(trainers).unwrap_or(u32::MAX);
    }
    smaller
}
