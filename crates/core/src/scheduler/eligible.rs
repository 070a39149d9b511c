//! Which nodes a worker may use, apart from room: what it requires, what nodes have, and the set of nodes that match.
//!
//! The search for room is in `tree.rs`, the words for what is missing in `unmatched.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::gpu::{GpuType, has_labels};

/// What the nodes of a job must have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    /// For all workers.
    pub labels: BTreeMap<String, String>,
    /// For workers with GPUs; others ignore it.
    pub gpu_type: Option<GpuType>,
}

/// What a node has, and whom it admits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTraits {
    pub labels: BTreeMap<String, String>,
    /// The types of the server's table that its GPUs have.
    pub gpu_types: BTreeSet<GpuType>,
    /// The models of its GPUs. A job may name only the beginning of one.
    pub gpu_models: BTreeSet<GpuType>,
    pub admits: Admits,
}

/// The workers that a node admits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Admits {
    #[default]
    Everyone,
    /// All but those with GPUs that name none of its types: its GPUs are another resource than they ask for.
    GpusOnlyByType,
    /// Only those that name one of its types: others do not tolerate its taints.
    OnlyByType,
    /// Every worker: it stands for nodes that the server does not know.
    Anything,
}

impl NodeTraits {
    /// Whether a worker with this requirement may use the node.
    pub fn admit(&self, required: &Requirement, uses_gpus: bool) -> bool {
        if self.admits == Admits::Anything {
            return true;
        }
        let gpu_type = required.gpu_type.as_ref().filter(|_| uses_gpus);
        let is_open = match (gpu_type, self.admits) {
            (Some(asked), _) => self.has_gpus_of(asked),
            (None, Admits::OnlyByType) => false,
            (None, Admits::GpusOnlyByType) => !uses_gpus,
            (None, _) => true,
        };
        is_open && has_labels(&self.labels, &required.labels)
    }

    pub fn has_gpus_of(&self, asked: &GpuType) -> bool {
        self.gpu_types.contains(asked) || self.gpu_models.iter().any(|model| model.is_a(asked))
    }
}

/// What one worker requires.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct WorkerRequirement {
    pub required: Requirement,
    pub uses_gpus: bool,
}

impl WorkerRequirement {
    pub fn of(required: &Requirement, uses_gpus: bool) -> WorkerRequirement {
        WorkerRequirement {
            required: Requirement {
                labels: required.labels.clone(),
                gpu_type: required.gpu_type.clone().filter(|_| uses_gpus),
            },
            uses_gpus,
        }
    }

    /// Whether it names neither a label nor a type.
    pub fn is_plain(&self) -> bool {
        self.required == Requirement::default()
    }
}

/// The matching nodes, as a tree with the layout of a `RoomTree`.
#[derive(Debug)]
pub(super) struct NodeSet {
    width: usize,
    count: usize,
    /// One bit for each part of the tree: whether a node in it matches.
    bits: Vec<u64>,
}

impl NodeSet {
    fn of(matches: impl ExactSizeIterator<Item = bool>) -> NodeSet {
        let width = matches.len().next_power_of_two();
        let mut set = NodeSet {
            width,
            count: 0,
            bits: vec![0; (2 * width).div_ceil(64)],
        };
        for (node, matches) in matches.enumerate() {
            if matches {
                set.count += 1;
                set.mark(width + node);
            }
        }
        set
    }

    fn mark(&mut self, mut part: usize) {
        while part > 0 && !self.has_part(part) {
            self.bits[part / 64] |= 1 << (part % 64);
            part /= 2;
        }
    }

    /// Whether a node in this part of the tree matches.
    pub fn has_part(&self, part: usize) -> bool {
        self.bits[part / 64] >> (part % 64) & 1 == 1
    }

    pub fn has(&self, node: usize) -> bool {
        self.has_part(self.width + node)
    }

    /// How many nodes match.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// A set of nodes; `None` is all of them. Equal sets of one inventory are the same value.
#[derive(Debug, Clone, Default)]
pub(super) struct Nodes(Option<Arc<NodeSet>>);

impl PartialEq for Nodes {
    fn eq(&self, other: &Nodes) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Nodes {}

impl Nodes {
    pub fn has(&self, node: usize) -> bool {
        self.0.as_ref().is_none_or(|set| set.has(node))
    }

    pub fn set(&self) -> Option<&NodeSet> {
        self.0.as_deref()
    }

    /// A set that contains both.
    pub fn common(&self, other: &Nodes) -> Nodes {
        match self == other {
            true => self.clone(),
            false => Nodes::default(),
        }
    }
}

/// What a worker requires, and the nodes that match. Only the requirement counts in comparisons: the nodes change with the
/// inventory.
#[derive(Debug, Clone, Default)]
pub(super) struct Eligible {
    /// `None`: nothing.
    pub required: Option<Arc<WorkerRequirement>>,
    pub nodes: Nodes,
}

impl PartialEq for Eligible {
    fn eq(&self, other: &Eligible) -> bool {
        self.required == other.required
    }
}

impl Eq for Eligible {}

impl Hash for Eligible {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.required.hash(state);
    }
}

impl Eligible {
    /// Equal for equal requirements, and zero for none.
    pub fn code(&self) -> u64 {
        let Some(required) = &self.required else { return 0 };
        let mut hasher = DefaultHasher::new();
        required.hash(&mut hasher);
        hasher.finish()
    }
}

/// The sets of nodes that match the requirements of jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Matches {
    /// For workers that require nothing: without GPUs, and with them.
    plain: [Nodes; 2],
    sets: HashMap<Arc<WorkerRequirement>, Arc<NodeSet>>,
}

