//! Packages that users uploaded: announced by a manifest, filled by uploads, published as a whole and never changed.
//!
//! A package's tree is stored next to its manifest, `<id>.json`; without the manifest the package does not exist. Code that only
//! needs a package's path finds it here.

mod pruning;
mod receive;
#[cfg(test)]
mod testing;
mod unfinished;

use std::io::Read as _;

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::package::{Manifest, PackageId};
use paddlecloud_pfs::staging::{in_package, package_place};
use paddlecloud_pfs::{Node, RelPath, Root};

use crate::homes::{OURS, Storage, StorageError, ours};

pub use pruning::{Condemned, Latest};
pub use receive::{Announced, Completed, MOST_LIST, SHORT_LIST};

/// The longest manifest that is read from a home: a job of the owner may have put any file there.
const MOST_STORED_LIST: u64 = 2 * MOST_LIST as u64;

/// Checks that an uploaded package can run.
pub fn check_upload(home: &Root, id: PackageId) -> Result<(), StorageError> {
    let manifest = match read_list(home, &list_path(id)) {
        Err(StorageError::Storage(error)) if error.is_not_found() => {
            return Err(StorageError::NotUploaded(id.to_string()));
        }
        other => other?,
    };
    check_output(&manifest)
}

impl Storage {
    /// Checks the folder name under which an upload will appear and returns its full path.
    pub fn upload_name(&self, user: &UserName, name: &str) -> Result<String, StorageError> {
        let bad = || StorageError::BadName(name.to_owned());
        let path: RelPath = name.parse().map_err(|_| bad())?;
        if path.depth() != 1 || name == OURS || name.starts_with(".pfs") {
            return Err(bad());
        }
        Ok(format!("{}/{name}", self.home_name(user)))
    }
}

/// Checks that nothing of a package blocks the folder of results.
pub fn check_output(manifest: &Manifest) -> Result<(), StorageError> {
    let output = manifest.get(&"output".parse().expect("a plain name"));
    match output.map(|entry| &entry.node) {
        None | Some(Node::Dir) => Ok(()),
        Some(_) => Err(StorageError::OutputIsAFile),
    }
}

/// Complete packages, the latest first.
fn stored_packages(home: &Root) -> Result<Vec<PackageId>, StorageError> {
    let entries = match home.list(&ours(&["packages"])) {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        other => other?,
    };
    let mut found: Vec<_> = entries
        .iter()
        .filter_map(|entry| {
            let name = std::str::from_utf8(entry.path.name()?).ok()?;
            let id: PackageId = name.strip_suffix(".json")?.parse().ok()?;
            Some((entry.meta.mtime, id))
        })
        .collect();
    found.sort_unstable();
    Ok(found.into_iter().rev().map(|(_, id)| id).collect())
}

pub(crate) fn read_list(home: &Root, path: &RelPath) -> Result<Manifest, StorageError> {
    let (file, _) = home.open_file_no_links(path)?;
    let list = std::io::BufReader::new(file.take(MOST_STORED_LIST));
    serde_json::from_reader(list).map_err(StorageError::Manifest)
}

pub(crate) fn tree_path(id: PackageId) -> RelPath {
    ours(&["packages", &id.to_string()])
}

pub(crate) fn list_path(id: PackageId) -> RelPath {
    ours(&["packages", &format!("{id}.json")])
}

/// The staged place of a path that names a file of a package, as uploads do. The package itself is never changed.
pub(crate) fn staged_place(path: &RelPath) -> Option<RelPath> {
    let mut parts = path.parts();
    let is_ours = parts.next() == Some(OURS.as_bytes()) && parts.next() == Some(b"packages");
    let id = parts.next().filter(|_| is_ours)?;
    let id: PackageId = std::str::from_utf8(id).ok()?.parse().ok()?;
    parts
        .try_fold(package_place(id), |place, part| place.child(part))
        .ok()
}

/// The path by which users know a file of a package that is staged; any other path is its own.
pub(crate) fn shown_place(path: &RelPath) -> RelPath {
    let shown = in_package(path).and_then(|(id, inside)| tree_path(id).join(&inside).ok());
    shown.unwrap_or_else(|| path.clone())
}
