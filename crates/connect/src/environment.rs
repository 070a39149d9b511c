//! The caller's environment variables, and the paths they name. Tests provide their own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Deref;
use std::path::PathBuf;

/// The variables of the submitter's shell that a program on this machine relies on.
const SHELL_ENV: [&str; 8] = [
    "PATH",
    "HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "PYTHONPATH",
    "LANG",
    "TZ",
];

/// A snapshot of environment variables.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// This process's own; values that are not text are omitted.
    pub fn of_this_process() -> Environment {
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Environment(std::env::vars_os().filter_map(text).collect())
    }

    /// A variable that is set and not empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The folder of configuration, tokens and the embedded server's data.
    pub fn paddle_home(&self) -> Option<PathBuf> {
        if let Some(folder) = self.var("PADDLECLOUD_HOME") {
            return std::path::absolute(folder).ok();
        }
        std::path::absolute(self.user_home()?.join(".paddle")).ok()
    }

    /// The user's own home folder.
    pub fn user_home(&self) -> Option<PathBuf> {
        let home = self.var(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
        home.map(PathBuf::from)
    }

    /// The folder of the virtual environment that is active in the shell, of conda too.
    pub fn python_environment(&self) -> Option<&str> {
        self.var("VIRTUAL_ENV").or_else(|| self.var("CONDA_PREFIX"))
    }

    /// The part of the shell's environment that is sent to a server on the same machine.
    pub fn shell(&self) -> BTreeMap<String, String> {
        let comes_along = |name: &str| SHELL_ENV.contains(&name) || name.starts_with("LC_");
        let all = self
            .0
            .iter()
            .filter(|(name, value)| comes_along(name) && !value.is_empty());
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

impl From<BTreeMap<String, String>> for Environment {
    fn from(variables: BTreeMap<String, String>) -> Environment {
        Environment(variables)
    }
}

impl Deref for Environment {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_necessary_shell_variables_are_passed_on() {
        let pairs = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("LANG", ""),
            ("AWS_SECRET", "x"),
        ];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let shell = Environment::from(BTreeMap::from(pairs)).shell();
        assert_eq!(shell.keys().collect::<Vec<_>>(), ["LC_ALL", "PATH"]);
    }
}
