//! An ordered tree in which every fork has a summary of the entries below it.
//!
//! A search skips whatever the summary rules out, so it costs a few steps instead of a walk over everything. The tree
//! splits at the first bit in which codes differ: its shape depends only on its content, never on the order of
//! insertion. The caller defines what a summary says.

/// The sort key of an entry.
pub(super) type Code = [u64; 3];

/// A summary of several entries.
pub(super) trait Summary: Clone + PartialEq {
    /// The summary of both.
    fn with(&self, other: &Self) -> Self;
}

/// A position in the tree, valid until the tree changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TreeIndex(u32);

/// The node at a position.
pub(super) enum Branch<'a, T> {
    Leaf(&'a T),
    Fork([TreeIndex; 2]),
}

#[derive(Debug, Clone)]
pub(super) struct SummaryTree<T, S> {
    nodes: Vec<Node<T, S>>,
    /// Free slots in `nodes`.
    vacant: Vec<u32>,
    root: Option<u32>,
}

#[derive(Debug, Clone)]
struct Node<T, S> {
    summary: S,
    kind: Kind<T>,
}

#[derive(Debug, Clone)]
enum Kind<T> {
    Leaf { code: Code, value: T },
    Fork { bit: u32, sides: [u32; 2] },
}

impl<T, S> Default for SummaryTree<T, S> {
    fn default() -> Self {
        SummaryTree {
            nodes: Vec::new(),
            vacant: Vec::new(),
            root: None,
        }
    }
}

impl<T, S: Summary> SummaryTree<T, S> {
    /// The summary of all entries.
    pub fn summary(&self) -> Option<&S> {
        self.top().map(|top| self.at(top).0)
    }

    pub fn top(&self) -> Option<TreeIndex> {
        self.root.map(TreeIndex)
    }

    pub fn at(&self, place: TreeIndex) -> (&S, Branch<'_, T>) {
        let node = &self.nodes[place.0 as usize];
        let branch = match &node.kind {
            Kind::Leaf { value, .. } => Branch::Leaf(value),
            Kind::Fork { sides, .. } => Branch::Fork(sides.map(TreeIndex)),
        };
        (&node.summary, branch)
    }

    /// The first entry that passes. A summary must pass if any entry below it passes.
    pub fn first(&self, passes: impl Fn(&S) -> bool) -> Option<&T> {
        let mut open: Vec<TreeIndex> = self.top().into_iter().collect();
        while let Some(place) = open.pop() {
            let (summary, branch) = self.at(place);
            if !passes(summary) {
                continue;
            }
            match branch {
                Branch::Leaf(value) => return Some(value),
                Branch::Fork([left, right]) => open.extend([right, left]),
            }
        }
        None
    }

    /// Adds an entry, or replaces the one with this code.
    pub fn insert(&mut self, code: Code, value: T, summary: S) {
        let Some(root) = self.root else {
            self.root = Some(self.add(leaf(code, value, summary)));
            return;
        };
        let (near, path) = self.descend(root, &code, u32::MAX);
        let Some(bit) = first_difference(self.code(near), &code) else {
            self.nodes[near as usize] = leaf(code, value, summary);
            self.refresh(&path);
            return;
        };
        let (below, path) = self.descend(root, &code, bit);
        let new = self.add(leaf(code, value, summary));
        let sides = match is_set(&code, bit) {
            false => [new, below],
            true => [below, new],
        };
        let fork = self.add(Node {
            summary: self.joined(sides),
            kind: Kind::Fork { bit, sides },
        });
        self.replace(path.last().copied(), below, fork);
        self.refresh(&path);
    }

    /// Removes an entry; ignores unknown codes.
    pub fn remove(&mut self, code: &Code) {
        let Some(root) = self.root else {
            return;
        };
        let (gone, mut path) = self.descend(root, code, u32::MAX);
        if self.code(gone) != code {
            return;
        }
        self.vacant.push(gone);
        let Some(parent) = path.pop() else {
            self.root = None;
            return;
        };
        let [left, right] = self.sides(parent);
        let sibling = if left == gone { right } else { left };
        self.vacant.push(parent);
        self.replace(path.last().copied(), parent, sibling);
        self.refresh(&path);
    }