/// How many sets are kept although no job may use them: the next job with the same requirement often comes soon.
const KEPT: usize = 256;

impl Matches {
    pub fn new<'a>(nodes: impl ExactSizeIterator<Item = &'a NodeTraits> + Clone) -> Matches {
        let plain = [false, true].map(|uses_gpus| {
            let nothing = WorkerRequirement::of(&Requirement::default(), uses_gpus);
            let set = matching(&nothing, nodes.clone());
            Nodes((set.count() < nodes.len()).then(|| Arc::new(set)))
        });
        Matches {
            plain,
            sets: HashMap::new(),
        }
    }

    /// The nodes that match; computed again unless a waiting job has the same requirement.
    pub fn find<'a>(
        &self,
        required: WorkerRequirement,
        nodes: impl ExactSizeIterator<Item = &'a NodeTraits>,
    ) -> Eligible {
        if required.is_plain() {
            return Eligible {
                required: None,
                nodes: self.plain[usize::from(required.uses_gpus)].clone(),
            };
        }
        let known = self.sets.get(&required).cloned();
        let set = known.unwrap_or_else(|| Arc::new(matching(&required, nodes)));
        Eligible {
            required: Some(Arc::new(required)),
            nodes: Nodes(Some(set)),
        }
    }

    /// Shares this set with later jobs.
    pub fn remember(&mut self, eligible: &Eligible) {
        let (Some(required), Some(set)) = (&eligible.required, &eligible.nodes.0) else {
            return;
        };
        if self.sets.contains_key(required) {
            return;
        }
        if self.sets.len() >= KEPT {
            self.sets.retain(|_, set| Arc::strong_count(set) > 1);
        }
        self.sets.insert(Arc::clone(required), Arc::clone(set));
    }
}

fn matching<'a>(worker: &WorkerRequirement, nodes: impl ExactSizeIterator<Item = &'a NodeTraits>) -> NodeSet {
    NodeSet::of(nodes.map(|node| node.admit(&worker.required, worker.uses_gpus)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits(types: &[&str], admits: Admits) -> NodeTraits {
        NodeTraits {
            labels: BTreeMap::from([("pool".to_owned(), "train".to_owned())]),
            gpu_types: types.iter().map(|name| name.parse().unwrap()).collect(),
            gpu_models: BTreeSet::new(),
            admits,
        }
    }

    fn required(label: Option<&str>, gpu_type: Option<&str>) -> Requirement {
        Requirement {
            labels: label
                .map(|value| ("pool".to_owned(), value.to_owned()))
                .into_iter()
                .collect(),
            gpu_type: gpu_type.map(|name| name.parse().unwrap()),
        }
    }

    #[test]
    fn a_node_admits_workers_that_name_its_labels_and_a_type() {
        let node = NodeTraits {
            gpu_models: BTreeSet::from(["a100-sxm4-80gb".parse().unwrap()]),
            ..traits(&["fast"], Admits::Everyone)
        };
        assert!(node.admit(&required(Some("train"), Some("a100")), true));
        assert!(node.admit(&required(None, Some("fast")), true));
        assert!(!node.admit(&required(Some("other"), Some("a100")), true));
        assert!(!node.admit(&required(None, Some("h100")), true));
        assert!(
            node.admit(&required(None, Some("h100")), false),
            "it uses no GPUs"
        );
    }

    #[test]
    fn a_reserved_node_admits_only_workers_that_name_its_type() {
        let nothing = Requirement::default();
        let tainted = traits(&["a100"], Admits::OnlyByType);
        assert!(!tainted.admit(&nothing, false) && !tainted.admit(&nothing, true));
        assert!(tainted.admit(&required(None, Some("a100")), true));
        assert!(!tainted.admit(&required(None, Some("a100")), false));
        let other = traits(&["mi300"], Admits::GpusOnlyByType);
        assert!(other.admit(&nothing, false) && !other.admit(&nothing, true));
        assert!(other.admit(&required(None, Some("mi300")), true));
        let unknown = traits(&[], Admits::Anything);
        assert!(unknown.admit(&required(Some("other"), Some("h100")), true));
    }

    proptest::proptest! {
        #[test]
        fn a_part_of_the_tree_is_in_the_set_if_one_of_its_nodes_is(
            matches in proptest::collection::vec(proptest::bool::weighted(0.2), 0..40),
        ) {
            let set = NodeSet::of(matches.iter().copied());
            let width = matches.len().next_power_of_two();
            for part in 1..2 * width {
                let expected = matches.iter().enumerate().any(|(node, matches)| {
                    let mut at = width + node;
                    while at > part {
                        at /= 2;
                    }
                    *matches && at == part
                });
                proptest::prop_assert_eq!(set.has_part(part), expected);
            }
            proptest::prop_assert_eq!(set.count(), matches.iter().filter(|matches| **matches).count());
        }
    }
}
