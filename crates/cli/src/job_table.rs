//! Jobs and workers as tables: for programs the columns of the original documents first, for a terminal what fits.

use jiff::Timestamp;
use paddlecloud_api::jobs::{JobView, WorkerView};

use crate::printer::Table;
use crate::time_text::{age, between, rfc3339, short_time};

/// How the submit guide prints zero and unknown values.
const NIL: &str = "<nil>";

/// How a terminal shows unknown values.
const NOTHING: &str = "-";

/// Which columns a table of jobs has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// The columns of the submit guide.
    Plain,
    /// With id and status, for the history.
    History,
    Wide,
}

/// The header of the submit guide's table, and what `columns` adds.
pub fn jobs_head(columns: Columns) -> Vec<&'static str> {
    let mut head = vec!["NUM", "NAME", "SUCC", "FAIL", "START", "COMP", "ACTIVE"];
    if columns != Columns::Plain {
        head.extend(["ID", "STATUS"]);
    }
    if columns == Columns::Wide {
        head.extend(["USER", "TRAINERS", "PSERVERS", "SUBMITTED", "MESSAGE"]);
    }
    head
}

/// One row of it.
pub fn job_row(number: usize, job: &JobView, columns: Columns) -> Vec<String> {
    let mut row = vec![
        number.to_string(),
        job.name.clone(),
        count(job.succeeded),
        count(job.failed),
        time(job.started),
        time(job.completed),
        count(job.active),
    ];
    if columns != Columns::Plain {
        row.extend([job.id.clone(), job.status.to_string()]);
    }
    if columns == Columns::Wide {
        row.extend([
            job.user.clone(),
            job.parallelism.to_string(),
            job.pservers.to_string(),
            rfc3339(job.submitted),
            job.message.clone().unwrap_or_default(),
        ]);
    }
    row
}

/// Unfinished jobs, in 80 columns of a terminal.
pub fn jobs_at_a_glance() -> Table {
    Table::new(&["NAME", "STATUS", "ACTIVE", "SUCC", "FAIL", "START", "AGE"]).with_flexible("NAME")
}

/// One row of it.
pub fn glance_row(job: &JobView, now: Timestamp) -> Vec<String> {
    vec![
        job.name.clone(),
        job.status.to_string(),
        job.active.to_string(),
        job.succeeded.to_string(),
        job.failed.to_string(),
        short(job.started, now),
        age(between(job.submitted, now)),
    ]
}

/// Jobs of the history, in 80 columns of a terminal.
pub fn history() -> Table {
    Table::new(&["NAME", "ID", "STATUS", "START", "TOOK", "AGE"]).with_flexible("NAME")
}

/// One row of it.
pub fn history_row(job: &JobView, now: Timestamp) -> Vec<String> {
    let took = job
        .started
        .map(|started| age(between(started, job.completed.unwrap_or(now))));
    vec![
        job.name.clone(),
        job.id.clone(),
        job.status.to_string(),
        short(job.started, now),
        took.unwrap_or_else(|| NOTHING.to_owned()),
        age(between(job.submitted, now)),
    ]
}

/// Workers in 80 columns of a terminal.
pub fn workers_at_a_glance(workers: &[WorkerView], now: Timestamp) -> Table {
    let age_of = |worker: &WorkerView| worker.started.map(|started| age(between(started, now)));
    worker_table(workers, now, "AGE", age_of)
}

/// The workers of one job with their nodes, or on one machine with their addresses, in 80 columns of a terminal.
pub fn worker_details(workers: &[WorkerView], now: Timestamp) -> Table {
    match have_nodes(workers) {
        true => worker_table(workers, now, "NODE", |worker| worker.node.clone()),
        false => worker_table(workers, now, "ADDRESS", |worker| worker.address.clone()),
    }
}

/// Whether they run on a cluster.
fn have_nodes(workers: &[WorkerView]) -> bool {
    workers.iter().any(|worker| worker.node.is_some())
}

/// One row per worker, with one column of the caller's choice. `trainer-0` is what `logs -w` accepts.
fn worker_table(
    workers: &[WorkerView],
    now: Timestamp,
    column: &str,
    cell: impl Fn(&WorkerView) -> Option<String>,
) -> Table {
    let head = ["WORKER", "STATUS", "ATTEMPT", "START", column, "NAME"];
    let mut table = Table::new(&head).with_flexible("NAME").with_flexible(column);
    for worker in workers {
        table.push(vec![
            format!("{}-{}", worker.role, worker.index),
            worker.status.clone(),
            worker.attempt.to_string(),
            short(worker.started, now),
            cell(worker).unwrap_or_else(|| NOTHING.to_owned()),
            worker.name.clone(),
        ]);
    }
    table
}

/// The columns of the client design, which `paddlecloud jobs` prints, and with `wide` more.
pub fn short_jobs(jobs: &[JobView], now: Timestamp, wide: bool) -> Table {
    let mut head = vec!["NAMESPACE", "NAME", "DESIRED", "SUCCESSFUL", "AGE"];
    if wide {
        head.extend(["ID", "STATUS", "PSERVERS", "MESSAGE"]);
    }
    let mut table = Table::new(&head);
    for job in jobs {
        let mut row = vec![
            job.namespace.clone(),
            job.name.clone(),
            job.parallelism.to_string(),
            job.succeeded.to_string(),
            age(between(job.submitted, now)),
        ];
        if wide {
            row.extend([
                job.id.clone(),
                job.status.to_string(),
                job.pservers.to_string(),
                job.message.clone().unwrap_or_default(),
            ]);
        }
        table.push(row);
    }
    table
}

/// The submit guide's columns of workers, and with `wide` more. Nodes come last, and only if there are any.
pub fn workers(workers: &[WorkerView], wide: bool) -> Table {
    let mut head = vec!["NAME", "STATUS", "START"];
    let with_nodes = wide && have_nodes(workers);
    if wide {
        head.extend(["ROLE", "INDEX", "ATTEMPT", "ADDRESS", "EXIT", "MESSAGE"]);
    }
    if with_nodes {
        head.push("NODE");
    }
    let mut table = Table::new(&head);
    for worker in workers {
        let mut row = vec![worker.name.clone(), worker.status.clone(), time(worker.started)];
        if wide {
            row.extend([
                worker.role.clone(),
                worker.index.to_string(),
                worker.attempt.to_string(),
                worker.address.clone().unwrap_or_else(|| NIL.to_owned()),
                worker
                    .exit_code
                    .map_or_else(|| NIL.to_owned(), |code| code.to_string()),
                worker.message.clone().unwrap_or_default(),
            ]);
        }
        if with_nodes {
            row.push(worker.node.clone().unwrap_or_else(|| NIL.to_owned()));
        }
        table.push(row);
    }
    table
}

fn count(number: u32) -> String {
    if number == 0 {
        NIL.to_owned()
    } else {
        number.to_string()
    }
}

fn time(time: Option<Timestamp>) -> String {
    time.map_or_else(|| NIL.to_owned(), rfc3339)
}

fn short(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(|| NOTHING.to_owned(), |time| short_time(time, now))
}
