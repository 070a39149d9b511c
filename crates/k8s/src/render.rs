//! Renders a job as the objects of its run. Pure: the same job gives the same objects.
//!
//! All objects pass pod security "restricted", except volumes that only a lower level permits.

pub mod gang;
pub mod tenancy;
mod volumes;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, EnvVar, EnvVarSource, LocalObjectReference, NodeAffinity,
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectFieldSelector, Pod, PodSecurityContext,
    PodSpec, ResourceRequirements, SeccompProfile, Secret, SecretKeySelector, SecurityContext, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use paddlecloud_core::job::{Job, Role, Worker};
use paddlecloud_core::ports::{AttemptKey, RegistryLogin};
use paddlecloud_core::quantity::Bytes;
use paddlecloud_core::spec::Resources;
use serde_json::json;

use crate::node_choice::{GPU, LabelValues};
use crate::settings::Settings;
use crate::{names, quantity};
pub(crate) use volumes::tree;
pub use volumes::{TREE_FOLDER, TREE_MARK};

/// Grace period of a pod that the cluster ends: the launcher gives its program most of it.
const TERMINATION_GRACE: i64 = 30;

/// What a container writes to the disk of its node.
pub(crate) const DISK: &str = "ephemeral-storage";

/// The certificate in an owner object; the other keys are secrets of first attempts and variables of the workers.
const CERTIFICATE: &str = "ca.crt";

/// The format in which nodes expect the credentials of a registry.
const PULL_KEY: &str = ".dockerconfigjson";
const PULL_TYPE: &str = "kubernetes.io/dockerconfigjson";

/// A part of the tree that a worker sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Relative to the root of the tree.
    pub source: String,
    /// The path in the worker.
    pub target: String,
    pub read_only: bool,
}

/// One attempt, ready to be rendered as a pod.
#[derive(Debug, Clone)]
pub struct PodPlan<'a> {
    pub job: &'a Job,
    /// The namespace of the job's user.
    pub namespace: &'a str,
    pub worker: &'a Worker,
    pub attempt: u32,
    /// The node that the pod is pinned to.
    pub node: Option<&'a str>,
    /// Nodes that are blamed for the end of earlier attempts.
    pub avoid: &'a [String],
    /// Labels of which its node must have one, if it is not pinned: models of GPUs.
    pub any_of: &'a [LabelValues],
    pub mounts: &'a [Mount],
    /// Ask the registry for the image even on a node that has it: not every user may have access to it.
    pub always_pull: bool,
    pub owner: OwnerReference,
}

/// The secrets of a run: one for each worker's first attempt, and the user's own secrets for all workers.
#[derive(Clone)]
pub struct RunSecrets<'a> {
    pub certificate: &'a str,
    /// In the order of the job's workers.
    pub first_attempts: Vec<String>,
    /// Secret variables of every worker.
    pub variables: &'a BTreeMap<String, String>,
}

