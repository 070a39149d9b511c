//! The local side of a transfer: walks folders, and decides where a file may be written.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use paddlecloud_pfs::content::hash_file;
use paddlecloud_pfs::root::Meta;
use paddlecloud_pfs::{Digest, Entry, RelPath, Root, RootError};

use super::TransferError;
use super::error::unreadable;

/// The content of a folder, and what cannot be transferred.
#[derive(Debug, Default)]
pub struct Walked {
    pub entries: Vec<Entry>,
    /// Unreadable entries.
    pub unread: Vec<RootError>,
    /// Sockets, pipes and devices, which are never transferred.
    pub special: Vec<RelPath>,
}

/// Walks a folder. Unreadable entries are collected and do not stop the walk; leftovers of interrupted downloads are skipped.
pub fn walk(folder: &Path) -> Result<Walked, RootError> {
    let root = Root::open(folder)?;
    let mut walked = Walked::default();
    for found in root.walk(&RelPath::root()).only_finished() {
        match found {
            Ok(found) => match found.into_entry() {
                Ok(entry) => walked.entries.push(entry),
                Err(path) => walked.special.push(path),
            },
            Err(error) => walked.unread.push(error),
        }
    }
    Ok(walked)
}

/// The digest of a local file, and its metadata.
pub(super) fn hashed(root: &Root, path: &RelPath) -> Result<(Digest, Meta), TransferError> {
    let (file, meta) = root.open_file_no_links(path)?;
    Ok((hash_file(&file).map_err(unreadable)?, meta))
}

/// The path to write to in order to replace what is at `path`: a link is followed, as cp(1) does. The error says what is wrong
/// with the path.
///
/// A device or a pipe is refused: replacing it would break its other users.
pub fn replaceable(path: &Path) -> Result<PathBuf, String> {
    // A path that cannot be inspected fails when it is written.
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(path.to_owned());
    };
    let is_link = found.is_symlink();
    let target = match is_link {
        true => std::fs::metadata(path).map_err(|error| leads_nowhere(&error))?,
        false => found,
    };
    if !target.is_file() && !target.is_dir() {
        return Err("is not a regular file and would be replaced by one; `-` writes to a pipe".to_owned());
    }
    match is_link {
        true => std::fs::canonicalize(path).map_err(|error| leads_nowhere(&error)),
        false => Ok(path.to_owned()),
    }
}

fn leads_nowhere(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "is a broken link: remove it, or create its target".to_owned(),
        _ => format!("is a link that cannot be followed: {error}"),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_is_followed_to_its_target_and_special_files_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        fs::write(at("file"), "1").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("link", at("chain")).unwrap();
        symlink("nowhere", at("broken")).unwrap();
        symlink("/dev/null", at("device")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, place) in [
            ("new", "new"),
            ("file", "file"),
            ("link", "file"),
            ("chain", "file"),
        ] {
            assert_eq!(replaceable(&at(name)), Ok(at(place)), "{name}");
        }
        for name in ["socket", "device", "/dev/null"] {
            let refused = replaceable(&at(name)).unwrap_err();
            assert!(refused.starts_with("is not a regular file"), "{name}: {refused}");
        }
        let refused = replaceable(&at("broken")).unwrap_err();
        assert!(refused.contains("is a broken link"), "{refused}");
    }

    #[test]
    fn a_folder_is_listed_in_order_and_special_files_separately() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/a"), "1").unwrap();
        fs::write(at("d.x"), "1").unwrap();
        fs::create_dir_all(at("d/.pfs-staging/0123")).unwrap();
        fs::write(at("d/.pfs-staging/0123/data"), "half of it").unwrap();
        symlink("nowhere", at("broken")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let walked = walk(folder.path()).unwrap();
        let paths: Vec<String> = walked
            .entries
            .iter()
            .map(|entry| entry.path.to_string())
            .collect();
        assert_eq!(paths, ["broken", "d", "d/a", "d.x"]);
        assert_eq!(walked.special, ["socket".parse().unwrap()]);
        assert!(walked.unread.is_empty());
    }
}
