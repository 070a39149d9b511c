//! The cluster's room as our scheduler counts it: allocatable resources minus requests of foreign pods. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, ResourceRequirements, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use paddlecloud_core::gpu::GpuType;
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{self, Admits, NodeChange, NodeTraits, Taken};

use crate::node_choice::{GPU, LabelValues, Products};
use crate::quantity::{millis, units};
use crate::settings::{PodSettings, Toleration};

/// Stands for all nodes when the cluster places pods.
pub const ANY_NODE: &str = "cluster";
/// More than any cluster has, and small enough that sums do not overflow.
const BOUNDLESS: Offer = Offer {
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
    /// The models of GPUs in the cluster.
    products: Products,
    /// By the pod's uid: its node and its requests.
    foreign: HashMap<String, (String, Amount)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Capacity {
    offer: Offer,
    /// The resource that its GPUs are.
    resource: String,
    traits: Arc<NodeTraits>,
}

/// What a node has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Offer {
    cpu: u64,
    memory: u64,
    gpus: u64,
}

/// What a pod requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Amount {
    cpu: u64,
    memory: u64,
    /// By resource.
    gpus: BTreeMap<String, u64>,
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
            nodes: BTreeMap::from([(ANY_NODE.to_owned(), Capacity::boundless())]),
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
        self.products
            .add(node.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()));
        self.closed.remove(&name);
        let is_selected = self.is_selected(node);
        match self.open(node).filter(|_| is_selected) {
            None => {
                if is_selected && !is_control_plane(node) {
                    self.closed.insert(name.clone());
                }
                self.take_out(&name)
            }
            Some(capacity) if self.nodes.get(&name) == Some(&capacity) => None,
            Some(capacity) => {
                self.nodes.insert(name.clone(), capacity);
                self.changed(&name)
            }
        }
    }

    /// The labels of models of this type, of which a node must have one.
    pub fn products(&self, gpu_type: &GpuType) -> Vec<LabelValues> {
        self.products.of(gpu_type)
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
        let held = (node.to_owned(), requests(pod, &self.pods.gpu_resources()));
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
        let capacity = self.nodes.get(name)?;
        let here = self.foreign.values().filter(|(node, _)| node == name);
        let taken = here.fold(Amount::default(), |sum, (_, amount)| sum.plus(amount));
        let gpus_taken = taken.gpus.get(&capacity.resource).copied().unwrap_or_default();
        Some(scheduler::Node {
            name: name.into(),
            cpu: Cpu::millis(capacity.offer.cpu),
            memory: Bytes::new(capacity.offer.memory),
            gpus: u32::try_from(capacity.offer.gpus).unwrap_or(u32::MAX),
            taken: Taken {
                cpu: Cpu::millis(taken.cpu),
                memory: Bytes::new(taken.memory),
                gpus: u32::try_from(gpus_taken).unwrap_or(u32::MAX),
            },
            traits: Arc::clone(&capacity.traits),
        })
    }

    fn is_selected(&self, node: &Node) -> bool {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let mut required = self.pods.node_selector.iter();
        required.all(|(name, value)| labels.get(name) == Some(value))
    }

    /// What a node has for our pods; `None` while it is closed to all of them.
    fn open(&self, node: &Node) -> Option<Capacity> {
        let spec = node.spec.clone().unwrap_or_default();
        if spec.unschedulable == Some(true) || !is_ready(node) {
            return None;
        }
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let (offer, resource) = self.allocatable(node);
        let taints = spec.taints.unwrap_or_default();
        let taints: Vec<Taint> = taints
            .into_iter()
            .filter(|taint| !is_tolerated(taint, &self.pods.tolerations))
            .collect();
        let is_reserved = !taints.is_empty();
        let is_usual = resource == GPU;
        let gpu_types = match offer.gpus {
            0 => BTreeSet::new(),
            _ => self.pods.types_on(&labels, &resource, |of_type| {
                taints
                    .iter()
                    .all(|taint| is_tolerated(taint, &of_type.tolerations))
            }),
        };
        if is_reserved && gpu_types.is_empty() {
            return None;
        }
        let gpu_models = match offer.gpus > 0 && is_usual && !is_reserved {
            true => self.pods.models_on(&labels),
            false => BTreeSet::new(),
        };
        let traits = NodeTraits {
            labels,
            gpu_types,
            gpu_models,
            admits: match (is_reserved, is_usual) {
                (true, _) => Admits::OnlyByType,
                (false, false) => Admits::GpusOnlyByType,
                (false, true) => Admits::Everyone,
            },
        };
        Some(Capacity {
            offer,
            resource,
            traits: Arc::new(traits),
        })
    }

    /// What a node has, and the resource that its GPUs are: the first of the server's that it has.
    fn allocatable(&self, node: &Node) -> (Offer, String) {
        let status = node.status.as_ref();
        let amounts = status.and_then(|status| status.allocatable.as_ref());
        let resources = self.pods.gpu_resources();
        let amount = amounts.map(|amounts| Amount::of(amounts, &resources));
        let amount = amount.unwrap_or_default();
        let there = resources.into_iter().find(|name| amount.gpus.contains_key(*name));
        let resource = there.unwrap_or(GPU).to_owned();
        let offer = Offer {
            cpu: amount.cpu,
            memory: amount.memory,
            gpus: amount.gpus.get(&resource).copied().unwrap_or_default(),
        };
        (offer, resource)
    }
}

