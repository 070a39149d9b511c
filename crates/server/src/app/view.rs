//! Jobs and workers as people see them.

use paddlecloud_api::jobs::{Amount, EventView, JobDetail, JobStatus, JobView, WorkerView};
use paddlecloud_core::duration;
use paddlecloud_core::exit::lost_in_words;
use paddlecloud_core::job::{Job, Outcome, Phase, Role, Worker, WorkerStatus};
use paddlecloud_core::names::DatacenterName;
use paddlecloud_core::quantity::Cpu;

use crate::packages::Storage;

pub fn job_view(job: &Job, datacenter: &DatacenterName, storage: &Storage) -> JobView {
    let spec = &job.spec;
    let counts = job.counts();
    JobView {
        name: spec.name.to_string(),
        job_package: spec.package.clone(),
        parallelism: spec.parallelism,
        cpu: cores(spec.trainer.cpu),
        gpu: spec.trainer.gpu,
        memory: spec.trainer.memory.to_string(),
        pservers: spec.pservers,
        pscpu: cores(spec.pserver.cpu),
        psmemory: spec.pserver.memory.to_string(),
        topology: spec.topology.clone(),
        entry: spec.entry.clone(),
        psentry: spec.ps_entry.clone(),
        passes: spec.passes,
        image: spec.image.clone(),
        registry: spec.registry.clone(),
        datacenter: datacenter.to_string(),
        envs: spec.envs.clone(),
        priority: spec.priority,
        retries: spec.retries,
        max_runtime: spec.max_runtime.map(duration::print),
        start_limit: duration::print(spec.start_limit),
        grace: duration::print(spec.grace),
        id: job.id.to_string(),
        user: job.user.to_string(),
        namespace: job.user.namespace(),
        status: status(job.phase),
        message: message(job),
        output: storage.output_name(job),
        submitted: job.submitted_at,
        started: job.started_at,
        completed: job.finished_at,
        succeeded: counts.succeeded,
        failed: counts.failed,
        active: counts.active,
    }
}

pub fn job_detail(job: &Job, datacenter: &DatacenterName, storage: &Storage) -> JobDetail {
    JobDetail {
        job: job_view(job, datacenter, storage),
        workers: job
            .workers
            .iter()
            .map(|worker| worker_view(job, worker))
            .collect(),
        events: events(job),
    }
}

pub fn worker_view(job: &Job, worker: &Worker) -> WorkerView {
    WorkerView {
        name: worker.name.clone(),
        job: job.spec.name.to_string(),
        job_id: job.id.to_string(),
        role: worker.key.role.to_string(),
        index: worker.key.index,
        status: worker_status(job, worker).to_owned(),
        attempt: worker.attempt,
        address: Some(worker.address.clone()).filter(|address| !address.is_empty()),
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

/// The end in words; of a parameter server that did its duty, that it did.
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

pub fn status(phase: Phase) -> JobStatus {
    match phase {
        Phase::Pending => JobStatus::Pending,
        Phase::Starting => JobStatus::Starting,
        Phase::Running => JobStatus::Running,
        Phase::Stopping(_) => JobStatus::Stopping,
        Phase::Final(Outcome::Succeeded) => JobStatus::Succeeded,
        Phase::Final(Outcome::Failed) => JobStatus::Failed,
        Phase::Final(Outcome::Killed) => JobStatus::Killed,
        Phase::Final(Outcome::Lost) => JobStatus::Lost,
    }
}

/// One of the words of the contract.
fn worker_status(job: &Job, worker: &Worker) -> &'static str {
    let stopping = matches!(job.phase, Phase::Stopping(_));
    match worker.status {
        status if status.is_live() && stopping => "Stopping",
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

/// Where the job is, what it waits for, and what the scheduler had to add.
pub fn message(job: &Job) -> Option<String> {
    let parts = [Some(&job.message), job.note.as_ref()];
    let parts: Vec<&str> = parts
        .into_iter()
        .flatten()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
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

/// Whole cores are a number on the wire (S4), parts of one a text.
fn cores(cpu: Cpu) -> Amount {
    match cpu.as_millis() % 1000 {
        0 => Amount::Number(cpu.as_millis() / 1000),
        _ => Amount::Text(cpu.to_string()),
    }
}
