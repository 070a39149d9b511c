//! Input and output of the scheduler: requests, machines, placements.
//!
//! Plain values; no decisions are made here.

use std::sync::Arc;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::eligible::{NodeTraits, Requirement};
use super::excess::Excess;
use crate::names::{JobId, NodeName, UserName};
use crate::quantity::{Bytes, Cpu};
use crate::spec::{JobSpec, Resources};

/// A job as the scheduler sees it: its owner, size, priority and runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub id: JobId,
    pub user: UserName,
    /// Higher values go first.
    pub priority: i32,
    /// The submit sequence: first in, first out within one priority.
    pub order: u64,
    /// The number and size of the workers of each role. The last role is the trainers; earlier roles serve them.
    pub roles: Vec<(u32, Resources)>,
    /// The job is ended at the latest this long after its start.
    pub max_runtime: Option<SignedDuration>,
    /// What the nodes of its workers must have.
    pub required: Requirement,
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
            required: Requirement {
                labels: spec.node_labels.clone(),
                gpu_type: spec.gpu_type.clone(),
            },
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
    /// What other workloads use. Jobs wait for it; they are not refused because of it.
    #[serde(default)]
    pub taken: Taken,
    #[serde(default)]
    pub traits: Arc<NodeTraits>,
}

/// The amounts that other workloads use on a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub cpu: Cpu,
    pub memory: Bytes,
    pub gpus: u32,
}

/// A node was added, changed or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeChange {
    /// Adds the node, or replaces the one with this name. Running workers are not affected.
    Set(Node),
    Removed(NodeName),
}

/// All machines, with unique names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    pub nodes: Vec<Node>,
}

impl Inventory {
    /// Applies one change. A new node comes last.
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

/// Where every worker of a job runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// In the order of the request's roles: all workers of the first role, then of the next.
    pub workers: Vec<Seat>,
}

/// Where one worker runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    pub node: NodeName,
    /// The GPU cards of the node that are assigned to this worker.
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

/// Settings that differ between servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// A job larger than all machines runs alone, on less than it requested, instead of being refused.
    pub oversubscribe_alone: bool,
    /// Within one priority, the user with the smallest weighted dominant share is next, instead of the first job in.
    #[serde(default)]
    pub fair_share: bool,
    /// How long a job within its owner's guarantee waits before borrowing jobs are stopped for it; `None`: never.
    #[serde(default)]
    pub reclaim: Option<SignedDuration>,
    /// How long a running job may lack a worker that finds no node while other jobs need its room; `None`: for ever.
    #[serde(default)]
    pub recovery: Option<SignedDuration>,
}
