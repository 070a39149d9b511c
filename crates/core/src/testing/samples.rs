//! Jobs to test with, at every stage of their life.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::job::{Event, Job, News, WorkerKey};
use crate::names::{JobId, JobName, UserName};
use crate::scheduler::{Placement, Seat};
use crate::spec::JobSpec;

/// A moment to count from.
pub fn noon() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50 + 12)
}

/// So many seconds after [`noon`].
pub fn seconds(after: i64) -> Timestamp {
    noon() + SignedDuration::from_secs(after)
}

pub fn user(name: &str) -> UserName {
    name.parse().expect("samples use valid user names")
}

pub fn job_name(name: &str) -> JobName {
    name.parse().expect("samples use valid job names")
}

/// The id of the n-th job; later ones sort later.
pub fn id(number: u32) -> JobId {
    JobId::new(1_577_880_000_000 + u64::from(number), 0)
}

/// A valid spec of so many parameter servers and trainers.
pub fn spec(name: &str, pservers: u32, trainers: u32) -> JobSpec {
    let mut spec = JobSpec::new(job_name(name));
    spec.package = Some("/pfs/local/home/ada/package".into());
    spec.pservers = pservers;
    spec.parallelism = trainers;
    spec
}

/// The n-th job, submitted at noon by `ada`.
pub fn pending(number: u32, spec: JobSpec) -> Job {
    Job::new(
        id(number),
        user("ada"),
        Arc::new(spec),
        None,
        u64::from(number),
        noon(),
    )
}

/// What the scheduler says when there is room on the only machine.
pub fn admission(spec: &JobSpec) -> Event {
    let seat = Seat {
        node: 0,
        gpus: Vec::new(),
    };
    let workers = spec.workers();
    Event::Admitted {
        placement: Placement {
            workers: vec![seat; workers as usize],
        },
        addresses: (0..workers)
            .map(|number| format!("127.1.0.{}", number + 1))
            .collect(),
        note: None,
    }
}

/// The same, admitted a second later.
pub fn starting(number: u32, spec: JobSpec) -> Job {
    let mut job = pending(number, spec);
    let event = admission(&job.spec);
    job.on_event(event, seconds(1));
    job
}

/// The same, with its trainers running since the second second.
pub fn running(number: u32, spec: JobSpec) -> Job {
    let mut job = starting(number, spec);
    for worker in everybody(&job) {
        job.on_event(first(worker, News::Up), seconds(2));
        job.on_event(first(worker, News::Ready), seconds(2));
    }
    for worker in everybody(&job) {
        job.on_event(first(worker, News::Started), seconds(2));
    }
    job
}

pub fn everybody(job: &Job) -> Vec<WorkerKey> {
    job.workers.iter().map(|worker| worker.key).collect()
}

/// News of the first attempt of a worker.
pub fn first(worker: WorkerKey, news: News) -> Event {
    Event::Worker {
        worker,
        attempt: 1,
        news,
    }
}
