//! Why a job waits, as values: ids and amounts, no sentences.
//!
//! Neither [`Why`] nor its parts can be printed. To show them to a user, first replace every job id by what that
//! reader may know of the job ([`Why::map_jobs`]).

use jiff::{SignedDuration, Timestamp};

use super::excess::{Excess, Shortage};
use super::quota::Limit;
use crate::names::JobId;
use crate::quantity::{Bytes, Cpu};

/// Why a queued job does not run yet. `J` is how jobs are referred to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why<J = JobId> {
    pub reason: Reason<J>,
    /// The first of the jobs whose turn comes before.
    pub ahead: Vec<J>,
    /// How many there are.
    pub ahead_total: usize,
    /// When its turn comes if jobs use all of their runtime and nothing more urgent comes; `None` if it is unknown.
    pub estimate: Option<Timestamp>,
    /// The smallest change that would start it now; `None` when nothing of the kind would do.
    pub change: Option<Change<J>>,
}

/// What stands between a job and its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason<J = JobId> {
    /// A job that is larger than all machines has them to itself.
    Alone {
        job: J,
        excess: Excess,
        /// When its maximum runtime ends it, if it has one.
        ends_by: Option<Timestamp>,
    },
    /// The machines became smaller than the job.
    TooBig(Excess),
    /// More than the whole quota of its user.
    BeyondQuota(Limit),
    /// What its user has running leaves too little of the quota.
    Quota(Limit),
    /// Another job of the same user waits for the quota.
    BehindOwn(J),
    /// It is larger than all machines and starts only when nothing else runs.
    NeedsEverything { excess: Excess, held_by: Holders<J> },
    /// Too little of something is free.
    Room {
        short: Shortage,
        /// What all machines have together.
        of: u128,
        held_by: Holders<J>,
    },
    /// Enough is free in sum, but not where whole workers could use it.
    Scattered {
        trainers: u32,
        workers: u64,
        /// How many trainers would find room now, if any.
        fitting: Option<u32>,
        held_by: Holders<J>,
    },
    /// What is free is kept for a job ahead.
    Kept {
        job: J,
        ahead: usize,
        /// How many of those ahead have a higher priority.
        higher: usize,
    },
    /// Nothing: the next round of decisions starts it.
    NextRound,
}

/// The running jobs that hold what a job waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holders<J = JobId> {
    /// The first few: those of the same user, then the others, each with the largest first.
    pub jobs: Vec<J>,
    /// How many there are.
    pub total: usize,
}

/// A change that would start a job now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<J = JobId> {
    Trainers(u32),
    Pservers(u32),
    /// Cards of each trainer.
    Gpu(u32),
    /// Memory of each trainer.
    Memory(Bytes),
    /// Cores of each trainer.
    Cpu(Cpu),
    MaxRuntime(SignedDuration),
    /// The end of a job that runs alone.
    End(J),
}

impl<J> Why<J> {
    /// The same with every job replaced by what `map` makes of it.
    pub fn map_jobs<K>(self, map: impl Fn(J) -> K) -> Why<K> {
        Why {
            reason: self.reason.map_jobs(&map),
            ahead: self.ahead.into_iter().map(&map).collect(),
            ahead_total: self.ahead_total,
            estimate: self.estimate,
            change: self.change.map(|change| change.map_jobs(&map)),
        }
    }
}

impl<J> Reason<J> {
    fn map_jobs<K>(self, map: &impl Fn(J) -> K) -> Reason<K> {
        match self {
            Reason::Alone { job, excess, ends_by } => Reason::Alone {
                job: map(job),
                excess,
                ends_by,
            },
            Reason::TooBig(excess) => Reason::TooBig(excess),
            Reason::BeyondQuota(limit) => Reason::BeyondQuota(limit),
            Reason::Quota(limit) => Reason::Quota(limit),
            Reason::BehindOwn(job) => Reason::BehindOwn(map(job)),
            Reason::NeedsEverything { excess, held_by } => Reason::NeedsEverything {
                excess,
                held_by: held_by.map_jobs(map),
            },
            Reason::Room { short, of, held_by } => Reason::Room {
                short,
                of,
                held_by: held_by.map_jobs(map),
            },
            Reason::Scattered {
                trainers,
                workers,
                fitting,
                held_by,
            } => Reason::Scattered {
                trainers,
                workers,
                fitting,
                held_by: held_by.map_jobs(map),
            },
            Reason::Kept { job, ahead, higher } => Reason::Kept {
                job: map(job),
                ahead,
                higher,
            },
            Reason::NextRound => Reason::NextRound,
        }
    }
}

impl<J> Holders<J> {
    fn map_jobs<K>(self, map: &impl Fn(J) -> K) -> Holders<K> {
        Holders {
            jobs: self.jobs.into_iter().map(map).collect(),
            total: self.total,
        }
    }
}

impl<J> Change<J> {
    fn map_jobs<K>(self, map: &impl Fn(J) -> K) -> Change<K> {
        match self {
            Change::Trainers(count) => Change::Trainers(count),
            Change::Pservers(count) => Change::Pservers(count),
            Change::Gpu(count) => Change::Gpu(count),
            Change::Memory(bytes) => Change::Memory(bytes),
            Change::Cpu(cpu) => Change::Cpu(cpu),
            Change::MaxRuntime(limit) => Change::MaxRuntime(limit),
            Change::End(job) => Change::End(map(job)),
        }
    }
}
