//! The staged tree of a package: uploads fill it, until the package is published. It is found again by the package's id.
//!
//! The owner's jobs can write to it. So it is checked before use: files that the manifest does not name are removed, and contents
//! are hashed, except of files whose stamps the caller knows.

use std::time::Duration;

use super::StagedTree;
use crate::entry::{Entry, Node};
use crate::package::{Manifest, PackageId};
use crate::relpath::RelPath;
use crate::root::{self, Kind, Meta, Root, RootError, STAGING, Usage, stat_name};
use crate::staging::{StagedId, remove_staged, staged_path};
use crate::sys::{self, AtFlags, Errno, FileType, FlockOperation, Mode, OwnedFd};

/// How long to wait for the tree's lock: a request that has just ended, or a process that was just forked, releases it soon.
const TAKEN_WITHIN: Duration = Duration::from_millis(500);
/// How often to retry if the tree is removed concurrently.
const LOOKS: usize = 8;

impl StagedTree {
    /// The tree of a package for this caller alone, created if needed; [`RootError::Busy`] while somebody else uses it.
    pub fn keep(root: &Root, package: PackageId) -> Result<Self, RootError> {
        let id = StagedId::of_package(package);
        for _ in 0..LOOKS {
            let (_held, ()) = root::in_staging(root, |folder| make_folder(folder, id.as_str()))?;
            match Self::take(root, &id, FlockOperation::NonBlockingLockExclusive) {
                Err(RootError::NotFound(_)) => {}
                // The owner's jobs can lock the folder or replace it: then it is useless.
                Err(RootError::Denied(_) | RootError::NotAFolder(_) | RootError::ThroughLink(_)) => {
                    remove_staged(root, &id)?;
                }
                other => return other,
            }
        }
        Err(RootError::Busy(staged_path(&id)))
    }

    /// The tree of an announced package, to upload files into it beside others; [`RootError::Busy`] while it is checked and
    /// published.
    pub fn share(root: &Root, package: PackageId) -> Result<Self, RootError> {
        let id = StagedId::of_package(package);
        Self::take(root, &id, FlockOperation::NonBlockingLockShared)
    }

    /// Locks the tree. It may have been published meanwhile: then the opened folder is a package, which must not be changed.
    fn take(root: &Root, id: &StagedId, lock: FlockOperation) -> Result<Self, RootError> {
        let path = staged_path(id);
        let tree = root.descend(&path)?;
        match root::lock_within(tree.fd(), lock, TAKEN_WITHIN) {
            // Some file systems have no locks.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(Errno::WOULDBLOCK) => return Err(RootError::Busy(path)),
            Err(errno) => return Err(RootError::errno("lock", &path, errno)),
        }
        if !root.descend(&path)?.is(tree.fd()) {
            return Err(RootError::NotFound(path));
        }
        unlock(&tree, &RelPath::root());
        Ok(Self::of(root, tree, id.clone()))
    }

    /// Removes everything that differs from the manifest or is not in it. Contents are not read. Returns what is left.
    pub fn tidy(&self, manifest: &Manifest) -> Result<Usage, RootError> {
        let mut usage = Usage::default();
        let tree = self.tree();
        // Listings hide this folder.
        remove(tree, &STAGING.parse().expect("a plain name"))?;
        for found in tree.walk(&RelPath::root()) {
            match found {
                Ok(found) => match manifest.get(&found.path) {
                    Some(entry) if may_be(&found.meta, entry) => {
                        usage.add(&found.meta);
                        if found.meta.is_dir() {
                            unlock(tree, &found.path);
                        }
                    }
                    _ => remove(tree, &found.path)?,
                },
                // The package did not create unreadable folders.
                Err(RootError::Denied(path) | RootError::TooLong(path) | RootError::NotFound(path))
                    if !path.is_root() =>
                {
                    remove(tree, &path)?
                }
                Err(error) => return Err(error),
            }
        }
        Ok(usage)
    }
}

/// Whether the node is what an entry describes, apart from its content.
fn may_be(meta: &Meta, entry: &Entry) -> bool {
    match (&entry.node, &meta.kind) {
        (Node::Dir, Kind::Dir) => true,
        (Node::Symlink { target }, Kind::Symlink(found)) => target == found,
        (Node::File { size, executable, .. }, Kind::File) => {
            meta.size == *size && meta.executable == *executable
        }
        _ => false,
    }
}

/// Makes a folder writable again that a job of the owner may have made read-only.
fn unlock(tree: &Root, folder: &RelPath) {
    // If this fails, a later write into the folder reports the error.
    let _ = tree
        .open_dir_no_links(folder)
        .map(|folder| sys::make_usable(&folder));
}

/// Creates a folder; replaces anything else that has this name.
fn make_folder(staging: &OwnedFd, name: &str) -> Result<(), Errno> {
    let make = || sys::mkdirat(staging, name, Mode::from_raw_mode(0o755));
    match make() {
        Err(Errno::EXIST) => {
            let stat = stat_name(staging, name.as_bytes())?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                return Ok(());
            }
            sys::unlinkat(staging, name, AtFlags::empty())?;
            make()
        }
        made => made,
    }
}

/// Removes anything at a path, without following links.
fn remove(tree: &Root, path: &RelPath) -> Result<(), RootError> {
    let (parent, name) = path.split_last().expect("the tree itself stays");
    let folder = match tree.open_dir_no_links(&parent) {
        Err(error) if error.is_not_found() => return Ok(()),
        other => other?,
    };
    match sys::unlinkat(&folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(_) => root::remove_tree_in(&folder, name, path),
    }
}

#[cfg(test)]
mod tests;
