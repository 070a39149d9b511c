//! What runs, in the order in which it ends and in the order in which it started.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::accounts::UserId;
use super::cluster::Holding;
use super::quota::Tally;
use crate::names::JobId;

/// When a job is over. Unknown ends sort after all known ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    By(Timestamp),
    Unknown,
}

impl End {
    pub fn of(started: Timestamp, max_runtime: Option<SignedDuration>) -> End {
        match max_runtime {
            Some(limit) => End::By(after(started, limit)),
            None => End::Unknown,
        }
    }
}

/// A point in time that is not beyond what can be written.
pub(super) fn after(start: Timestamp, wait: SignedDuration) -> Timestamp {
    start.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// Sorts before every job without an end and after every job with one.
const FIRST_UNKNOWN: (End, u64) = (End::Unknown, 0);

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
    /// The same in the order of their starts.
    starts: BTreeMap<u64, End>,
    started: u64,
}

impl Running {
    pub fn insert(&mut self, run: Run, end: End) {
        self.started += 1;
        let key = (end, self.started);
        self.ids.insert(run.id.clone(), key);
        self.starts.insert(self.started, end);
        self.runs.insert(key, run);
    }

    pub fn remove(&mut self, id: &JobId) -> Option<Run> {
        let key = self.ids.remove(id)?;
        self.starts.remove(&key.1);
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
                End::Unknown => None,
            })
    }

    /// True when nobody knows when all will be over.
    pub fn has_unknown(&self) -> bool {
        self.runs.range(FIRST_UNKNOWN..).next().is_some()
    }

    /// All, the oldest first.
    pub fn by_start(&self) -> impl Iterator<Item = &Run> {
        self.starts
            .iter()
            .map(|(number, end)| &self.runs[&(*end, *number)])
    }

    pub fn holdings_mut(&mut self) -> impl Iterator<Item = &mut Holding> {
        self.runs.values_mut().map(|run| &mut run.holding)
    }
}
