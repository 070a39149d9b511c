//! `cargo xtask portable`: lets the compiler check the client for Windows and macOS, if the tools are installed.
//!
//! Checks that cannot run are skipped, with the missing tool. It links and runs nothing.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::no_arguments;
use crate::step::{self, Steps};
use crate::workspace::{Workspace, is_installed};

/// A system the client is built for.
struct System {
    name: &'static str,
    target: &'static str,
}

const SYSTEMS: [System; 2] = [
    System {
        name: "Windows",
        target: "x86_64-pc-windows-gnu",
    },
    System {
        name: "macOS",
        target: "aarch64-apple-darwin",
    },
];

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    no_arguments("portable", args)?;
    let mut steps = Steps::default();
    for system in &SYSTEMS {
        let title = format!("check the client for {}", system.name);
        match Tools::find(workspace, system) {
            Ok(tools) => steps.run(&title, "read the compiler's messages above", || {
                step::run(&mut tools.cargo(workspace, system))
            }),
            Err(missing) => steps.skip(&title, &format!("{missing:#}")),
        }
    }
    steps.finish()
}

/// The settings to compile for another system.
struct Tools {
    /// Whether the standard library is built from its sources.
    builds_std: bool,
    variables: Vec<(String, PathBuf)>,
}

impl Tools {
    fn find(workspace: &Workspace, system: &System) -> Result<Tools> {
        Ok(Tools {
            builds_std: needs_std_built(workspace, system.target)?,
            variables: match system.name {
                "macOS" => zig(workspace, system.target)?,
                _ => mingw()?,
            },
        })
    }

    fn cargo(&self, workspace: &Workspace, system: &System) -> Command {
        let mut cargo = workspace.cargo(&["check", "--locked", "--package", "paddlecloud"]);
        cargo.args(["--target", system.target]);
        // Separate from the usual builds: the compiler may be another one.
        cargo.arg("--target-dir").arg(workspace.target().join("portable"));
        if self.builds_std {
            cargo
                .arg("-Zbuild-std=std,panic_unwind")
                .env("RUSTC_BOOTSTRAP", "1");
        }
        cargo.envs(self.variables.iter().map(|(name, path)| (name, path)));
        cargo
    }
}

/// Whether the target's standard library must be built first; an error if it can neither be found nor built.
fn needs_std_built(workspace: &Workspace, target: &str) -> Result<bool> {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let printed = |what: &str| -> Result<PathBuf> {
        let args = ["--target", target, "--print", what];
        let path = step::capture(&mut workspace.program(&rustc, &args))?;
        Ok(PathBuf::from(String::from_utf8(path)?.trim()))
    };
    if printed("target-libdir")?.is_dir() {
        return Ok(false);
    }
    let sources = printed("sysroot")?.join("lib/rustlib/src/rust/library/Cargo.lock");
    anyhow::ensure!(
        sources.is_file(),
        "the standard library for {target} is missing: `rustup target add {target}`, or `rustup component add rust-src`; \
         Debian has `rust-web-src`, to be used with its own `rustc-web` and `cargo-web`"
    );
    Ok(true)
}

/// A C compiler for Windows, for our dependencies.
fn mingw() -> Result<Vec<(String, PathBuf)>> {
    anyhow::ensure!(
        is_installed("x86_64-w64-mingw32-gcc"),
        "a C compiler is missing: install `gcc-mingw-w64-x86-64`"
    );
    Ok(Vec::new())
}

/// A C compiler for macOS, from the Python package `ziglang`.
fn zig(workspace: &Workspace, target: &str) -> Result<Vec<(String, PathBuf)>> {
    let found = step::capture(&mut workspace.program("python3", &["-m", "ziglang", "version"]));
    found.context("a C compiler is missing: `pip install ziglang`")?;
    let folder = workspace.target().join("portable");
    fs::create_dir_all(&folder)?;
    let cc = script(&folder.join("macos-cc"), MACOS_CC)?;
    let ar = script(&folder.join("macos-ar"), MACOS_AR)?;
    let name = target.replace('-', "_");
    Ok(vec![(format!("CC_{name}"), cc), (format!("AR_{name}"), ar)])
}

/// Cargo passes Apple's name of the target, which this compiler spells differently.
const MACOS_CC: &str = "#!/bin/sh
for arg do
    shift
    case $arg in
    --target=* | -mmacosx-version-min=*) ;;
    *) set -- \"$@\" \"$arg\" ;;
    esac
done
exec python3 -m ziglang cc -target aarch64-macos \"$@\"
";

const MACOS_AR: &str = "#!/bin/sh
exec python3 -m ziglang ar \"$@\"
";

fn script(path: &Path, text: &str) -> Result<PathBuf> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(path.to_owned())
}
