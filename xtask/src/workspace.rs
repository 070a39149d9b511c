//! Where things are: the repository's root, cargo, the built programs.
//!
//! Runs nothing; it only hands out paths and prepared commands.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The checkout this xtask was built from.
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    pub fn find() -> Self {
        let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest_dir
            .parent()
            .expect("xtask lies one folder below the root");
        Self {
            root: root.to_owned(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The same cargo that runs this task.
    pub fn cargo(&self, args: &[&str]) -> Command {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(args).current_dir(&self.root);
        command
    }

    /// Any other program, started in the root.
    pub fn program(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(name);
        command.args(args).current_dir(&self.root);
        command
    }

    /// The folder cargo builds into.
    pub fn target(&self) -> PathBuf {
        match env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => self.root.join(dir),
            None => self.path("target"),
        }
    }

    /// The one program that answers to every name, as the dev profile builds it.
    pub fn built_program(&self) -> PathBuf {
        self.target()
            .join("debug")
            .join(format!("paddlecloud{}", env::consts::EXE_SUFFIX))
    }
}

/// Whether `name` can be run from `PATH`.
pub fn is_installed(name: &str) -> bool {
    let Some(path) = env::var_os("PATH") else {
        return false;
    };
    env::split_paths(&path).any(|dir| dir.join(format!("{name}{}", env::consts::EXE_SUFFIX)).is_file())
}
