//! The cluster's room as our scheduler counts it: allocatable resources minus requests of foreign pods. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{Node, Pod, ResourceRequirements, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{self, NodeChange, Taken};

use crate::quantity::{millis, units};
use crate::settings::{PodSettings, Toleration};

const GPU: &str = "nvidia.com/gpu";

/// Stands for all nodes when the cluster places pods.
pub const ANY_NODE: &str = "cluster";
/// More than any cluster has, and small enough that sums do not overflow.
const BOUNDLESS: Amount = Amount {
    cpu: 100_000_000,
    memory: 1 << 50,
    gpus: 4096,
};

/// Nodes and foreign pods, updated one at a time.
#[derive(Default)]
pub struct Room {
    pods: PodSettings,
    /// Nodes that our pods may run on.
    nodes: BTreeMap<String, Capacity>,
    /// Nodes that are selected for our pods but closed to them: cordoned, tainted or not ready.
    closed: BTreeSet<String>,
    /// All nodes, and whether their kubelets are ready.
    kubelets: BTreeMap<String, bool>,
    /// The cluster places pods, so room is not counted.
    boundless: bool,
    /// By the pod's uid: its node and its requests.
    foreign: HashMap<String, (String, Amount)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Capacity {
    amount: Amount,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    cpu: u64,
    memory: u64,
    gpus: u64,
}

impl Room {
    pub fn new(pods: PodSettings) -> Room {
        Room {
            pods,
            ..Room::default()
        }
    }

    /// For pods that the cluster places, on nodes that may not exist yet.
    pub fn boundless() -> Room {
        Room {
            boundless: true,
            nodes: BTreeMap::from([(ANY_NODE.to_owned(), Capacity { amount: BOUNDLESS })]),
            ..Room::default()
        }
    }

    /// All nodes in their current state.
    pub fn nodes(&self) -> Vec<scheduler::Node> {
        self.nodes.keys().filter_map(|name| self.node(name)).collect()
    }

    /// A node was added or has changed.
    pub fn set_node(&mut self, node: &Node) -> Option<NodeChange> {
        let name = node.metadata.name.clone()?;
        self.kubelets.insert(name.clone(), is_ready(node));
        if self.boundless {
            return None;
        }
        self.closed.remove(&name);
        if self.is_selected(node) && !self.is_open(node) && !is_control_plane(node) {
            self.closed.insert(name.clone());
        }
        match self.is_selected(node) && self.is_open(node) {
            false => self.take_out(&name),
            true => {
                let capacity = Capacity {
                    amount: allocatable(node),
                };
                let before = self.nodes.insert(name.clone(), capacity);
                (before != Some(capacity)).then(|| self.changed(&name))?
            }
        }
    }

    /// A node is gone.
    pub fn remove_node(&mut self, name: &str) -> Option<NodeChange> {
        self.kubelets.remove(name);
        self.closed.remove(name);
        self.take_out(name)
    }

    /// Whether a node is gone or its kubelet is silent. `None` if nodes are not watched.
    pub fn is_silent(&self, name: &str) -> Option<bool> {
        if self.kubelets.is_empty() {
            return None;
        }
        Some(self.kubelets.get(name) != Some(&true))
    }

    /// Whether a node was removed from the cluster. False if nodes are not watched.
    pub fn is_gone(&self, name: &str) -> bool {
        !self.kubelets.is_empty() && !self.kubelets.contains_key(name)
    }

    fn take_out(&mut self, name: &str) -> Option<NodeChange> {
        self.nodes.remove(name)?;
        Some(NodeChange::Removed(name.into()))
    }

    /// How many nodes are closed to our pods.
    pub fn closed(&self) -> usize {
        self.closed.len()
    }

    /// Whether our pods can run on this node now.
    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// Whether any other node has a ready kubelet. True if nodes are not watched.
    pub fn has_other_node(&self, nodes: &BTreeSet<String>) -> bool {
        let ready = self.kubelets.iter().filter(|(_, ready)| **ready);
        self.kubelets.is_empty() || ready.into_iter().any(|(name, _)| !nodes.contains(name))
    }

    /// Names of all nodes, to compare with a list that was fetched again.
    pub fn node_names(&self) -> Vec<String> {
        self.kubelets.keys().cloned().collect()
    }

