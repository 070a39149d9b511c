//! What is kept for the first job that does not fit, and what is left beside it.
//!
//! Running jobs are taken to end when their `-max-runtime` says. The first moment at which the job fits is its
//! start; the nodes it would get then are its reservation. If it also needs the room of jobs without an end, nobody
//! knows the start; then jobs are taken to go in the order in which they came, so that those who pass later never
//! count among those that will make room.

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
    /// When it starts at the latest; `None` when that hangs on a job without an end.
    pub start: Option<Timestamp>,
    /// It needs all nodes: nothing fits beside it.
    pub everything: bool,
}

impl Reservation {
    /// For a job that needs resources held by foreign workloads: the time is unknown, and ending our jobs would not help.
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

/// The room that may be taken for ever without touching the reservation.
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

    /// True when this job certainly does not fit now.
    pub fn is_too_big_now(&self, key: Key) -> bool {
        self.future.is_too_big_now(key)
    }

    /// Keeps room for a job that does not fit now and says when it starts.
    pub fn reserve(
        &mut self,
        cluster: &Cluster,
        running: &Running,
        (key, shape): (Key, &Arc<Shape>),
        now: Timestamp,
    ) -> Reservation {
        self.future.aim(cluster, key, shape);
        let Some(end) = self.future.settle(cluster, running) else {
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

    /// Follows a start that the cluster knows already.
    pub fn started(&mut self, cluster: &Cluster, turn: Turn, loads: &[(usize, Load)]) {
        self.future.started(cluster, turn, loads);
        for (node, _) in loads {
            self.refresh(cluster, *node);
        }
    }

    /// Follows the start of a job that found room beside the reservation: that stays what it is.
    pub fn passed(&mut self, cluster: &Cluster, turn: Turn, loads: &[(usize, Load)]) {
        if !self.future.is_gone(turn) {
            self.nodes.lower(loads);
        }
        self.started(cluster, turn, loads);
    }

    /// Follows an end that the cluster knows already.
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
