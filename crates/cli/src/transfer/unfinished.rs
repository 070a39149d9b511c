//! Folders whose copy was interrupted: running the same command again resumes it.
//!
//! By cp(1)'s rules, the second run would copy into the folder that the first one created. The note is local: without
//! it, cp's rules apply. It expires, because the name may belong to another folder later.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use paddlecloud_connect::Environment;
use paddlecloud_pfs::Digest;
use paddlecloud_pfs::staging::KEEP_UNFINISHED;

use super::Transfer;
use super::rules::Target;

/// The note about a copy of some sources to one destination.
pub(super) struct Unfinished {
    note: Option<PathBuf>,
    /// Whether the note stays as it is.
    dry_run: bool,
}

impl Transfer<'_> {
    /// The note is keyed by the paths' exact bytes and the server: paths that only look alike are different.
    pub(super) fn unfinished(&self, sources: &[Vec<u8>], dest: &[u8]) -> Unfinished {
        let home = Environment::of_this_process().paddle_home();
        let home = home.filter(|home| home.is_dir());
        let noted = home.map(|home| {
            let folder = home.join("unfinished");
            Unfinished::noted_in(&folder, &self.server, sources, dest)
        });
        Unfinished {
            note: noted.and_then(|noted| noted.note),
            dry_run: self.options.dry_run,
        }
    }
}

impl Unfinished {
    fn noted_in(folder: &Path, server: &str, sources: &[Vec<u8>], dest: &[u8]) -> Unfinished {
        forget_old(folder, SystemTime::now());
        let mut key = Vec::new();
        let ends = [server.as_bytes(), dest];
        for part in ends.into_iter().chain(sources.iter().map(Vec::as_slice)) {
            // No path contains the separator.
            key.extend_from_slice(part);
            key.push(0);
        }
        let name = Digest::of(&key).to_string();
        Unfinished {
            note: Some(folder.join(&name[..32])),
            dry_run: false,
        }
    }

    /// What counts as the destination: a folder that an interrupted run created counts as missing.
    pub fn target(&self, target: Target) -> Target {
        let known = self.note.as_ref().is_some_and(|note| note.exists());
        match target {
            Target::Folder if known => Target::Missing,
            other => other,
        }
    }

    /// Records that the destination is about to be created.
    pub fn begin(&self) {
        if let Some(note) = &self.note
            && let Some(folder) = note.parent()
            && !self.dry_run
        {
            let _ = std::fs::create_dir_all(folder);
            let _ = std::fs::write(note, "");
        }
    }

    /// The copy is complete.
    pub fn end(&self) {
        if let Some(note) = self.note.as_ref().filter(|_| !self.dry_run) {
            let _ = std::fs::remove_file(note);
        }
    }
}

/// Removes expired notes.
fn forget_old(folder: &Path, now: SystemTime) {
    for note in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let written = note.metadata().and_then(|meta| meta.modified());
        let age = written.ok().and_then(|written| now.duration_since(written).ok());
        if age.is_some_and(|age| age > KEEP_UNFINISHED) {
            let _ = std::fs::remove_file(note.path());
        }
    }
}

/// A local path that does not depend on the current folder.
pub(super) fn absolute(path: &Path) -> Vec<u8> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.into_os_string().into_encoded_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_record_of_an_unfinished_transfer_expires() {
        let folder = tempfile::tempdir().unwrap();
        let dest = b"/pfs/dc/home/me/up";
        let of = |source: &str| Unfinished::noted_in(folder.path(), "here", &[source.into()], dest);
        let note = || of("data");
        assert_eq!(note().target(Target::Folder), Target::Folder);
        note().begin();
        assert_eq!(note().target(Target::Folder), Target::Missing);
        assert_eq!(note().target(Target::File), Target::File);
        assert_eq!(of("else").target(Target::Folder), Target::Folder);

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

    #[test]
    fn records_differ_by_server_and_exact_bytes_of_the_paths() {
        let folder = tempfile::tempdir().unwrap();
        let of = |server: &str, sources: &[&[u8]], dest: &[u8]| {
            let sources: Vec<Vec<u8>> = sources.iter().map(|source| source.to_vec()).collect();
            Unfinished::noted_in(folder.path(), server, &sources, dest)
        };
        of("here", &[b"caf\xe9", b"b"], b"up").begin();
        let known = of("here", &[b"caf\xe9", b"b"], b"up").target(Target::Folder);
        assert_eq!(known, Target::Missing);
        for other in [
            of("there", &[b"caf\xe9", b"b"], b"up"),
            of("here", &[b"caf\xe8", b"b"], b"up"),
            of("here", &["caf\u{fffd}".as_bytes(), b"b"], b"up"),
            of("here", &[b"caf\xe9"], b"up"),
            of("here", &[b"caf\xe9b"], b"up"),
            of("here", &[b"b", b"caf\xe9"], b"up"),
            of("here", &[b"caf\xe9", b"b"], b"up\xe9"),
        ] {
            assert_eq!(other.target(Target::Folder), Target::Folder);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_of_this_machine_keeps_its_bytes() {
        use std::os::unix::ffi::OsStrExt;

        let name = std::ffi::OsStr::from_bytes(b"/data/caf\xe9");
        assert_eq!(absolute(Path::new(name)), b"/data/caf\xe9");
    }
}
