//! A minimal Debian with Python, made from packages by `debootstrap`, as an archive that is the same every time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::step;
use crate::workspace::is_installed;

const RELEASE: &str = "bookworm";
const PACKAGES: &str = "ca-certificates,python-is-python3,python3,python3-numpy,python3-pip";
/// Where an image based on it gets its packages from.
const SOURCES: &str = "deb http://deb.debian.org/debian bookworm main\n";

/// What belongs to the machine or the moment of the build.
const PRIVATE: [&str; 8] = [
    "etc/hostname",
    "etc/machine-id",
    "etc/resolv.conf",
    "usr/share/doc",
    "usr/share/man",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
];

/// Writes the archive; `folder` is for what is needed on the way.
pub fn archive(folder: &Path, archive: &Path) -> Result<()> {
    for program in ["debootstrap", "tar"] {
        if !is_installed(program) {
            bail!(
                "`{program}` is not installed: run `apt install {program}`, or name an image with Python: `--base IMAGE`"
            );
        }
    }
    let root = folder.join("root");
    remove(&root)?;
    fs::create_dir_all(folder)?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include", PACKAGES, RELEASE]);
    debootstrap.arg(&root).arg(mirror()?).stdout(Stdio::null());
    step::run(&mut debootstrap).context("building a Debian image needs root and a package source")?;
    forget(&root)?;
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--numeric-owner",
        "--mtime=@0",
        "--exclude=./dev/*",
        "-C",
    ]);
    step::run(tar.arg(&root).arg("-cf").arg(archive).arg("."))?;
    remove(&root)
}

/// The source that this machine's own `apt` uses, so that it is known to be reachable.
fn mirror() -> Result<String> {
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        &format!("Codename: {RELEASE}"),
    ]);
    let printed =
        step::capture(targets.args(["Component: main", "Created-By: Packages"])).unwrap_or_default();
    let printed = String::from_utf8_lossy(&printed);
    let first = printed.lines().next().map(str::to_owned);
    first.with_context(|| {
        format!("this machine's `apt` has no source for Debian {RELEASE}: add one and run `apt-get update`")
    })
}

/// Removes what differs between two machines, or two days.
fn forget(root: &Path) -> Result<()> {
    for name in PRIVATE {
        let path = root.join(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {
                fs::remove_dir_all(&path)?;
                fs::create_dir(&path)?;
            }
            Ok(_) => fs::remove_file(&path)?,
            Err(_) => {}
        }
    }
    fs::write(root.join("etc/apt/sources.list"), SOURCES)?;
    for name in ["etc/shadow", "etc/shadow-"] {
        let path = root.join(name);
        if let Ok(text) = fs::read_to_string(&path) {
            fs::write(&path, without_days(&text))?;
        }
    }
    Ok(())
}

/// The list of passwords without the days of their last changes, which are the day of the build.
fn without_days(shadow: &str) -> String {
    let line = |line: &str| {
        let mut fields: Vec<&str> = line.split(':').collect();
        if let Some(day) = fields.get_mut(2) {
            *day = "1";
        }
        fields.join(":") + "\n"
    };
    shadow.lines().map(line).collect()
}

fn remove(root: &Path) -> Result<()> {
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", root.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_of_the_build_is_not_in_the_list_of_passwords() {
        let before = "root:*:20774:0:99999:7:::\nbin:*:20774:0:99999:7:::\n";
        let after = "root:*:1:0:99999:7:::\nbin:*:1:0:99999:7:::\n";
        assert_eq!(without_days(before), after);
    }
}
