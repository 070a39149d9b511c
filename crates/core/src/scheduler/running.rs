//! What runs, in the order in which it ends.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::accounts::UserId;
use super::cluster::Holding;
use super::quota::Tally;
use crate::names::JobId;

/// When a job is over. Unknown ends come after all known ones, oldest job first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    By(Timestamp),
    Unknown { started: Timestamp },
}

impl End {
    pub fn of(started: Timestamp, max_runtime: Option<SignedDuration>) -> End {
        match max_runtime {
            Some(limit) => End::By(after(started, limit)),
            None => End::Unknown { started },
        }
    }
}

/// A point in time that is not beyond what can be written.
pub(super) fn after(start: Timestamp, wait: SignedDuration) -> Timestamp {
    start.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// Sorts before every job without an end and after every job with one.
const FIRST_UNKNOWN: (End, u64) = (
    End::Unknown {
        started: Timestamp::MIN,
    },
    0,
);

/// One running job.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub id: JobId,
    pub user: UserId,
    pub asked: Tally,
    pub holding: Holding,
}

/// All running jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Running {
    runs: BTreeMap<(End, u64), Run>,
    ids: HashMap<JobId, (End, u64)>,
    started: u64,
}

impl Running {
    pub fn insert(&mut self, run: Run, end: End) {
        self.started += 1;
        let key = (end, self.started);
        self.ids.insert(run.id.clone(), key);
        self.runs.insert(key, run);
    }

    pub fn remove(&mut self, id: &JobId) -> Option<Run> {
        let key = self.ids.remove(id)?;
        self.runs.remove(&key)
    }

    pub fn contains(&self, id: &JobId) -> bool {
        self.ids.contains_key(id)
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Those with an end, the next to end first.
    pub fn known(&self) -> impl DoubleEndedIterator<Item = (Timestamp, &Run)> {
        self.runs
            .range(..FIRST_UNKNOWN)
            .filter_map(|((end, _), run)| match end {
                End::By(end) => Some((*end, run)),
                End::Unknown { .. } => None,
            })
    }

    /// Those without an end, the oldest first.
    pub fn unknown(&self) -> impl Iterator<Item = &Run> {
        self.runs.range(FIRST_UNKNOWN..).map(|(_, run)| run)
    }

    pub fn holdings_mut(&mut self) -> impl Iterator<Item = &mut Holding> {
        self.runs.values_mut().map(|run| &mut run.holding)
    }
}
