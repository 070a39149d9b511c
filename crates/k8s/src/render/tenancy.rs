//! Renders a user's namespace, the server's rights in it, and its limits: quota, limit range and network policies. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    LimitRange, LimitRangeItem, LimitRangeSpec, Namespace, ResourceQuota, ResourceQuotaSpec,
};
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
    NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use paddlecloud_core::job::Job;
use paddlecloud_core::scheduler::Quota;

use crate::names;
use crate::settings::Settings;

/// The name of every fence.
pub const FENCE: &str = "paddlecloud";

/// Defaults for a container without requests; ours always have them.
const USUAL_CPU: &str = "1";
const USUAL_MEMORY: &str = "1Gi";

const DNS_PORT: i32 = 53;

/// Digits that distinguish bindings of different roles and accounts.
const MARK: usize = 8;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The rights that the server gives itself in the namespaces that it creates.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// A ClusterRole.
    pub role: String,
    /// The server's account.
    pub account: Subject,
}

impl Grant {
    /// The grant of a role to the user of this name, as the API server names it.
    pub fn new(role: &str, user: &str) -> Grant {
        let service = user.strip_prefix("system:serviceaccount:");
        let account = match service.and_then(|rest| rest.split_once(':')) {
            Some((namespace, name)) => Subject {
                kind: "ServiceAccount".to_owned(),
                name: name.to_owned(),
                namespace: Some(namespace.to_owned()),
                api_group: None,
            },
            None => Subject {
                kind: "User".to_owned(),
                name: user.to_owned(),
                namespace: None,
                api_group: Some(RBAC.to_owned()),
            },
        };
        Grant {
            role: role.to_owned(),
            account,
        }
    }

    /// The binding in a namespace. A binding cannot be changed, so each role and account has one of its own.
    fn binding(&self, namespace: &str) -> RoleBinding {
        let Subject {
            name,
            namespace: home,
            ..
        } = &self.account;
        let whole = format!("{}/{}/{name}", self.role, home.as_deref().unwrap_or_default());
        let mark = &blake3::hash(whole.as_bytes()).to_hex()[..MARK];
        RoleBinding {
            metadata: ObjectMeta {
                name: Some(format!("{FENCE}-{mark}")),
                ..fence(namespace)
            },
            role_ref: RoleRef {
                api_group: RBAC.to_owned(),
                kind: "ClusterRole".to_owned(),
                name: self.role.clone(),
            },
            subjects: Some(vec![self.account.clone()]),
        }
    }
}

/// All objects that a user has before the first job.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    pub namespace: Namespace,
    /// The server's own rights there; `None` if it has them in every namespace.
    pub binding: Option<RoleBinding>,
    pub quota: ResourceQuota,
    /// The GPU limits that its quota may have, and had perhaps before.
    pub gpu_limits: Vec<String>,
    pub limits: LimitRange,
    pub network: NetworkPolicy,
}

/// The namespace with this name, the server's rights in it, and its fences.
pub fn tenant(settings: &Settings, grant: Option<&Grant>, name: &str, quota: &Quota) -> Tenant {
    let gpu_resources = settings.pods.gpu_resources();
    Tenant {
        gpu_limits: gpu_resources.iter().map(|resource| gpu_limit(resource)).collect(),
        namespace: namespace(name, settings),
        binding: grant.map(|grant| grant.binding(name)),
        quota: ResourceQuota {
            metadata: fence(name),
            spec: Some(ResourceQuotaSpec {
                hard: Some(hard(quota, &gpu_resources)),
                ..ResourceQuotaSpec::default()
            }),
            status: None,
        },
        limits: limits(name),
        network: NetworkPolicy {
            metadata: fence(name),
            spec: Some(server_and_names(&settings.link)),
        },
    }
}

