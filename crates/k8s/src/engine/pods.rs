//! What a pod's status means for its attempt. Pure.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodCondition, PodStatus};

/// A pod as the engine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodView {
    /// No node has room for it; the scheduler's message.
    Unseated(String),
    /// Not running yet, with the reason if the cluster gives one.
    Pending(Option<Trouble>),
    Running,
    Ended(PodEnd),
}

/// Why a pod does not run, as the cluster describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub words: String,
    /// Waiting does not help: the image does not exist, or its name is invalid.
    pub hopeless: bool,
}

/// Why the cluster ended a pod, through no fault of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disruption {
    pub words: String,
    /// The next attempt should be on another node.
    pub node_is_to_blame: bool,
}

impl Disruption {
    /// Somebody deletes the pod, and nobody says why. This server deletes only pods of attempts that it stops.
    pub fn by_unknown() -> Disruption {
        Disruption {
            words: "deleted, and the server did not see why".into(),
            node_is_to_blame: false,
        }
    }
}

/// How a pod ended, as far as the kubelet reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodEnd {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out_of_memory: bool,
    pub disruption: Option<Disruption>,
    /// Evicted because it wrote more than it may, which is its own fault.
    pub used_too_much: bool,
    pub message: Option<String>,
}

/// Reasons for which a kubelet ends or rejects a pod, in addition to those that begin with `OutOf`.
const BY_THE_KUBELET: [&str; 10] = [
    "Evicted",
    "NodeAffinity",
    "NodeLost",
    "NodePorts",
    "NodeShutdown",
    "Preempting",
    "Shutdown",
    "Terminated",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
];

/// Messages of registries and runtimes about an image that is missing or not accessible.
const NOT_TO_BE_HAD: [&str; 6] = [
    "not found",
    "does not exist",
    "denied",
    "unauthorized",
    "forbidden",
    "invalid reference",
];

pub fn view(pod: &Pod) -> PodView {
    let Some(status) = &pod.status else {
        return PodView::Pending(None);
    };
    match status.phase.as_deref() {
        Some("Running") => PodView::Running,
        Some("Succeeded" | "Failed") => PodView::Ended(end(status)),
        _ => match unseated(status) {
            Some(words) => PodView::Unseated(words),
            None => PodView::Pending(trouble(status)),
        },
    }
}

/// The node that a pod is assigned to.
pub fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Why the cluster is about to end a pod, if it is.
pub fn disruption(pod: &Pod) -> Option<Disruption> {
    let status = pod.status.as_ref();
    let Some(target) = status.and_then(|status| condition(status, "DisruptionTarget", "True")) else {
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        return is_deleted.then(Disruption::by_unknown);
    };
    let message = target.message.clone().unwrap_or_default();
    let reason = target.reason.clone().unwrap_or_default();
    let (words, node_is_to_blame) = match reason.as_str() {
        "PreemptionByScheduler" => ("preempted", false),
        // A drained node accepts no pods anyway.
        "EvictionByEvictionAPI" => ("evicted, as when a node is drained", false),
        "DeletionByTaintManager" => ("its node has a taint that it does not tolerate", true),
        "DeletionByPodGC" => ("its node is gone", true),
        "TerminationByKubelet" => ("terminated by its kubelet", true),
        other => (other, false),
    };
    Some(Disruption {
        words: match message.is_empty() {
            true => words.to_owned(),
            false => format!("{words}: {message}"),
        },
        node_is_to_blame,
    })
}

/// Whether the cluster considers a running pod unreachable. It then sets the pod's condition, which the kubelet cannot.
pub fn is_out_of_sight(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let runs = states(status).any(|state| state.running.is_some());
    status.phase.as_deref() == Some("Running") && runs && condition(status, "Ready", "False").is_some()
}

fn condition<'a>(status: &'a PodStatus, kind: &str, value: &str) -> Option<&'a PodCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == kind && condition.status == value)
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
}

fn states(status: &PodStatus) -> impl Iterator<Item = &ContainerState> {
    containers(status).filter_map(|container| container.state.as_ref())
}

fn end(status: &PodStatus) -> PodEnd {
    let terminated = states(status)
        .filter_map(|state| state.terminated.as_ref())
        .filter(|terminated| terminated.exit_code != 0)
        .last();
    let code = terminated.map(|terminated| terminated.exit_code);
    let succeeded = status.phase.as_deref() == Some("Succeeded");
    let reason = status.reason.as_deref();
    let words = |reason: &str| match &status.message {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    };
    let used_too_much = reason.is_some_and(is_the_kubelets) && exceeds_its_limit(status);
    PodEnd {
        used_too_much,
        code: code.or(succeeded.then_some(0)),
        signal: terminated.and_then(|terminated| terminated.signal),
        out_of_memory: terminated.is_some_and(|terminated| terminated.reason.as_deref() == Some("OOMKilled")),
        disruption: reason
            .filter(|reason| is_the_kubelets(reason) && !used_too_much)
            .map(|reason| Disruption {
                words: words(reason),
                node_is_to_blame: reason != "Preempting",
            }),
        message: terminated
            .and_then(|terminated| terminated.message.clone())
            .or_else(|| reason.map(words)),
    }
}

fn is_the_kubelets(reason: &str) -> bool {
    BY_THE_KUBELET.contains(&reason) || reason.starts_with("OutOf")
}

/// The kubelet's messages about a volume that has a limit, such as `/dev/shm`, a pod and a container.
const OVER_ITS_LIMIT: [&str; 3] = [
    "exceeds the limit",
    "exceeds the total limit",
    "exceeded its local ephemeral storage limit",
];

