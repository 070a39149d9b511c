//! Sample jobs for tests, in every phase.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::job::{Event, Job, News, WorkerKey};
use crate::names::{JobId, JobName, UserName};
use crate::ports::{Assignment, PreparedRun, WorkDir};
use crate::scheduler::{Placement, Seat};
use crate::spec::JobSpec;

/// The node of admitted samples.
pub const NODE: &str = "here";

/// A fixed start time.
pub fn noon() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50 + 12)
}

/// This many seconds after [`noon`].
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

/// A valid spec with this many parameter servers and trainers.
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

/// The scheduler's answer when there is room on the only machine.
pub fn admission(spec: &JobSpec) -> Event {
    let seat = Seat {
        node: NODE.into(),
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
        alone: None,
    }
}

/// A job that was admitted a second after its submit.
pub fn starting(number: u32, spec: JobSpec) -> Job {
    let mut job = pending(number, spec);
    let event = admission(&job.spec);
    job.on_event(event, seconds(1));
    job
}

/// A job whose trainers have been running since second 2.
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

/// The folders of a run, which do not exist.
pub fn prepared(job: &JobId) -> PreparedRun {
    let folder = format!(".paddlecloud/runs/{job}");
    let below = |name: &str| format!("{folder}/{name}");
    PreparedRun {
        workdir: WorkDir::Home("package".into()),
        shown: None,
        output: below("output"),
        rendezvous: below("rendezvous"),
        own_latest: below("latest"),
        folder,
    }
}

/// An attempt to start in the folders of [`prepared`].
pub fn assignment(job: &Arc<Job>, worker: WorkerKey, attempt: u32) -> Assignment {
    Assignment {
        job: Arc::clone(job),
        run: Arc::new(prepared(&job.id)),
        worker,
        attempt,
        secrets: Default::default(),
    }
}

pub fn everybody(job: &Job) -> Vec<WorkerKey> {
    job.workers.iter().map(|worker| worker.key).collect()
}

/// A report about the first attempt of a worker.
pub fn first(worker: WorkerKey, news: News) -> Event {
    Event::Worker {
        worker,
        attempt: 1,
        news,
    }
}