/// The object that owns all others of a run; deleting it deletes them.
pub fn owner(settings: &Settings, job: &Job, namespace: &str, secrets: &RunSecrets) -> Secret {
    let workers = job.workers.iter().zip(&secrets.first_attempts);
    let first = workers.map(|(worker, secret)| (secret_key(worker), secret.as_str()));
    let variables = secrets.variables.iter();
    let variables = variables.map(|(name, value)| (variable_key(name), value.as_str()));
    let data: BTreeMap<String, ByteString> = first
        .chain(variables)
        .chain([(CERTIFICATE.to_owned(), secrets.certificate)])
        .map(|(key, value)| (key, ByteString(value.as_bytes().to_owned())))
        .collect();
    Secret {
        metadata: ObjectMeta {
            name: Some(names::owner(job)),
            namespace: Some(namespace.to_owned()),
            labels: Some(names::run_labels(&settings.server, &job.id)),
            ..ObjectMeta::default()
        },
        data: Some(data),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// How other objects of the run refer to their owner.
pub fn owner_reference(job: &Job, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        name: names::owner(job),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// The secret of a later attempt; those of first attempts are in the owner.
pub fn later_secret(settings: &Settings, plan: &PodPlan, certificate: &str, secret: &str) -> Secret {
    let data = BTreeMap::from([
        (
            CERTIFICATE.to_owned(),
            ByteString(certificate.as_bytes().to_owned()),
        ),
        (secret_key(plan.worker), ByteString(secret.as_bytes().to_owned())),
    ]);
    Secret {
        metadata: ObjectMeta {
            labels: Some(names::run_labels(&settings.server, &plan.job.id)),
            ..plan.metadata()
        },
        data: Some(data),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

fn secret_key(worker: &Worker) -> String {
    format!("{}-{}", worker.key.role, worker.key.index)
}

/// Never equals the key of a worker, which has no dot.
fn variable_key(name: &str) -> String {
    format!("env.{name}")
}

/// The secret with which nodes pull the image of a run.
pub fn pull_secret(
    settings: &Settings,
    job: &Job,
    namespace: &str,
    login: &RegistryLogin,
    owner: OwnerReference,
) -> Secret {
    let entry = json!({"username": login.username, "password": login.password});
    let config = json!({"auths": {registry_key(&login.server): entry}});
    Secret {
        metadata: ObjectMeta {
            name: Some(names::pull_secret(job)),
            namespace: Some(namespace.to_owned()),
            labels: Some(names::run_labels(&settings.server, &job.id)),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            PULL_KEY.to_owned(),
            ByteString(config.to_string().into_bytes()),
        )])),
        immutable: Some(true),
        type_: Some(PULL_TYPE.to_owned()),
        ..Secret::default()
    }
}

/// Nodes use a different name than people for Docker Hub, where images without a host come from.
fn registry_key(server: &str) -> &str {
    let host = server
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    match host.trim_end_matches('/') {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" | "hub.docker.com" => {
            "https://index.docker.io/v1/"
        }
        _ => server,
    }
}

/// The pod of one attempt. Fails if neither the job nor the settings name an image.
pub fn pod(settings: &Settings, plan: &PodPlan) -> Result<Pod, NoImage> {
    let image = plan.job.spec.image.as_ref().or(settings.default_image.as_ref());
    let image = image.ok_or(NoImage)?;
    let gang = gang::membership(&settings.placement, plan.job);
    let mut labels = names::labels(&settings.server, plan.job, plan.worker.key, plan.attempt);
    labels.extend(gang.labels);
    let mut annotations = settings.pods.annotations.clone();
    annotations.extend(gang.annotations);
    Ok(Pod {
        metadata: ObjectMeta {
            labels: Some(labels),
            annotations: non_empty(&annotations),
            ..plan.metadata()
        },
        spec: Some(PodSpec {
            affinity: affinity(plan),
            automount_service_account_token: Some(false),
            containers: vec![worker_container(settings, plan, image)],
            enable_service_links: Some(false),
            hostname: Some(names::host(plan.worker)),
            image_pull_secrets: plan.job.spec.registry.as_ref().map(|_| {
                vec![LocalObjectReference {
                    name: names::pull_secret(plan.job),
                }]
            }),
            init_containers: Some(vec![launcher_container(settings, plan)]),
            node_selector: non_empty(&settings.pods.labels_for(&plan.job.spec, plan.resources())),
            priority_class_name: settings.pods.priority_class.clone(),
            restart_policy: Some("Never".to_owned()),
            scheduler_name: gang.scheduler,
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(settings.identity.uid.into()),
                run_as_group: Some(settings.identity.gid.into()),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            termination_grace_period_seconds: Some(TERMINATION_GRACE),
            tolerations: tolerations(settings, plan),
            volumes: Some(volumes::all(settings, plan)),
            ..PodSpec::default()
        }),
        ..Pod::default()
    })
}

/// The job names no image, and the configuration has no default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the job names no image, and the server has no `default_image`")]
pub struct NoImage;

impl PodPlan<'_> {
    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(names::pod(self.worker, self.attempt)),
            namespace: Some(self.namespace.to_owned()),
            owner_references: Some(vec![self.owner.clone()]),
            ..ObjectMeta::default()
        }
    }

    fn resources(&self) -> &Resources {
        match self.worker.key.role {
            Role::Pserver => &self.job.spec.pserver,
            Role::Trainer => &self.job.spec.trainer,
        }
    }

    fn marker(&self) -> String {
        let attempt = AttemptKey {
            job: self.job.id.clone(),
            worker: self.worker.key,
            attempt: self.attempt,
        };
        attempt.to_string()
    }
}

fn non_empty(map: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!map.is_empty()).then(|| map.clone())
}

/// Requires the node that our scheduler chose, or excludes nodes that were blamed before. Matches the name as a field:
/// users who may label nodes could give the same label to another node.
fn affinity(plan: &PodPlan) -> Option<Affinity> {
    let by_name = |operator: &str, node: &str| NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: operator.to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let fields: Vec<NodeSelectorRequirement> = match plan.node {
        Some(node) => vec![by_name("In", node)],
        None => plan.avoid.iter().map(|node| by_name("NotIn", node)).collect(),
    };
    let by_label = |(key, values): &LabelValues| NodeSelectorRequirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: Some(values.clone()),
    };
    let term = |label: Option<&LabelValues>| NodeSelectorTerm {
        match_fields: (!fields.is_empty()).then(|| fields.clone()),
        match_expressions: label.map(|label| vec![by_label(label)]),
    };
    let labels = plan.any_of.iter().filter(|_| plan.node.is_none());
    let mut terms: Vec<NodeSelectorTerm> = labels.map(|label| term(Some(label))).collect();
    if terms.is_empty() {
        if fields.is_empty() {
            return None;
        }
        terms.push(term(None));
    }
    Some(Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: terms,
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    })
}

