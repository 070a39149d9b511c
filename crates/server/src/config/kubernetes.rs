//! `engine: kubernetes` and its settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use paddlecloud_accounts::users::User;
use paddlecloud_core::duration;
use paddlecloud_core::gpu::GpuType;
use paddlecloud_core::quantity::Bytes;
use paddlecloud_core::spec::LEAST_DISK;
use paddlecloud_k8s::settings::{
    EVERYBODY_ELSE, GpuTypeSettings, Limits, Namespaces, Placement, PodSettings, Toleration, Volume,
};
use serde::{Deserialize, Deserializer};

use super::ConfigError;

/// Most characters of a label's value.
const LONGEST_LABEL: usize = 63;

/// How this server reaches its cluster, and the settings of its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// `None`: `KUBECONFIG`, the default file, or the service account of this server's own pod.
    pub kubeconfig: Option<PathBuf>,
    /// The address that this server listens on for launchers, and the address that pods connect to.
    pub link_listen: String,
    pub link_address: String,
    pub launcher_image: String,
    pub volume: Volume,
    /// The folder of `storage` in the volume; empty for its root.
    pub sub_path: String,
    pub pods: PodSettings,
    pub namespaces: Namespaces,
    /// The ClusterRole that the server binds to its own account in each namespace that it creates.
    pub namespace_role: Option<String>,
    /// The most that a worker may write to the disk of its node, and what it may if the job does not say.
    pub disk: Option<Bytes>,
    pub placement: Placement,
    pub limits: Limits,
    /// How long a running job may lack a worker while other jobs need its room; `None`: for ever.
    pub recovery: Option<SignedDuration>,
}

/// The default of `recovery_limit`; Kueue's is the same.
const RECOVERY_LIMIT: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KubernetesEntry {
    kubeconfig: Option<PathBuf>,
    link: LinkEntry,
    launcher_image: String,
    volume: VolumeEntry,
    #[serde(default)]
    node_selector: BTreeMap<String, String>,
    #[serde(default)]
    tolerations: Vec<Toleration>,
    priority_class: Option<String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    /// By user; `*` is for all others.
    namespaces: Option<BTreeMap<String, String>>,
    namespace_role: Option<String>,
    disk: Option<Disk>,
    #[serde(default)]
    placement: PlacementEntry,
    queue: Option<String>,
    seat_limit: Option<Span>,
    recovery_limit: Option<Recovery>,
    lost_limit: Option<Span>,
    trouble_limit: Option<Span>,
    api_limit: Option<Span>,
    disruption_limit: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PlacementEntry {
    #[default]
    Pinned,
    OnDemand,
    Kueue,
    Volcano,
}

/// A nonzero duration.
#[derive(Debug, Clone, Copy)]
struct Span(Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        use serde::de::Error as _;
        let text = super::values::text(deserializer)?;
        let span = duration::parse(&text).map_err(D::Error::custom)?;
        match Duration::try_from(span) {
            Ok(span) if !span.is_zero() => Ok(Span(span)),
            _ => Err(D::Error::custom("a limit of zero would end every job")),
        }
    }
}

/// `off`, or a nonzero duration.
#[derive(Debug, Clone, Copy)]
struct Recovery(Option<SignedDuration>);

impl<'de> Deserialize<'de> for Recovery {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Recovery, D::Error> {
        use serde::de::Error as _;
        let text = super::values::text(deserializer)?;
        // YAML 1.1 parsers read `off` as false.
        if ["off", "false"].contains(&text.as_str()) {
            return Ok(Recovery(None));
        }
        match duration::parse(&text) {
            Ok(span) if span.is_positive() => Ok(Recovery(Some(span))),
            Ok(_) => Err(D::Error::custom("a limit of zero would end every job")),
            Err(error) => Err(D::Error::custom(format!(
                "`recovery_limit` is `off` or a time: {error}"
            ))),
        }
    }
}

/// Room for the launcher at least.
#[derive(Debug, Clone, Copy)]
struct Disk(Bytes);

