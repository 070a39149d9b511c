//! What the scheduler is told and what it answers: requests, machines, placements.
//!
//! Plain values. Nothing here decides anything.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::names::{JobId, UserName};
use crate::quantity::{Bytes, Cpu};
use crate::spec::{JobSpec, Resources};

/// A job as the scheduler sees it: who wants how much, how urgently, for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub id: JobId,
    pub user: UserName,
    /// Higher goes first.
    pub priority: i32,
    /// The submit sequence: first in, first out within one priority.
    pub order: u64,
    /// How many workers of which size. The last role are the trainers, those before it serve them.
    pub roles: Vec<(u32, Resources)>,
    /// When the job is ended at the latest, counted from its start.
    pub max_runtime: Option<SignedDuration>,
}

impl Request {
    /// The request of a job: parameter servers first, then trainers.
    pub fn of(spec: &JobSpec, id: JobId, user: UserName, order: u64) -> Request {
        let servers = (spec.pservers > 0).then_some((spec.pservers, spec.pserver));
        Request {
            id,
            user,
            priority: spec.priority,
            order,
            roles: servers
                .into_iter()
                .chain([(spec.parallelism, spec.trainer)])
                .collect(),
            max_runtime: spec.max_runtime,
        }
    }

    /// How many trainers the job has: the count of its last role.
    pub fn trainers(&self) -> u32 {
        self.roles.last().map_or(0, |(count, _)| *count)
    }
}

/// One machine that workers run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    pub cpu: Cpu,
    pub memory: Bytes,
    pub gpus: u32,
}

/// All machines. A placement points into this list, so keep its order and append what is new.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    pub nodes: Vec<Node>,
}

/// Where every worker of one job goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// In the order of the request's roles: all workers of the first role, then of the next.
    pub workers: Vec<Seat>,
}

/// Where one worker goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Index into [`Inventory::nodes`].
    pub node: u32,
    /// The cards of that node which are this worker's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
}

/// A job that may start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    pub id: JobId,
    pub placement: Placement,
    /// Something its owner should know: `10 cores asked, 2 here`.
    pub note: Option<String>,
}

/// What differs between servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// A job bigger than everything there is runs alone, on less than it asked for, instead of being refused.
    pub oversubscribe_alone: bool,
}
