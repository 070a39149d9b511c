//! The messages of a job about itself. No decisions are made here.

use std::fmt::Write;

use jiff::SignedDuration;

use crate::exit;
use crate::plan::PSERVER_PORT;
use crate::scheduler::{Excess, StorageExcess};
use crate::spec::JobSpec;

use super::{AccountEnd, Job, Outcome, Role, Worker, WorkerStatus};

/// How many workers a message names before it only counts them.
const NAMED: usize = 5;

/// Names some of these workers and counts the rest.
pub fn some_of(workers: &[String]) -> String {
    match workers.get(NAMED..).unwrap_or_default().len() {
        0 => workers.join(", "),
        more => format!("{} and {more} more", workers[..NAMED].join(", ")),
    }
}

/// A note for the owner of a job that is larger than the machines.
pub fn runs_alone(excess: &Excess) -> String {
    format!("{excess}: it runs alone, other jobs wait")
}

/// Why a borrowing job was stopped. Names no other user.
pub(super) const RECLAIMED: &str =
    "the resources it borrowed beyond its owner's guarantee are needed for another user's guarantee";

/// Why a running job that lacked a worker was stopped. Names no other job.
pub(super) fn unrecovered(job: &Job, limit: SignedDuration) -> String {
    format!(
        "{} had no node for {limit:#}, and other jobs wait for room",
        some_of(&job.unseated())
    )
}

/// What the restart of our own parameter server means. Only the parameter servers know whether there is a checkpoint.
pub(super) const TRAINING_RESUMES: &str =
    "; it loads its latest checkpoint; without one, training restarts at step 0";

pub(super) const KILLED: &str = "killed on request";

/// Why the jobs of a disabled or deleted account were killed.
pub(super) fn account_ended(end: AccountEnd) -> &'static str {
    match end {
        AccountEnd::Disabled => "killed because the account of its owner was disabled",
        AccountEnd::Deleted => "killed because the account of its owner was deleted",
    }
}

/// Why a running job of a user above the storage quota was stopped.
pub(super) fn storage_exceeded(excess: &StorageExcess) -> String {
    format!("stopped because its owner's files {excess}")
}

/// See [`Job::message_in_full`].
pub(super) fn message_in_full(job: &Job) -> Option<String> {
    let parts = [Some(job.message.clone()), job.note.clone(), lost_output(job)];
    let parts: Vec<String> = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Output of all workers that was not stored, unless the message already mentions it for the worker that failed.
fn lost_output(job: &Job) -> Option<String> {
    let culprit = job.culprit;
    let workers = job.workers.iter().filter(|worker| Some(worker.key) != culprit);
    let lost = workers.filter_map(|worker| Some(worker.exit.as_ref()?.lost_output));
    match lost.fold(0, u64::saturating_add) {
        0 => None,
        lost => Some(exit::lost_bytes_in_words(lost)),
    }
}

/// Why a worker's exit ends the job.
pub(super) fn failure(worker: &Worker, spec: &JobSpec) -> String {
    let memory = match worker.key.role {
        Role::Pserver => spec.pserver.memory,
        Role::Trainer => spec.trainer.memory,
    };
    let end = match &worker.exit {
        Some(exit) => exit::in_words(exit, memory),
        None => "its end was not observed".to_owned(),
    };
    let verb = match (worker.key.role, worker.status) {
        (_, WorkerStatus::Lost) => "was lost",
        (Role::Pserver, _) if never_started(worker) => "did not start",
        (Role::Pserver, _) => "exited before the trainers finished",
        (Role::Trainer, _) => "failed",
    };
    match worker.restarts {
        0 => format!("{} {verb}: {end}", worker.key),
        1 => format!("{} {verb} after 1 restart: {end}", worker.key),
        restarts => format!("{} {verb} after {restarts} restarts: {end}", worker.key),
    }
}

/// Whether its program never ran: it was not seen to start, and there is no exit of a program.
fn never_started(worker: &Worker) -> bool {
    let has_exit = |exit: &exit::Exit| exit.code.is_some() || exit.signal.is_some();
    worker.started_at.is_none() && !worker.exit.as_ref().is_some_and(has_exit)
}

/// Why the start limit ended the job: which workers were missing.
pub(super) fn not_assembled(job: &Job) -> String {
    let mut text = format!("not all workers were ready after {:#}: ", job.spec.start_limit);
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
        (_, WorkerStatus::Waiting) => Some(format!("{} has not started", worker.key)),
        (Role::Pserver, WorkerStatus::Up | WorkerStatus::Going | WorkerStatus::Running) => Some(format!(
            "{} is not listening on {} yet",
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

/// The message of a final job without problems.
pub(super) fn all_is_well(job: &Job) -> String {
    match job.spec.parallelism {
        1 => "its trainer succeeded".to_owned(),
        count => format!("all {count} trainers succeeded"),
    }
}

/// The timeline's text when a job becomes final.
pub(super) fn over(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Killed => "killed",
        Outcome::Lost => "lost",
    }
}
