//! What a user may take at once and what they take now.
//!
//! Who has to wait because of it is decided by the queue.

use serde::{Deserialize, Serialize};

use super::room::Shape;
use crate::quantity::{Bytes, Cpu};

/// The most a user may have running at once. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    pub cpu: Option<Cpu>,
    pub memory: Option<Bytes>,
    pub gpu: Option<u32>,
    /// Trainers at once.
    pub parallelism: Option<u32>,
}

/// What a user has running now, in the same terms as [`Quota`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub cpu: Cpu,
    pub memory: Bytes,
    pub gpu: u32,
    pub parallelism: u32,
}

/// A sum of requests, wide enough that no number of jobs overflows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub cpu: u128,
    pub memory: u128,
    pub gpu: u128,
    pub trainers: u128,
}

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Cpu,
    Memory,
    Gpu,
    Trainers,
}

/// The limit that stands in a job's way, with the numbers that explain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub kind: Kind,
    pub limit: u128,
    pub used: u128,
    pub asked: u128,
}

impl Tally {
    pub fn of(shape: &Shape) -> Tally {
        Tally {
            cpu: shape.total.cpu,
            memory: shape.total.memory,
            gpu: shape.total.gpu,
            trainers: u128::from(shape.trainers),
        }
    }

    pub fn plus(self, other: Tally) -> Tally {
        Tally {
            cpu: self.cpu + other.cpu,
            memory: self.memory + other.memory,
            gpu: self.gpu + other.gpu,
            trainers: self.trainers + other.trainers,
        }
    }

    /// Takes away what [`Tally::plus`] added before.
    pub fn minus(self, other: Tally) -> Tally {
        Tally {
            cpu: self.cpu - other.cpu,
            memory: self.memory - other.memory,
            gpu: self.gpu - other.gpu,
            trainers: self.trainers - other.trainers,
        }
    }

    pub fn usage(self) -> Usage {
        let narrow = |count: u128| u32::try_from(count).unwrap_or(u32::MAX);
        Usage {
            cpu: Cpu::millis(u64::try_from(self.cpu).unwrap_or(u64::MAX)),
            memory: Bytes::new(u64::try_from(self.memory).unwrap_or(u64::MAX)),
            gpu: narrow(self.gpu),
            parallelism: narrow(self.trainers),
        }
    }
}

impl Quota {
    /// True for a quota that never stands in anyone's way.
    pub(super) fn is_unlimited(&self) -> bool {
        *self == Quota::default()
    }

    pub(super) fn allows(&self, used: Tally, asked: Tally) -> bool {
        self.in_the_way(used, asked).is_none()
    }

    /// The first limit that `asked` on top of `used` would break.
    pub(super) fn in_the_way(&self, used: Tally, asked: Tally) -> Option<Limit> {
        let limits = [
            (
                Kind::Cpu,
                self.cpu.map(|c| u128::from(c.as_millis())),
                used.cpu,
                asked.cpu,
            ),
            (
                Kind::Memory,
                self.memory.map(|m| u128::from(m.as_u64())),
                used.memory,
                asked.memory,
            ),
            (Kind::Gpu, self.gpu.map(u128::from), used.gpu, asked.gpu),
            (
                Kind::Trainers,
                self.parallelism.map(u128::from),
                used.trainers,
                asked.trainers,
            ),
        ];
        limits.into_iter().find_map(|(kind, limit, used, asked)| {
            let limit = limit?;
            let broken = asked > 0 && used + asked > limit;
            broken.then_some(Limit {
                kind,
                limit,
                used,
                asked,
            })
        })
    }
}
