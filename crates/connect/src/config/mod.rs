//! Which server a command talks to: the file `~/.paddle/config` in its three shapes, flags and environment.
//!
//! The file is changed only by `edit`: the selection of a datacenter, or one field of one.

mod edit;
mod error;
mod file;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use paddlecloud_api::client::Endpoint;

use crate::environment::Environment;

pub use self::edit::{SETTABLE, choose, set};
pub use self::error::ConfigError;
pub use self::file::ConfigFile;

/// The name of the embedded server's datacenter.
pub const EMBEDDED: &str = "local";

/// One entry of the configuration, checked.
#[derive(Debug, Clone)]
pub struct Datacenter {
    pub name: String,
    pub endpoint: Endpoint,
    pub username: Option<String>,
    pub password: Option<String>,
    pub token: Option<String>,
    pub usercert: Option<PathBuf>,
    pub userkey: Option<PathBuf>,
    pub cacert: Option<PathBuf>,
    /// Sentences about what the file says without effect.
    pub remarks: Vec<String>,
}

impl Datacenter {
    /// An entry with only an address.
    pub fn at(name: &str, endpoint: Endpoint) -> Datacenter {
        Datacenter {
            name: name.to_owned(),
            endpoint,
            username: None,
            password: None,
            token: None,
            usercert: None,
            userkey: None,
            cacert: None,
            remarks: Vec::new(),
        }
    }

    /// Replaces a leading `~/` of its paths by the user's home, as a shell does.
    fn with_home(mut self, environment: &Environment) -> Datacenter {
        let Some(home) = environment.user_home() else {
            return self;
        };
        let paths = [&mut self.usercert, &mut self.userkey, &mut self.cacert];
        for path in paths.into_iter().flatten() {
            if let Ok(rest) = path.strip_prefix("~") {
                *path = home.join(rest);
            }
        }
        self
    }
}

/// What the caller asked for, in addition to files and environment.
#[derive(Debug, Clone, Default)]
pub struct ConfigOverrides {
    /// Read this file instead of the usual one.
    pub config: Option<PathBuf>,
    /// Use this datacenter instead of the selected one.
    pub datacenter: Option<String>,
}

/// The server a command talks to.
#[derive(Debug, Clone)]
pub enum Choice {
    /// Nothing is configured, or `local` was requested: this machine's own server.
    Embedded,
    Remote(Box<Datacenter>),
}

/// The path of the configuration, and whether it was given explicitly.
#[derive(Debug, Clone)]
pub struct Location {
    pub path: PathBuf,
    pub named: bool,
}

/// The requested file, then `PADDLE_CONFIG`, then `~/.paddle/config`.
pub fn location(overrides: &ConfigOverrides, environment: &Environment) -> Option<Location> {
    if let Some(path) = &overrides.config {
        return Some(Location {
            path: path.clone(),
            named: true,
        });
    }
    if let Some(path) = environment.var("PADDLE_CONFIG") {
        return Some(Location {
            path: PathBuf::from(path),
            named: true,
        });
    }
    let home = environment.paddle_home()?;
    Some(Location {
        path: home.join("config"),
        named: false,
    })
}

/// Reads the configuration; `None` if there is none and none was given.
pub fn load(location: &Location) -> Result<Option<ConfigFile>, ConfigError> {
    match read(&location.path)? {
        Some(text) => ConfigFile::parse(&location.path, text).map(Some),
        None if location.named => Err(ConfigError::Missing(location.path.clone())),
        None => Ok(None),
    }
}

/// Decides which server to talk to.
pub fn choice(overrides: &ConfigOverrides, environment: &Environment) -> Result<Choice, ConfigError> {
    let name = overrides
        .datacenter
        .as_deref()
        .or_else(|| environment.var("PADDLE_DATACENTER"));
    let file = match location(overrides, environment) {
        Some(location) => load(&location)?,
        None => None,
    };
    match (file, name) {
        (None, None) => Ok(Choice::Embedded),
        (None, Some(EMBEDDED)) => Ok(Choice::Embedded),
        (None, Some(name)) => Err(ConfigError::NothingConfigured(name.to_owned())),
        (Some(file), Some(EMBEDDED)) if !file.has(EMBEDDED) => Ok(Choice::Embedded),
        (Some(file), name) => {
            let datacenter = file.datacenter(name)?.with_home(environment);
            Ok(Choice::Remote(Box::new(datacenter)))
        }
    }
}

fn read(path: &Path) -> Result<Option<String>, ConfigError> {
    if path.is_dir() {
        return Err(ConfigError::Directory(path.to_owned()));
    }
    match std::fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| ConfigError::Unreadable {
                path: path.to_owned(),
                line: None,
                problem: "it is not UTF-8 text".to_owned(),
            }),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(ConfigError::Unreadable {
            path: path.to_owned(),
            line: None,
            problem: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_in_a_path_is_the_users_home() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config");
        let text = "dc1:\n  endpoint: https://h\n  usercert: ann.crt\n  userkey: ~/.paddle/user.key\n  cacert: ~ca/x\n";
        std::fs::write(&file, text).unwrap();
        let name = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
        let variables = [(name.to_owned(), "/home/ann".to_owned())];
        let overrides = ConfigOverrides {
            config: Some(file),
            datacenter: None,
        };
        let environment = Environment::from(std::collections::BTreeMap::from(variables));
        let Choice::Remote(datacenter) = choice(&overrides, &environment).unwrap() else {
            panic!("a server is configured");
        };
        let key = Path::new("/home/ann").join(".paddle/user.key");
        assert_eq!(datacenter.userkey, Some(key));
        assert_eq!(datacenter.usercert, Some(PathBuf::from("ann.crt")));
        assert_eq!(
            datacenter.cacert,
            Some(PathBuf::from("~ca/x")),
            "another user's is not known"
        );
    }
}