    /// A foreign pod was added or has changed.
    pub fn set_foreign(&mut self, pod: &Pod) -> Option<NodeChange> {
        if self.boundless {
            return None;
        }
        let uid = pod.metadata.uid.clone()?;
        let Some(node) = holds_room_on(pod) else {
            return self.remove_foreign(&uid);
        };
        let held = (node.to_owned(), requests(pod));
        let before = self.foreign.insert(uid, held.clone());
        (before.as_ref() != Some(&held)).then(|| self.changed(node))?
    }

    pub fn remove_foreign(&mut self, uid: &str) -> Option<NodeChange> {
        let (node, _) = self.foreign.remove(uid)?;
        self.changed(&node)
    }

    pub fn foreign_pods(&self) -> Vec<String> {
        self.foreign.keys().cloned().collect()
    }

    fn changed(&self, node: &str) -> Option<NodeChange> {
        self.node(node).map(NodeChange::Set)
    }

    fn node(&self, name: &str) -> Option<scheduler::Node> {
        let capacity = self.nodes.get(name)?.amount;
        let here = self.foreign.values().filter(|(node, _)| node == name);
        let taken = here.fold(Amount::default(), |sum, (_, amount)| sum.plus(*amount));
        Some(scheduler::Node {
            name: name.into(),
            cpu: Cpu::millis(capacity.cpu),
            memory: Bytes::new(capacity.memory),
            gpus: u32::try_from(capacity.gpus).unwrap_or(u32::MAX),
            taken: Taken {
                cpu: Cpu::millis(taken.cpu),
                memory: Bytes::new(taken.memory),
                gpus: u32::try_from(taken.gpus).unwrap_or(u32::MAX),
            },
            traits: Default::default(),
        })
    }

    fn is_selected(&self, node: &Node) -> bool {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let mut required = self.pods.node_selector.iter();
        required.all(|(name, value)| labels.get(name) == Some(value))
    }

    fn is_open(&self, node: &Node) -> bool {
        let spec = node.spec.clone().unwrap_or_default();
        let taints = spec.taints.unwrap_or_default();
        let tolerated = |taint: &Taint| {
            taint.effect == "PreferNoSchedule"
                || self
                    .pods
                    .tolerations
                    .iter()
                    .any(|toleration| tolerates(toleration, taint))
        };
        spec.unschedulable != Some(true) && is_ready(node) && taints.iter().all(tolerated)
    }
}

impl Amount {
    fn of(amounts: &BTreeMap<String, Quantity>) -> Amount {
        let get = |name: &str| amounts.get(name);
        Amount {
            cpu: get("cpu").map_or(0, millis),
            memory: get("memory").map_or(0, units),
            gpus: get(GPU).map_or(0, units),
        }
    }

    fn plus(self, other: Amount) -> Amount {
        Amount {
            cpu: self.cpu + other.cpu,
            memory: self.memory + other.memory,
            gpus: self.gpus + other.gpus,
        }
    }

    fn max(self, other: Amount) -> Amount {
        Amount {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
            gpus: self.gpus.max(other.gpus),
        }
    }
}

/// Such a node is closed permanently, so nobody misses it.
fn is_control_plane(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let mut keys = taints.into_iter().flatten().map(|taint| taint.key.as_str());
    keys.any(|key| key == "node-role.kubernetes.io/control-plane")
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let fits =
        |required: &Option<String>, found: &str| required.as_deref().is_none_or(|required| required == found);
    fits(&toleration.key, &taint.key)
        && fits(&toleration.effect, &taint.effect)
        && fits(&toleration.value, taint.value.as_deref().unwrap_or_default())
}

fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let mut conditions = status
        .into_iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn allocatable(node: &Node) -> Amount {
    let status = node.status.as_ref();
    status
        .and_then(|status| status.allocatable.as_ref())
        .map(Amount::of)
        .unwrap_or_default()
}

/// The node on which a pod holds room. A pod that has ended holds none.
fn holds_room_on(pod: &Pod) -> Option<&str> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Succeeded" | "Failed"));
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    (!ended).then_some(node)
}

