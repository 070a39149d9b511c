//! Folders that were begun and not finished: the same command then goes on in the same place.
//!
//! By cp(1)'s rules a folder that the first try has made would swallow the second one. Only a note of this machine: without
//! it, the rules hold as they are. It is not believed for long: a folder of that name may be another by then.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use paddlecloud_connect::Environment;
use paddlecloud_pfs::Digest;
use paddlecloud_pfs::staging::KEEP_UNFINISHED;

use super::rules::Target;

/// The note of one source on its way to one destination.
pub(super) struct Unfinished {
    note: Option<PathBuf>,
}

impl Unfinished {
    pub fn of(source: &str, dest: &str) -> Unfinished {
        let home = Environment::of_this_process().paddle_home();
        let home = home.filter(|home| home.is_dir());
        match home.map(|home| home.join("unfinished")) {
            Some(folder) => Unfinished::noted_in(&folder, source, dest),
            None => Unfinished { note: None },
        }
    }

    fn noted_in(folder: &Path, source: &str, dest: &str) -> Unfinished {
        forget_old(folder, SystemTime::now());
        let name = Digest::of(format!("{source}\0{dest}").as_bytes()).to_string();
        Unfinished {
            note: Some(folder.join(&name[..32])),
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

/// Removes notes that nobody came back for.
fn forget_old(folder: &Path, now: SystemTime) {
    for note in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let written = note.metadata().and_then(|meta| meta.modified());
        let age = written.ok().and_then(|written| now.duration_since(written).ok());
        if age.is_some_and(|age| age > KEEP_UNFINISHED) {
            let _ = std::fs::remove_file(note.path());
        }
    }
}

/// A path of this machine, the same wherever the command is typed.
pub(super) fn absolute(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.display().to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_note_is_believed_for_a_while_and_then_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let note = || Unfinished::noted_in(folder.path(), "data", "/pfs/dc/home/me/up");
        assert_eq!(note().target(Target::Folder), Target::Folder);
        note().begin();
        assert_eq!(note().target(Target::Folder), Target::Missing);
        assert_eq!(note().target(Target::File), Target::File);
        let other = Unfinished::noted_in(folder.path(), "else", "/pfs/dc/home/me/up");
        assert_eq!(other.target(Target::Folder), Target::Folder);

        let file = std::fs::File::options()
            .write(true)
            .open(note().note.unwrap())
            .unwrap();
        let just = SystemTime::now() - KEEP_UNFINISHED + Duration::from_secs(60);
        file.set_modified(just).unwrap();
        assert_eq!(note().target(Target::Folder), Target::Missing);
        file.set_modified(SystemTime::now() - KEEP_UNFINISHED - Duration::from_secs(60))
            .unwrap();
        assert_eq!(note().target(Target::Folder), Target::Folder);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
