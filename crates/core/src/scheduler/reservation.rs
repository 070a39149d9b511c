//! What is kept for the first job that does not fit, and what is left beside it.
//!
//! Running jobs are taken to end when their `-max-runtime` says. The first moment at which the job fits is its
//! start; the nodes it would get then are its reservation. If it also needs the room of jobs without an end, nobody
//! knows the start; then jobs are taken to go in the order in which they came, so that those who pass later never
//! count among those that will make room.

use std::collections::HashMap;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::placing::{Share, loads, place};
use super::queue::Key;
use super::room::{Load, Room, Shape};
use super::running::{Run, Running};
use super::tree::RoomTree;

/// A promise to the first job that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reservation {
    pub key: Key,
    /// When it starts at the latest; `None` when that hangs on a job without an end.
    pub start: Option<Timestamp>,
    /// It needs all nodes: nothing fits beside it.
    pub everything: bool,
}

/// The room that may be taken for ever without touching a reservation.
#[derive(Debug, Clone, Default)]
pub(super) struct Spare {
    tree: RoomTree,
    /// Reserved nodes, with what is left on them when the reservation begins.
    ceilings: HashMap<usize, Room>,
}

impl Spare {
    pub fn new(cluster: &Cluster) -> Spare {
        Spare {
            tree: cluster.free().clone(),
            ceilings: HashMap::new(),
        }
    }

    pub fn tree(&self) -> &RoomTree {
        &self.tree
    }

    /// Follows a change of what is free on these nodes.
    pub fn follow(&mut self, cluster: &Cluster, nodes: impl Iterator<Item = usize>) {
        for node in nodes {
            let free = cluster.free().get(node);
            let room = self
                .ceilings
                .get(&node)
                .map_or(free, |ceiling| ceiling.lowest(&free));
            self.tree.set(node, room);
        }
    }

    /// A job took this and will still be there when the reservation begins.
    pub fn lower(&mut self, loads: &[(usize, Load)]) {
        for (node, load) in loads {
            if let Some(ceiling) = self.ceilings.get_mut(node) {
                *ceiling = ceiling.beside(load);
            }
        }
    }

    /// Forgets the reservation.
    pub fn clear(&mut self, cluster: &Cluster) {
        let nodes: Vec<usize> = self.ceilings.drain().map(|(node, _)| node).collect();
        self.follow(cluster, nodes.into_iter());
    }

    /// Keeps room for a job that does not fit now and says when it starts.
    pub fn reserve(
        &mut self,
        cluster: &Cluster,
        running: &Running,
        key: Key,
        shape: &Shape,
        now: Timestamp,
    ) -> Reservation {
        self.clear(cluster);
        let known = running.known().map(|(end, run)| (Some(end), run));
        let any = running.by_start().map(|run| (None, run));
        let found = self
            .keep(cluster, shape, known)
            .or_else(|| self.keep(cluster, shape, any));
        match found {
            Some(end) => Reservation {
                key,
                start: end.map(|end| end.max(now)),
                everything: false,
            },
            None => Reservation::of_everything(key, running, now),
        }
    }

    /// Keeps the nodes where the job fits once enough of these, in this order, are gone.
    fn keep<'a>(
        &mut self,
        cluster: &Cluster,
        shape: &Shape,
        mut ends: impl Iterator<Item = (Option<Timestamp>, &'a Run)>,
    ) -> Option<Option<Timestamp>> {
        let mut future = Future::new(&mut self.tree, cluster, shape);
        let found = ends.find_map(|(end, run)| {
            future.without(&run.holding.loads);
            future.place().map(|shares| (end, shares))
        });
        let touched = future.gone;
        if let Some((_, shares)) = &found {
            for (node, load) in loads(&shape.parts, shares) {
                self.ceilings.insert(node, self.tree.get(node).beside(&load));
            }
        }
        let reserved: Vec<usize> = self.ceilings.keys().copied().collect();
        self.follow(cluster, touched.into_keys().chain(reserved));
        found.map(|(end, _)| end)
    }
}

impl Reservation {
    /// The reservation of a job that runs alone.
    pub fn of_everything(key: Key, running: &Running, now: Timestamp) -> Reservation {
        let last = running.known().next_back().map_or(now, |(end, _)| end.max(now));
        Reservation {
            key,
            start: (!running.has_unknown()).then_some(last),
            everything: true,
        }
    }
}

/// The nodes as they will be when some running jobs are gone.
struct Future<'a> {
    tree: &'a mut RoomTree,
    cluster: &'a Cluster,
    shape: &'a Shape,
    gone: HashMap<usize, Load>,
    /// How many workers of each part would fit if the others did not need the same room.
    fitting: Vec<u64>,
}

impl<'a> Future<'a> {
    fn new(tree: &'a mut RoomTree, cluster: &'a Cluster, shape: &'a Shape) -> Future<'a> {
        let fitting = shape
            .parts
            .iter()
            .map(|part| count_fitting(tree, &part.need, part.count))
            .collect();
        Future {
            tree,
            cluster,
            shape,
            gone: HashMap::new(),
            fitting,
        }
    }

    fn without(&mut self, loads: &[(usize, Load)]) {
        for (node, load) in loads {
            let gone = self.gone.entry(*node).or_default();
            gone.add(load);
            let room = self.cluster.room_without(*node, gone);
            let before = self.tree.get(*node);
            for (fitting, part) in self.fitting.iter_mut().zip(&self.shape.parts) {
                let more = room.times(&part.need, u32::MAX) - before.times(&part.need, u32::MAX);
                *fitting += u64::from(more);
            }
            self.tree.set(*node, room);
        }
    }

    fn place(&self) -> Option<Vec<Share>> {
        let enough = |(fitting, part): (&u64, &super::room::Part)| *fitting >= u64::from(part.count);
        let may = self.fitting.iter().zip(&self.shape.parts).all(enough);
        may.then(|| place(self.tree, self.shape)).flatten()
    }
}

/// Counts up to the number asked for.
fn count_fitting(tree: &RoomTree, need: &Room, most: u32) -> u64 {
    let (mut count, mut from) = (0, 0);
    while count < u64::from(most)
        && let Some(node) = tree.next_fit(from, need)
    {
        count += u64::from(tree.get(node).times(need, most));
        from = node + 1;
    }
    count
}
