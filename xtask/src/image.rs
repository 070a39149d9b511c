//! `cargo xtask image`: the images of `deploy/images` with static programs, written as OCI archives.
//!
//! Debian's `buildah` builds them, without a daemon and with every time set to 0: the same sources give the same digest.
//! Nothing is pulled: what `runtime` is built on is made from Debian packages, unless another image is named.

mod debian;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step;
use crate::workspace::Workspace;

const HELP: &str = "\
Usage: cargo xtask image [OPTIONS] [launcher|server|data|runtime]...

Builds images with static programs and writes them to target/images/NAME.tar, all of them if none is named. `runtime` takes
the program and the wheel from `server`.

Options:
  --debug          build the programs and the wheel without optimisations
  --base IMAGE     what `runtime` is built on [default: a Debian 12 with Python and numpy, built here by debootstrap]
  --program FILE   an existing static `paddlecloud`, for every image [default: built here]
  --wheel FILE     the Python wheel that `server` contains for `runtime` [default: built here, as `cargo xtask wheel` does]
  --twice          build everything twice, in separate folders, and compare the digests; takes very long
";

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// A static program links the C library in: one flag is enough, even without musl.
const STATIC: &str = "-C target-feature=+crt-static";

/// The images, each after those it depends on.
const IMAGES: [&str; 4] = ["launcher", "server", "data", "runtime"];

/// The names of the program in each image.
const SERVER_NAMES: [&str; 4] = ["paddlecloud", "paddlectl", "paddlecloud-server", "paddle"];
const DATA_NAMES: [&str; 2] = ["paddle", "paddle-data"];

#[derive(Debug, Default)]
struct Options {
    debug: bool,
    twice: bool,
    base: Option<String>,
    program: Option<PathBuf>,
    wheel: Option<PathBuf>,
    names: Vec<String>,
}

pub fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let Some(options) = parse(args)? else {
        print!("{HELP}");
        return Ok(());
    };
    if step::capture(Command::new("buildah").arg("--version")).is_err() {
        bail!("`buildah` is not installed: run `apt install buildah`");
    }
    let digests = build_all(workspace, &options, "cargo")?;
    if options.twice {
        let again = build_all(workspace, &options, "cargo-again")?;
        for (first, second) in digests.iter().zip(&again) {
            if first != second {
                bail!("two builds of `{}` differ: {} and {}", first.0, first.1, second.1);
            }
        }
    }
    for (name, digest) in &digests {
        println!("{name} {digest} {}", archive(workspace, name).display());
    }
    Ok(())
}

/// One build of images.
struct Build<'a> {
    workspace: &'a Workspace,
    options: &'a Options,
    /// Where cargo builds: not with the tests, because other flags rebuild everything.
    programs: PathBuf,
}

/// The digest of every image, with its name. Builds everything that the folder `programs` lacks.
fn build_all(workspace: &Workspace, options: &Options, programs: &str) -> Result<Vec<(String, String)>> {
    let build = Build {
        workspace,
        options,
        programs: workspace.target().join("images").join(programs),
    };
    let needs_base = options.base.is_none() && options.names.iter().any(|name| name == "runtime");
    if needs_base {
        build.base()?;
    }
    let each = options.names.iter();
    each.map(|name| Ok((name.clone(), build.image(name)?))).collect()
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
            "--program" => options.program = Some(value()?.into()),
            "--wheel" => options.wheel = Some(value()?.into()),
            name if IMAGES.contains(&name) => options.names.push(word.clone()),
            other => bail!("there is no image or option `{other}`; see `cargo xtask image --help`"),
        }
    }
    let all = options.names.is_empty();
    let mut names = IMAGES.map(str::to_owned).to_vec();
    names.retain(|name| all || options.names.contains(name));
    options.names = names;
    Ok(Some(options))
}

