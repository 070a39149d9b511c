//! The server's configuration: a YAML file, or the embedded preset. What exists is checked.
//!
//! Reading happens here and in `file`; nothing here opens a socket or a database.

mod backend;
mod embedded;
mod error;
mod file;
mod listen;
mod machine;
mod system_users;
mod users;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use paddlecloud_core::names::{DatacenterName, UserName};
use paddlecloud_core::quantity::Bytes;
use paddlecloud_core::scheduler::{Inventory, Policy};

pub use backend::Backend;
pub use embedded::embedded;
pub use error::ConfigError;
pub use listen::Listen;
pub use system_users::{SystemUserError, SystemUsers};
pub use users::{Credential, User};

/// Everything the server must know before it starts.
#[derive(Debug, Clone)]
pub struct Config {
    /// At least one.
    pub listen: Vec<Listen>,
    pub tls: Option<TlsFiles>,
    /// The server's own folder: database, lock, package store, logs.
    pub data: PathBuf,
    /// Where users' files lie.
    pub backend: Backend,
    /// What workers see below `/pfs/<datacenter>`; for a store elsewhere, what is on its way there.
    pub storage: PathBuf,
    pub datacenter: DatacenterName,
    pub database: DatabaseUrl,
    pub users: Vec<User>,
    /// Who a caller on a unix socket is when it runs as the server's own system user.
    pub socket_user: Option<UserName>,
    pub inventory: Inventory,
    pub policy: Policy,
    pub default_image: Option<String>,
    pub logs: LogLimits,
    pub engine: EngineKind,
    pub embedded: bool,
    /// What is started as the supervisor of a worker; `None`: this very program.
    pub program: Option<PathBuf>,
}

/// Where certificates lie. With `client_ca`, callers may show one whose common name is their user name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
}

/// How much of a worker's log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes of one file before the next begins.
    pub segment: Bytes,
    /// Bytes of one worker's log altogether; the oldest segments go first.
    pub keep: Bytes,
}

impl Default for LogLimits {
    fn default() -> Self {
        LogLimits {
            segment: Bytes::mib(16),
            keep: Bytes::mib(1024),
        }
    }
}

/// What runs the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// Processes of this machine.
    Local,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("local")
    }
}

/// The address of the database. Printing it leaves the password out.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    pub fn sqlite_file(path: &Path) -> DatabaseUrl {
        DatabaseUrl(format!("sqlite:{}", path.display()))
    }

    /// The whole address, password and all: for the driver only.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The file behind a `sqlite:` address.
    pub fn sqlite_path(&self) -> Option<&Path> {
        let rest = self.0.strip_prefix("sqlite:")?;
        Some(Path::new(rest.strip_prefix("//").unwrap_or(rest)))
    }

    /// With a relative file starting at `base`.
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
        Config::parse(&text, path)
    }

    /// Checks the text of a configuration file. Relative paths in it start at the file's folder.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        file::File::parse(text, path)?.check(path)
    }

    pub fn user(&self, name: &UserName) -> Option<&User> {
        self.users.iter().find(|user| user.name == *name)
    }
}
