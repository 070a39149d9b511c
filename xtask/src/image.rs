//! `cargo xtask image`: the images of `deploy/images` with static programs, written as OCI archives.
//!
//! Debian's `buildah` builds them, without a daemon and with every time set to 0: the same sources give the same digest.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step;
use crate::workspace::Workspace;

const HELP: &str = "\
Usage: cargo xtask image [OPTIONS] [launcher|server|data|runtime]...

Builds images with static programs and writes them to target/images/NAME.tar. Without names: launcher, server and data.

Options:
  --debug          build the programs without optimisations
  --base IMAGE     what `runtime` is built on [default: python:3.12-slim]
  --wheel FILE     the Python wheel that `server` carries for `runtime`; `cargo xtask wheel` makes it
  --twice          build everything twice and compare the digests
";

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// A static program has no C library to share: one flag does it, also where there is no musl.
const STATIC: &str = "-C target-feature=+crt-static";

/// The names of the program in each image.
const SERVER_NAMES: [&str; 4] = ["paddlecloud", "paddlectl", "paddlecloud-server", "paddle"];
const DATA_NAMES: [&str; 2] = ["paddle", "paddle-data"];

#[derive(Debug, Default)]
struct Options {
    debug: bool,
    twice: bool,
    base: Option<String>,
    wheel: Option<PathBuf>,
    names: Vec<String>,
}

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let Some(options) = parse(args)? else {
        print!("{HELP}");
        return Ok(());
    };
    if step::capture(Command::new("buildah").arg("--version")).is_err() {
        bail!("`buildah` is not here; Debian's package `buildah` has it");
    }
    for name in &options.names {
        let digest = build(workspace, &options, name)?;
        if options.twice {
            let again = build(workspace, &options, name)?;
            if again != digest {
                bail!("two builds of `{name}` differ: {digest} and {again}");
            }
        }
        println!("{name} {digest} {}", archive(workspace, name).display());
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Option<Options>> {
    let mut options = Options::default();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .cloned()
                .with_context(|| format!("`{word}` needs a value"))
        };
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--debug" => options.debug = true,
            "--twice" => options.twice = true,
            "--base" => options.base = Some(value()?),
            "--wheel" => options.wheel = Some(value()?.into()),
            "launcher" | "server" | "data" | "runtime" => options.names.push(word.clone()),
            other => bail!("there is no image or option `{other}`; see `cargo xtask image --help`"),
        }
    }
    if options.names.is_empty() {
        options.names = ["launcher", "server", "data"].map(str::to_owned).into();
    }
    Ok(Some(options))
}

/// Builds one image and says its digest.
fn build(workspace: &Workspace, options: &Options, name: &str) -> Result<String> {
    let context = workspace.target().join("images").join(name);
    let _ = fs::remove_dir_all(&context);
    copy_flat(&workspace.path("deploy/images").join(name), &context)?;
    let mut arguments = Vec::new();
    match name {
        "launcher" => copy_program(&launcher(workspace, profile(options))?, &context.join("paddle"))?,
        "server" => {
            fill(workspace, options, &context, &SERVER_NAMES)?;
            wheel(options, &context)?;
        }
        "data" => fill(workspace, options, &context, &DATA_NAMES)?,
        _ => {
            arguments.push(format!("PROGRAM={}", tag("server")));
            arguments.extend(options.base.as_ref().map(|base| format!("BASE={base}")));
        }
    }
    let mut build = buildah(workspace);
    build.args([
        "build",
        "--isolation",
        "chroot",
        "--timestamp",
        "0",
        "--quiet",
        "--tag",
    ]);
    build.arg(tag(name));
    for argument in &arguments {
        build.args(["--build-arg", argument]);
    }
    step::run(build.arg(&context))?;
    push(workspace, name)
}

