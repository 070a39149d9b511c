//! The server's configuration: a YAML file, or the embedded preset. A `Config` is always checked.
//!
//! Parsing happens here and in `file`; nothing here opens a socket or a database.

mod backend;
mod embedded;
mod error;
mod file;
mod gpu_types;
mod images;
mod kubernetes;
mod listen;
mod machine;
mod oidc;
mod proxies;
mod users;
mod values;
mod workers_python;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use paddlecloud_accounts::AccountSettings;
use paddlecloud_accounts::auth::TokenLimits;
use paddlecloud_accounts::key_source::KeySource;
use paddlecloud_accounts::oidc::OidcConfig;
use paddlecloud_accounts::rates::RateLimits;
use paddlecloud_accounts::tls::TlsFiles;
use paddlecloud_accounts::users::{UidRange, User};
use paddlecloud_core::names::{DatacenterName, UserName};
use paddlecloud_core::quantity::Bytes;
use paddlecloud_core::scheduler::{Inventory, Policy};
use paddlecloud_files::{Backend, FileSettings};
use paddlecloud_k8s::settings::{Namespaces, Placement};
use paddlecloud_store::{DatabaseUrl, Limits};
use paddlecloud_worker::protocol::LogLimits;

pub use embedded::embedded;
pub use error::ConfigError;
pub use images::AllowedImages;
pub use kubernetes::KubernetesConfig;
pub use listen::Listen;
pub use machine::memory as machine_memory;
pub use proxies::{ProxyHeader, TrustedProxies};

/// The checked configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// At least one.
    pub listen: Vec<Listen>,
    pub tls: Option<TlsFiles>,
    /// The server's names for which its own authority issues a certificate.
    pub tls_names: Vec<String>,
    /// Whether other machines may connect without TLS.
    pub plain_http: bool,
    /// Proxies that are believed when they name the address of their client.
    pub trusted_proxies: TrustedProxies,
    /// The server's own folder: database, lock, package store, logs.
    pub data: PathBuf,
    /// Where users' files are stored.
    pub backend: Backend,
    /// What workers see below `/pfs/<datacenter>`; for a remote store, its spool folder.
    pub storage: PathBuf,
    pub datacenter: DatacenterName,
    pub database: DatabaseUrl,
    pub users: Vec<User>,
    /// The limits of users who have none of their own.
    pub default_limits: Limits,
    pub tokens: TokenLimits,
    pub rates: RateLimits,
    /// The provider whose users may log in.
    pub oidc: Option<OidcConfig>,
    /// The source of the key that seals users' secrets.
    pub secrets_key: KeySource,
    /// Uids for database accounts that do not name a system user.
    pub system_uids: Option<UidRange>,
    /// The user of a caller on a Unix socket that runs as the server's own system user.
    pub socket_user: Option<UserName>,
    pub inventory: Inventory,
    pub policy: Policy,
    pub default_image: Option<String>,
    /// The images that jobs may run in, in addition to the default one; `None`: any.
    pub allowed_images: Option<AllowedImages>,
    /// `/metrics` needs a login with the scope `read`.
    pub metrics_login: bool,
    /// A virtual environment whose programs come first in the workers' `PATH`.
    pub python: Option<PathBuf>,
    pub logs: LogConfig,
    pub engine: EngineKind,
    pub embedded: bool,
    /// The program to start as a worker's supervisor; `None`: this program.
    pub program: Option<PathBuf>,
}

/// How much of a worker's log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// Size of one segment file.
    pub segment: Bytes,
    /// Total size of one worker's log; the oldest segments are removed first.
    pub keep: Bytes,
    /// Whether the run's output has a copy of the log, `node_<i>/train.log`.
    pub copy: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            segment: Bytes::mib(16),
            keep: Bytes::mib(1024),
            copy: true,
        }
    }
}

impl LogConfig {
    /// The same for the writers of logs.
    pub fn limits(&self) -> LogLimits {
        LogLimits {
            segment_bytes: self.segment.as_u64(),
            keep_bytes: self.keep.as_u64(),
        }
    }
}

/// The engine that runs the workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineKind {
    /// Processes on this machine.
    Local,
    /// Pods of a Kubernetes cluster.
    Kubernetes(Box<KubernetesConfig>),
}

impl EngineKind {
    /// How long a running job may lack a worker while other jobs need its room; `None`: for ever.
    fn recovery_limit(&self) -> Option<SignedDuration> {
        match self {
            EngineKind::Local => None,
            EngineKind::Kubernetes(kubernetes) => kubernetes.recovery,
        }
    }

    /// Whether workers are processes of the server's own machine: with its programs, its folders and its system users, without
    /// images.
    pub fn uses_own_machine(&self) -> bool {
        match self {
            EngineKind::Local => true,
            EngineKind::Kubernetes(_) => false,
        }
    }

    /// Whether the server knows what its nodes have. Otherwise the cluster places pods.
    pub fn counts_room(&self) -> bool {
        match self {
            EngineKind::Local => true,
            EngineKind::Kubernetes(kubernetes) => {
                kubernetes.placement == Placement::Pinned && kubernetes.namespaces == Namespaces::PerUser
            }
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EngineKind::Local => "local",
            EngineKind::Kubernetes(_) => "kubernetes",
        })
    }
}

impl Config {
    /// Reads and checks a configuration file.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, &error))?;
        // Workers and commands run in other folders.
        let path = std::path::absolute(path).map_err(|error| ConfigError::unreadable(path, &error))?;
        Config::parse(&text, &path)
    }

    /// Checks the text of a configuration file. Relative paths in it are relative to the file's folder.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        file::File::parse(text, path)?.check(path)
    }

    /// What the accounts obey.
    pub fn account_settings(&self) -> AccountSettings<'_> {
        AccountSettings {
            users: &self.users,
            default_limits: self.default_limits,
            system_uids: self.system_uids,
            storage: &self.storage,
        }
    }

    /// What the file service obeys.
    pub fn file_settings(&self) -> FileSettings<'_> {
        FileSettings {
            backend: &self.backend,
            storage: &self.storage,
            data: &self.data,
            datacenter: &self.datacenter,
        }
    }

    pub fn user(&self, name: &UserName) -> Option<&User> {
        self.users.iter().find(|user| user.name == *name)
    }
}