impl Capacity {
    /// Of the node that stands for all: the cluster checks labels and taints.
    fn boundless() -> Capacity {
        let traits = NodeTraits {
            admits: Admits::Anything,
            ..NodeTraits::default()
        };
        Capacity {
            offer: BOUNDLESS,
            resource: GPU.to_owned(),
            traits: Arc::new(traits),
        }
    }
}

impl Amount {
    fn of(amounts: &BTreeMap<String, Quantity>, gpus: &[&str]) -> Amount {
        let get = |name: &str| amounts.get(name);
        let cards = |name: &&str| Some(((*name).to_owned(), units(get(name)?)));
        Amount {
            cpu: get("cpu").map_or(0, millis),
            memory: get("memory").map_or(0, units),
            gpus: gpus
                .iter()
                .filter_map(cards)
                .filter(|(_, cards)| *cards > 0)
                .collect(),
        }
    }

    fn plus(mut self, other: &Amount) -> Amount {
        self.cpu += other.cpu;
        self.memory += other.memory;
        for (name, cards) in &other.gpus {
            *self.gpus.entry(name.clone()).or_default() += cards;
        }
        self
    }

    fn max(mut self, other: &Amount) -> Amount {
        self.cpu = self.cpu.max(other.cpu);
        self.memory = self.memory.max(other.memory);
        for (name, cards) in &other.gpus {
            let most = self.gpus.entry(name.clone()).or_default();
            *most = (*most).max(*cards);
        }
        self
    }
}

/// Such a node is closed permanently, so nobody misses it.
fn is_control_plane(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let mut keys = taints.into_iter().flatten().map(|taint| taint.key.as_str());
    keys.any(|key| key == "node-role.kubernetes.io/control-plane")
}

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    taint.effect == "PreferNoSchedule" || tolerations.iter().any(|toleration| tolerates(toleration, taint))
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

/// The node on which a pod holds room. A pod that has ended holds none.
fn holds_room_on(pod: &Pod) -> Option<&str> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Succeeded" | "Failed"));
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    (!ended).then_some(node)
}

