//! Installs peers with ordinary package managers, into `target/bench-peers` and nowhere else.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Seconds that one installation may take.
const LIMIT: &str = "180";

/// An installed peer.
#[derive(Debug)]
pub struct Installed {
    /// Its name with its version.
    pub name: String,
    /// The folder of its programs.
    pub bin: PathBuf,
}

/// Why a peer is missing, in the words of the package client.
#[derive(Debug)]
pub struct Missing(String);

impl std::fmt::Display for Missing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// A package of PyPI, in a virtual environment that all of them share.
pub fn python_package(name: &str, requirement: &str) -> Result<Installed, Missing> {
    let venv = folder()?.join("venv");
    let bin = venv.join("bin");
    if !bin.join("python").exists() {
        done(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    let version = || {
        let ask = format!("import importlib.metadata as m; print(m.version('{name}'))");
        done(Command::new(bin.join("python")).args(["-c", &ask]))
    };
    let version = match version() {
        Ok(version) => version,
        Err(_) => {
            eprintln!("installing {requirement} ...");
            let pip = bin.join("pip");
            done(limited(&pip).args(["install", "--quiet", requirement]))?;
            version()?
        }
    };
    let shown = match name {
        "hyperqueue" => "HyperQueue",
        _ => "Ray",
    };
    Ok(Installed {
        name: format!("{shown} {version}"),
        bin,
    })
}

/// Debian's package, unpacked beside the rest; where there is none, the one on `PATH`.
pub fn kubectl() -> Result<Installed, Missing> {
    let root = folder()?.join("kubectl");
    let unpacked = root.join("usr/bin");
    if !unpacked.join("kubectl").exists() {
        let downloaded = debian_package("kubernetes-client", &root);
        if let Err(missing) = downloaded {
            return on_path("kubectl").ok_or(missing).and_then(kubectl_in);
        }
    }
    kubectl_in(unpacked)
}

fn kubectl_in(bin: PathBuf) -> Result<Installed, Missing> {
    let reply = done(Command::new(bin.join("kubectl")).args(["version", "--client", "-o", "json"]))?;
    let reply: Value =
        serde_json::from_str(&reply).map_err(|error| Missing(format!("its version is no JSON: {error}")))?;
    let version = reply["clientVersion"]["gitVersion"].as_str().unwrap_or("?");
    Ok(Installed {
        name: format!("kubectl {}", version.trim_start_matches('v')),
        bin,
    })
}

/// Downloads a package and unpacks it, which needs no privileges and changes nothing on the machine.
fn debian_package(name: &str, into: &Path) -> Result<(), Missing> {
    let download = tempfile::tempdir().map_err(|error| Missing(error.to_string()))?;
    let apt = Path::new("apt-get");
    done(limited(apt).args(["download", name]).current_dir(download.path()))?;
    let package = fs::read_dir(download.path())
        .ok()
        .and_then(|mut entries| entries.next()?.ok())
        .ok_or_else(|| Missing(format!("`apt-get download {name}` gave nothing")))?;
    done(Command::new("dpkg-deb").arg("-x").arg(package.path()).arg(into)).map(drop)
}

fn on_path(program: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).find(|folder| folder.join(program).is_file())
}

fn folder() -> Result<PathBuf, Missing> {
    let this = env::current_exe().expect("a running program has a path");
    // target/<profile>/examples/<bench>
    let target = this
        .ancestors()
        .nth(3)
        .expect("cargo builds below its target folder");
    let folder = target.join("bench-peers");
    fs::create_dir_all(&folder).map_err(|error| Missing(format!("{}: {error}", folder.display())))?;
    Ok(folder)
}

fn limited(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT]).arg(program);
    command
}

/// Runs to the end; returns its output, or the last line of its error.
fn done(command: &mut Command) -> Result<String, Missing> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.stdin(Stdio::null()).output().map_err(|error| {
        Missing(format!(
            "cannot run `{}`: {error}",
            command.get_program().display()
        ))
    })?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).trim().to_owned());
    }
    let complaint = String::from_utf8_lossy(&stderr);
    let last = complaint.lines().rfind(|line| !line.trim().is_empty());
    Err(Missing(last.map_or_else(
        || status.to_string(),
        |line| line.trim().to_owned(),
    )))
}
