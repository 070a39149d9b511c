//! Finds a place for a whole job: every worker on one node, first fit, largest workers first.
//!
//! Read-only; the caller occupies the room.

use super::room::{Load, Part, Room, Shape};
use super::tree::RoomTree;

/// Workers of one part of a shape on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// Index into the shape's parts.
    pub part: usize,
    pub node: usize,
    pub count: u32,
}

/// Places all workers of the shape; `None` if they do not fit.
pub(super) fn place(tree: &RoomTree, shape: &Shape) -> Option<Vec<Share>> {
    if !may_fit(tree, shape) {
        return None;
    }
    let mut shares = Vec::new();
    for index in 0..shape.parts.len() {
        if !place_part(tree, shape, index, &mut shares) {
            return None;
        }
    }
    Some(shares)
}

/// A quick check: false means that the shape certainly does not fit.
pub(super) fn may_fit(tree: &RoomTree, shape: &Shape) -> bool {
    tree.total().holds(&shape.total) && shape.parts.iter().all(|part| tree.most().holds(&part.need))
}

fn place_part(tree: &RoomTree, shape: &Shape, index: usize, shares: &mut Vec<Share>) -> bool {
    let part = &shape.parts[index];
    let earlier = Taken::new(shape, shares);
    let mut left = part.count;
    let mut from = 0;
    while left > 0 {
        let Some(node) = tree.next_fit(from, part.each()) else {
            return false;
        };
        let count = earlier.room(node, tree).times(&part.need, left);
        if count > 0 {
            let part = index;
            shares.push(Share { part, node, count });
            left -= count;
        }
        from = node + 1;
    }
    true
}

/// What the earlier parts of the same job took, by node.
struct Taken(Vec<(usize, Load)>);

impl Taken {
    fn new(shape: &Shape, shares: &[Share]) -> Taken {
        Taken(loads(&shape.parts, shares))
    }

    fn room(&self, node: usize, tree: &RoomTree) -> Room {
        match self.0.binary_search_by_key(&node, |(node, _)| *node) {
            Ok(at) => tree.get(node).minus(&self.0[at].1),
            Err(_) => tree.get(node),
        }
    }
}

/// What the shares take from each node, sorted by node.
pub(super) fn loads(parts: &[Part], shares: &[Share]) -> Vec<(usize, Load)> {
    let mut loads: Vec<(usize, Load)> = shares
        .iter()
        .map(|share| (share.node, Load::of(&parts[share.part].need, share.count)))
        .collect();
    loads.sort_by_key(|(node, _)| *node);
    loads.dedup_by(|next, first| {
        let same = next.0 == first.0;
        if same {
            first.1.add(&next.1);
        }
        same
    });
    loads
}

/// The largest number in `1..bound` that passes. If a number passes, every smaller one must pass too.
pub(super) fn largest_below(bound: u64, passes: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut good, mut bad) = (0, bound);
    while bad.saturating_sub(good) > 1 {
        let middle = good + (bad - good) / 2;
        if passes(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    (good > 0).then_some(good)
}
