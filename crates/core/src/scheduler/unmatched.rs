//! How many nodes match what a job requires, and what there is if none does: values and their texts.
//!
//! They name no job, so they can be shown to every user.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use super::cluster::Cluster;
use super::eligible::{NodeTraits, Requirement, WorkerRequirement};
use super::room::Part;
use crate::gpu::GpuType;
use crate::quantity::counted;

/// How many values are listed.
const LISTED: usize = 8;

/// How many nodes match a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matching {
    pub required: Requirement,
    pub nodes: usize,
    pub of: usize,
}

/// A requirement that no node meets, and what nodes have instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmatched {
    GpuType {
        asked: GpuType,
        there: Vec<Found>,
    },
    Label {
        key: String,
        value: String,
        /// The values of this label.
        values: Vec<Found>,
        /// The names of all labels, if no node has this one.
        keys: Vec<Found>,
    },
    /// Nodes have each part of it, but none has all.
    Together(Requirement),
    /// The nodes with GPUs are only for workers that name their type.
    Untyped {
        there: Vec<Found>,
    },
}

/// Something that nodes have, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    pub nodes: usize,
}

impl Matching {
    /// How many nodes match workers like these; `None` if they require nothing.
    pub(super) fn of(part: &Part, cluster: &Cluster) -> Option<Matching> {
        let WorkerRequirement { required, .. } = &**part.eligible.required.as_ref()?;
        Some(Matching {
            required: required.clone(),
            nodes: part.eligible.nodes.set()?.count(),
            of: cluster.traits().len(),
        })
    }
}

impl Unmatched {
    /// Why no node matches these workers; `None` if one does.
    pub(super) fn of(part: &Part, cluster: &Cluster) -> Option<Unmatched> {
        let is_empty = part.eligible.nodes.set().is_some_and(|set| set.count() == 0);
        if !is_empty || cluster.traits().len() == 0 {
            return None;
        }
        let Some(required) = &part.eligible.required else {
            return Some(Unmatched::untyped(cluster));
        };
        let required = &required.required;
        let lacking = lacking_type(required, cluster).or_else(|| lacking_label(required, cluster));
        Some(lacking.unwrap_or_else(|| Unmatched::Together(required.clone())))
    }

    /// Workers with GPUs name no type, and all nodes with GPUs require one.
    pub(super) fn untyped(cluster: &Cluster) -> Unmatched {
        Unmatched::Untyped {
            there: types(cluster),
        }
    }
}

fn lacking_type(required: &Requirement, cluster: &Cluster) -> Option<Unmatched> {
    let asked = required.gpu_type.as_ref()?;
    let has_some = cluster.traits().any(|node| node.has_gpus_of(asked));
    (!has_some).then(|| Unmatched::GpuType {
        asked: asked.clone(),
        there: types(cluster),
    })
}

fn lacking_label(required: &Requirement, cluster: &Cluster) -> Option<Unmatched> {
    let exists =
        |key: &String, value: &String| cluster.traits().any(|node| node.labels.get(key) == Some(value));
    let (key, value) = required.labels.iter().find(|(key, value)| !exists(key, value))?;
    let values = found(cluster, |node| node.labels.get(key));
    let keys = match values.is_empty() {
        true => found(cluster, |node| node.labels.keys()),
        false => Vec::new(),
    };
    Some(Unmatched::Label {
        key: key.clone(),
        value: value.clone(),
        values,
        keys,
    })
}

fn types(cluster: &Cluster) -> Vec<Found> {
    found(cluster, |node| node.gpu_types.iter().chain(&node.gpu_models))
}

/// What nodes have, the most frequent first.
fn found<'a, T: Display + 'a, I: IntoIterator<Item = &'a T>>(
    cluster: &'a Cluster,
    of: impl Fn(&'a NodeTraits) -> I,
) -> Vec<Found> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in cluster.traits().flat_map(of) {
        *counts.entry(name.to_string()).or_default() += 1;
    }
    let mut found: Vec<Found> = counts
        .into_iter()
        .map(|(name, nodes)| Found { name, nodes })
        .collect();
    found.sort_by_key(|found| std::cmp::Reverse(found.nodes));
    found
}

/// `` GPUs of type `a100` and the label `pool=train` ``.
impl Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpu_type = self.gpu_type.iter().map(|name| format!("GPUs of type `{name}`"));
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| format!("the label `{key}={value}`"));
        f.write_str(&gpu_type.chain(labels).collect::<Vec<_>>().join(" and "))
    }
}

/// `` 2 of 5 nodes have GPUs of type `a100` ``.
impl Display for Matching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Matching { required, nodes, of } = self;
        let (of, verb) = (
            counted(*of as u128, "node"),
            if *nodes == 1 { "has" } else { "have" },
        );
        write!(f, "{nodes} of {of} {verb} {required}")
    }
}

impl Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unmatched::GpuType { asked, there } => {
                write!(f, "no node has GPUs of type `{asked}`; ")?;
                match there.is_empty() {
                    true => f.write_str("the type of no node's GPUs is known"),
                    false => write!(f, "there are {}", listed(there)),
                }
            }
            Unmatched::Label {
                key,
                value,
                values,
                keys,
            } => {
                write!(f, "no node has the label `{key}={value}`; ")?;
                match (values.is_empty(), keys.is_empty()) {
                    (false, _) => write!(f, "`{key}` is {}", listed(values)),
                    (true, false) => write!(f, "the labels are {}", listed(keys)),
                    (true, true) => f.write_str("no node has labels"),
                }
            }
            Unmatched::Together(required) => write!(f, "no node has {required} together"),
            Unmatched::Untyped { there } => {
                write!(
                    f,
                    "the nodes with GPUs are for jobs that name a type: {}",
                    listed(there)
                )
            }
        }
    }
}

/// `` `a100` (2 nodes), `t4` (1 node) and 3 more ``.
fn listed(found: &[Found]) -> String {
    let first = found
        .iter()
        .take(LISTED)
        .map(|Found { name, nodes }| format!("`{name}` ({})", counted(*nodes as u128, "node")));
    let first = first.collect::<Vec<_>>().join(", ");
    match found.len().saturating_sub(LISTED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
