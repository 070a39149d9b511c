//! The sentences a job says about itself. No decisions here.

use std::fmt::Write;

use crate::exit;
use crate::plan::PSERVER_PORT;
use crate::spec::JobSpec;

use super::{Job, Outcome, Role, Worker, WorkerStatus};

/// How many missing workers a message names before it only counts.
const NAMED: usize = 5;

/// Why a worker's end ends the job.
pub(super) fn failure(worker: &Worker, spec: &JobSpec) -> String {
    let memory = match worker.key.role {
        Role::Pserver => spec.pserver.memory,
        Role::Trainer => spec.trainer.memory,
    };
    let end = match &worker.exit {
        Some(exit) => exit::in_words(exit, memory),
        None => "nobody saw how it ended".to_owned(),
    };
    let verb = match (worker.key.role, worker.status) {
        (_, WorkerStatus::Lost) => "was lost",
        (Role::Pserver, _) => "ended before the trainers were done",
        (Role::Trainer, _) => "failed",
    };
    match worker.restarts {
        0 => format!("{} {verb}: {end}", worker.key),
        1 => format!("{} {verb} after 1 restart: {end}", worker.key),
        restarts => format!("{} {verb} after {restarts} restarts: {end}", worker.key),
    }
}

/// Why the start limit ended the job: who was missing.
pub(super) fn not_assembled(job: &Job) -> String {
    let mut text = format!("not everybody was there after {:#}: ", job.spec.start_limit);
    let missing: Vec<String> = job
        .workers
        .iter()
        .filter_map(|worker| missing(worker, &job.spec))
        .collect();
    text += &missing[..missing.len().min(NAMED)].join("; ");
    if missing.len() > NAMED {
        let _ = write!(text, "; and {} more", missing.len() - NAMED);
    }
    text
}

fn missing(worker: &Worker, spec: &JobSpec) -> Option<String> {
    match (worker.key.role, worker.status) {
        (_, WorkerStatus::Waiting) => Some(format!("{} has not come up", worker.key)),
        (Role::Pserver, WorkerStatus::Up | WorkerStatus::Going | WorkerStatus::Running) => Some(format!(
            "{} does not listen on {} yet",
            worker.key,
            ports(spec.ps_ports)
        )),
        _ => None,
    }
}

fn ports(count: u16) -> String {
    match count {
        0 | 1 => format!("port {PSERVER_PORT}"),
        2 => format!("both of its ports {PSERVER_PORT} and {}", PSERVER_PORT + 1),
        _ => format!("all of its ports {PSERVER_PORT} to {}", PSERVER_PORT + count - 1),
    }
}

/// What a final job says when nothing went wrong on the way.
pub(super) fn all_is_well(job: &Job) -> String {
    match job.spec.parallelism {
        1 => "its trainer ended well".to_owned(),
        count => format!("all {count} trainers ended well"),
    }
}

/// What the timeline says when a job becomes final.
pub(super) fn over(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Killed => "killed",
        Outcome::Lost => "lost",
    }
}