    /// Follows a code down to a leaf, or to the first fork at or beyond this bit. Also returns the forks on the path.
    fn descend(&self, root: u32, code: &Code, until: u32) -> (u32, Vec<u32>) {
        let (mut at, mut path) = (root, Vec::with_capacity(32));
        while let Kind::Fork { bit, sides } = &self.nodes[at as usize].kind
            && *bit < until
        {
            path.push(at);
            at = sides[usize::from(is_set(code, *bit))];
        }
        (at, path)
    }

    fn code(&self, at: u32) -> &Code {
        match &self.nodes[at as usize].kind {
            Kind::Leaf { code, .. } => code,
            Kind::Fork { .. } => unreachable!("a full descent ends at a leaf"),
        }
    }

    fn sides(&self, at: u32) -> [u32; 2] {
        match self.nodes[at as usize].kind {
            Kind::Fork { sides, .. } => sides,
            Kind::Leaf { .. } => unreachable!("only forks are passed on the way down"),
        }
    }

    fn joined(&self, [left, right]: [u32; 2]) -> S {
        let (left, right) = (&self.nodes[left as usize], &self.nodes[right as usize]);
        left.summary.with(&right.summary)
    }

    fn add(&mut self, node: Node<T, S>) -> u32 {
        match self.vacant.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("fewer entries than 2^31")
            }
        }
    }

    /// Replaces a child of a fork, or the root.
    fn replace(&mut self, parent: Option<u32>, before: u32, after: u32) {
        let Some(parent) = parent else {
            self.root = Some(after);
            return;
        };
        if let Kind::Fork { sides, .. } = &mut self.nodes[parent as usize].kind {
            let side = usize::from(sides[1] == before);
            sides[side] = after;
        }
    }

    /// Recomputes the summaries along a path, from the bottom up.
    fn refresh(&mut self, path: &[u32]) {
        for at in path.iter().rev() {
            let summary = self.joined(self.sides(*at));
            let node = &mut self.nodes[*at as usize];
            if node.summary == summary {
                return;
            }
            node.summary = summary;
        }
    }
}

fn leaf<T, S>(code: Code, value: T, summary: S) -> Node<T, S> {
    let kind = Kind::Leaf { code, value };
    Node { summary, kind }
}

/// Bits are counted from the most significant one of the first word.
fn is_set(code: &Code, bit: u32) -> bool {
    code[(bit / 64) as usize] >> (63 - bit % 64) & 1 == 1
}

fn first_difference(one: &Code, other: &Code) -> Option<u32> {
    let words = (0u32..).zip(one.iter().zip(other));
    let mut differing = words.filter(|(_, (one, other))| one != other);
    let (word, (one, other)) = differing.next()?;
    Some(64 * word + (one ^ other).leading_zeros())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The largest number below a fork.
    #[derive(Debug, Clone, PartialEq)]
    struct Most(u8);

    impl Summary for Most {
        fn with(&self, other: &Most) -> Most {
            Most(self.0.max(other.0))
        }
    }

    fn code() -> impl proptest::strategy::Strategy<Value = Code> {
        proptest::array::uniform3(proptest::prop_oneof![0u64..3, u64::MAX - 2..=u64::MAX])
    }

    proptest::proptest! {
        #[test]
        fn the_first_that_passes_is_found_as_in_a_sorted_list(
            steps in proptest::collection::vec((code(), proptest::option::weighted(0.7, 0u8..20)), 0..80),
            least in 0u8..20,
        ) {
            let (mut tree, mut plain) = (SummaryTree::default(), BTreeMap::new());
            for (code, value) in steps {
                match value {
                    Some(value) => {
                        tree.insert(code, (code, value), Most(value));
                        plain.insert(code, value);
                    }
                    None => {
                        tree.remove(&code);
                        plain.remove(&code);
                    }
                }
                let expected = plain.iter().find(|(_, value)| **value >= least);
                let expected = expected.map(|(code, value)| (*code, *value));
                proptest::prop_assert_eq!(tree.first(|most| most.0 >= least).copied(), expected);
                proptest::prop_assert_eq!(tree.summary().map(|most| most.0), plain.values().max().copied());
            }
        }
    }
}
