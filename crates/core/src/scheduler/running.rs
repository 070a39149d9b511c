//! The running jobs, ordered by end and by start.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Holding;
use super::quota::RequestSum;
use super::users::UserId;
use crate::names::JobId;

/// When a job ends. Unknown ends sort after all known ones.
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

/// `start + wait`, capped at the largest timestamp.
pub(super) fn after(start: Timestamp, wait: SignedDuration) -> Timestamp {
    start.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// When a job ends, and its start number: its position in both orders.
pub(super) type Turn = (End, u64);

/// Sorts before every job with an unknown end and after every job with a known one.
const FIRST_UNKNOWN: Turn = (End::Unknown, 0);

/// The order in which running jobs are assumed to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Only jobs with a known end, the next to end first.
    #[default]
    ByEnd,
    /// All jobs, the oldest first.
    ByStart,
}

impl Order {
    /// Whether a job ends no later than another.
    pub fn is_upto(self, turn: Turn, last: Turn) -> bool {
        match self {
            Order::ByEnd => turn <= last,
            Order::ByStart => turn.1 <= last.1,
        }
    }
}

/// One running job.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub id: JobId,
    pub user: UserId,
    pub asked: RequestSum,
    pub holding: Holding,
    pub started: Timestamp,
    /// It is being stopped to make room.
    pub leaving: bool,
}

/// All running jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Running {
    runs: BTreeMap<Turn, Run>,
    ids: HashMap<JobId, Turn>,
    /// The ends by start number.
    starts: BTreeMap<u64, End>,
    started: u64,
}

impl Running {
    pub fn insert(&mut self, run: Run, end: End) -> Turn {
        self.started += 1;
        let turn = (end, self.started);
        self.ids.insert(run.id.clone(), turn);
        self.starts.insert(self.started, end);
        self.runs.insert(turn, run);
        turn
    }

    pub fn remove(&mut self, id: &JobId) -> Option<(Turn, Run)> {
        let turn = self.ids.remove(id)?;
        self.starts.remove(&turn.1);
        Some((turn, self.runs.remove(&turn)?))
    }

    pub fn get(&self, turn: Turn) -> &Run {
        &self.runs[&turn]
    }

    /// When a running job reaches its `-max-runtime`, if it has one.
    pub fn end(&self, id: &JobId) -> Option<Timestamp> {
        match self.ids.get(id)?.0 {
            End::By(end) => Some(end),
            End::Unknown => None,
        }
    }

    pub fn find(&self, id: &JobId) -> Option<&Run> {
        self.runs.get(self.ids.get(id)?)
    }

    pub fn contains(&self, id: &JobId) -> bool {
        self.ids.contains_key(id)
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// All jobs, the latest start first.
    pub fn newest_first(&self) -> Vec<&Run> {
        let mut runs: Vec<(Timestamp, u64, &Run)> = self
            .runs
            .iter()
            .map(|((_, number), run)| (run.started, *number, run))
            .collect();
        runs.sort_unstable_by_key(|(started, number, _)| std::cmp::Reverse((*started, *number)));
        runs.into_iter().map(|(_, _, run)| run).collect()
    }

    /// Jobs with a known end, the next to end first.
    pub fn known(&self) -> impl DoubleEndedIterator<Item = (Timestamp, &Run)> {
        self.runs
            .range(..FIRST_UNKNOWN)
            .filter_map(|((end, _), run)| match end {
                End::By(end) => Some((*end, run)),
                End::Unknown => None,
            })
    }

    /// True if a job has an unknown end.
    pub fn has_unknown(&self) -> bool {
        self.unknown().next().is_some()
    }

    /// Jobs with an unknown end.
    pub fn unknown(&self) -> impl Iterator<Item = &Run> {
        self.runs.range(FIRST_UNKNOWN..).map(|(_, run)| run)
    }

    /// The next job to end after this one.
    pub fn next(&self, order: Order, after: Option<Turn>) -> Option<(Turn, &Run)> {
        let turn = match order {
            Order::ByEnd => {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                let known = (from, Bound::Excluded(FIRST_UNKNOWN));
                return self.runs.range(known).next().map(|(turn, run)| (*turn, run));
            }
            Order::ByStart => {
                let from = after.map_or(Bound::Unbounded, |(_, number)| Bound::Excluded(number));
                let (number, end) = self.starts.range((from, Bound::Unbounded)).next()?;
                (*end, *number)
            }
        };
        Some((turn, &self.runs[&turn]))
    }

    /// The last job to end within this bound.
    pub fn last(&self, order: Order, upto: Bound<Turn>) -> Option<(Turn, &Run)> {
        match order {
            Order::ByEnd => {
                let last = self.runs.range((Bound::Unbounded, upto)).next_back();
                last.map(|(turn, run)| (*turn, run))
            }
            Order::ByStart => {
                let upto = upto.map(|(_, number)| number);
                let (number, end) = self.starts.range((Bound::Unbounded, upto)).next_back()?;
                let turn = (*end, *number);
                Some((turn, &self.runs[&turn]))
            }
        }
    }

    pub fn holdings_mut(&mut self) -> impl Iterator<Item = &mut Holding> {
        self.runs.values_mut().map(|run| &mut run.holding)
    }
}