/// Writes the archive; the digest is that of the image in it.
fn push(workspace: &Workspace, name: &str) -> Result<String> {
    let (archive, digest) = (archive(workspace, name), workspace.target().join("images/digest"));
    let _ = fs::remove_file(&archive);
    let mut push = buildah(workspace);
    push.args(["push", "--quiet", "--digestfile"])
        .arg(&digest)
        .arg(tag(name));
    push.arg(format!("oci-archive:{}:{}", archive.display(), tag(name)));
    step::run(&mut push)?;
    Ok(fs::read_to_string(digest)?.trim().to_owned())
}

/// Images are kept below `target`, apart from those of the machine.
fn buildah(workspace: &Workspace) -> Command {
    let storage = workspace.target().join("images/storage");
    let mut buildah = Command::new("buildah");
    buildah
        .args(["--storage-driver", "vfs", "--root"])
        .arg(storage.join("root"));
    buildah.arg("--runroot").arg(storage.join("run"));
    buildah
}

fn tag(name: &str) -> String {
    format!("paddlecloud/{name}:{}", env!("CARGO_PKG_VERSION"))
}

fn archive(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.target().join("images").join(format!("{name}.tar"))
}

fn profile(options: &Options) -> &'static str {
    if options.debug { "dev" } else { "release" }
}

/// The program `paddle` alone, static and small, as init containers deliver it.
pub fn launcher(workspace: &Workspace, profile: &str) -> Result<PathBuf> {
    step::run(&mut launcher_build(workspace, profile))?;
    Ok(static_program(workspace, profile, "paddle"))
}

/// The command that builds it.
pub fn launcher_build(workspace: &Workspace, profile: &str) -> Command {
    let mut cargo = static_build(workspace, profile, "paddlecloud-runtime", "paddle");
    cargo.arg("--no-default-features");
    cargo
}

/// The command that builds a program which runs in any image. It has its own target folder, because other flags rebuild
/// everything.
fn static_build(workspace: &Workspace, profile: &str, package: &str, name: &str) -> Command {
    let mut cargo = workspace.cargo(&["build", "--locked", "-p", package, "--bin", name]);
    cargo.args(["--target", TARGET, "--profile", profile, "--target-dir"]);
    cargo.arg(static_folder(workspace)).env("RUSTFLAGS", STATIC);
    cargo
}

fn static_program(workspace: &Workspace, profile: &str, name: &str) -> PathBuf {
    let folder = if profile == "dev" { "debug" } else { profile };
    static_folder(workspace).join(TARGET).join(folder).join(name)
}

fn static_folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("static")
}

/// The one program under these names, in a root file system of its own.
fn fill(workspace: &Workspace, options: &Options, context: &Path, names: &[&str]) -> Result<()> {
    let profile = profile(options);
    step::run(&mut static_build(
        workspace,
        profile,
        "paddlecloud",
        "paddlecloud",
    ))?;
    let program = static_program(workspace, profile, "paddlecloud");
    let programs = context.join("rootfs/usr/local/bin");
    fs::create_dir_all(&programs)?;
    for folder in ["tmp", "var/lib/paddlecloud", "usr/share/paddlecloud"] {
        let folder = context.join("rootfs").join(folder);
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    }
    copy_program(&program, &programs.join("paddlecloud"))?;
    for name in names.iter().filter(|name| **name != "paddlecloud") {
        symlink("paddlecloud", programs.join(name))?;
    }
    Ok(())
}

fn wheel(options: &Options, context: &Path) -> Result<()> {
    let Some(wheel) = &options.wheel else {
        eprintln!("note: without `--wheel`, images built on this one have no Python package");
        return Ok(());
    };
    let name = wheel.file_name().context("`--wheel` must name a file")?;
    fs::copy(wheel, context.join("rootfs/usr/share/paddlecloud").join(name))
        .with_context(|| format!("cannot copy `{}`", wheel.display()))?;
    Ok(())
}

fn copy_program(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy `{}`", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn copy_flat(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read `{}`", from.display()))? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