impl Build<'_> {
    /// Builds one image and returns its digest.
    fn image(&self, name: &str) -> Result<String> {
        let context = self.context(name)?;
        let mut arguments = Vec::new();
        match name {
            "launcher" => copy_program(&self.launcher()?, &context.join("paddle"))?,
            "server" => {
                self.fill(&context, &SERVER_NAMES)?;
                self.wheel(&context)?;
            }
            "data" => self.fill(&context, &DATA_NAMES)?,
            _ => {
                let base = self.options.base.clone().unwrap_or_else(|| tag("base"));
                arguments = vec![format!("PROGRAM={}", tag("server")), format!("BASE={base}")];
            }
        }
        self.build(name, &context, &arguments)?;
        push(self.workspace, name)
    }

    /// What `runtime` is built on, where no other image is named.
    fn base(&self) -> Result<()> {
        let images = self.workspace.target().join("images");
        let archive = images.join("debian.tar");
        // Kept, because it takes a minute; a second build makes its own.
        let is_kept = archive.exists() && !self.programs.ends_with("cargo-again");
        if !is_kept {
            debian::archive(&images.join("debian"), &archive)?;
        }
        let context = self.context("base")?;
        fs::hard_link(&archive, context.join("debian.tar"))?;
        self.build("base", &context, &[])
    }

    /// A new folder with the repository's files for an image.
    fn context(&self, name: &str) -> Result<PathBuf> {
        let context = self.workspace.target().join("images").join(name);
        let _ = fs::remove_dir_all(&context);
        copy_flat(&self.workspace.path("deploy/images").join(name), &context)?;
        Ok(context)
    }

    fn build(&self, name: &str, context: &Path, arguments: &[String]) -> Result<()> {
        let mut build = buildah(self.workspace);
        let fixed = ["build", "--isolation", "chroot", "--timestamp", "0", "--quiet"];
        build.args(fixed).args(["--tag", &tag(name)]);
        for argument in arguments {
            build.args(["--build-arg", argument]);
        }
        step::run(build.arg(context))
    }

    fn profile(&self) -> &'static str {
        if self.options.debug { "dev" } else { "release" }
    }

    /// `paddle` alone is much smaller than the program with all names.
    fn launcher(&self) -> Result<PathBuf> {
        if let Some(program) = &self.options.program {
            return Ok(program.clone());
        }
        let mut cargo = self.cargo("paddlecloud-runtime", "paddle");
        step::run(cargo.arg("--no-default-features"))?;
        Ok(static_program(&self.programs, self.profile(), "paddle"))
    }

    fn program(&self) -> Result<PathBuf> {
        if let Some(program) = &self.options.program {
            return Ok(program.clone());
        }
        step::run(&mut self.cargo("paddlecloud", "paddlecloud"))?;
        Ok(static_program(&self.programs, self.profile(), "paddlecloud"))
    }

    /// A static program must not depend on the machine that built it.
    fn cargo(&self, package: &str, name: &str) -> Command {
        let mut cargo = static_build(self.workspace, self.profile(), package, name, &self.programs);
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
        let mut flags = STATIC.to_owned();
        let roots = [
            (Some(self.workspace.root().to_owned()), "/paddlecloud"),
            (home, "/cargo"),
        ];
        for (path, name) in roots {
            if let Some(path) = path {
                flags.push_str(&format!(" --remap-path-prefix={}={name}", path.display()));
            }
        }
        flags.push_str(&format!(
            " --remap-path-prefix={}=/build",
            self.programs.display()
        ));
        cargo.env("RUSTFLAGS", flags);
        cargo
    }

    /// The single program under these names, in its own root file system.
    fn fill(&self, context: &Path, names: &[&str]) -> Result<()> {
        let program = self.program()?;
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

    fn wheel(&self, context: &Path) -> Result<()> {
        let wheel = match &self.options.wheel {
            Some(wheel) => wheel.clone(),
            None => self.built_wheel()?,
        };
        let name = wheel.file_name().context("`--wheel` must name a file")?;
        fs::copy(&wheel, context.join("rootfs/usr/share/paddlecloud").join(name))
            .with_context(|| format!("cannot copy `{}`", wheel.display()))?;
        Ok(())
    }

    fn built_wheel(&self) -> Result<PathBuf> {
        let script = match self.options.debug {
            true => "crates/py/tests/build.sh",
            false => "crates/py/release.sh",
        };
        let printed = step::capture(&mut self.workspace.program("bash", &[script]))?;
        let printed = String::from_utf8(printed)?;
        let name = printed
            .lines()
            .last()
            .context("the script prints the wheel's name")?;
        Ok(self.workspace.path(name))
    }
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

/// The program `paddle` alone, static and small, as init containers deliver it; for tests.
pub fn launcher(workspace: &Workspace, profile: &str) -> Result<PathBuf> {
    step::run(&mut launcher_build(workspace, profile))?;
    Ok(static_program(
        &workspace.target().join("static"),
        profile,
        "paddle",
    ))
}

/// The command that builds it.
pub fn launcher_build(workspace: &Workspace, profile: &str) -> Command {
    let folder = workspace.target().join("static");
    let mut cargo = static_build(workspace, profile, "paddlecloud-runtime", "paddle", &folder);
    cargo.arg("--no-default-features");
    cargo
}

/// The command that builds a program which runs in any image. It has its own target folder, because other flags rebuild
/// everything.
fn static_build(workspace: &Workspace, profile: &str, package: &str, name: &str, folder: &Path) -> Command {
    let mut cargo = workspace.cargo(&["build", "--locked", "-p", package, "--bin", name]);
    cargo.args(["--target", TARGET, "--profile", profile, "--target-dir"]);
    cargo.arg(folder).env("RUSTFLAGS", STATIC);
    // CI builds it before its tests, which are compiled with lints and pass this on.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
    cargo
}

fn static_program(folder: &Path, profile: &str, name: &str) -> PathBuf {
    let kind = if profile == "dev" { "debug" } else { profile };
    folder.join(TARGET).join(kind).join(name)
}

/// Without debug information.
fn copy_program(from: &Path, to: &Path) -> Result<()> {
    step::run(Command::new("strip").arg("-o").arg(to).arg(from))?;
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