/// What the kube-scheduler counts: all containers together, or the largest init container.
fn requests(pod: &Pod, gpus: &[&str]) -> Amount {
    let Some(spec) = &pod.spec else {
        return Amount::default();
    };
    let of = |resources: &Option<ResourceRequirements>| {
        resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref())
            .map(|requests| Amount::of(requests, gpus))
            .unwrap_or_default()
    };
    let containers = spec.containers.iter().map(|container| of(&container.resources));
    let init = spec.init_containers.iter().flatten();
    // Sidecars are init containers that keep running.
    let (stay, leave): (Vec<_>, Vec<_>) =
        init.partition(|container| container.restart_policy.as_deref() == Some("Always"));
    let running = containers
        .chain(stay.iter().map(|container| of(&container.resources)))
        .fold(Amount::default(), |sum, next| sum.plus(&next));
    let starting = leave
        .iter()
        .map(|container| of(&container.resources))
        .fold(Amount::default(), |most, next| most.max(&next));
    let overhead = spec.overhead.as_ref().map(|overhead| Amount::of(overhead, gpus));
    running.max(&starting).plus(&overhead.unwrap_or_default())
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

    fn labelled(name: &str, labels: serde_json::Value, gpus: serde_json::Value, taint: Option<&str>) -> Node {
        let mut allocatable = json!({"cpu": "4", "memory": "8Gi"});
        allocatable
            .as_object_mut()
            .unwrap()
            .extend(gpus.as_object().unwrap().clone());
        let taints: Vec<_> = taint
            .map(|key| json!({"key": key, "effect": "NoSchedule"}))
            .into_iter()
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints},
            "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap()
    }

    fn with_types() -> Room {
        Room::new(PodSettings {
            gpu_types: crate::settings::tests::a100(),
            ..PodSettings::default()
        })
    }

    fn set(room: &mut Room, node: &Node) -> scheduler::Node {
        match room.set_node(node) {
            Some(NodeChange::Set(node)) => node,
            other => panic!("the node is open, not {other:?}"),
        }
    }

    #[test]
    fn a_node_has_the_model_that_its_vendor_names_and_the_types_of_the_table() {
        let mut room = with_types();
        let product = json!({"nvidia.com/gpu.product": "Tesla-T4"});
        let t4 = set(&mut room, &labelled("n1", product, json!({GPU: "2"}), None));
        assert_eq!((t4.gpus, t4.traits.admits), (2, Admits::Everyone));
        assert_eq!(t4.traits.gpu_models, BTreeSet::from(["t4".parse().unwrap()]));
        let pool = json!({"pool": "a100"});
        let own = json!({"example.com/gpu": "8"});
        let a100 = set(&mut room, &labelled("n2", pool.clone(), own.clone(), None));
        assert_eq!((a100.gpus, a100.traits.admits), (8, Admits::GpusOnlyByType));
        assert_eq!(a100.traits.gpu_types, BTreeSet::from(["a100".parse().unwrap()]));
        let reserved = set(
            &mut room,
            &labelled("n3", pool.clone(), own.clone(), Some("dedicated")),
        );
        assert_eq!((reserved.gpus, reserved.traits.admits), (8, Admits::OnlyByType));
        assert_eq!(
            room.set_node(&labelled("n4", pool, own.clone(), Some("other"))),
            None
        );
        assert_eq!(
            room.set_node(&labelled("n5", json!({}), own, Some("dedicated"))),
            None
        );
        assert_eq!(
            room.closed(),
            2,
            "no type tolerates the taint, or has these labels"
        );
    }

    #[test]
    fn only_pods_with_the_nodes_own_resource_take_its_gpus() {
        let mut room = with_types();
        let own = json!({"example.com/gpu": "8"});
        set(&mut room, &labelled("n1", json!({"pool": "a100"}), own, None));
        let Some(NodeChange::Set(node)) = room.set_foreign(&pod("u", "n1", "Running")) else {
            panic!("its cpu is taken")
        };
        assert_eq!(node.taken.gpus, 0);
    }

    #[test]
    fn models_of_lost_nodes_are_remembered() {
        let mut room = Room::default();
        let a100: GpuType = "a100".parse().unwrap();
        let unknown = vec![("nvidia.com/gpu.product".to_owned(), vec!["a100".to_owned()])];
        assert_eq!(room.products(&a100), unknown, "no node has it");
        for (name, product) in [("n1", "NVIDIA-A100-PCIE-40GB"), ("n2", "Tesla-T4")] {
            let labels = json!({"nvidia.com/gpu.product": product});
            room.set_node(&labelled(name, labels, json!({GPU: "1"}), None));
        }
        room.remove_node("n1");
        let expected = (
            "nvidia.com/gpu.product".to_owned(),
            vec!["NVIDIA-A100-PCIE-40GB".to_owned()],
        );
        assert_eq!(room.products(&a100), vec![expected]);
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
