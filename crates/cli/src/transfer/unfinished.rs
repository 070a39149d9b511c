//! Folders that were begun and not finished: the same command then goes on in the same place.
//!
//! By cp(1)'s rules a folder that the first try has made would swallow the second one. Only a note of this machine: without
//! it, the rules hold as they are.

use std::path::{Path, PathBuf};

use paddlecloud_connect::Environment;
use paddlecloud_pfs::Digest;

use super::rules::Target;

/// The note of one source on its way to one destination.
pub(super) struct Unfinished {
    note: Option<PathBuf>,
}

impl Unfinished {
    pub fn of(source: &str, dest: &str) -> Unfinished {
        let home = Environment::of_this_process().paddle_home();
        let name = Digest::of(format!("{source}\0{dest}").as_bytes()).to_string();
        Unfinished {
            note: home
                .filter(|home| home.is_dir())
                .map(|home| home.join("unfinished").join(&name[..32])),
        }
    }

    /// What counts as the destination: a folder that an unfinished try has made counts as missing.
    pub fn target(&self, target: Target) -> Target {
        let known = self.note.as_ref().is_some_and(|note| note.exists());
        match target {
            Target::Folder if known => Target::Missing,
            other => other,
        }
    }

    /// Notes that the destination is about to be made.
    pub fn begin(&self) {
        if let Some(note) = &self.note
            && let Some(folder) = note.parent()
        {
            let _ = std::fs::create_dir_all(folder);
            let _ = std::fs::write(note, "");
        }
    }

    /// All of it is there.
    pub fn end(&self) {
        if let Some(note) = &self.note {
            let _ = std::fs::remove_file(note);
        }
    }
}

/// A path of this machine, the same wherever the command is typed.
pub(super) fn absolute(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.display().to_string()
}
