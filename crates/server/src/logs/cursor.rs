//! What a query selects: which workers, and where to begin in each log.

use std::collections::HashMap;

use jiff::Timestamp;
use paddlecloud_api::logs::LogQuery;
use paddlecloud_core::job::{Job, Worker};
use paddlecloud_core::plan::Role;

use super::LogsError;

/// Where to begin in an attempt's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    Start,
    /// The last lines.
    Tail(usize),
    /// Everything written since this time.
    Since(u64),
    Offset(u64),
}

/// A parsed query.
#[derive(Debug, Clone)]
pub struct LogSelection {
    worker: Option<String>,
    role: Option<Role>,
    begin: Begin,
    cursors: HashMap<(String, u32), u64>,
}

impl LogSelection {
    pub fn parse(query: &LogQuery, job: &Job) -> Result<LogSelection, LogsError> {
        let role = match query.role.as_deref() {
            None => None,
            Some("trainer" | "trainers") => Some(Role::Trainer),
            Some("pserver" | "pservers") => Some(Role::Pserver),
            Some(other) => return Err(LogsError::NotARole(other.to_owned())),
        };
        let begin = match (query.n, &query.since) {
            (Some(lines), _) => Begin::Tail(usize::try_from(lines).unwrap_or(usize::MAX)),
            (None, Some(since)) => Begin::Since(parse_since(since)?),
            (None, None) => Begin::Start,
        };
        let cursors = query
            .from
            .as_deref()
            .map(parse_cursors)
            .transpose()?
            .unwrap_or_default();
        let selection = LogSelection {
            worker: query.w.clone(),
            role,
            begin,
            cursors,
        };
        selection.check_worker(job)?;
        Ok(selection)
    }

    /// Checks that the requested worker exists, once the job has workers.
    fn check_worker(&self, job: &Job) -> Result<(), LogsError> {
        let Some(name) = &self.worker else { return Ok(()) };
        let workers = job.workers_with_logs();
        if workers.is_empty() || workers.iter().any(|worker| self.takes(worker)) {
            return Ok(());
        }
        let known = workers.iter().take(6);
        Err(LogsError::NoWorker {
            job: job.spec.name.clone(),
            worker: name.clone(),
            known: known.map(|worker| worker.name.clone()).collect(),
        })
    }

    /// Whether this worker's log is selected. `trainer-0` is short for the full name.
    pub fn takes(&self, worker: &Worker) -> bool {
        let short = format!("{}-{}", worker.key.role, worker.key.index);
        self.role.is_none_or(|role| role == worker.key.role)
            && self
                .worker
                .as_ref()
                .is_none_or(|name| *name == worker.name || *name == short)
    }

    /// The first attempt to read: the first one that a cursor names, or for a tail the latest that has a log.
    pub fn first_attempt(&self, worker: &Worker, has_log: impl Fn(u32) -> bool) -> u32 {
        match self.first_named(&worker.name) {
            Some(named) => named,
            None if matches!(self.begin, Begin::Tail(_)) => {
                let latest = (1..=worker.attempt).rev().find(|attempt| has_log(*attempt));
                latest.unwrap_or(worker.attempt)
            }
            None => 1,
        }
    }

    /// Where to begin. Attempts after one that a cursor names are new and are read from the start.
    pub fn begin(&self, worker: &str, attempt: u32) -> Begin {
        match self.cursors.get(&(worker.to_owned(), attempt)) {
            Some(offset) => Begin::Offset(*offset),
            None if self.first_named(worker).is_some() => Begin::Start,
            None => self.begin,
        }
    }

    /// Reads attempts that join from now on completely: the selection applies only to existing logs.
    pub fn take_all_of_new_attempts(&mut self) {
        self.begin = Begin::Start;
    }

    fn first_named(&self, worker: &str) -> Option<u32> {
        let named = self.cursors.keys().filter(|(name, _)| name == worker);
        named.map(|(_, attempt)| *attempt).min()
    }
}

/// Parses a text as each part of a position, for the fuzzer.
pub(crate) fn parse_position(text: &str) {
    let _ = (parse_since(text), parse_cursors(text));
}

fn parse_since(text: &str) -> Result<u64, LogsError> {
    let at: Timestamp = text.parse().map_err(|_| LogsError::NotATime(text.to_owned()))?;
    Ok(u64::try_from(at.as_nanosecond()).unwrap_or(0))
}

fn parse_cursors(text: &str) -> Result<HashMap<(String, u32), u64>, LogsError> {
    let parse = |cursor: &str| {
        let mut parts = cursor.rsplitn(3, ':');
        let offset = parts.next()?.parse().ok()?;
        let attempt = parts.next()?.parse().ok()?;
        Some(((parts.next()?.to_owned(), attempt), offset))
    };
    text.split(',')
        .filter(|cursor| !cursor.is_empty())
        .map(|cursor| parse(cursor).ok_or(LogsError::BadCursors))
        .collect()
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::job::WorkerKey;
    use paddlecloud_core::testing::samples;

    use super::*;

    #[test]
    fn cursors_read_back() {
        let cursors = parse_cursors("a-trainer-x:1:0,b.c-pserver-y:2:77").unwrap();
        assert_eq!(cursors[&("b.c-pserver-y".to_owned(), 2)], 77);
        assert!(parse_cursors("a:b").is_err());
    }

    #[test]
    fn a_follower_with_cursors_resumes_after_them() {
        let job = samples::starting(1, samples::spec("a", 0, 2));
        let [named, other] = [0, 1].map(|index| job.worker(WorkerKey::trainer(index)).unwrap().clone());
        let selection = |n| {
            let query = LogQuery {
                n,
                from: Some(format!("{}:2:40", named.name)),
                ..LogQuery::default()
            };
            LogSelection::parse(&query, &job).unwrap()
        };
        let follow = selection(None);
        assert_eq!(follow.first_attempt(&named, |_| true), 2);
        assert_eq!(follow.begin(&named.name, 2), Begin::Offset(40));
        assert_eq!(follow.begin(&named.name, 3), Begin::Start);
        assert_eq!(
            (
                follow.first_attempt(&other, |_| true),
                follow.begin(&other.name, 1)
            ),
            (1, Begin::Start)
        );
        let mut tail = selection(Some(5));
        let restarted = Worker { attempt: 4, ..other };
        assert_eq!(tail.first_attempt(&restarted, |_| true), 4);
        assert_eq!(tail.first_attempt(&restarted, |attempt| attempt < 3), 2);
        assert_eq!(
            tail.begin(&restarted.name, 4),
            Begin::Tail(5),
            "a cut tail is asked for again"
        );
        tail.take_all_of_new_attempts();
        assert_eq!(tail.begin(&restarted.name, 5), Begin::Start);
    }

    #[test]
    fn an_invalid_time_is_refused() {
        assert!(matches!(parse_since("yesterday"), Err(LogsError::NotATime(_))));
        assert_eq!(parse_since("1970-01-01T00:00:01Z").unwrap(), 1_000_000_000);
    }
}