fn exceeds_its_limit(status: &PodStatus) -> bool {
    let message = status.message.as_deref().unwrap_or_default();
    OVER_ITS_LIMIT.iter().any(|words| message.contains(words))
}

fn unseated(status: &PodStatus) -> Option<String> {
    let unscheduled = condition(status, "PodScheduled", "False")?;
    let words = unscheduled.message.clone().or_else(|| unscheduled.reason.clone());
    Some(words.unwrap_or_else(|| "it has no node".to_owned()))
}

fn trouble(status: &PodStatus) -> Option<Trouble> {
    let (container, waiting) = containers(status)
        .filter_map(|container| Some((container, container.state.as_ref()?.waiting.as_ref()?)))
        .find(|(_, waiting)| {
            !matches!(
                waiting.reason.as_deref(),
                None | Some("PodInitializing" | "ContainerCreating")
            )
        })?;
    let reason = waiting.reason.clone().unwrap_or_default();
    let message = waiting.message.clone().unwrap_or_default();
    let hopeless = match reason.as_str() {
        "InvalidImageName" | "ErrImageNeverPull" => true,
        "ErrImagePull" | "ImagePullBackOff" => {
            let lower = message.to_ascii_lowercase();
            NOT_TO_BE_HAD.iter().any(|words| lower.contains(words))
        }
        _ => false,
    };
    Some(Trouble {
        words: format!("image `{}`: {reason}: {message}", container.image),
        hopeless,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap()
    }

    fn seen(status: Value) -> PodView {
        view(&pod(status))
    }

    fn container(state: Value) -> Value {
        json!([{
            "name": "trainer", "image": "nowhere:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        }])
    }

    fn ended(status: Value) -> PodEnd {
        match seen(status) {
            PodView::Ended(end) => end,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_unschedulable_pod_reports_the_schedulers_message() {
        let words = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.";
        let pending = seen(json!({
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}],
        }));
        assert_eq!(pending, PodView::Unseated(words.into()));
    }

    #[test]
    fn a_missing_image_is_permanent_and_an_unreachable_registry_is_not() {
        let pulling = |message: &str| {
            seen(json!({
                "phase": "Pending",
                "containerStatuses": container(json!({"waiting": {"reason": "ErrImagePull", "message": message}})),
            }))
        };
        let trouble = |words: &str, hopeless| {
            let words = format!("image `nowhere:1`: ErrImagePull: {words}");
            PodView::Pending(Some(Trouble { words, hopeless }))
        };
        assert_eq!(pulling("not found"), trouble("not found", true));
        assert_eq!(pulling("i/o timeout"), trouble("i/o timeout", false));
    }

    #[test]
    fn a_pod_that_is_being_made_has_no_trouble() {
        let making = seen(json!({
            "phase": "Pending",
            "containerStatuses": container(json!({"waiting": {"reason": "PodInitializing"}})),
        }));
        assert_eq!(making, PodView::Pending(None));
    }

    #[test]
    fn the_reason_says_whether_the_node_is_to_blame() {
        let evicted = ended(json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}));
        assert!(!evicted.used_too_much);
        let disruption = evicted.disruption.unwrap();
        assert_eq!(disruption.words, "Evicted: low on memory");
        assert!(disruption.node_is_to_blame);
        for reason in [
            "OutOfcpu",
            "OutOfnvidia.com/gpu",
            "UnexpectedAdmissionError",
            "NodeAffinity",
        ] {
            let rejected = ended(json!({"phase": "Failed", "reason": reason}));
            assert!(rejected.disruption.is_some(), "{reason}");
        }
        for message in [
            "Usage of EmptyDir volume \"shm\" exceeds the limit \"64Mi\".",
            "Pod ephemeral local storage usage exceeds the total limit of containers 300Mi. ",
            "Container trainer exceeded its local ephemeral storage limit \"300Mi\". ",
        ] {
            let greedy = ended(json!({"phase": "Failed", "reason": "Evicted", "message": message}));
            assert!(greedy.used_too_much && greedy.disruption.is_none(), "{message}");
            assert_eq!(greedy.message, Some(format!("Evicted: {message}")));
        }
        let killed = ended(json!({
            "phase": "Failed",
            "containerStatuses": container(json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})),
        }));
        assert!(killed.out_of_memory && killed.disruption.is_none());
        assert_eq!(killed.code, Some(137));
    }

    #[test]
    fn the_cluster_says_why_it_ends_a_pod() {
        let target = |reason: &str| {
            let condition =
                json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"});
            disruption(&pod(json!({"phase": "Running", "conditions": [condition]}))).unwrap()
        };
        let preempted = target("PreemptionByScheduler");
        assert_eq!(preempted.words, "preempted: m");
        assert!(!preempted.node_is_to_blame);
        assert!(target("TerminationByKubelet").node_is_to_blame);
        let mut deleted = pod(json!({"phase": "Running"}));
        assert_eq!(disruption(&deleted), None);
        deleted.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(disruption(&deleted), Some(Disruption::by_unknown()));
    }

    #[test]
    fn a_running_pod_that_is_not_ready_is_out_of_sight() {
        let on_node = |ready: &str, state: Value| {
            is_out_of_sight(&pod(json!({
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": ready}],
                "containerStatuses": container(state),
            })))
        };
        let running = json!({"running": {}});
        assert!(on_node("False", running.clone()));
        assert!(!on_node("True", running));
        assert!(!on_node("False", json!({"terminated": {"exitCode": 0}})));
    }
}
