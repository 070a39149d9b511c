//! A job as manifests that `kubectl apply` runs without a server: a headless Service and one Indexed Job for each role.
//!
//! Pure, and without secrets. The launchers in the pods find each other by name and start together; parameter servers
//! end after the trainers. The namespace is left to `kubectl -n`.

use std::collections::BTreeMap;

use paddlecloud_core::duration;
use paddlecloud_core::gpu::GpuType;
use paddlecloud_core::job::Role;
use paddlecloud_core::names::{DatacenterName, UserName};
use paddlecloud_core::quantity::Bytes;
use paddlecloud_core::spec::{JobSpec, Resources};
use serde_json::{Map, Value, json};

use crate::names;
use crate::node_choice::GPU;
use crate::render::{DISK, tree};
use crate::settings::{PodIdentity, PodSettings, Volume};

/// The label that the pods of a group share with their Service.
pub(crate) const GROUP: &str = "cloud.paddlepaddle.org/group";
/// Where the init container installs the launcher and the worker's small files.
const OWN: &str = "/paddlecloud/own";
/// Files of the pod that programs expect in the root folder.
const FILES: [&str; 4] = ["test.list", "train.list", "trainer_count", "trainer_id"];
/// Time for the launcher itself after its program has exited.
const LAUNCHER_GRACE: i64 = 10;
/// How long trainers may be gone before parameter servers exit: a failed trainer restarts after the kubelet's backoff.
const LINGER: &str = "5s";
const LINGER_WITH_RETRIES: &str = "2m";

/// Where printed jobs run.
#[derive(Debug, Clone, Default)]
pub struct PrintSettings {
    /// The image with the launcher; absent: the job's image has `paddle` in its `PATH`.
    pub launcher_image: Option<String>,
    pub default_image: Option<String>,
    /// The tree with `/pfs`; absent: there is none.
    pub volume: Option<Volume>,
    /// Where the tree begins in the volume; empty for its root.
    pub sub_path: String,
    /// The user that pods run as; absent: the image's.
    pub identity: Option<PodIdentity>,
    pub pods: PodSettings,
}

/// Why a job has no manifests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrintError {
    #[error("a manifest cannot contain the files of a local folder")]
    Upload,
    #[error("`{0}` is on `/pfs`, which this server has no volume for")]
    NoVolume(String),
    #[error("the job names no image, and the server has no `default_image`")]
    NoImage,
    #[error("`gpu_types` of this server does not say which labels nodes with GPUs of type `{0}` have")]
    GpuType(GpuType),
}

impl PrintError {
    pub fn hint(&self) -> &'static str {
        match self {
            PrintError::Upload => {
                "copy it first, for example `paddlectl cp -r ./my_package /pfs/<datacenter>/home/<user>/`, and \
                 submit that path; or put it into the image and leave the package out"
            }
            PrintError::NoVolume(_) => {
                "put the package into the image and leave it out here, or ask a server with `engine: kubernetes`"
            }
            PrintError::NoImage => "name one with `-image`",
            PrintError::GpuType(_) => {
                "name the label instead, for example `-node-label nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB`"
            }
        }
    }
}

/// The objects of a job, the Service first.
pub fn manifests(
    settings: &PrintSettings,
    user: &UserName,
    datacenter: &DatacenterName,
    spec: &JobSpec,
) -> Result<Vec<Value>, PrintError> {
    let printing = Printing::new(settings, user, datacenter, spec)?;
    let mut objects = vec![printing.service()];
    if spec.pservers > 0 {
        objects.push(printing.job(Role::Pserver));
    }
    objects.push(printing.job(Role::Trainer));
    Ok(objects)
}

/// An object without its `null` members.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let given = members.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(
        given
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<Map<_, _>>(),
    )
}

fn non_empty(map: &BTreeMap<String, String>) -> Value {
    if map.is_empty() { Value::Null } else { json!(map) }
}

