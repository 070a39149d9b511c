//! Programs that only the tests need: built from the registry once, into `target/tools`.
//!
//! `cargo xtask ci` builds them in the background, and installs the packages of Python and Java that tests need; a step
//! that needs one waits for it.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

use crate::chart;
use crate::image;
use crate::services;
use crate::step;
use crate::workspace::Workspace;

/// A program of the registry.
pub struct Tool {
    pub name: &'static str,
    pub version: &'static str,
    /// Further arguments of `cargo install`.
    pub args: &'static [&'static str],
}

pub const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    args: &[],
};

pub const S3: Tool = Tool {
    name: "s3s-fs",
    version: "0.14.1",
    args: &["--features", "binary"],
};

impl Tool {
    /// Where it is once it is installed.
    pub fn path(&self, workspace: &Workspace) -> PathBuf {
        workspace.target().join("tools/bin").join(self.name)
    }

    /// Builds it unless it is there, without optimizations and debug information: that takes less time than any test gains.
    pub fn install(&self, workspace: &Workspace) -> Result<()> {
        if self.path(workspace).is_file() {
            return Ok(());
        }
        step::run(&mut self.installation(workspace))
            .with_context(|| format!("{} cannot be installed here", self.name))
    }

    /// Whether the registry offers it to this machine.
    pub fn is_offered(&self, workspace: &Workspace) -> bool {
        let name = format!("{}@{}", self.name, self.version);
        step::capture(&mut workspace.cargo(&["info", "--quiet", &name])).is_ok()
    }

    fn installation(&self, workspace: &Workspace) -> Command {
        let mut install = workspace.cargo(&["install", "--quiet", "--locked", "--debug"]);
        install.arg("--root").arg(workspace.target().join("tools"));
        install
            .args([self.name, "--version", self.version])
            .args(self.args)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        install
    }
}

/// Installs Python packages and Hadoop and builds every tool and the launcher at low priority, one after the other, while
/// other steps run.
pub struct Background {
    building: JoinHandle<()>,
}

impl Background {
    pub fn start(workspace: &Workspace) -> Background {
        let workspace = workspace.clone();
        let building = thread::spawn(move || {
            let mut commands = python_packages(&workspace);
            for tool in [DENY, S3] {
                if !tool.path(&workspace).is_file() {
                    commands.push(tool.installation(&workspace));
                }
            }
            commands.push(image::launcher_build(&workspace, "dev"));
            commands.extend(chart::installation(&workspace));
            for mut command in commands {
                // A failure is reported by the step that needs the program: it builds it again.
                let _ = run_behind(&mut command);
            }
            services::fetch_behind(&workspace);
        });
        Background { building }
    }

    /// Returns when all are built.
    pub fn wait(self) {
        let _ = self.building.join();
    }
}

/// Most of their time is downloads, and tests that need an environment wait for it.
fn python_packages(workspace: &Workspace) -> Vec<Command> {
    let install = |name| {
        let script = "crates/py/tests/environment.sh";
        workspace.program("bash", &[script, name, "--packages"])
    };
    ["bare", "paddle"].into_iter().map(install).collect()
}

/// Runs a command at low priority and without output.
pub fn run_behind(command: &mut Command) -> Result<()> {
    let status = behind(command).status()?;
    anyhow::ensure!(status.success(), "it ended with {status}");
    Ok(())
}

/// The same command at low priority and without output.
fn behind(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "15"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    nice
}
