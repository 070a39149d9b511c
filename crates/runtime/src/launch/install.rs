//! `paddle launch --install DIR`: run by an init container, so that a worker can use any image.
//!
//! Copies this program, and creates the small files that the worker's container mounts at fixed paths such as
//! `/trainer_id`. They must exist before: a missing one would be mounted as a folder.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::{LaunchError, leaving};

/// Additional names of this program in `DIR/bin`.
const NAMES: [&str; 3] = ["paddle_k8s", "start_paddle", "start_paddle.py"];

/// The files in `DIR/files`.
const FILES: [&str; 5] = ["hosts", "test.list", "train.list", "trainer_count", "trainer_id"];

/// The expected contents of the mark in the server's storage; absent: the mark is not checked.
const MARK_VARIABLE: &str = "PADDLECLOUD_TREE_MARK";
/// Where the mark is mounted.
const MARK: &str = "/paddlecloud/tree/mark";

pub fn install(folder: &Path) -> Result<(), LaunchError> {
    if let Ok(expected) = std::env::var(MARK_VARIABLE) {
        check_mark(Path::new(MARK), &expected).inspect_err(|error| leaving::say(&error.to_string()))?;
    }
    try_install(folder).map_err(|error| {
        let folder = folder.display();
        LaunchError::new(format!("cannot install the launcher in `{folder}`: {error}"))
    })
}

/// A volume that is not the server's storage has no mark, or that of another server.
fn check_mark(mark: &Path, expected: &str) -> Result<(), LaunchError> {
    let found = fs::read_to_string(mark).unwrap_or_default();
    if found == expected {
        return Ok(());
    }
    Err(LaunchError::new(
        "the volume of this pod is not the `storage` of its server: correct `kubernetes.volume`",
    ))
}

fn try_install(folder: &Path) -> io::Result<()> {
    let programs = folder.join("bin");
    fs::create_dir_all(&programs)?;
    let program = programs.join("paddle");
    let _ = fs::remove_file(&program);
    fs::copy("/proc/self/exe", &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    for name in NAMES {
        let link = programs.join(name);
        let _ = fs::remove_file(&link);
        symlink("paddle", &link)?;
    }
    let files = folder.join("files");
    fs::create_dir_all(&files)?;
    for name in FILES {
        File::create(files.join(name))?;
    }
    fs::create_dir_all(folder.join("attempt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_volume_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        assert!(check_mark(&mark, "here").is_err(), "there is none");
        fs::write(&mark, "there").unwrap();
        assert!(check_mark(&mark, "here").is_err());
        fs::write(&mark, "here").unwrap();
        assert!(check_mark(&mark, "here").is_ok());
    }

    #[test]
    fn an_init_container_that_runs_twice_leaves_the_same() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            install(folder.path()).unwrap();
        }
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(fs::read(folder.path().join("bin/paddle_k8s")).unwrap(), own);
        assert_eq!(fs::read(folder.path().join("files/trainer_id")).unwrap(), b"");
        assert!(folder.path().join("attempt").is_dir());
    }
}
