//! The server's configuration: a YAML file, or the embedded preset. A `Config` is always checked.
//!
//! Parsing happens here and in `file`; nothing here opens a socket or a database.

mod backend;
mod embedded;
mod error;
mod file;
mod gpu_types;
mod images;
mod key_source;
mod kubernetes;
mod limits;
mod listen;
mod machine;
mod oidc;
mod proxies;
mod system_users;
mod users;
mod values;
mod workers_python;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use paddlecloud_core::names::{DatacenterName, UserName};
use paddlecloud_core::quantity::Bytes;
use paddlecloud_core::scheduler::{Inventory, Policy};
use paddlecloud_k8s::settings::{Namespaces, Placement};
use paddlecloud_worker::protocol::LogLimits;

pub use backend::Backend;
pub use embedded::embedded;
pub use error::ConfigError;
pub use images::{AllowedImages, image_host, usual_host};
pub use key_source::KeySource;
pub use kubernetes::KubernetesConfig;
pub use limits::{LimitError, Limits};
pub use listen::Listen;
pub use machine::memory as machine_memory;
pub use oidc::{OidcConfig, is_safe_address};
pub use proxies::{ProxyHeader, TrustedProxies};
pub use system_users::{SystemUserError, SystemUserMap, SystemUsers};
pub use users::{Credential, RETIRED, User};

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

/// The paths of certificates. With `client_ca`, clients may authenticate with a certificate whose common name is their user name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
}

/// How long tokens are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenLimits {
    /// The lifetime of a token whose request does not specify one.
    pub lifetime: Duration,
    /// The time from a login to the expiry of its last renewed token; also the longest lifetime of one token.
    pub max_age: Duration,
    /// The most valid tokens of one account: those of logins, and the others.
    pub per_user: usize,
}

impl Default for TokenLimits {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        TokenLimits {
            lifetime: 30 * DAY,
            max_age: 365 * DAY,
            per_user: 1000,
        }
    }
}

/// The most requests per second; `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// Of one user.
    pub per_user: Option<u32>,
    /// Of one address, for requests without a login and logins.
    pub before_login: Option<u32>,
}

impl RateLimits {
    pub const NONE: RateLimits = RateLimits {
        per_user: None,
        before_login: None,
    };
}

impl Default for RateLimits {
    fn default() -> Self {
        RateLimits {
            per_user: Some(2000),
            before_login: Some(100),
        }
    }
}

/// A range of uids: the account with number `n` runs as `first + n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    pub first: u32,
    pub last: u32,
}

impl UidRange {
    /// The number of the account with this id, if the range is large enough.
    pub fn number(self, id: u64) -> Option<u32> {
        let number = u32::try_from(id).ok().and_then(|id| self.first.checked_add(id));
        number.filter(|number| *number <= self.last)
    }
}

impl FromStr for UidRange {
    type Err = String;

    fn from_str(text: &str) -> Result<UidRange, String> {
        let numbers = text.split_once('-').and_then(|(first, last)| {
            let range = UidRange {
                first: first.trim().parse().ok()?,
                last: last.trim().parse().ok()?,
            };
            (range.first > 0 && range.first <= range.last).then_some(range)
        });
        numbers.ok_or_else(|| {
            let text = text.escape_debug();
            format!("`system_uids`: `{text}` is not a range of user numbers: write `20000-29999`")
        })
    }
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

/// The URL of the database. `Debug` and `Display` omit the password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    pub fn sqlite_file(path: &Path) -> DatabaseUrl {
        DatabaseUrl(format!("sqlite:{}", path.display()))
    }

    /// The whole URL including the password: for the driver only.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The file of a `sqlite:` URL.
    pub fn sqlite_path(&self) -> Option<&Path> {
        let rest = self.0.strip_prefix("sqlite:")?;
        Some(Path::new(rest.strip_prefix("//").unwrap_or(rest)))
    }

    /// Resolves a relative SQLite file against `base`.
    fn below(self, base: &Path) -> DatabaseUrl {
        match self.sqlite_path() {
            Some(path) => DatabaseUrl::sqlite_file(&base.join(path)),
            None => self,
        }
    }

    fn parse(text: &str) -> Result<DatabaseUrl, String> {
        let postgres = text.starts_with("postgres://") || text.starts_with("postgresql://");
        if postgres || text.strip_prefix("sqlite:").is_some_and(|path| !path.is_empty()) {
            return Ok(DatabaseUrl(text.to_owned()));
        }
        Err("`database` must be `sqlite:/path/to/file` or `postgres://user@host/name`".to_owned())
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            return f.write_str(&self.0);
        };
        let plain = rest.split_once('?').map_or(rest, |(before, _)| before);
        match plain.rsplit_once('@') {
            Some((login, place)) => {
                let user = login.split(':').next().unwrap_or_default();
                write!(f, "{scheme}://{user}@{place}")
            }
            None => write!(f, "{scheme}://{plain}"),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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

    pub fn user(&self, name: &UserName) -> Option<&User> {
        self.users.iter().find(|user| user.name == *name)
    }
}
