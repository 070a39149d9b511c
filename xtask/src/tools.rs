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
}

pub const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
};

impl Tool {
    /// Its path once it is installed.
    pub fn path(&self, workspace: &Workspace) -> PathBuf {
        workspace.target().join("tools/bin").join(self.name)
    }

    /// Builds it unless it exists, without optimizations and debug information: optimizing would take longer than the
    /// tests would gain.
    pub fn install(&self, workspace: &Workspace) -> Result<()> {
        if self.path(workspace).is_file() {
            return Ok(());
        }
        step::run(&mut self.installation(workspace))
            .with_context(|| format!("{} cannot be installed here", self.name))
    }

    fn installation(&self, workspace: &Workspace) -> Command {
        let mut install = workspace.cargo(&["install", "--quiet", "--locked", "--debug"]);
        install.arg("--root").arg(workspace.target().join("tools"));
        install
            .args([self.name, "--version", self.version])
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        install
    }
}

/// Installs Python packages and Hadoop and builds every tool and the launcher, one after the other, while other steps run.
pub struct Background {
    building: JoinHandle<()>,
}

impl Background {
    pub fn start(workspace: &Workspace) -> Background {
        let workspace = workspace.clone();
        let building = thread::spawn(move || {
            let mut commands = packages(&workspace);
            if !DENY.path(&workspace).is_file() {
                commands.push(DENY.installation(&workspace));
            }
            commands.push(image::launcher_build(&workspace, "dev"));
            commands.extend(chart::installation(&workspace));
            for mut command in commands {
                // A failure is reported by the step that needs the program: it builds it again.
                let _ = run_quietly(&mut command);
            }
            services::fetch_in_background(&workspace);
        });
        Background { building }
    }

    /// Returns when all are built.
    pub fn wait(self) {
        let _ = self.building.join();
    }
}

/// Those of Python and npm. Most of their time is downloads; the step that runs the tests looks for them first.
fn packages(workspace: &Workspace) -> Vec<Command> {
    let environment = "crates/py/tests/environment.sh";
    let scripts = [
        &[environment, "bare", "--packages"][..],
        &[environment, "paddle", "--packages"],
        &["e2e/schemathesis.sh"],
        &["e2e/oidc/install.sh"],
    ];
    scripts.map(|words| workspace.program("bash", words)).into()
}

/// Runs a command without output.
pub fn run_quietly(command: &mut Command) -> Result<()> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command.status()?;
    anyhow::ensure!(status.success(), "it ended with {status}");
    Ok(())
}
