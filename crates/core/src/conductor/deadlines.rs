//! The deadlines of jobs: which job needs the next tick.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::names::JobId;

#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Timestamp, JobId)>);

impl Deadlines {
    pub(super) fn replace(&mut self, id: &JobId, before: Option<Timestamp>, after: Option<Timestamp>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.0.remove(&(before, id.clone()));
        }
        if let Some(after) = after {
            self.0.insert((after, id.clone()));
        }
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(super) fn due(&self, now: Timestamp) -> Vec<JobId> {
        self.0
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, id)| id.clone())
            .collect()
    }

    pub(super) fn all(&self) -> Vec<JobId> {
        self.0.iter().map(|(_, id)| id.clone()).collect()
    }
}
