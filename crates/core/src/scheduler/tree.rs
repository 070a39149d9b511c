//! Finds the next node with enough room without looking at every node.
//!
//! A segment tree over the nodes; every inner place knows the most that any node below it offers, per kind
//! of room. It does not know who uses a node.

use super::room::{Load, Room};

/// The room of every node, searchable from left to right.
#[derive(Debug, Clone, Default)]
pub(super) struct RoomTree {
    nodes: usize,
    /// Number of leaves: a power of two.
    width: usize,
    /// Heap order: the root at 1, the leaves from `width` on.
    rooms: Vec<Room>,
    total: Load,
}

impl RoomTree {
    pub fn new(rooms: &[Room]) -> RoomTree {
        let width = rooms.len().next_power_of_two();
        let mut tree = RoomTree {
            nodes: rooms.len(),
            width,
            rooms: vec![Room::default(); 2 * width],
            total: Load::default(),
        };
        tree.rooms[width..width + rooms.len()].copy_from_slice(rooms);
        for at in (1..width).rev() {
            tree.rooms[at] = tree.rooms[2 * at].highest(&tree.rooms[2 * at + 1]);
        }
        for room in rooms {
            tree.total.add(&Load::of(room, 1));
        }
        tree
    }

    pub fn get(&self, node: usize) -> Room {
        self.rooms[self.width + node]
    }

    pub fn set(&mut self, node: usize, room: Room) {
        let mut at = self.width + node;
        if self.rooms[at] == room {
            return;
        }
        self.total.remove(&Load::of(&self.rooms[at], 1));
        self.total.add(&Load::of(&room, 1));
        self.rooms[at] = room;
        while at > 1 {
            at /= 2;
            let most = self.rooms[2 * at].highest(&self.rooms[2 * at + 1]);
            if self.rooms[at] == most {
                return;
            }
            self.rooms[at] = most;
        }
    }

    /// The room of all nodes together.
    pub fn total(&self) -> &Load {
        &self.total
    }

    /// The most of each kind that any node offers; no single node need offer all of it.
    pub fn most(&self) -> &Room {
        &self.rooms[1]
    }

    /// Whether so many workers of this need find room.
    pub fn has(&self, need: &Room, count: u32) -> bool {
        self.count(need, count) >= u64::from(count)
    }

    /// How many workers of this need find room; stops counting once it is enough.
    pub fn count(&self, need: &Room, enough: u32) -> u64 {
        let (mut count, mut from) = (0, 0);
        while count < u64::from(enough)
            && let Some(node) = self.next_fit(from, need)
        {
            count += u64::from(self.get(node).times(need, u32::MAX));
            from = node + 1;
        }
        count
    }

    /// The first node at or after `from` with at least this room.
    pub fn next_fit(&self, from: usize, need: &Room) -> Option<usize> {
        if from >= self.nodes {
            return None;
        }
        let mut at = self.width + from;
        loop {
            if self.rooms[at].holds(need) {
                if at >= self.width {
                    return Some(at - self.width).filter(|node| *node < self.nodes);
                }
                at *= 2;
                continue;
            }
            while at % 2 == 1 {
                at /= 2;
                if at == 0 {
                    return None;
                }
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(cpu: u64, memory: u64) -> Room {
        Room { cpu, memory, gpu: 0 }
    }

    #[test]
    fn a_tree_without_nodes_finds_nothing() {
        let tree = RoomTree::new(&[]);
        assert_eq!(tree.next_fit(0, &room(0, 0)), None);
        assert_eq!(*tree.most(), Room::default());
    }

    proptest::proptest! {
        #[test]
        fn next_fit_agrees_with_looking_at_every_node(
            rooms in proptest::collection::vec((0u64..6, 0u64..6), 0..40),
            changes in proptest::collection::vec((0usize..40, 0u64..6, 0u64..6), 0..20),
            need in (0u64..6, 0u64..6),
            from in 0usize..45,
        ) {
            let mut plain: Vec<Room> = rooms.iter().map(|(cpu, memory)| room(*cpu, *memory)).collect();
            let mut tree = RoomTree::new(&plain);
            for (node, cpu, memory) in changes {
                if node < plain.len() {
                    plain[node] = room(cpu, memory);
                    tree.set(node, plain[node]);
                }
            }
            let need = room(need.0, need.1);
            let expected = (from..plain.len()).find(|node| plain[*node].holds(&need));
            proptest::prop_assert_eq!(tree.next_fit(from, &need), expected);
            for count in 0..5 {
                let fitting: u32 = plain.iter().map(|room| room.times(&need, count)).sum();
                proptest::prop_assert_eq!(tree.has(&need, count), fitting >= count);
            }
            let total = plain.iter().map(|room| u128::from(room.cpu)).sum::<u128>();
            proptest::prop_assert_eq!(tree.total().cpu, total);
        }
    }
}
