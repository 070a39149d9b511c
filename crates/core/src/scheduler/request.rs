//! Input and output of the scheduler: requests, machines, placements.
//!
//! Plain values. Nothing here decides anything.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::excess::Excess;
use crate::names::{JobId, NodeName, UserName};
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
    pub name: NodeName,
    pub cpu: Cpu,
    pub memory: Bytes,
    pub gpus: u32,
    /// What of it is in use by others than this server's jobs. Jobs wait for it; they are not refused because of it.
    #[serde(default)]
    pub taken: Taken,
}

/// An amount that others hold on a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub cpu: Cpu,
    pub memory: Bytes,
    pub gpus: u32,
}

/// One node is added, has changed or is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeChange {
    /// Added, or replaces the node of this name. Running workers are not affected.
    Set(Node),
    Removed(NodeName),
}

/// All machines, each under a name of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    pub nodes: Vec<Node>,
}

impl Inventory {
    /// Follows one change. A node that is new comes last.
    pub fn apply(&mut self, change: NodeChange) {
        match change {
            NodeChange::Removed(name) => self.nodes.retain(|node| node.name != name),
            NodeChange::Set(changed) => match self.nodes.iter_mut().find(|node| node.name == changed.name) {
                Some(node) => *node = changed,
                None => self.nodes.push(changed),
            },
        }
    }
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
    pub node: NodeName,
    /// The cards of that node which are this worker's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
}

/// A job that may start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    pub id: JobId,
    pub placement: Placement,
    /// By how much it exceeds the machines, if it runs alone because of that.
    pub alone: Option<Excess>,
}

/// What differs between servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// A job bigger than everything there is runs alone, on less than it asked for, instead of being refused.
    pub oversubscribe_alone: bool,
    /// Among equal priorities the user with the smallest weighted dominant share is next; otherwise the first in.
    #[serde(default)]
    pub fair_share: bool,
    /// How long a job within its owner's guarantee waits before jobs that borrow are stopped for it; `None`: they are
    /// not.
    #[serde(default)]
    pub reclaim: Option<SignedDuration>,
}
