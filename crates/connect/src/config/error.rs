//! Errors of a configuration: one sentence each, with the line where it helps, and a hint how to fix it.

use std::path::PathBuf;

/// Why no datacenter can be taken from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("there is no configuration at `{}`", .0.display())]
    Missing(PathBuf),
    #[error("`{}` is a folder, not a configuration file", .0.display())]
    Directory(PathBuf),
    #[error("cannot read the configuration `{}`{}: {problem}", path.display(), at_line(*line))]
    Unreadable {
        path: PathBuf,
        line: Option<u64>,
        problem: String,
    },
    #[error("line {line} of `{}` still contains the placeholder `{text}`", path.display())]
    Placeholder { path: PathBuf, line: u64, text: String },
    #[error("`{}` names no datacenter", .0.display())]
    Empty(PathBuf),
    #[error("two datacenters in `{}` are active: `{first}` (line {first_line}) and `{second}` (line {second_line})", path.display())]
    TwoActive {
        path: PathBuf,
        first: String,
        first_line: u64,
        second: String,
        second_line: u64,
    },
    #[error("`{}` has {} datacenters, but none is selected", path.display(), names.len())]
    NoneChosen { path: PathBuf, names: Vec<String> },
    #[error("`{}` has no datacenter `{wanted}`", path.display())]
    Unknown {
        path: PathBuf,
        wanted: String,
        names: Vec<String>,
    },
    #[error("two datacenters in `{}` are called `{name}`", path.display())]
    SameName { path: PathBuf, name: String },
    #[error("datacenter `{name}` (line {line} of `{}`) {problem}", path.display())]
    Entry {
        path: PathBuf,
        line: u64,
        name: String,
        problem: String,
    },
    #[error("datacenter number {number} (line {line} of `{}`) has no name", path.display())]
    Unnamed { path: PathBuf, line: u64, number: usize },
    #[error("there is no datacenter `{0}`: nothing is configured")]
    NothingConfigured(String),
    #[error("cannot write `{}`: {problem}", path.display())]
    Unwritable { path: PathBuf, problem: String },
}

fn at_line(line: Option<u64>) -> String {
    line.map(|line| format!(", line {line}")).unwrap_or_default()
}

impl ConfigError {
    pub fn hints(&self, program: &str) -> Vec<String> {
        let hint = match self {
            ConfigError::Missing(_) => {
                "leave out `--config` and `PADDLE_CONFIG` to use the embedded server of this machine".to_owned()
            }
            ConfigError::Directory(_) => "name the file itself with `--config FILE`".to_owned(),
            ConfigError::Unreadable { .. } => return Vec::new(),
            ConfigError::Placeholder { .. } => {
                "write the value itself there, without brackets; put it in quotes if it has special characters"
                    .to_owned()
            }
            ConfigError::Empty(path) => format!(
                "add one below `datacenters:`, with name, username, password and endpoint, or remove `{}`",
                path.display()
            ),
            ConfigError::TwoActive { first, .. } => {
                format!("keep `active: true` on only one of them: `{program} config use {first}`")
            }
            ConfigError::NoneChosen { names, .. } => {
                format!("choose one: {}", uses(program, names))
            }
            ConfigError::Unknown { wanted, names, .. } => names_like(wanted, names),
            ConfigError::Unnamed { .. } => "add `name:` there; any word will do".to_owned(),
            ConfigError::SameName { .. } => "give each its own `name:`".to_owned(),
            ConfigError::Entry { .. } => return Vec::new(),
            ConfigError::NothingConfigured(_) => {
                format!("describe it in `~/.paddle/config`; until then `{program}` without `--datacenter` uses this machine")
            }
            ConfigError::Unwritable { .. } => return Vec::new(),
        };
        vec![hint]
    }
}

fn uses(program: &str, names: &[String]) -> String {
    let uses: Vec<String> = names
        .iter()
        .map(|name| format!("`{program} config use {name}`"))
        .collect();
    uses.join(" or ")
}

/// The known word that a misspelt one is most like, if it is like any.
pub(super) fn nearest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|name| (strsim::jaro_winkler(name, wanted), name))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

fn names_like(wanted: &str, names: &[String]) -> String {
    match nearest(wanted, names.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("it has: {}", names.join(", ")),
    }
}
