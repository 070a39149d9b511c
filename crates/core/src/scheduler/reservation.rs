//! The reservation of the first job that does not fit, and the room left beside it.
//!
//! Running jobs are assumed to end at their `-max-runtime`. The first moment at which the job fits is its start; the
//! nodes it would get then are its reservation. If it also needs the room of jobs without a maximum runtime, the start
//! is unknown. Jobs are then assumed to end in the order they started, so that a job that overtakes later never counts
//! among those that make room.

use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::future::{Changed, Future};
use super::queue::Key;
use super::reserved_nodes::ReservedNodes;
use super::room::{Load, Shape};
use super::running::{Running, Turn};
use super::tree::RoomTree;

/// A promise to the first job that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reservation {
    /// The latest start; `None` if it depends on a job without a maximum runtime.
    pub start: Option<Timestamp>,
    /// The job needs all nodes: nothing fits beside it.
    pub everything: bool,
}

impl Reservation {
    /// For a job that needs resources held by other workloads: the start is unknown, and ending our jobs would not help.
    fn of_nothing() -> Reservation {
        Reservation {
            start: None,
            everything: false,
        }
    }

    /// The reservation of a job that runs alone.
    pub fn of_everything(running: &Running, now: Timestamp) -> Reservation {
        let last = running.known().next_back().map_or(now, |(end, _)| end.max(now));
        Reservation {
            start: (!running.has_unknown()).then_some(last),
            everything: true,
        }
    }
}

/// The room that may be used indefinitely without touching the reservation.
#[derive(Debug, Clone, Default)]
pub(super) struct Spare {
    tree: RoomTree,
    nodes: ReservedNodes,
    future: Future,
}

impl Spare {
    pub fn new(cluster: &Cluster) -> Spare {
        Spare {
            tree: cluster.free().clone(),
            nodes: ReservedNodes::default(),
            future: Future::new(cluster),
        }
    }

    pub fn tree(&self) -> &RoomTree {
        &self.tree
    }

    /// True if this job certainly does not fit now.
    pub fn is_too_big_now(&self, key: Key) -> bool {
        self.future.is_too_big_now(key)
    }

    /// Reserves room for a job that does not fit now.
    pub fn reserve(
        &mut self,
        cluster: &Cluster,
        running: &Running,
        (key, shape): (Key, &Arc<Shape>),
        now: Timestamp,
    ) -> Reservation {
        self.future.aim(cluster, key, shape);
        let Some(end) = self.future.move_to_first_fit(cluster, running) else {
            if cluster.waits_for_others(shape) {
                *self = Spare::new(cluster);
                return Reservation::of_nothing();
            }
            return Reservation::of_everything(running, now);
        };
        self.keep_nodes(cluster, shape);
        Reservation {
            start: end.map(|end| end.max(now)),
            everything: false,
        }
    }

    /// Reserves the nodes that the job would get.
    fn keep_nodes(&mut self, cluster: &Cluster, shape: &Shape) {
        let touched = match (self.future.take_changed(), shape.only_part()) {
            (Changed::These(changed), Some(part)) if !self.nodes.is_empty() => {
                self.nodes.amend(self.future.tree(), part, changed)
            }
            _ => self.nodes.choose(self.future.tree(), shape),
        };
        for node in touched {
            self.refresh(cluster, node);
        }
    }

    /// Applies a start that the cluster already contains.
    pub fn started(&mut self, cluster: &Cluster, turn: Turn, loads: &[(usize, Load)]) {
        self.future.started(cluster, turn, loads);
        for (node, _) in loads {
            self.refresh(cluster, *node);
        }
    }

    /// Applies the start of a job that fits beside the reservation, which stays the same.
    pub fn passed(&mut self, cluster: &Cluster, turn: Turn, loads: &[(usize, Load)]) {
        if !self.future.is_gone(turn) {
            self.nodes.lower(loads);
        }
        self.started(cluster, turn, loads);
    }

    /// Applies an end that the cluster already contains.
    pub fn ended(&mut self, cluster: &Cluster, turn: Turn, loads: &[(usize, Load)]) {
        self.future.ended(cluster, turn, loads);
        for (node, _) in loads {
            self.refresh(cluster, *node);
        }
    }

    fn refresh(&mut self, cluster: &Cluster, node: usize) {
        let free = cluster.free().get(node);
        let ceiling = self.nodes.ceiling(node);
        let room = ceiling.map_or(free, |ceiling| ceiling.lowest(&free));
        self.tree.set(node, room);
    }
}
