//! Packages that users uploaded: announced by a list of files, sent as one stream, published whole and never changed.
//!
//! A package's tree lies beside its list, `<id>.json`; without the list it is not there. `<id>.wanted` is the list of one
//! that is awaited. Code that only needs a package's path asks here.

mod pruning;
mod receive;
#[cfg(test)]
mod testing;
mod unfinished;

use std::io::Read as _;

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::package::{Manifest, PackageId};
use paddlecloud_pfs::{Node, RelPath, Root};

use crate::homes::{OURS, Storage, StorageError, ours};

pub use pruning::{Condemned, Latest};
pub use receive::{MOST_LIST, Receiver, SHORT_LIST, Wanted};

/// Longest one that is read from a home. A job of the owner's may have put any file there.
const MOST_STORED_LIST: u64 = 2 * MOST_LIST as u64;

impl Storage {
    /// Checks that an upload can be run: its own `output` would be in the way of the folder of results.
    pub fn check_upload(&self, user: &UserName, id: PackageId) -> Result<(), StorageError> {
        let home = self.home(user)?;
        let manifest = match read_list(&home, &list_path(id)) {
            Err(StorageError::Storage(error)) if error.is_not_found() => {
                return Err(StorageError::NotUploaded(id.to_string()));
            }
            other => other?,
        };
        let output = manifest.get(&"output".parse().expect("a plain name"));
        match output.map(|entry| &entry.node) {
            None | Some(Node::Dir) => Ok(()),
            Some(_) => Err(StorageError::OutputIsAFile),
        }
    }

    /// Checks a folder name under which an upload shall appear and gives its full path.
    pub fn upload_name(&self, user: &UserName, name: &str) -> Result<String, StorageError> {
        let bad = || StorageError::BadName(name.to_owned());
        let path: RelPath = name.parse().map_err(|_| bad())?;
        if path.depth() != 1 || name == OURS || name.starts_with(".pfs") {
            return Err(bad());
        }
        Ok(format!("{}/{name}", self.home_name(user)))
    }
}

/// Packages that are here whole, the latest first.
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

fn wanted_path(id: PackageId) -> RelPath {
    ours(&["packages", &format!("{id}.wanted")])
}