impl<'de> Deserialize<'de> for Disk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Disk, D::Error> {
        use serde::de::Error as _;
        let text = super::values::text(deserializer)?;
        let disk: Bytes = text.parse().map_err(D::Error::custom)?;
        match disk >= LEAST_DISK {
            true => Ok(Disk(disk)),
            false => Err(D::Error::custom(format!(
                "a pod needs at least {} for its launcher, not {}",
                LEAST_DISK.readable(),
                disk.readable()
            ))),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    listen: String,
    /// Default: the listening address.
    address: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeEntry {
    host_path: Option<PathBuf>,
    claim: Option<String>,
    nfs: Option<NfsEntry>,
    csi: Option<CsiEntry>,
    #[serde(default)]
    sub_path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CsiEntry {
    driver: String,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NfsEntry {
    server: String,
    path: String,
}

impl KubernetesEntry {
    pub(super) fn check(self, users: &[User], path: &Path) -> Result<KubernetesConfig, ConfigError> {
        let base = path.parent().unwrap_or(Path::new("."));
        let listen = address(&self.link.listen, "kubernetes.link.listen", path)?;
        let reached = match &self.link.address {
            Some(reached) => address(reached, "kubernetes.link.address", path)?,
            None if is_everywhere(&listen) => {
                let problem = format!(
                    "pods cannot connect to `{listen}`, which stands for every address of this machine"
                );
                return Err(ConfigError::in_file(path, problem)
                    .with_hint("set `kubernetes.link.address` to an address that pods can reach"));
            }
            None => listen.clone(),
        };
        let placement = placement(self.placement, self.queue, path)?;
        let usual = Limits::usual(&placement);
        let limit = |given: Option<Span>, usual| given.map_or(usual, |span| span.0);
        Ok(KubernetesConfig {
            limits: Limits {
                seat: limit(self.seat_limit, usual.seat),
                lost: limit(self.lost_limit, usual.lost),
                trouble: limit(self.trouble_limit, usual.trouble),
                api_server: limit(self.api_limit, usual.api_server),
                disruptions: self.disruption_limit.unwrap_or(usual.disruptions),
            },
            recovery: self.recovery_limit.map_or(Some(RECOVERY_LIMIT), |limit| limit.0),
            namespace_role: namespace_role(self.namespace_role, self.namespaces.is_some(), path)?,
            namespaces: namespaces(self.namespaces, users, path)?,
            disk: self.disk.map(|disk| disk.0),
            placement,
            sub_path: sub_path(&self.volume.sub_path, path)?,
            kubeconfig: self.kubeconfig.map(|file| base.join(file)),
            link_listen: listen,
            link_address: reached,
            launcher_image: self.launcher_image,
            volume: self.volume.check(path)?,
            pods: PodSettings {
                node_selector: self.node_selector,
                tolerations: self.tolerations,
                priority_class: self.priority_class,
                annotations: self.annotations,
                gpu_types: BTreeMap::new(),
            },
        })
    }
}

impl KubernetesConfig {
    /// Adds the types of GPUs, unless their labels contradict the node selector of all pods.
    pub(super) fn define_gpu_types(
        &mut self,
        types: BTreeMap<GpuType, GpuTypeSettings>,
        path: &Path,
    ) -> Result<(), ConfigError> {
        for (name, of_type) in &types {
            if let Some((key, value)) = self.other_value(&of_type.labels) {
                let problem = format!(
                    "no pod can have GPUs of `gpu_types.{name}`: `kubernetes.node_selector` requires `{key}={value}`"
                );
                return Err(ConfigError::in_file(path, problem));
            }
        }
        self.pods.gpu_types = types;
        Ok(())
    }

    /// A label of the node selector of which these labels have another value.
    pub fn other_value(&self, labels: &BTreeMap<String, String>) -> Option<(&String, &String)> {
        let differs =
            |(key, value): &(&String, &String)| labels.get(*key).is_some_and(|other| other != *value);
        self.pods.node_selector.iter().find(differs)
    }
}

fn placement(entry: PlacementEntry, queue: Option<String>, path: &Path) -> Result<Placement, ConfigError> {
    match (entry, queue) {
        (PlacementEntry::Pinned, None) => Ok(Placement::Pinned),
        (PlacementEntry::OnDemand, None) => Ok(Placement::OnDemand),
        (PlacementEntry::Kueue, Some(queue)) => Ok(Placement::Kueue { queue }),
        (PlacementEntry::Volcano, queue) => Ok(Placement::Volcano {
            queue: queue.unwrap_or_else(|| "default".to_owned()),
        }),
        (PlacementEntry::Kueue, None) => {
            let problem = "`kubernetes.placement: kueue` needs `kubernetes.queue`, the name of a LocalQueue";
            Err(ConfigError::in_file(path, problem))
        }
        (PlacementEntry::Pinned | PlacementEntry::OnDemand, Some(_)) => {
            let problem = "`kubernetes.queue` is for `placement: kueue` and `placement: volcano`";
            Err(ConfigError::in_file(path, problem))
        }
    }
}

fn namespaces(
    given: Option<BTreeMap<String, String>>,
    users: &[User],
    path: &Path,
) -> Result<Namespaces, ConfigError> {
    let Some(given) = given else {
        return Ok(Namespaces::PerUser);
    };
    let lacks = |user: &&User| !given.contains_key(user.name.as_str());
    match users.iter().find(lacks) {
        Some(user) if !given.contains_key(EVERYBODY_ELSE) => {
            let problem = format!("user `{}` has no namespace in `kubernetes.namespaces`", user.name);
            Err(ConfigError::in_file(path, problem).with_hint("add the user, or `\"*\"` for everybody else"))
        }
        _ => Ok(Namespaces::Given(given)),
    }
}

/// The role's name is also the value of a label.
fn namespace_role(
    role: Option<String>,
    namespaces_are_given: bool,
    path: &Path,
) -> Result<Option<String>, ConfigError> {
    let Some(role) = role else { return Ok(None) };
    if namespaces_are_given {
        let problem = "`kubernetes.namespace_role` is for servers that create namespaces, not for `kubernetes.namespaces`";
        return Err(ConfigError::in_file(path, problem)
            .with_hint("leave it out, and bind the role in the given namespaces yourself"));
    }
    let is_alphanumeric = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    match role.len() <= LONGEST_LABEL
        && role.chars().all(allowed)
        && is_alphanumeric(role.chars().next())
        && is_alphanumeric(role.chars().last())
    {
        true => Ok(Some(role)),
        false => {
            let problem = format!(
                "`kubernetes.namespace_role` must be the name of a ClusterRole with at most {LONGEST_LABEL} letters, \
                 digits, `-`, `.` and `_`, not `{role}`"
            );
            Err(ConfigError::in_file(path, problem))
        }
    }
}

fn sub_path(text: &str, path: &Path) -> Result<String, ConfigError> {
    let parts = text.trim_matches('/').split('/');
    if parts.clone().any(|part| part == "..") {
        let problem = format!("`kubernetes.volume.sub_path` must stay in the volume, not `{text}`");
        return Err(ConfigError::in_file(path, problem));
    }
    Ok(text.trim_matches('/').to_owned())
}

fn address(text: &str, setting: &str, path: &Path) -> Result<String, ConfigError> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => {
            let problem = format!("`{setting}` must be `host:port`, not `{text}`");
            Err(ConfigError::in_file(path, problem))
        }
    }
}

fn is_everywhere(address: &str) -> bool {
    address.starts_with("0.0.0.0:") || address.starts_with("[::]:")
}

impl VolumeEntry {
    fn check(self, path: &Path) -> Result<Volume, ConfigError> {
        match (self.host_path, self.claim, self.nfs, self.csi) {
            (Some(folder), None, None, None) if folder.is_absolute() => {
                Ok(Volume::HostPath(folder.to_string_lossy().into_owned()))
            }
            (Some(folder), None, None, None) => {
                let problem = format!(
                    "`kubernetes.volume.host_path` must be absolute, not `{}`",
                    folder.display()
                );
                Err(ConfigError::in_file(path, problem))
            }
            (None, Some(claim), None, None) => Ok(Volume::Claim(claim)),
            (None, None, Some(nfs), None) => Ok(Volume::Nfs {
                server: nfs.server,
                path: nfs.path,
            }),
            (None, None, None, Some(csi)) => Ok(Volume::Csi {
                driver: csi.driver,
                attributes: csi.attributes,
            }),
            _ => {
                let problem = "`kubernetes.volume` must have one of `host_path`, `claim`, `nfs` and `csi`";
                Err(ConfigError::in_file(path, problem))
            }
        }
    }
}
