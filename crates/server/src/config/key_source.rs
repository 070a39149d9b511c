//! Where the key of users' secrets comes from.

use std::fmt;
use std::path::PathBuf;

/// A place that has keys, one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file of the data folder that the server makes itself.
    Own(PathBuf),
    File(PathBuf),
    /// An environment variable of the server.
    Variable(String),
    /// What a command prints; run by `/bin/sh`.
    Command(String),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Own(path) | KeySource::File(path) => write!(f, "`{}`", path.display()),
            KeySource::Variable(name) => write!(f, "the variable {name}"),
            KeySource::Command(_) => f.write_str("`secrets.key_command`"),
        }
    }
}
