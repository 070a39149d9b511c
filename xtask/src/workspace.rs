//! Paths and commands of the workspace: the repository's root, cargo, the built programs.
//!
//! Runs nothing.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages and features of every cargo command that builds or tests, also that of `crates/py/tests/cargo.sh`. Cargo compiles a dependency again for each other
/// set of features, and each other choice of packages makes another set.
pub const EVERYTHING: [&str; 4] = [
    "--workspace",
    "--locked",
    "--features",
    "paddlecloud/hdfs,paddlecloud/s3,paddlecloud-backends/hdfs,paddlecloud-backends/s3",
];

/// The checkout this xtask was built from.
#[derive(Clone)]
pub struct Workspace {
    root: PathBuf,
    /// Whether clippy compiles our crates.
    lints: bool,
}

impl Workspace {
    pub fn find() -> Self {
        let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest_dir.parent().expect("xtask is one folder below the root");
        Self {
            root: root.to_owned(),
            lints: false,
        }
    }

    /// The same checkout, but its tests and the wheel are compiled by clippy: it is the compiler with more lints, so our
    /// crates are read once and dependencies are not checked beside being compiled. What it builds and what the
    /// compiler builds are kept apart by cargo, so every command of a run has to use the same.
    pub fn with_lints(&self) -> Self {
        Self {
            root: self.root.clone(),
            lints: true,
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The same cargo that runs this task; without lints.
    pub fn cargo(&self, args: &[&str]) -> Command {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(args).current_dir(&self.root);
        forget_this_package(&mut command);
        command
    }

    /// `cargo test` of the whole workspace with all features; `args` choose what is built and run.
    pub fn cargo_test(&self, args: &[&str]) -> Command {
        self.cargo_everything("test", args)
    }

    /// `cargo build`, which compiles the same.
    pub fn cargo_build(&self, args: &[&str]) -> Command {
        self.cargo_everything("build", args)
    }

    fn cargo_everything(&self, verb: &str, args: &[&str]) -> Command {
        let mut command = self.cargo(&[verb]);
        command.args(EVERYTHING).args(args);
        self.choose_compiler(&mut command);
        command
    }

    /// Any other program, started in the root. If it calls cargo, that compiles as the tests were compiled.
    pub fn program(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(name);
        command.args(args).current_dir(&self.root);
        forget_this_package(&mut command);
        self.choose_compiler(&mut command);
        command
    }

    fn choose_compiler(&self, command: &mut Command) {
        if self.lints {
            command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
        }
    }

    /// The folder cargo builds into.
    pub fn target(&self) -> PathBuf {
        match env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => self.root.join(dir),
            None => self.path("target"),
        }
    }

    /// The single executable, as the dev profile builds it.
    pub fn built_program(&self) -> PathBuf {
        self.target()
            .join("debug")
            .join(format!("paddlecloud{}", env::consts::EXE_SUFFIX))
    }
}

/// Removes the variables that describe this package, which `cargo run` has set. Build scripts read variables of the same
/// names, that of ring even asks to be run again when they change: cargo would compile it, and all crates above it, again
/// whenever the caller is another package or a shell.
fn forget_this_package(command: &mut Command) {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| describes_a_package(name)) {
        command.env_remove(name);
    }
}

fn describes_a_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_")
}

/// Whether `name` is in `PATH`.
pub fn is_installed(name: &str) -> bool {
    let Some(path) = env::var_os("PATH") else {
        return false;
    };
    env::split_paths(&path).any(|dir| dir.join(format!("{name}{}", env::consts::EXE_SUFFIX)).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wheel_is_compiled_with_the_features_of_the_tests() {
        let script = include_str!("../../crates/py/tests/cargo.sh");
        assert!(script.contains(&EVERYTHING.join(" ")), "{script}");
    }
}
