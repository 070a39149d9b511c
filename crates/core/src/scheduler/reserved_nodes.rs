//! The nodes of a reservation, and the room it leaves on each.
//!
//! First fit chooses the nodes of a job. A job of equal workers fills the nodes in order until it has enough; so after
//! a change of a few nodes, only these and the end of the list are recomputed.

use super::placing::{loads, place};
use super::room::{Load, Part, Room, Shape};
use super::tree::RoomTree;

#[derive(Debug, Clone, Default)]
pub(super) struct ReservedNodes {
    /// Sorted by node.
    nodes: Vec<Reserved>,
}

#[derive(Debug, Clone, Copy)]
struct Reserved {
    node: usize,
    /// How many workers go there; counted only for jobs of equal workers.
    workers: u32,
    /// The room left beside them when the reservation begins.
    ceiling: Room,
}

impl ReservedNodes {
    /// The room left on a node; `None` if the node is not reserved.
    pub fn ceiling(&self, node: usize) -> Option<Room> {
        self.find(node).ok().map(|at| self.nodes[at].ceiling)
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Accounts for a job that took these loads and will still run when the reservation begins.
    pub fn lower(&mut self, loads: &[(usize, Load)]) {
        for (node, load) in loads {
            if let Ok(at) = self.find(*node) {
                let ceiling = &mut self.nodes[at].ceiling;
                *ceiling = ceiling.minus(load);
            }
        }
    }

    /// Chooses the nodes again. Returns the previously and the newly reserved ones.
    pub fn choose(&mut self, future: &RoomTree, shape: &Shape) -> Vec<usize> {
        let shares = place(future, shape).unwrap_or_default();
        let workers = |at: usize| match shape.parts.len() {
            1 => shares[at].count,
            _ => 0,
        };
        let loads = loads(&shape.parts, &shares).into_iter().enumerate();
        let chosen = loads.map(|(at, (node, load))| Reserved {
            node,
            workers: workers(at),
            ceiling: future.get(node).minus(&load),
        });
        let chosen = chosen.collect();
        let before = std::mem::replace(&mut self.nodes, chosen);
        before
            .iter()
            .chain(&self.nodes)
            .map(|reserved| reserved.node)
            .collect()
    }

    /// The same for a job of equal workers, if only these nodes changed since the last choice.
    pub fn amend(&mut self, future: &RoomTree, part: &Part, mut changed: Vec<usize>) -> Vec<usize> {
        let Some(last) = self.nodes.last().map(|last| last.node) else {
            return Vec::new();
        };
        // The last node may have room for more workers than were left to place.
        changed.push(last);
        changed.sort_unstable();
        changed.dedup();
        changed.retain(|node| *node <= last);
        for node in &changed {
            self.set(*node, part.each().times(*node, &future.get(*node), part.count));
        }
        let mut workers = self
            .nodes
            .iter()
            .map(|reserved| u64::from(reserved.workers))
            .sum();
        self.extend(future, part, last, &mut workers, &mut changed);
        self.trim(part, workers, &mut changed);
        for node in &changed {
            if let Ok(at) = self.find(*node) {
                let reserved = &mut self.nodes[at];
                reserved.ceiling = future.get(*node).minus(&Load::of(&part.need, reserved.workers));
            }
        }
        changed
    }

    fn set(&mut self, node: usize, workers: u32) {
        match (self.find(node), workers) {
            (Ok(at), 0) => {
                self.nodes.remove(at);
            }
            (Ok(at), _) => self.nodes[at].workers = workers,
            (Err(_), 0) => {}
            (Err(at), _) => self.nodes.insert(at, Reserved::new(node, workers)),
        }
    }

    /// Adds nodes until there are enough workers.
    fn extend(
        &mut self,
        future: &RoomTree,
        part: &Part,
        last: usize,
        workers: &mut u64,
        changed: &mut Vec<usize>,
    ) {
        let mut from = last + 1;
        while *workers < u64::from(part.count)
            && let Some(node) = future.next_fit(from, part.each())
        {
            let here = future.get(node).times(&part.need, part.count);
            self.nodes.push(Reserved::new(node, here));
            *workers += u64::from(here);
            changed.push(node);
            from = node + 1;
        }
    }

    /// Removes surplus workers from the end.
    fn trim(&mut self, part: &Part, workers: u64, changed: &mut Vec<usize>) {
        let mut surplus = workers.saturating_sub(u64::from(part.count));
        while let Some(last) = self.nodes.last_mut() {
            changed.push(last.node);
            if u64::from(last.workers) > surplus {
                last.workers -= u32::try_from(surplus).expect("less than the workers of one node");
                return;
            }
            surplus -= u64::from(last.workers);
            self.nodes.pop();
        }
    }

    fn find(&self, node: usize) -> Result<usize, usize> {
        self.nodes.binary_search_by_key(&node, |reserved| reserved.node)
    }
}

impl Reserved {
    fn new(node: usize, workers: u32) -> Reserved {
        Reserved {
            node,
            workers,
            ceiling: Room::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(cpu: u64) -> Room {
        Room {
            cpu,
            memory: 8,
            gpu: 0,
        }
    }

    proptest::proptest! {
        #[test]
        fn amending_a_choice_equals_choosing_again(
            before in proptest::collection::vec(0u64..9, 1..12),
            changes in proptest::collection::vec((0usize..12, 0u64..9), 0..6),
            (cpu, count) in (1u64..4, 1u32..12),
        ) {
            let need = Room { cpu, memory: 1, gpu: 0 };
            let part = Part { role: 0, count, need, eligible: Default::default() };
            let shape = Shape { parts: vec![part.clone()], total: Load::of(&part.need, count), trainers: count };
            let mut future = RoomTree::new(&before.iter().map(|cpu| room(*cpu)).collect::<Vec<_>>());
            let mut amended = ReservedNodes::default();
            amended.choose(&future, &shape);
            let changes: Vec<_> = changes.into_iter().filter(|(node, _)| *node < before.len()).collect();
            for (node, cpu) in &changes {
                future.set(*node, room(*cpu));
            }
            if amended.is_empty() || place(&future, &shape).is_none() {
                return Ok(());
            }
            let (old, changed) = (amended.clone(), changes.iter().map(|(node, _)| *node).collect());
            let touched = amended.amend(&future, &part, changed);
            let mut chosen = ReservedNodes::default();
            chosen.choose(&future, &shape);
            for node in 0..before.len() {
                proptest::prop_assert_eq!(amended.ceiling(node), chosen.ceiling(node));
                proptest::prop_assert!(touched.contains(&node) || amended.ceiling(node) == old.ceiling(node));
            }
        }
    }
}
