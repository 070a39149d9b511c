//! Finds the next node with enough room without visiting every node.
//!
//! A segment tree over the nodes: every inner node stores the most of each resource that a node below it offers. It
//! does not know which jobs use a node.

use super::eligible::Nodes;
use super::room::{Load, Need, Room};

/// The room of every node, searchable from left to right.
#[derive(Debug, Clone, Default)]
pub(super) struct RoomTree {
    nodes: usize,
    /// Number of leaves: a power of two.
    width: usize,
    /// Heap order: the root at 1, the leaves from `width` on.
    offers: Vec<Offer>,
    total: Load,
}

/// The most that any of several nodes offers. Fits into one cache line, so reading it costs one access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Offer {
    /// The maximum of each resource separately: one node may have the cpu and another the memory.
    room: Room,
    /// The maximum of both together, see [`together`].
    together: [u64; RATIOS.len()],
}

/// Bytes per thousandth of a core, as powers of two: from half a Gi per core to 32 Gi.
const RATIOS: [u32; 4] = [19, 21, 23, 25];

/// How much cpu and memory a room has at this ratio. If some jobs use up cpu and others memory, few nodes have both;
/// this finds them.
fn together(room: &Room, ratio: u32) -> u64 {
    room.cpu.saturating_mul(1 << ratio).min(room.memory)
}

impl Offer {
    fn of(room: &Room) -> Offer {
        Offer {
            room: *room,
            together: RATIOS.map(|ratio| together(room, ratio)),
        }
    }

    fn highest(&self, other: &Offer) -> Offer {
        Offer {
            room: self.room.highest(&other.room),
            together: std::array::from_fn(|at| self.together[at].max(other.together[at])),
        }
    }
}

/// A need, prepared for the search.
struct NodeQuery<'a> {
    need: Need<'a>,
    /// The index of the nearest ratio.
    nearest: usize,
    together: u64,
}

impl NodeQuery<'_> {
    fn new(need: Need<'_>) -> NodeQuery<'_> {
        let room = need.room;
        let ratio = room
            .memory
            .checked_div(room.cpu)
            .unwrap_or(u64::MAX)
            .max(1)
            .ilog2();
        let nearest = RATIOS.iter().take_while(|step| **step < ratio).count();
        let nearest = nearest.min(RATIOS.len() - 1);
        NodeQuery {
            need,
            nearest,
            together: together(room, RATIOS[nearest]),
        }
    }

    fn may_be_in(&self, part: usize, offer: &Offer) -> bool {
        offer.together[self.nearest] >= self.together
            && offer.room.holds(self.need.room)
            && self.need.nodes.is_none_or(|nodes| nodes.has_part(part))
    }
}

impl RoomTree {
    pub fn new(rooms: &[Room]) -> RoomTree {
        let width = rooms.len().next_power_of_two();
        let mut tree = RoomTree {
            nodes: rooms.len(),
            width,
            offers: vec![Offer::default(); 2 * width],
            total: Load::default(),
        };
        for (node, room) in rooms.iter().enumerate() {
            tree.offers[width + node] = Offer::of(room);
            tree.total.add(&Load::of(room, 1));
        }
        for at in (1..width).rev() {
            tree.offers[at] = tree.offers[2 * at].highest(&tree.offers[2 * at + 1]);
        }
        tree
    }

    pub fn get(&self, node: usize) -> Room {
        self.offers[self.width + node].room
    }

    pub fn set(&mut self, node: usize, room: Room) {
        let mut at = self.width + node;
        if self.offers[at].room == room {
            return;
        }
        self.total.remove(&Load::of(&self.offers[at].room, 1));
        self.total.add(&Load::of(&room, 1));
        self.offers[at] = Offer::of(&room);
        while at > 1 {
            at /= 2;
            let most = self.offers[2 * at].highest(&self.offers[2 * at + 1]);
            if self.offers[at] == most {
                return;
            }
            self.offers[at] = most;
        }
    }

    /// The room of all nodes together.
    pub fn total(&self) -> &Load {
        &self.total
    }

    /// The most of each resource that any node offers; it may be a different node for each.
    pub fn most(&self) -> &Room {
        &self.offers[1].room
    }

    /// The room of these nodes together.
    pub fn total_of(&self, nodes: &Nodes) -> Load {
        let mut total = Load::default();
        self.rooms_of(nodes)
            .for_each(|room| total.add(&Load::of(&room, 1)));
        total
    }

    /// The most of each resource that any of these nodes offers.
    pub fn most_of(&self, nodes: &Nodes) -> Room {
        self.rooms_of(nodes)
            .fold(Room::default(), |most, room| most.highest(&room))
    }

    fn rooms_of(&self, nodes: &Nodes) -> impl Iterator<Item = Room> {
        (0..self.nodes)
            .filter(|node| nodes.has(*node))
            .map(|node| self.get(node))
    }

    /// Whether this many workers with this need fit.
    pub fn has(&self, need: Need, count: u32) -> bool {
        self.count(need, count) >= u64::from(count)
    }

    /// How many workers with this need fit; stops counting at `enough`.
    pub fn count(&self, need: Need, enough: u32) -> u64 {
        self.count_from(0, need, enough)
    }

    /// The first node at or after `from` with room, if this many workers fit from there on.
    pub fn first_of(&self, from: usize, need: Need, count: u32) -> Option<usize> {
        let first = self.next_fit(from, need)?;
        let left = count - self.get(first).times(need.room, count);
        let is_enough = left == 0 || self.count_from(first + 1, need, left) >= u64::from(left);
        is_enough.then_some(first)
    }

    fn count_from(&self, mut from: usize, need: Need, enough: u32) -> u64 {
        let mut count = 0;
        while count < u64::from(enough)
            && let Some(node) = self.next_fit(from, need)
        {
            count += u64::from(self.get(node).times(need.room, u32::MAX));
            from = node + 1;
        }
        count
    }

    /// The first node at or after `from` with at least this room.
    pub fn next_fit(&self, from: usize, need: Need) -> Option<usize> {
        if from >= self.nodes {
            return None;
        }
        let query = NodeQuery::new(need);
        let mut at = self.width + from;
        loop {
            if query.may_be_in(at, &self.offers[at]) {
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
        assert_eq!(tree.next_fit(0, Need::new(&room(0, 0), &Nodes::default())), None);
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
            let everywhere = Nodes::default();
            let asked = Need::new(&need, &everywhere);
            let expected = (from..plain.len()).find(|node| plain[*node].holds(&need));
            proptest::prop_assert_eq!(tree.next_fit(from, asked), expected);
            for count in 0..5 {
                let fitting: u32 = plain.iter().map(|room| room.times(&need, count)).sum();
                proptest::prop_assert_eq!(tree.has(asked, count), fitting >= count);
                let later = &plain[from.min(plain.len())..];
                let fitting: u32 = later.iter().map(|room| room.times(&need, count)).sum();
                let expected = tree.next_fit(from, asked).filter(|_| fitting >= count);
                proptest::prop_assert_eq!(tree.first_of(from, asked, count), expected);
            }
            let total = plain.iter().map(|room| u128::from(room.cpu)).sum::<u128>();
            proptest::prop_assert_eq!(tree.total().cpu, total);
        }
    }
}
