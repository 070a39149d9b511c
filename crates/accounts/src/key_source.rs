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
            KeySource::Command(_) => f.write_str("the configured command"),
        }
    }
}

impl KeySource {
    /// The lines that are not empty, or what is wrong.
    pub fn lines(&self) -> Result<Vec<String>, String> {
        let text = match self {
            KeySource::Own(path) | KeySource::File(path) => {
                std::fs::read_to_string(path).map_err(|error| error.to_string())?
            }
            KeySource::Variable(name) => std::env::var(name).map_err(|error| error.to_string())?,
            KeySource::Command(command) => printed_by(command)?,
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        match lines.is_empty() {
            true => Err("it is empty".to_owned()),
            false => Ok(lines),
        }
    }
}

fn printed_by(command: &str) -> Result<String, String> {
    let output = std::process::Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("it ended with {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| "it printed no text".to_owned())
}
