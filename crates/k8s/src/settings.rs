//! The administrator's settings for the pods of this server.

use std::collections::BTreeMap;
use std::time::Duration;

use paddlecloud_core::gpu::GpuType;
use paddlecloud_core::names::UserName;
use serde::{Deserialize, Serialize};

/// Everything that `render` needs besides the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The server's name in the labels of every object.
    pub server: String,
    /// `host:port` at which pods reach the server's link.
    pub link: String,
    /// The image with the launcher.
    pub launcher_image: String,
    /// For jobs that name no image.
    pub default_image: Option<String>,
    pub volume: Volume,
    /// Where the tree begins in the volume; empty for its root.
    pub sub_path: String,
    pub identity: PodIdentity,
    pub pods: PodSettings,
    pub namespaces: Namespaces,
    /// The ClusterRole that this server binds to its own account in every namespace that it creates. `None`: the account
    /// has its rights there already.
    pub namespace_role: Option<String>,
    pub placement: Placement,
}

impl Settings {
    /// Whether our scheduler chooses nodes. It can only do so if it sees all of them.
    pub fn pins(&self) -> bool {
        self.placement == Placement::Pinned && self.sees_cluster()
    }

    /// Whether the server may read nodes and foreign pods.
    pub fn sees_cluster(&self) -> bool {
        self.namespaces == Namespaces::PerUser
    }

    /// A path of the tree as a path in the volume.
    pub fn in_volume(&self, path: &str) -> String {
        match self.sub_path.trim_matches('/') {
            "" => path.to_owned(),
            base => format!("{base}/{path}"),
        }
    }
}

/// The key for users without an entry of their own.
pub const EVERYBODY_ELSE: &str = "*";

/// The namespaces of users' objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// Every account has one, which the server creates, with a quota, a limit range and network policies.
    PerUser,
    /// By user, created by an administrator. The server has no rights outside of them.
    Given(BTreeMap<String, String>),
}

impl Namespaces {
    /// The namespace of a user's jobs; `own` returns that of the account.
    pub fn of(&self, user: &UserName, own: impl FnOnce() -> String) -> String {
        let given = match self {
            Namespaces::PerUser => None,
            Namespaces::Given(given) => given.get(user.as_str()).or_else(|| given.get(EVERYBODY_ELSE)),
        };
        given.cloned().unwrap_or_else(own)
    }
}

/// The system that finds nodes for a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Our scheduler: each pod is pinned to its node.
    Pinned,
    /// The cluster, which adds nodes when pods need them.
    OnDemand,
    /// Kueue admits the gang as a pod group.
    Kueue { queue: String },
    /// Volcano seats the gang as a `PodGroup`.
    Volcano { queue: String },
}

impl Placement {
    /// Whether another system decides when the whole gang starts.
    pub fn is_handed_over(&self) -> bool {
        matches!(self, Placement::Kueue { .. } | Placement::Volcano { .. })
    }
}

/// How long to wait for the cluster, and how often a worker may be restarted because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long a pod may have no node before its whole gang is withdrawn.
    pub seat: Duration,
    /// How long a launcher and the kubelet of its node may both be silent before an attempt is lost.
    pub lost: Duration,
    /// How long a pod with a node may be stuck before its attempt fails.
    pub trouble: Duration,
    /// How long to repeat a call that the API server neither carries out nor refuses.
    pub api_server: Duration,
    /// The most restarts of one worker that are not its own fault.
    pub disruptions: u32,
}

impl Limits {
    /// The defaults.
    pub fn usual(placement: &Placement) -> Limits {
        Limits {
            seat: match placement {
                Placement::Pinned => Duration::from_secs(30),
                // A new machine takes minutes to boot.
                _ => Duration::from_secs(900),
            },
            lost: Duration::from_secs(60),
            trouble: Duration::from_secs(60),
            api_server: Duration::from_secs(120),
            disruptions: 20,
        }
    }
}

/// The user that pods run as: the server's own, because both write to the same tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodIdentity {
    pub uid: u32,
    pub gid: u32,
}

/// The tree that is the server's `storage`, as pods mount it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Volume {
    /// A folder that is the same on every node.
    HostPath(String),
    /// A claim of this name in every namespace.
    Claim(String),
    Nfs {
        server: String,
        path: String,
    },
    /// A volume of a CSI driver, described in the pod itself.
    Csi {
        driver: String,
        #[serde(default)]
        attributes: BTreeMap<String, String>,
    },
}

impl Volume {
    /// The strictest level of pod security that permits this volume.
    pub fn security_level(&self) -> &'static str {
        match self {
            Volume::Claim(_) | Volume::Csi { .. } => "restricted",
            Volume::Nfs { .. } => "baseline",
            Volume::HostPath(_) => "privileged",
        }
    }
}

/// Settings for every pod, from the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PodSettings {
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
    pub priority_class: Option<String>,
    pub annotations: BTreeMap<String, String>,
    /// What the names in `-gpu-type` mean.
    pub gpu_types: BTreeMap<GpuType, GpuTypeSettings>,
}

/// A type of GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuTypeSettings {
    /// Labels of the nodes that have it. None: those whose vendor's label names such a model.
    pub labels: BTreeMap<String, String>,
    /// Taints of these nodes that its pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// The resource that its pods request; `None`: the usual one.
    pub resource: Option<String>,
}

/// A taint that pods tolerate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toleration {
    /// Absent: every key.
    pub key: Option<String>,
    /// Absent: every value.
    pub value: Option<String>,
    /// Absent: every effect.
    pub effect: Option<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A table with one type, which has a label, a taint and a resource of its own.
    pub fn a100() -> BTreeMap<GpuType, GpuTypeSettings> {
        let a100 = GpuTypeSettings {
            labels: BTreeMap::from([("pool".to_owned(), "a100".to_owned())]),
            tolerations: vec![Toleration {
                key: Some("dedicated".into()),
                value: None,
                effect: Some("NoSchedule".into()),
            }],
            resource: Some("example.com/gpu".into()),
        };
        BTreeMap::from([("a100".parse().unwrap(), a100)])
    }
}
