//! The source of the key that seals users' secrets.

use std::fmt;
use std::path::PathBuf;

/// A source of keys, one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file in the data folder that the server creates itself.
    Own(PathBuf),
    File(PathBuf),
    /// An environment variable of the server.
    Variable(String),
    /// The output of a command, run by `/bin/sh`.
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
