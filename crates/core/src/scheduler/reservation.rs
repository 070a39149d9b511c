//! What is kept for the first job that does not fit, and what is left beside it.
//!
//! Running jobs are taken to end when their `-max-runtime` says. The first moment at which the job fits is its
//! start; the nodes it would get then are its reservation. If it also needs the room of jobs without an end, nobody
//! knows the start; then jobs are taken to go in the order in which they came, so that those who pass later never
//! count among those that will make room.

use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::future::Future;
use super::placing::{loads, place};
use super::queue::Key;
use super::room::{Load, Room, Shape};
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
    /// Reserved nodes, sorted, with what is left on them when the reservation begins.
    ceilings: Vec<(usize, Room)>,
    future: Future,
}

impl Spare {
    pub fn new(cluster: &Cluster) -> Spare {
        Spare {
            tree: cluster.free().clone(),
            ceilings: Vec::new(),
            future: Future::new(cluster),
        }
    }

    pub fn tree(&self) -> &RoomTree {
        &self.tree
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
            return Reservation::of_everything(running, now);
        };
        self.keep_nodes(cluster, shape);
        Reservation {
            start: end.map(|end| end.max(now)),
            everything: false,
        }
    }

    /// Chooses the nodes anew, unless only nodes behind the last one of the choice changed.
    fn keep_nodes(&mut self, cluster: &Cluster, shape: &Shape) {
        let changed = self.future.take_changed();
        if self.ceilings.last().is_some_and(|(last, _)| changed > *last) {
            return;
        }
        let future = self.future.tree();
        let shares = place(future, shape).unwrap_or_default();
        let ceilings = loads(&shape.parts, &shares)
            .into_iter()
            .map(|(node, load)| (node, future.get(node).beside(&load)))
            .collect();
        let before = std::mem::replace(&mut self.ceilings, ceilings);
        for (node, _) in before {
            self.refresh(cluster, node);
        }
        for at in 0..self.ceilings.len() {
            self.refresh(cluster, self.ceilings[at].0);
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
        let changed = self.future.take_changed();
        self.started(cluster, turn, loads);
        self.future.put_changed(changed);
        if !self.future.is_gone(turn) {
            self.lower(cluster, loads);
        }
    }

    /// These will still be taken when the reservation begins.
    fn lower(&mut self, cluster: &Cluster, loads: &[(usize, Load)]) {
        for (node, load) in loads {
            if let Ok(at) = self.ceilings.binary_search_by_key(node, |(node, _)| *node) {
                let ceiling = &mut self.ceilings[at].1;
                *ceiling = ceiling.beside(load);
                self.refresh(cluster, *node);
            }
        }
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
        let reserved = self.ceilings.binary_search_by_key(&node, |(node, _)| *node);
        let room = reserved.map_or(free, |at| self.ceilings[at].1.lowest(&free));
        self.tree.set(node, room);
    }
}