/// A job that can be printed as manifests.
struct Printing<'a> {
    settings: &'a PrintSettings,
    spec: &'a JobSpec,
    user: &'a UserName,
    datacenter: &'a DatacenterName,
    image: &'a str,
    /// Name of the Service, and prefix of the names of Jobs and pods.
    group: String,
}

impl<'a> Printing<'a> {
    fn new(
        settings: &'a PrintSettings,
        user: &'a UserName,
        datacenter: &'a DatacenterName,
        spec: &'a JobSpec,
    ) -> Result<Printing<'a>, PrintError> {
        if spec.snapshot.is_some() {
            return Err(PrintError::Upload);
        }
        if let Some(name) = settings.pods.type_by_vendor(spec, &spec.trainer) {
            return Err(PrintError::GpuType(name.clone()));
        }
        if let (Some(package), None) = (&spec.package, &settings.volume) {
            return Err(PrintError::NoVolume(package.clone()));
        }
        let image = spec.image.as_ref().or(settings.default_image.as_ref());
        Ok(Printing {
            settings,
            spec,
            user,
            datacenter,
            image: image.ok_or(PrintError::NoImage)?,
            group: names::printed_group(&spec.name),
        })
    }

    fn service(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.group, "labels": {GROUP: self.group}},
            "spec": {
                "clusterIP": "None",
                // Workers look up each other before any of them is ready.
                "publishNotReadyAddresses": true,
                "selector": {GROUP: self.group},
            },
        })
    }

    fn job(&self, role: Role) -> Value {
        let spec = self.spec;
        let labels = json!({GROUP: self.group, names::role_label(role): spec.name});
        let template = object([
            ("labels", labels.clone()),
            ("annotations", non_empty(&self.settings.pods.annotations)),
        ]);
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": format!("{}-{role}", self.group), "labels": labels},
            "spec": object([
                ("activeDeadlineSeconds", json!(spec.max_runtime.map(|limit| limit.as_secs()))),
                ("backoffLimit", json!(spec.retries)),
                ("completionMode", json!("Indexed")),
                ("completions", json!(self.count(role))),
                ("parallelism", json!(self.count(role))),
                ("template", json!({"metadata": template, "spec": self.pod(role)})),
            ]),
        })
    }

    fn count(&self, role: Role) -> u32 {
        match role {
            Role::Pserver => self.spec.pservers,
            Role::Trainer => self.spec.parallelism,
        }
    }

    fn resources(&self, role: Role) -> &Resources {
        match role {
            Role::Pserver => &self.spec.pserver,
            Role::Trainer => &self.spec.trainer,
        }
    }

    fn pod(&self, role: Role) -> Value {
        let pods = &self.settings.pods;
        let secrets = (self.spec.registry.as_ref()).map(|name| json!([{"name": name}]));
        let tolerations = self.tolerations(role);
        let tolerations = (!tolerations.is_empty()).then_some(tolerations);
        let labels = pods.labels_for(self.spec, self.resources(role));
        object([
            ("automountServiceAccountToken", json!(false)),
            ("containers", json!([self.container(role)])),
            ("enableServiceLinks", json!(false)),
            ("imagePullSecrets", json!(secrets)),
            (
                "initContainers",
                json!(self.launcher(role).map(|launcher| [launcher])),
            ),
            ("nodeSelector", non_empty(&labels)),
            ("priorityClassName", json!(pods.priority_class)),
            // A restarted container keeps its pod's address, which its peers know.
            (
                "restartPolicy",
                json!(if self.spec.retries > 0 {
                    "OnFailure"
                } else {
                    "Never"
                }),
            ),
            ("securityContext", json!(self.settings.identity.map(pod_security))),
            ("subdomain", json!(self.group)),
            (
                "terminationGracePeriodSeconds",
                json!(self.spec.grace.as_secs() + LAUNCHER_GRACE),
            ),
            ("tolerations", json!(tolerations)),
            ("volumes", json!(self.volumes(role))),
        ])
    }

    fn tolerations(&self, role: Role) -> Vec<Value> {
        let tolerations = self
            .settings
            .pods
            .tolerations_for(self.spec, self.resources(role));
        let each = tolerations.iter().map(|toleration| {
            object([
                ("key", json!(toleration.key)),
                (
                    "operator",
                    json!(if toleration.value.is_some() {
                        "Equal"
                    } else {
                        "Exists"
                    }),
                ),
                ("value", json!(toleration.value)),
                ("effect", json!(toleration.effect)),
            ])
        });
        each.collect()
    }

    /// What the level "restricted" requires of a container; only for pods with a configured user.
    fn security(&self) -> Value {
        match self.settings.identity {
            Some(_) => json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}),
            None => Value::Null,
        }
    }

    /// Installs the launcher in the pod, and the small files that are mounted at fixed paths.
    fn launcher(&self, role: Role) -> Option<Value> {
        let image = self.settings.launcher_image.as_ref()?;
        let resources = Resources {
            gpu: 0,
            ..*self.resources(role)
        };
        Some(object([
            ("name", json!("launcher")),
            ("image", json!(image)),
            ("command", json!(["/paddle", "launch", "--install", OWN])),
            ("resources", requirements(&resources, GPU, self.spec.disk)),
            ("securityContext", self.security()),
            ("volumeMounts", json!([{"name": "own", "mountPath": OWN}])),
        ]))
    }

    fn container(&self, role: Role) -> Value {
        object([
            ("name", json!(role)),
            ("image", json!(self.image)),
            ("command", json!(self.command(role))),
            ("env", json!(self.environment(role))),
            ("resources", self.requirements(role)),
            ("securityContext", self.security()),
            ("volumeMounts", json!(self.mounts())),
            ("workingDir", json!(self.spec.package)),
        ])
    }

    fn requirements(&self, role: Role) -> Value {
        let resources = self.resources(role);
        let gpu = self.settings.pods.resource_for(self.spec, resources);
        requirements(resources, gpu, self.spec.disk)
    }

    fn command(&self, role: Role) -> Vec<String> {
        let spec = self.spec;
        let program = match self.settings.launcher_image {
            Some(_) => format!("{OWN}/bin/paddle"),
            None => "paddle".to_owned(),
        };
        let mut line = vec![
            program,
            "launch".to_owned(),
            format!("--role={role}"),
            format!("--job={}", spec.name),
            format!("--service={}", self.group),
            format!("--trainers={}", spec.parallelism),
            format!("--pservers={}", spec.pservers),
            format!("--ps-ports={}", spec.ps_ports),
            format!("--start-limit={}", duration::print(spec.start_limit)),
            format!("--grace={}", duration::print(spec.grace)),
        ];
        line.extend(self.output().map(|output| format!("--output={output}")));
        let command = match role {
            Role::Pserver => {
                let linger = if spec.retries > 0 {
                    LINGER_WITH_RETRIES
                } else {
                    LINGER
                };
                line.push(format!("--linger={linger}"));
                spec.ps_entry.clone()
            }
            Role::Trainer => spec.trainer_command(),
        };
        line.extend(["--".to_owned(), command]);
        line
    }

    fn home(&self) -> String {
        format!("/pfs/{}/home/{}", self.datacenter, self.user)
    }

    /// In the package if that is writable, otherwise in the user's home. Without a tree, in the image's working folder.
    fn output(&self) -> Option<String> {
        let own = ["home", "user"].map(|word| format!("/pfs/{}/{word}/{}/", self.datacenter, self.user));
        match &self.spec.package {
            Some(package) if own.iter().any(|own| package.starts_with(own)) => {
                Some(format!("{package}/output"))
            }
            _ => {
                (self.settings.volume.as_ref()).map(|_| format!("{}/{}/output", self.home(), self.spec.name))
            }
        }
    }

    fn environment(&self, role: Role) -> Vec<Value> {
        let spec = self.spec;
        let uses_gpu = u8::from(spec.trainer.gpu > 0).to_string();
        let mut own = BTreeMap::from([
            ("PADDLE_CLOUD_USERNAME", self.user.to_string()),
            ("PADDLE_CLOUD_CURRENT_DATACENTER", self.datacenter.to_string()),
            ("PADDLE_INIT_NUM_PASSES", spec.passes.to_string()),
            ("PADDLE_INIT_USE_GPU", uses_gpu),
            ("OMP_NUM_THREADS", self.resources(role).cpu.threads().to_string()),
            ("TOPOLOGY", spec.topology.clone().unwrap_or_default()),
        ]);
        if role == Role::Pserver {
            own.insert("PADDLE_PS_MEMORY", spec.pserver.memory.as_u64().to_string());
        }
        own.retain(|name, _| !spec.envs.contains_key(*name));
        let from_pod = [
            ("POD_IP", "status.podIP"),
            ("JOB_NAMESPACE", "metadata.namespace"),
            ("NAMESPACE", "metadata.namespace"),
        ]
        .map(|(name, path)| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
        let own = own
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}));
        let given = spec
            .envs
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}));
        from_pod.into_iter().chain(own).chain(given).collect()
    }

    fn mounts(&self) -> Vec<Value> {
        let mut mounts = vec![json!({"name": "shm", "mountPath": "/dev/shm"})];
        if self.settings.launcher_image.is_some() {
            mounts.push(json!({"name": "own", "mountPath": OWN}));
            let file = |file| json!({"name": "own", "mountPath": format!("/{file}"), "subPath": format!("files/{file}")});
            mounts.extend(FILES.map(file));
        }
        if self.settings.volume.is_some() {
            mounts.extend(self.parts());
        }
        mounts
    }

    /// The user's home and the public folder, each under both its names.
    fn parts(&self) -> Vec<Value> {
        let (datacenter, user) = (self.datacenter, self.user);
        let at = |path: &str| match self.settings.sub_path.trim_matches('/') {
            "" => path.to_owned(),
            base => format!("{base}/{path}"),
        };
        let home = ["home", "user"].map(|word| {
            json!({"name": "pfs", "mountPath": format!("/pfs/{datacenter}/{word}/{user}"), "subPath": at(&format!("home/{user}"))})
        });
        let public = [format!("/pfs/{datacenter}/public"), "/pfs/public".to_owned()].map(
            |target| json!({"name": "pfs", "mountPath": target, "subPath": at("public"), "readOnly": true}),
        );
        home.into_iter().chain(public).collect()
    }

    fn volumes(&self, role: Role) -> Vec<Value> {
        let memory = self.resources(role).memory.as_u64().to_string();
        let mut volumes = vec![json!({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": memory}})];
        if self.settings.launcher_image.is_some() {
            let limit = self.spec.disk.map(|disk| disk.as_u64().to_string());
            let folder = object([("sizeLimit", json!(limit))]);
            volumes.push(json!({"name": "own", "emptyDir": folder}));
        }
        volumes.extend(self.settings.volume.as_ref().map(|volume| json!(tree(volume))));
        volumes
    }
}

/// Requests equal limits: a worker gets exactly the resources it was promised. Nothing is reserved on the node's disk.
fn requirements(resources: &Resources, gpu: &str, disk: Option<Bytes>) -> Value {
    let cards = (resources.gpu > 0).then(|| resources.gpu.to_string());
    let amounts = object([
        ("cpu", json!(format!("{}m", resources.cpu.as_millis()))),
        ("memory", json!(resources.memory.as_u64().to_string())),
        (gpu, json!(cards)),
    ]);
    let (mut requests, mut limits) = (amounts.clone(), amounts);
    if let Some(disk) = disk {
        requests[DISK] = json!("0");
        limits[DISK] = json!(disk.as_u64().to_string());
    }
    json!({"requests": requests, "limits": limits})
}

fn pod_security(identity: PodIdentity) -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": identity.uid,
        "runAsGroup": identity.gid,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::testing::samples;

    use super::*;

    fn settings() -> PrintSettings {
        PrintSettings {
            launcher_image: Some("paddlecloud/launcher:1".into()),
            default_image: Some("python:3".into()),
            volume: Some(Volume::HostPath("/srv/paddlecloud".into())),
            sub_path: String::new(),
            identity: Some(PodIdentity { uid: 1000, gid: 1000 }),
            pods: PodSettings::default(),
        }
    }

    fn spec(name: &str) -> JobSpec {
        let mut spec = samples::spec(name, 1, 2);
        spec.entry = "python train.py".into();
        spec.snapshot = None;
        spec.package = Some("/pfs/dc1/home/ada/demo".into());
        spec
    }

    fn print(settings: &PrintSettings, spec: &JobSpec) -> Result<Vec<Value>, PrintError> {
        manifests(settings, &"ada".parse().unwrap(), &"dc1".parse().unwrap(), spec)
    }

    #[test]
    fn a_job_by_hand_is_a_service_and_two_indexed_jobs() {
        let objects = print(&settings(), &spec("my-job")).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&objects).unwrap());
    }

    #[test]
    fn an_image_with_everything_needs_no_volume_and_no_init_container() {
        let settings = PrintSettings::default();
        let mut spec = spec("my-job");
        spec.image = Some("team/trainer:1".into());
        assert_eq!(
            print(&settings, &spec),
            Err(PrintError::NoVolume("/pfs/dc1/home/ada/demo".into()))
        );
        spec.package = None;
        spec.pservers = 0;
        let objects = print(&settings, &spec).unwrap();
        assert_eq!(objects.len(), 2, "no parameter servers, no Job for them");
        let pod = &objects[1]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["command"][0], "paddle");
        assert!(pod["initContainers"].is_null() && pod["securityContext"].is_null());
        assert_eq!(pod["volumes"].as_array().unwrap().len(), 1);
        spec.image = None;
        assert_eq!(print(&settings, &spec), Err(PrintError::NoImage));
    }

    #[test]
    fn a_local_folder_cannot_be_printed() {
        let mut spec = spec("my-job");
        spec.snapshot = Some("abc".into());
        assert_eq!(print(&settings(), &spec), Err(PrintError::Upload));
    }

    #[test]
    fn a_type_of_gpus_is_printed_as_the_configuration_defines_it() {
        let mut spec = spec("my-job");
        spec.trainer.gpu = 1;
        spec.gpu_type = Some("a100".parse().unwrap());
        let refused = print(&settings(), &spec).unwrap_err();
        insta::assert_snapshot!(refused, @"`gpu_types` of this server does not say which labels nodes with GPUs of type `a100` have");
        let mut settings = settings();
        settings.pods.gpu_types = crate::settings::tests::a100();
        let objects = print(&settings, &spec).unwrap();
        let pod = |job: usize| objects[job]["spec"]["template"]["spec"].clone();
        let trainer = pod(2);
        assert_eq!(trainer["nodeSelector"], json!({"pool": "a100"}));
        assert_eq!(trainer["tolerations"][0]["key"], "dedicated");
        assert_eq!(
            trainer["containers"][0]["resources"]["limits"]["example.com/gpu"],
            "1"
        );
        assert!(pod(1)["nodeSelector"].is_null(), "parameter servers use no GPUs");
    }

    #[test]
    fn retries_restart_containers_in_place() {
        let mut spec = spec("my-job");
        spec.retries = 3;
        let objects = print(&settings(), &spec).unwrap();
        let job = &objects[1]["spec"];
        assert_eq!(job["backoffLimit"], 3);
        assert_eq!(job["template"]["spec"]["restartPolicy"], "OnFailure");
    }
}