fn managed() -> BTreeMap<String, String> {
    let (key, value) = ("app.kubernetes.io/managed-by", "paddlecloud");
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

fn fence(namespace: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(FENCE.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(managed()),
        ..ObjectMeta::default()
    }
}

fn namespace(name: &str, settings: &Settings) -> Namespace {
    let level = settings.volume.security_level().to_owned();
    let mut labels = managed();
    labels.insert("pod-security.kubernetes.io/enforce".to_owned(), level);
    labels.insert(names::SERVER.to_owned(), settings.server.clone());
    if let Some(role) = &settings.namespace_role {
        labels.insert(names::NAMESPACE_ROLE.to_owned(), role.clone());
    }
    Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

/// The limit of a resource of GPUs in a ResourceQuota.
fn gpu_limit(resource: &str) -> String {
    format!("requests.{resource}")
}

/// The user's quota as Kubernetes quantities. GPUs are limited as each resource; their sum is the scheduler's. Our objects never need a Service that is reachable from outside.
fn hard(quota: &Quota, gpu_resources: &[&str]) -> BTreeMap<String, Quantity> {
    let amount = |name: &str, amount: String| (name.to_owned(), Quantity(amount));
    let mut hard = BTreeMap::from([
        amount("services.loadbalancers", "0".into()),
        amount("services.nodeports", "0".into()),
    ]);
    if let Some(cpu) = quota.cpu {
        let cpu = format!("{}m", cpu.as_millis());
        hard.extend([amount("requests.cpu", cpu.clone()), amount("limits.cpu", cpu)]);
    }
    if let Some(memory) = quota.memory {
        let memory = memory.as_u64().to_string();
        hard.extend([
            amount("requests.memory", memory.clone()),
            amount("limits.memory", memory),
        ]);
    }
    if let Some(gpu) = quota.gpu {
        let limits = gpu_resources
            .iter()
            .map(|resource| amount(&gpu_limit(resource), gpu.to_string()));
        hard.extend(limits);
    }
    hard
}

fn limits(name: &str) -> LimitRange {
    let usual = BTreeMap::from([
        ("cpu".to_owned(), Quantity(USUAL_CPU.to_owned())),
        ("memory".to_owned(), Quantity(USUAL_MEMORY.to_owned())),
    ]);
    LimitRange {
        metadata: fence(name),
        spec: Some(LimitRangeSpec {
            limits: vec![LimitRangeItem {
                type_: "Container".to_owned(),
                default: Some(usual.clone()),
                default_request: Some(usual),
                ..LimitRangeItem::default()
            }],
        }),
    }
}

fn both_ways() -> Option<Vec<String>> {
    Some(vec!["Ingress".to_owned(), "Egress".to_owned()])
}

fn port(protocol: &str, port: i32) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some(protocol.to_owned()),
        port: Some(IntOrString::Int(port)),
        end_port: None,
    }
}

/// Every pod can reach DNS and this server's link. Nothing can connect to a pod.
fn server_and_names(link: &str) -> NetworkPolicySpec {
    let names = NetworkPolicyEgressRule {
        ports: Some(vec![port("UDP", DNS_PORT), port("TCP", DNS_PORT)]),
        to: None,
    };
    NetworkPolicySpec {
        pod_selector: Some(LabelSelector::default()),
        policy_types: both_ways(),
        egress: Some([Some(names), to_link(link)].into_iter().flatten().collect()),
        ingress: None,
    }
}

/// A policy matches only addresses: if the settings have a host name, only the port is restricted.
fn to_link(link: &str) -> Option<NetworkPolicyEgressRule> {
    let (host, number) = link.rsplit_once(':')?;
    let host: Result<std::net::IpAddr, _> = host.trim_matches(['[', ']']).parse();
    let block = host.ok().map(|address| {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        vec![NetworkPolicyPeer {
            ip_block: Some(IPBlock {
                cidr: format!("{address}/{bits}"),
                except: None,
            }),
            ..NetworkPolicyPeer::default()
        }]
    });
    Some(NetworkPolicyEgressRule {
        ports: Some(vec![port("TCP", number.parse().ok()?)]),
        to: block,
    })
}

/// Lets the workers of a run reach each other. `None` for a single worker.
pub fn run_network(
    settings: &Settings,
    job: &Job,
    namespace: &str,
    owner: OwnerReference,
) -> Option<NetworkPolicy> {
    if job.workers.len() < 2 {
        return None;
    }
    let run = BTreeMap::from([(names::RUN.to_owned(), job.id.to_string())]);
    let own = LabelSelector {
        match_labels: Some(run),
        match_expressions: None,
    };
    let peers = Some(vec![NetworkPolicyPeer {
        pod_selector: Some(own.clone()),
        ..NetworkPolicyPeer::default()
    }]);
    Some(NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(names::owner(job)),
            namespace: Some(namespace.to_owned()),
            labels: Some(names::run_labels(&settings.server, &job.id)),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(own),
            policy_types: both_ways(),
            ingress: Some(vec![NetworkPolicyIngressRule {
                from: peers.clone(),
                ports: None,
            }]),
            egress: Some(vec![NetworkPolicyEgressRule {
                to: peers,
                ports: None,
            }]),
        }),
    })
}
