//! Jobs and workers as tables: for programs the columns of the original documents first, for a terminal what fits.

use jiff::Timestamp;
use paddlecloud_api::jobs::{JobStatus, JobView, WorkerView};

use crate::printer::{NARROWEST, Table};
use crate::time_text::{age, between, rfc3339, short_time};

/// How the submit guide prints zero and unknown values.
const NIL: &str = "<nil>";

/// A table for a terminal of this width has no more columns than fit.
pub const USUAL_COLUMNS: usize = 80;

/// A column of sentences is not shorter than this in a wide table, even if the lines wrap.
const SENTENCE: usize = 40;

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

/// What a terminal shows of jobs.
#[derive(Debug, Clone, Copy)]
pub struct Glance {
    /// The history, which has ids, instead of unfinished jobs.
    pub all: bool,
    pub wide: bool,
    /// With a last column for comments and reasons of failures; without it the table fits in 80 columns.
    pub notes: bool,
    pub now: Timestamp,
}

impl Glance {
    /// The table, without rows.
    pub fn table(self) -> Table {
        let mut head = match self.all {
            true => vec!["NAME", "ID", "STATUS", "START", "TOOK", "AGE"],
            false => vec!["NAME", "STATUS", "ACTIVE", "SUCC", "FAIL", "START", "AGE"],
        };
        if self.wide {
            head.extend(match self.all {
                true => ["USER", "TRAINERS", "PSERVERS", "SUCC", "FAIL"].as_slice(),
                false => &["USER", "TRAINERS", "PSERVERS", "ID"],
            });
        }
        if self.notes {
            head.push("NOTE");
        }
        let table = Table::new(&head);
        match (self.wide, self.notes) {
            // Whoever asks for more columns wants whole names, even if the lines wrap.
            (true, _) => table.with_last_filling(SENTENCE),
            (false, true) => table.with_flexible("NAME").with_last_filling(NARROWEST),
            (false, false) => table.with_flexible("NAME"),
        }
    }

    /// One row of it.
    pub fn row(self, job: &JobView) -> Vec<String> {
        let (name, status) = (job.name.clone(), job.status.to_string());
        let (succeeded, failed) = (job.succeeded.to_string(), job.failed.to_string());
        let started = short(job.started, self.now);
        let age = age(between(job.submitted, self.now));
        let mut row = match self.all {
            true => vec![name, job.id.clone(), status, started, self.took(job), age],
            false => vec![
                name,
                status,
                job.active.to_string(),
                succeeded.clone(),
                failed.clone(),
                started,
                age,
            ],
        };
        if self.wide {
            let sizes = [job.parallelism.to_string(), job.pservers.to_string()];
            row.extend([job.user.clone()].into_iter().chain(sizes));
            match self.all {
                true => row.extend([succeeded, failed]),
                false => row.push(job.id.clone()),
            }
        }
        if self.notes {
            row.push(note(job.status, job.comment.as_deref(), job.message.as_deref()));
        }
        row
    }

    fn took(self, job: &JobView) -> String {
        let took = job
            .started
            .map(|started| age(between(started, job.completed.unwrap_or(self.now))));
        took.unwrap_or_else(|| NOTHING.to_owned())
    }
}

/// The comment on a job, and why it did not succeed.
fn note(status: JobStatus, comment: Option<&str>, message: Option<&str>) -> String {
    let has_failed = status.is_final() && status != JobStatus::Succeeded;
    let reason = message.filter(|_| has_failed);
    let parts: Vec<&str> = comment.into_iter().chain(reason).collect();
    parts.join("; ")
}

/// A column of a table of workers.
type WorkerColumn = (&'static str, fn(&WorkerView, Timestamp) -> Option<String>);

const AGE: WorkerColumn = ("AGE", |worker, now| Some(age(between(worker.started?, now))));
const NODE: WorkerColumn = ("NODE", |worker, _| worker.node.clone());
const ADDRESS: WorkerColumn = ("ADDRESS", |worker, _| worker.address.clone());
const EXIT: WorkerColumn = ("EXIT", |worker, _| worker.exit_code.map(|code| code.to_string()));
const NAME: WorkerColumn = ("NAME", |worker, _| Some(worker.name.clone()));
const MESSAGE: WorkerColumn = ("MESSAGE", |worker, _| worker.message.clone());

/// Workers in 80 columns of a terminal.
pub fn workers_at_a_glance(workers: &[WorkerView], now: Timestamp) -> Table {
    worker_table(workers, now, &[AGE, NAME]).with_flexible("NAME")
}

/// The same with more columns.
pub fn workers_in_full(workers: &[WorkerView], now: Timestamp) -> Table {
    let columns = match have_nodes(workers) {
        true => [AGE, ADDRESS, NODE, EXIT, NAME, MESSAGE].as_slice(),
        false => &[AGE, ADDRESS, EXIT, NAME, MESSAGE],
    };
    worker_table(workers, now, columns).with_last_filling(SENTENCE)
}

/// The workers of one job with their nodes, or on one machine with their addresses, in 80 columns of a terminal.
pub fn worker_details(workers: &[WorkerView], now: Timestamp) -> Table {
    let place = match have_nodes(workers) {
        true => NODE,
        false => ADDRESS,
    };
    let table = worker_table(workers, now, &[place, NAME]);
    table.with_flexible("NAME").with_flexible(place.0)
}

/// Whether they run on a cluster.
fn have_nodes(workers: &[WorkerView]) -> bool {
    workers.iter().any(|worker| worker.node.is_some())
}

/// One row per worker. `trainer-0` is what `logs -w` accepts.
fn worker_table(workers: &[WorkerView], now: Timestamp, columns: &[WorkerColumn]) -> Table {
    let heads = columns.iter().map(|(head, _)| *head);
    let head: Vec<&str> = ["WORKER", "STATUS", "ATTEMPT", "START"]
        .into_iter()
        .chain(heads)
        .collect();
    let mut table = Table::new(&head);
    for worker in workers {
        let mut row = vec![
            format!("{}-{}", worker.role, worker.index),
            worker.status.clone(),
            worker.attempt.to_string(),
            short(worker.started, now),
        ];
        let cells = columns.iter().map(|(_, cell)| cell(worker, now));
        row.extend(cells.map(|cell| cell.unwrap_or_else(|| NOTHING.to_owned())));
        table.push(row);
    }
    table
}

/// The columns of the client design, which `paddlecloud jobs` prints, and with `wide` more.
pub fn short_jobs(jobs: &[JobView], now: Timestamp, wide: bool) -> Table {
    let mut head = vec!["NAMESPACE", "NAME", "DESIRED", "SUCCESSFUL", "AGE"];
    if wide {
        head.extend(["ID", "STATUS", "PSERVERS", "MESSAGE"]);
    }
    let mut table = match wide {
        true => Table::new(&head).with_last_filling(SENTENCE),
        false => Table::new(&head),
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_the_comment_and_why_the_job_did_not_succeed() {
        let (comment, failure) = (Some("lr 0.1"), "trainer 0 failed: exit code 1");
        assert_eq!(
            note(JobStatus::Failed, comment, Some(failure)),
            "lr 0.1; trainer 0 failed: exit code 1"
        );
        assert_eq!(
            note(JobStatus::Killed, None, Some("killed on request")),
            "killed on request"
        );
        assert_eq!(
            note(JobStatus::Succeeded, comment, Some("its trainer succeeded")),
            "lr 0.1"
        );
        assert_eq!(
            note(JobStatus::Running, None, Some("its trainers are running")),
            ""
        );
    }
}
