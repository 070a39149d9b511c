//! `cargo xtask demo`: a real training job on this machine, from an empty home to a fitted line.
//!
//! It keeps everything under `target/demo` and stops the server it started; your own `~/.paddle` is not touched.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::test::{build_programs, python};
use crate::workspace::Workspace;
use crate::{no_arguments, step};

const JOB: &str = "fit-a-line";
const PACKAGE: &str = "examples/fit_a_line";

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    no_arguments("demo", args)?;
    if !cfg!(target_os = "linux") {
        bail!("the demo runs its job on this machine, which needs Linux");
    }
    if python().is_none() {
        bail!("the demo's trainers are Python programs and there is no python3 here; install python3");
    }
    build_programs(workspace)?;
    let demo = Demo::prepare(workspace)?;
    let result = demo.show();
    demo.stop_server();
    result?;
    demo.print_next_steps(workspace);
    Ok(())
}

/// Its own home, and the program under the names people type.
struct Demo {
    root: PathBuf,
    bin: PathBuf,
    home: PathBuf,
    /// A virtual environment with the wheel of this checkout, which the trainers import.
    python: PathBuf,
}

impl Demo {
    fn prepare(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.target().join("demo");
        let demo = Self {
            root: workspace.root().to_owned(),
            bin: folder.join("bin"),
            home: folder.join("home"),
            python: wheel_environment(workspace)?,
        };
        fs::create_dir_all(&demo.home).with_context(|| format!("cannot create {}", demo.home.display()))?;
        fs::create_dir_all(&demo.bin).with_context(|| format!("cannot create {}", demo.bin.display()))?;
        for name in ["paddlectl", "paddlecloud-server", "paddle"] {
            link(&workspace.built_program(), &demo.bin.join(name))?;
        }
        Ok(demo)
    }

    fn show(&self) -> Result<()> {
        let roles = ["-parallelism", "2", "-cpu", "500m", "-memory", "256Mi"];
        let servers = ["-pservers", "2", "-pscpu", "250m", "-psmemory", "128Mi"];
        let mut submit = self.paddlectl(&["submit", "-jobname", JOB]);
        submit
            .args(roles)
            .args(servers)
            .args(["-entry", "python train.py", "-f", PACKAGE]);
        step::run(&mut submit)?;
        eprintln!();
        step::run(&mut self.paddlectl(&["get", "jobs", "-a"]))?;
        eprintln!();
        step::run(&mut self.paddlectl(&["get", "workers", JOB]))
    }

    fn paddlectl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.bin.join("paddlectl"));
        command.args(args).current_dir(&self.root);
        command
            .env("PADDLECLOUD_HOME", &self.home)
            .env("PATH", self.search_path());
        command.env_remove("PADDLE_CONFIG");
        command
    }

    fn search_path(&self) -> OsString {
        let inherited = env::var_os("PATH").unwrap_or_default();
        let own = [self.bin.clone(), self.python.join("bin")];
        let folders = own.into_iter().chain(env::split_paths(&inherited));
        env::join_paths(folders).unwrap_or(inherited)
    }

    /// Also after a failure: nothing that the demo started outlives it.
    fn stop_server(&self) {
        if let Err(error) = step::run(&mut self.paddlectl(&["server", "stop"])) {
            eprintln!("warning: {error:#}");
        }
    }

    fn print_next_steps(&self, workspace: &Workspace) {
        let bin = self
            .bin
            .strip_prefix(workspace.root())
            .unwrap_or(&self.bin)
            .display();
        let home = self
            .home
            .strip_prefix(workspace.root())
            .unwrap_or(&self.home)
            .display();
        eprintln!(
            "
The job ran 2 parameter servers and 2 trainers from {PACKAGE}. What to type next:

  export PATH=\"$PWD/{bin}:$PATH\" PADDLECLOUD_HOME=\"$PWD/{home}\"
  paddlectl logs {JOB}                 what every worker printed
  paddlectl describe {JOB}             what happened, step by step
  paddlectl output {JOB}               what it wrote: the model it learned
  paddlectl submit -f -entry 'python3 train.py' -pservers 0 <your folder>

To keep the program: cargo install --path crates/paddlecloud"
        );
    }
}

/// Created once and kept; the wheel is rebuilt only after a change.
fn wheel_environment(workspace: &Workspace) -> Result<PathBuf> {
    eprintln!("building the Python wheel");
    let mut script = workspace.program("bash", &["crates/py/tests/environment.sh", "demo"]);
    let made = script.stderr(std::process::Stdio::inherit()).output();
    let made = made.context("cannot run crates/py/tests/environment.sh")?;
    if !made.status.success() {
        bail!("the demo's Python environment cannot be made; are numpy and maturin reachable with pip?");
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim_end()))
}

#[cfg(unix)]
fn link(program: &Path, name: &Path) -> Result<()> {
    match fs::remove_file(name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", name.display()));
        }
        _ => {}
    }
    std::os::unix::fs::symlink(program, name).with_context(|| format!("cannot link {}", name.display()))
}

#[cfg(not(unix))]
fn link(program: &Path, name: &Path) -> Result<()> {
    let name = name.with_extension("exe");
    fs::copy(program, &name).with_context(|| format!("cannot copy to {}", name.display()))?;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_an_earlier_demo_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("paddlectl");
        link(Path::new("old"), &name).unwrap();
        link(Path::new("new"), &name).unwrap();
        assert_eq!(fs::read_link(&name).unwrap(), Path::new("new"));
    }
}
