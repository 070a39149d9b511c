//! What a user, or a group of users together, may use at the same time, and what they use now.
//!
//! The queue decides which jobs wait because of it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::excess::ResourceKind;
use super::room::{Load, Shape};
use crate::names::UserName;
use crate::quantity::{Bytes, Cpu, counted};

/// The most a user may have running at the same time. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    pub cpu: Option<Cpu>,
    pub memory: Option<Bytes>,
    pub gpu: Option<u32>,
    /// Trainers that run at the same time.
    pub parallelism: Option<u32>,
    /// Jobs that run at the same time.
    #[serde(default)]
    pub jobs: Option<u32>,
    /// Jobs that are queued at the same time; a submit beyond this is refused.
    #[serde(default)]
    pub queued: Option<u32>,
    /// The highest priority of a job.
    #[serde(default)]
    pub priority: Option<i32>,
    /// The weight among other users: twice the weight, twice the share. `None` is 1.
    #[serde(default)]
    pub weight: Option<u32>,
    /// What the user can count on. Use above it is borrowed, see `reclaim`.
    #[serde(default)]
    pub guarantee: Guarantee,
}

/// The most that all members of a user group may have running together: `cpu`, `memory`, `gpu`, `parallelism` and
/// `jobs` of the quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupQuota {
    pub group: Arc<str>,
    pub quota: Quota,
    pub members: Vec<UserName>,
}

/// What all members of a user group have running together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupUsage {
    pub group: Arc<str>,
    pub quota: Quota,
    pub usage: Usage,
}

/// Why none of a user's jobs may start, whatever is free. The scheduler knows nothing of files: the server measures them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageHold {
    /// The user has a limit of storage, and the server has not compared it since its start, or could not do so last time.
    Unmeasured,
    Over(StorageExcess),
}

/// By how much a user's files exceed their quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageExcess {
    Bytes {
        used: u64,
        limit: u64,
    },
    Files {
        used: u64,
        limit: u64,
    },
    /// By an unknown amount: a folder cannot be read.
    Unreadable {
        folder: Arc<str>,
    },
}

/// What is said of the files.
impl fmt::Display for StorageExcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageExcess::Bytes { used, limit } => {
                let (shown, most) = (Bytes::new(*used).readable(), Bytes::new(*limit).readable());
                f.write_str("exceed the storage quota: ")?;
                match shown == most {
                    true => write!(f, "{used} of {limit} bytes in use"),
                    false => write!(f, "{shown} of {most} in use"),
                }
            }
            StorageExcess::Files { used, limit } => {
                let limit = counted(u128::from(*limit), "file");
                write!(f, "exceed the storage quota: {used} of {limit} in use")
            }
            StorageExcess::Unreadable { folder } => write!(
                f,
                "cannot be compared with the storage quota: the server may not read `{folder}`"
            ),
        }
    }
}

/// Amounts that a user can reclaim from borrowers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantee {
    pub cpu: Cpu,
    pub memory: Bytes,
    pub gpu: u32,
}

/// What a user has running now, in the same terms as [`Quota`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub cpu: Cpu,
    pub memory: Bytes,
    pub gpu: u32,
    pub parallelism: u32,
    #[serde(default)]
    pub jobs: u32,
}

/// A sum of requests, wide enough that no number of jobs overflows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestSum {
    pub cpu: u128,
    pub memory: u128,
    pub gpu: u128,
    pub trainers: u128,
    pub jobs: u128,
}

/// What a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    Resource(ResourceKind),
    Trainers,
    Jobs,
}

impl LimitKind {
    /// `2 cores`, `3 trainers`.
    pub fn amount(self, amount: u128) -> String {
        match self {
            LimitKind::Resource(kind) => kind.amount(amount),
            LimitKind::Trainers => counted(amount, "trainer"),
            LimitKind::Jobs => counted(amount, "job"),
        }
    }

    /// The amount alone.
    pub fn number(self, amount: u128) -> String {
        match self {
            LimitKind::Resource(kind) => kind.number(amount),
            LimitKind::Trainers | LimitKind::Jobs => amount.to_string(),
        }
    }
}

