//! Jobs and workers as the API shows them.

use std::borrow::Cow;

use paddlecloud_api::jobs::{EventView, JobDetail, JobView, ObjectView, WorkerView};
use paddlecloud_core::exit::lost_in_words;
use paddlecloud_core::job::{Job, Outcome, Phase, Role, Worker, WorkerStatus};
use paddlecloud_core::names::DatacenterName;
use paddlecloud_files::homes::Storage;
use paddlecloud_k8s::ANY_NODE;

use crate::job_status::job_status;

pub fn job_view(job: &Job, datacenter: &DatacenterName, storage: &Storage) -> JobView {
    let counts = job.counts();
    JobView {
        id: job.id.to_string(),
        status: job_status(job.phase),
        message: job.message_in_full(),
        output: storage.output_name(job),
        job_package: storage.package_name(job),
        started: job.started_at,
        completed: job.finished_at,
        succeeded: counts.succeeded,
        failed: counts.failed,
        active: counts.active,
        ..JobView::planned(&job.spec, &job.user, datacenter, job.submitted_at)
    }
}

pub fn job_detail(job: &Job, view: JobView, workers: Vec<WorkerView>, objects: Vec<ObjectView>) -> JobDetail {
    JobDetail {
        job: view,
        workers,
        events: events(job),
        objects,
    }
}

/// The workers of a job. One that ended while it was queued again shows those that it had before.
pub fn shown_workers(job: &Job) -> Cow<'_, [Worker]> {
    match job.phase.is_final() {
        true => job.workers_with_logs(),
        false => Cow::Borrowed(&job.workers),
    }
}

pub fn worker_view(job: &Job, worker: &Worker) -> WorkerView {
    WorkerView {
        user: None,
        name: worker.name.clone(),
        job: job.spec.name.to_string(),
        job_id: job.id.to_string(),
        role: worker.key.role.to_string(),
        index: worker.key.index,
        status: worker_status(job, worker).to_owned(),
        attempt: worker.attempt,
        address: Some(worker.address.clone()).filter(|address| !address.is_empty()),
        node: None,
        started: worker.started_at,
        ended: worker.ended_at,
        exit_code: worker
            .exit
            .as_ref()
            .filter(|_| !worker.status.is_live())
            .and_then(|exit| exit.code),
        message: worker_message(job, worker),
    }
}

/// The node of the cluster on which a worker has its seat. A restarted worker may be placed elsewhere, so it has none until
/// it is up.
pub fn node(job: &Job, worker: &Worker) -> Option<String> {
    let is_restarting = worker.status == WorkerStatus::Waiting && worker.exit.is_some();
    let seat = job.placement.as_ref()?.workers.get(job.position(worker.key)?)?;
    let is_known = !worker.unseated && !is_restarting && seat.node.as_str() != ANY_NODE;
    is_known.then(|| seat.node.to_string())
}

/// An explanation of the exit; for a parameter server stopped at the end of its job, that it did its work.
fn worker_message(job: &Job, worker: &Worker) -> Option<String> {
    if worker.succeeded() {
        return worker.exit.as_ref().and_then(lost_in_words);
    }
    let words = job.exit_in_words(worker.key)?;
    if let Some(at) = worker.restart_at {
        return Some(format!("{words}; it is restarted at {at:.0}"));
    }
    Some(match job.was_stopped(worker) && !worker.status.is_live() {
        true => format!("stopped with the job: {words}"),
        false => words,
    })
}

/// The status of a worker, as the API spells it.
fn worker_status(job: &Job, worker: &Worker) -> &'static str {
    let stopping = matches!(job.phase, Phase::Stopping(_));
    match worker.status {
        status if status.is_live() && stopping => "Stopping",
        status if status.is_live() && job.phase.is_final() => "Killed",
        WorkerStatus::Waiting => "Pending",
        _ if worker.restart_at.is_some() => "Pending",
        WorkerStatus::Up | WorkerStatus::Going => "Starting",
        WorkerStatus::Running => "Running",
        WorkerStatus::Ready => "Ready",
        WorkerStatus::Lost => "Lost",
        WorkerStatus::Ended if worker.succeeded() => "Succeeded",
        WorkerStatus::Ended if job.was_stopped(worker) => {
            let done = job.phase.outcome() == Some(Outcome::Succeeded) && worker.key.role == Role::Pserver;
            if done { "Succeeded" } else { "Killed" }
        }
        WorkerStatus::Ended => "Failed",
    }
}

fn events(job: &Job) -> Vec<EventView> {
    let timeline = &job.timeline;
    let view = |moment: &paddlecloud_core::job::Moment| EventView {
        at: moment.at,
        text: moment.text.clone(),
    };
    let mut events: Vec<EventView> = timeline.first().iter().map(view).collect();
    if let (Some(next), left_out @ 1..) = (timeline.latest().first(), timeline.left_out()) {
        events.push(EventView {
            at: next.at,
            text: format!("({left_out} more left out)"),
        });
    }
    events.extend(timeline.latest().iter().map(view));
    events
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::job::{Event, News, WorkerKey};
    use paddlecloud_core::testing::samples::{self, running, seconds};

    use super::*;

    #[test]
    fn a_worker_is_shown_on_the_node_it_moved_to() {
        let key = WorkerKey::trainer(0);
        let mut job = running(1, samples::spec("moves", 0, 1));
        let shown = |job: &Job| node(job, job.worker(key).unwrap());
        let news = |attempt, news| Event::Worker {
            worker: key,
            attempt,
            news,
        };
        let moved = |node: &str| Event::Moved {
            worker: key,
            attempt: 2,
            node: node.into(),
        };
        assert_eq!(shown(&job).as_deref(), Some(samples::NODE));
        job.on_event(news(1, News::Disrupted("its node is gone".into())), seconds(10));
        assert_eq!(shown(&job), None, "it may be placed elsewhere");
        job.on_event(moved("node2"), seconds(11));
        job.on_event(news(2, News::Up), seconds(12));
        assert_eq!(shown(&job).as_deref(), Some("node2"));
        job.on_event(moved(ANY_NODE), seconds(13));
        assert_eq!(shown(&job), None, "it stands for all nodes");
    }
}
