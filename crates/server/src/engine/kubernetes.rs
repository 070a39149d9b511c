//! Constructs the Kubernetes engine from the configuration.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_accounts::auth::Secret;
use paddlecloud_accounts::authority::{Authority, AuthorityError};
use paddlecloud_accounts::users::{Account, Users};
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::LogStore;
use paddlecloud_k8s::settings::{PodIdentity, Settings, Volume};
use paddlecloud_k8s::{Accounts, KubernetesEngine, LinkSettings, Options, Tenancy};
use paddlecloud_worker::link::SERVER_NAME;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::config::{Config, KubernetesConfig};

/// Length of the id that distinguishes the servers of a cluster.
const SERVER_DIGITS: usize = 12;

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    #[error(
        "the Kubernetes engine cannot run as root: pods run as the server's own user, which must not be root"
    )]
    Root,
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error("cannot listen on `{address}`, where pods connect")]
    Listen {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("`storage` is `{storage}`, but pods would mount another folder, `{volume}`", storage = .storage.display(), volume = .volume.display())]
    OtherTree { storage: PathBuf, volume: PathBuf },
    #[error(transparent)]
    Engine(#[from] paddlecloud_k8s::StartError),
}

impl KubernetesError {
    /// How to fix it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            KubernetesError::Root => {
                Some("start the server as an ordinary user who owns `data` and `storage`")
            }
            KubernetesError::OtherTree { .. } => {
                Some("set `kubernetes.volume.host_path` to the folder of `storage`")
            }
            KubernetesError::Listen { .. } => Some("correct `kubernetes.link.listen`"),
            KubernetesError::Engine(_) => Some("try `kubectl get nodes` with the same kubeconfig"),
            KubernetesError::Authority(_) => None,
        }
    }
}

/// Connects to the cluster.
pub async fn start(
    config: &Config,
    kubernetes: &KubernetesConfig,
    secret: &Secret,
    users: Users,
    logs: Arc<dyn LogStore>,
) -> Result<KubernetesEngine, KubernetesError> {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return Err(KubernetesError::Root);
    }
    check_tree(&config.storage, &kubernetes.volume, &kubernetes.sub_path)?;
    let authority = Authority::open(&config.data)?;
    let listener = TcpListener::bind(&kubernetes.link_listen)
        .await
        .map_err(|source| KubernetesError::Listen {
            address: kubernetes.link_listen.clone(),
            source,
        })?;
    let identity = PodIdentity {
        uid: uid.as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let options = Options {
        settings: Settings {
            server: server_id(&authority),
            link: kubernetes.link_address.clone(),
            launcher_image: kubernetes.launcher_image.clone(),
            default_image: config.default_image.clone(),
            volume: kubernetes.volume.clone(),
            identity,
            pods: kubernetes.pods.clone(),
            sub_path: kubernetes.sub_path.clone(),
            namespaces: kubernetes.namespaces.clone(),
            namespace_role: kubernetes.namespace_role.clone(),
            placement: kubernetes.placement.clone(),
        },
        kubeconfig: kubernetes.kubeconfig.clone(),
        data: config.data.clone(),
        storage: config.storage.clone(),
        datacenter: config.datacenter.clone(),
        log_limits: config.logs.limits(),
        log_copy: config.logs.copy,
        logs,
        link: LinkSettings {
            listener,
            tls: authority.server_config(SERVER_NAME)?,
            certificate: authority.certificate().to_owned(),
            key: secret.derive("paddlecloud link: secrets of attempts"),
        },
        limits: kubernetes.limits,
        accounts: Arc::new(ClusterAccounts(users)),
    };
    Ok(KubernetesEngine::start(options).await?)
}

/// The server's accounts, as the cluster sees them.
struct ClusterAccounts(Users);

impl Accounts for ClusterAccounts {
    fn tenancy(&self, user: &UserName) -> Tenancy {
        Tenancy {
            namespace: self.0.namespace_of(user),
            quota: self.0.find(user).map(|account| account.quota).unwrap_or_default(),
        }
    }

    fn all(&self) -> Vec<Tenancy> {
        let accounts = self.0.all().into_iter();
        let tenancy = |account: Arc<Account>| Tenancy {
            namespace: account.namespace(),
            quota: account.quota,
        };
        accounts.map(tenancy).collect()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }
}

/// An id that stays the same while the server keeps its data folder.
fn server_id(authority: &Authority) -> String {
    let digest = blake3::hash(authority.certificate().as_bytes()).to_hex();
    digest[..SERVER_DIGITS].to_owned()
}

/// Checks that pods mount the folder that the server prepares. A folder that does not exist on this machine cannot be compared.
fn check_tree(storage: &Path, volume: &Volume, sub_path: &str) -> Result<(), KubernetesError> {
    let Volume::HostPath(folder) = volume else {
        return Ok(());
    };
    let folder = Path::new(folder).join(sub_path);
    let number = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    match (number(storage), number(&folder)) {
        (Ok(ours), Ok(theirs)) if ours != theirs => Err(KubernetesError::OtherTree {
            storage: storage.to_owned(),
            volume: folder,
        }),
        _ => Ok(()),
    }
}