/// What the kube-scheduler counts: all containers together, or the largest init container.
fn requests(pod: &Pod) -> Amount {
    let Some(spec) = &pod.spec else {
        return Amount::default();
    };
    let of = |resources: &Option<ResourceRequirements>| {
        resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref())
            .map(Amount::of)
            .unwrap_or_default()
    };
    let containers = spec.containers.iter().map(|container| of(&container.resources));
    let init = spec.init_containers.iter().flatten();
    // Sidecars are init containers that keep running.
    let (stay, leave): (Vec<_>, Vec<_>) =
        init.partition(|container| container.restart_policy.as_deref() == Some("Always"));
    let running = containers
        .chain(stay.iter().map(|container| of(&container.resources)))
        .fold(Amount::default(), Amount::plus);
    let starting = leave
        .iter()
        .map(|container| of(&container.resources))
        .fold(Amount::default(), Amount::max);
    let overhead = spec.overhead.as_ref().map(Amount::of).unwrap_or_default();
    running.max(starting).plus(overhead)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, ready: &str, taints: serde_json::Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"pool": "train"}},
            "spec": {"taints": taints},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", GPU: "2"},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }))
        .unwrap()
    }

    fn pod(uid: &str, node: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"uid": uid},
            "spec": {"nodeName": node, "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi", GPU: "1"}}},
                {"name": "b", "resources": {"requests": {"cpu": "250m"}}},
            ], "initContainers": [
                {"name": "i", "resources": {"requests": {"memory": "2Gi"}}},
            ]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn pods_of_others_take_room_until_they_end() {
        let mut room = Room::default();
        assert!(room.set_node(&node("n1", "True", json!([]))).is_some());
        let Some(NodeChange::Set(changed)) = room.set_foreign(&pod("u", "n1", "Running")) else {
            panic!("the node has changed")
        };
        assert_eq!(changed.taken.cpu, Cpu::millis(750));
        assert_eq!(changed.taken.memory, Bytes::mib(2048));
        assert_eq!(changed.taken.gpus, 1);
        assert_eq!(room.set_foreign(&pod("u", "n1", "Running")), None, "nothing new");
        let Some(NodeChange::Set(changed)) = room.set_foreign(&pod("u", "n1", "Succeeded")) else {
            panic!("the node has changed")
        };
        assert_eq!(changed.taken, Taken::default());
    }

    #[test]
    fn a_cluster_that_places_pods_itself_always_has_room() {
        let mut room = Room::boundless();
        assert_eq!(room.set_node(&node("n1", "True", json!([]))), None);
        assert_eq!(room.set_foreign(&pod("u", "n1", "Running")), None);
        assert_eq!(room.nodes().len(), 1);
        assert_eq!(room.nodes()[0].cpu, Cpu::millis(BOUNDLESS.cpu));
    }

    #[test]
    fn a_kubelet_is_silent_when_its_node_is_gone_or_not_ready() {
        let mut room = Room::default();
        assert_eq!(room.is_silent("n1"), None, "nobody looks");
        room.set_node(&node("n1", "True", json!([])));
        room.set_node(&node("n2", "Unknown", json!([])));
        assert_eq!(room.is_silent("n1"), Some(false));
        assert!(room.has_other_node(&BTreeSet::from(["n2".into()])));
        assert!(!room.has_other_node(&BTreeSet::from(["n1".into()])));
        assert_eq!(room.is_silent("n2"), Some(true));
        room.remove_node("n2");
        assert_eq!(room.is_silent("n2"), Some(true));
    }

    #[test]
    fn an_unusable_node_is_not_counted() {
        let taint = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
        let mut room = Room::default();
        assert_eq!(room.set_node(&node("n1", "False", json!([]))), None);
        assert_eq!(room.set_node(&node("n1", "True", taint.clone())), None);
        assert_eq!(room.closed(), 1);
        let plane = json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
        room.set_node(&node("n0", "True", plane));
        assert_eq!(room.closed(), 1, "it is never used");
        assert!(room.set_node(&node("n1", "True", json!([]))).is_some());
        assert_eq!(room.closed(), 0);
        assert_eq!(
            room.set_node(&node("n1", "Unknown", json!([]))),
            Some(NodeChange::Removed("n1".into()))
        );
        let tolerant = PodSettings {
            tolerations: vec![Toleration {
                key: Some("gpu".into()),
                value: None,
                effect: None,
            }],
            node_selector: BTreeMap::from([("pool".into(), "train".into())]),
            ..PodSettings::default()
        };
        let mut room = Room::new(tolerant.clone());
        assert!(room.set_node(&node("n1", "True", taint)).is_some());
        let other = PodSettings {
            node_selector: BTreeMap::from([("pool".into(), "serve".into())]),
            ..tolerant
        };
        let mut room = Room::new(other);
        assert_eq!(room.set_node(&node("n1", "True", json!([]))), None);
        assert_eq!(room.closed(), 0, "it is not meant for us");
    }
}
