//! Jobs and workers as tables, with the columns of the documents first.

use jiff::Timestamp;
use paddlecloud_api::jobs::{JobView, WorkerView};

use crate::printer::Table;
use crate::time_text::{age, between, rfc3339};

/// What S0 prints for zero and for what is not known.
const NIL: &str = "<nil>";

/// Which columns a table of jobs has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// S0's.
    Plain,
    /// With id and status, for the history.
    History,
    Wide,
}

/// The head of S0's table and what `columns` adds.
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

/// S4's columns, which `paddlecloud jobs` prints, and with `wide` what is known beside them.
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

/// S0's columns of workers, and with `wide` what is known beside them.
pub fn workers(workers: &[WorkerView], wide: bool) -> Table {
    let mut head = vec!["NAME", "STATUS", "START"];
    if wide {
        head.extend(["ROLE", "INDEX", "ATTEMPT", "ADDRESS", "EXIT", "MESSAGE"]);
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