/// The limit that blocks a job, with the numbers that explain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExceededLimit {
    /// The user group whose members share this limit; `None`: the user's own.
    pub group: Option<Arc<str>>,
    pub kind: LimitKind,
    pub limit: u128,
    pub used: u128,
    pub asked: u128,
}

impl RequestSum {
    pub fn of(shape: &Shape) -> RequestSum {
        RequestSum {
            cpu: shape.total.cpu,
            memory: shape.total.memory,
            gpu: shape.total.gpu,
            trainers: u128::from(shape.trainers),
            jobs: 1,
        }
    }

    /// The largest fraction that this is of any resource of `all`, in units of 2⁻³².
    pub fn dominant_share(&self, all: &Load) -> u128 {
        let parts = [
            (self.cpu, all.cpu),
            (self.memory, all.memory),
            (self.gpu, all.gpu),
        ];
        let part = |(used, all): (u128, u128)| (used << 32).checked_div(all);
        parts.into_iter().filter_map(part).max().unwrap_or_default()
    }

    pub fn plus(self, other: RequestSum) -> RequestSum {
        RequestSum {
            cpu: self.cpu + other.cpu,
            memory: self.memory + other.memory,
            gpu: self.gpu + other.gpu,
            trainers: self.trainers + other.trainers,
            jobs: self.jobs + other.jobs,
        }
    }

    /// Subtracts what [`RequestSum::plus`] added.
    pub fn minus(self, other: RequestSum) -> RequestSum {
        RequestSum {
            cpu: self.cpu - other.cpu,
            memory: self.memory - other.memory,
            gpu: self.gpu - other.gpu,
            trainers: self.trainers - other.trainers,
            jobs: self.jobs - other.jobs,
        }
    }

    pub fn usage(self) -> Usage {
        let narrow = |count: u128| u32::try_from(count).unwrap_or(u32::MAX);
        Usage {
            cpu: Cpu::millis(u64::try_from(self.cpu).unwrap_or(u64::MAX)),
            memory: Bytes::new(u64::try_from(self.memory).unwrap_or(u64::MAX)),
            gpu: narrow(self.gpu),
            parallelism: narrow(self.trainers),
            jobs: narrow(self.jobs),
        }
    }
}

impl Guarantee {
    pub fn is_nothing(&self) -> bool {
        *self == Guarantee::default()
    }

    /// Whether the guarantee covers all of this.
    pub(super) fn covers(&self, used: RequestSum) -> bool {
        used.cpu <= u128::from(self.cpu.as_millis())
            && used.memory <= u128::from(self.memory.as_u64())
            && used.gpu <= u128::from(self.gpu)
    }
}

impl Quota {
    /// True for a quota that never blocks a job.
    pub(super) fn is_unlimited(&self) -> bool {
        let limits = [self.gpu, self.parallelism, self.jobs];
        self.cpu.is_none() && self.memory.is_none() && limits.iter().all(Option::is_none)
    }

    pub(super) fn allows(&self, used: RequestSum, asked: RequestSum) -> bool {
        self.in_the_way(used, asked).is_none()
    }

    /// The first limit that `asked` on top of `used` would exceed.
    pub(super) fn in_the_way(&self, used: RequestSum, asked: RequestSum) -> Option<ExceededLimit> {
        let limits = [
            (
                LimitKind::Resource(ResourceKind::Cpu),
                self.cpu.map(|c| u128::from(c.as_millis())),
                used.cpu,
                asked.cpu,
            ),
            (
                LimitKind::Resource(ResourceKind::Memory),
                self.memory.map(|m| u128::from(m.as_u64())),
                used.memory,
                asked.memory,
            ),
            (
                LimitKind::Resource(ResourceKind::Gpu),
                self.gpu.map(u128::from),
                used.gpu,
                asked.gpu,
            ),
            (
                LimitKind::Trainers,
                self.parallelism.map(u128::from),
                used.trainers,
                asked.trainers,
            ),
            (LimitKind::Jobs, self.jobs.map(u128::from), used.jobs, asked.jobs),
        ];
        limits.into_iter().find_map(|(kind, limit, used, asked)| {
            let limit = limit?;
            let broken = asked > 0 && used + asked > limit;
            broken.then_some(ExceededLimit {
                group: None,
                kind,
                limit,
                used,
                asked,
            })
        })
    }
}