/// Whether a pod is pinned to the one node that our scheduler chose.
pub fn is_pinned(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let required = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    let mut fields = required
        .into_iter()
        .flat_map(|required| &required.node_selector_terms)
        .flat_map(|term| term.match_fields.iter().flatten());
    fields.any(|field| field.operator == "In")
}

fn tolerations(settings: &Settings, plan: &PodPlan) -> Option<Vec<Toleration>> {
    let tolerations = settings.pods.tolerations_for(&plan.job.spec, plan.resources());
    let each = tolerations.into_iter().map(|toleration| Toleration {
        key: toleration.key,
        operator: Some(
            if toleration.value.is_some() {
                "Equal"
            } else {
                "Exists"
            }
            .to_owned(),
        ),
        value: toleration.value,
        effect: toleration.effect,
        toleration_seconds: None,
    });
    let all: Vec<Toleration> = each.collect();
    (!all.is_empty()).then_some(all)
}

/// Installs the launcher where every image can run it.
fn launcher_container(settings: &Settings, plan: &PodPlan) -> Container {
    let resources = Resources {
        gpu: 0,
        ..*plan.resources()
    };
    Container {
        name: "launcher".to_owned(),
        image: Some(settings.launcher_image.clone()),
        command: Some(words(&["/paddle", "launch", "--install", volumes::OWN])),
        env: Some(vec![variable("PADDLECLOUD_TREE_MARK", &settings.server)]),
        resources: Some(requirements(&resources, GPU, plan.job.spec.disk)),
        security_context: Some(security()),
        volume_mounts: Some(volumes::launcher_mounts(settings)),
        ..Container::default()
    }
}

fn worker_container(settings: &Settings, plan: &PodPlan, image: &str) -> Container {
    Container {
        name: plan.worker.key.role.to_string(),
        image: Some(image.to_owned()),
        command: Some(words(&["/paddlecloud/own/bin/paddle", "launch"])),
        env: Some(worker_variables(settings, plan)),
        image_pull_policy: plan.always_pull.then(|| "Always".to_owned()),
        resources: Some(requirements(
            plan.resources(),
            settings.pods.resource_for(&plan.job.spec, plan.resources()),
            plan.job.spec.disk,
        )),
        security_context: Some(security()),
        volume_mounts: Some(volumes::worker_mounts(settings, plan)),
        ..Container::default()
    }
}

/// The user's secrets come first, so that none replaces what the launcher needs. The launcher gets their names, so that
/// it keeps them out of its files.
fn worker_variables(settings: &Settings, plan: &PodPlan) -> Vec<EnvVar> {
    let secrets = &plan.job.spec.secrets;
    let mut variables: Vec<EnvVar> = secrets
        .iter()
        .map(|secret| secret_variable(plan.job, &secret.env))
        .collect();
    if !secrets.is_empty() {
        let names: Vec<&str> = secrets.iter().map(|secret| secret.env.as_str()).collect();
        variables.push(variable("PADDLECLOUD_LINK_SECRETS", &names.join(",")));
    }
    variables.extend([
        variable("PADDLECLOUD_LINK", &settings.link),
        variable("PADDLECLOUD_LINK_ATTEMPT", &plan.marker()),
        pod_address(),
    ]);
    variables
}

fn secret_variable(job: &Job, name: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: names::owner(job),
                key: variable_key(name),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        ..EnvVar::default()
    }
}

fn pod_address() -> EnvVar {
    let field = ObjectFieldSelector {
        field_path: "status.podIP".to_owned(),
        ..ObjectFieldSelector::default()
    };
    EnvVar {
        name: "POD_IP".to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(field),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

/// Requests equal limits: a worker gets exactly the resources it was promised. Only a limit is set for what it writes to
/// its node's disk: nothing is reserved there.
fn requirements(resources: &Resources, gpu: &str, disk: Option<Bytes>) -> ResourceRequirements {
    let mut amounts = BTreeMap::from([
        (
            "cpu".to_owned(),
            Quantity(format!("{}m", resources.cpu.as_millis())),
        ),
        (
            "memory".to_owned(),
            Quantity(resources.memory.as_u64().to_string()),
        ),
    ]);
    if resources.gpu > 0 {
        amounts.insert(gpu.to_owned(), Quantity(resources.gpu.to_string()));
    }
    let (mut requests, mut limits) = (amounts.clone(), amounts);
    if let Some(disk) = disk {
        // An omitted request would be the limit.
        requests.insert(DISK.to_owned(), Quantity("0".to_owned()));
        limits.insert(DISK.to_owned(), quantity::of_bytes(disk));
    }
    ResourceRequirements {
        requests: Some(requests),
        limits: Some(limits),
        ..ResourceRequirements::default()
    }
}

/// What the level "restricted" requires of every container.
fn security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            ..Capabilities::default()
        }),
        ..SecurityContext::default()
    }
}

#[cfg(test)]
mod tests;
