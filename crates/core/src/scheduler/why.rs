//! Why a job waits, as values: ids and amounts, no sentences.
//!
//! Neither [`Why`] nor its parts can be printed. To show them to a user, first replace every job id by what that user
//! may know about the job ([`Why::map_jobs`]).

use jiff::{SignedDuration, Timestamp};

use super::excess::{Excess, ResourceKind, Shortage};
use super::quota::{ExceededLimit, StorageHold};
use super::unmatched::Matching;
use crate::names::JobId;
use crate::quantity::{Bytes, Cpu};

/// Why a queued job does not run yet. `J` is the type of references to jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why<J = JobId> {
    pub reason: Reason<J>,
    /// The first of the jobs ahead.
    pub ahead: Vec<J>,
    /// How many jobs are ahead.
    pub ahead_total: usize,
    /// When it starts if jobs use their full runtime and nothing more urgent is submitted; `None` if unknown.
    pub estimate: Option<Timestamp>,
    /// The smallest change that would start it now; `None` if there is none.
    pub change: Option<Change<J>>,
    /// How many nodes the engine may not use now; the scheduler itself does not know them.
    pub closed_nodes: usize,
    /// How many nodes match what it requires; `None` if it requires nothing.
    pub matching: Option<Matching>,
}

/// What blocks a job.
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
    /// It exceeds the whole quota of its user, or of one of their groups.
    BeyondQuota(ExceededLimit),
    /// Too little of such a quota is left.
    Quota(ExceededLimit),
    /// No job of its user starts because of the user's files.
    Storage(StorageHold),
    /// Another job of the same user waits for a quota.
    BehindOwn(J),
    /// It is larger than all machines and starts only when nothing else runs.
    NeedsEverything { excess: Excess, held_by: Holders<J> },
    /// Too little of a resource is free.
    Room {
        short: Shortage,
        /// What all machines have together.
        of: u128,
        held_by: Holders<J>,
    },
    /// Enough is free in total, but not where whole workers fit.
    Scattered {
        trainers: u32,
        workers: u64,
        /// How many trainers would fit now, if any.
        fitting: Option<u32>,
        held_by: Holders<J>,
    },
    /// The free room is reserved for a job ahead.
    Kept {
        job: J,
        ahead: usize,
        /// How many of the jobs ahead have a higher priority.
        higher: usize,
    },
    /// Nothing blocks it: the next round starts it.
    NextRound,
}

/// Why several jobs do not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasons {
    /// One for each job, with the nodes that match what it requires; `None` for a job that is not queued.
    pub of: Vec<Option<(Reason, Option<Matching>)>>,
    /// As in [`Why`].
    pub closed_nodes: usize,
}

/// The running jobs that hold what a job waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holders<J = JobId> {
    /// The first few: those of the same user, then the others, the largest first in each case.
    pub jobs: Vec<J>,
    /// How many there are.
    pub total: usize,
    /// What other workloads hold of it.
    pub outside: Option<Outside>,
}

/// An amount that workloads other than our jobs hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outside {
    pub kind: ResourceKind,
    pub amount: u128,
}

/// A change that would start a job now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<J = JobId> {
    Trainers(u32),
    Pservers(u32),
    /// GPU cards per trainer.
    Gpu(u32),
    /// Memory per trainer.
    Memory(Bytes),
    /// Cores per trainer.
    Cpu(Cpu),
    MaxRuntime(SignedDuration),
    /// End the job that runs alone.
    End(J),
}

impl<J> Why<J> {
    /// Replaces every job reference by what `map` returns for it.
    pub fn map_jobs<K>(self, map: impl Fn(J) -> K) -> Why<K> {
        Why {
            reason: self.reason.map_jobs(&map),
            ahead: self.ahead.into_iter().map(&map).collect(),
            ahead_total: self.ahead_total,
            estimate: self.estimate,
            change: self.change.map(|change| change.map_jobs(&map)),
            closed_nodes: self.closed_nodes,
            matching: self.matching,
        }
    }
}

impl<J> Reason<J> {
    /// Sets how many jobs are ahead, and how many of them have a higher priority, if the reason says so.
    pub(super) fn count_ahead(&mut self, count: impl FnOnce() -> (usize, usize)) {
        if let Reason::Kept { ahead, higher, .. } = self {
            (*ahead, *higher) = count();
        }
    }

    /// Replaces every job reference by what `map` returns for it.
    pub fn map_jobs<K>(self, map: &impl Fn(J) -> K) -> Reason<K> {
        match self {
            Reason::Alone { job, excess, ends_by } => Reason::Alone {
                job: map(job),
                excess,
                ends_by,
            },
            Reason::TooBig(excess) => Reason::TooBig(excess),
            Reason::BeyondQuota(limit) => Reason::BeyondQuota(limit),
            Reason::Quota(limit) => Reason::Quota(limit),
            Reason::Storage(hold) => Reason::Storage(hold),
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
            outside: self.outside,
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
