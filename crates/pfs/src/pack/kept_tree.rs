//! A staged tree that outlives its stream: it is found again by its package id and resumed.
//!
//! The owner's jobs can write to it. So it is checked before use: files that the manifest does not name are removed, and contents
//! are hashed.

use std::collections::HashSet;
use std::sync::Arc;

use super::{PackLimits, PackParser, StagedTree, Unpacker};
use crate::content::hash_file;
use crate::digest::Digest;
use crate::entry::{Entry, Node};
use crate::package::{Manifest, PackageId};
use crate::relpath::RelPath;
use crate::root::{self, Kind, Meta, Root, RootError, STAGING, Usage, stat_name, timestamps};
use crate::staging::{StagedId, remove_staged, staged_path};
use crate::sys::{self, AtFlags, Errno, FileType, Mode, OwnedFd};

/// The contents of a package that a kept tree already has.
#[derive(Debug, Default)]
pub struct Stock {
    /// Contents that are complete.
    pub whole: HashSet<Digest>,
    pub parts: Vec<Part>,
}

/// A file of which only the beginning was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub path: RelPath,
    pub len: u64,
}

/// How often to retry if the tree is removed concurrently.
const LOOKS: usize = 8;

impl StagedTree {
    /// The tree of a package, created if needed; [`RootError::Busy`] while another process has locked it.
    pub fn keep(root: &Root, package: PackageId) -> Result<Self, RootError> {
        let id = StagedId::of_package(package);
        for _ in 0..LOOKS {
            let (_held, ()) = root::in_staging(root, |folder| make_folder(folder, id.as_str()))?;
            match Self::take(root, &id) {
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

    /// The tree of a package, if it exists; [`RootError::Busy`] while another process has locked it.
    pub fn kept(root: &Root, package: PackageId) -> Result<Option<Self>, RootError> {
        let id = StagedId::of_package(package);
        match Self::take(root, &id) {
            Err(RootError::NotFound(_) | RootError::NotAFolder(_) | RootError::ThroughLink(_)) => Ok(None),
            // A job of the owner has locked the folder.
            Err(RootError::Denied(_)) => remove_staged(root, &id).map(|()| None),
            other => other.map(Some),
        }
    }

    /// Locks the tree for this process. The previous holder may have published it meanwhile: then the opened folder is a package,
    /// which must not be changed.
    fn take(root: &Root, id: &StagedId) -> Result<Self, RootError> {
        let path = staged_path(id);
        let tree = root.descend(&path)?;
        if !root::hold_alone(tree.fd()) {
            return Err(RootError::Busy(path));
        }
        if !root.descend(&path)?.is(tree.fd()) {
            return Err(RootError::NotFound(path));
        }
        unlock(&tree, &RelPath::root());
        Ok(Self::of(root, tree, id.clone()))
    }

    /// A parser that writes only entries of the manifest into this tree, and keeps a partial file when the stream breaks.
    pub fn keeping_unpacker(&self, list: Arc<Manifest>) -> PackParser<Unpacker> {
        let unpacker = Unpacker::new(self.tree().clone()).keeping_parts();
        PackParser::new(unpacker, PackLimits::default())
            .taking_rests()
            .taking_only(list)
    }

    /// Removes everything that differs from the manifest or is not in it.
    pub fn tidy(&self, manifest: &Manifest) -> Result<Usage, RootError> {
        let mut usage = Usage::default();
        self.look_through(manifest, |_, meta| {
            usage.add(meta);
            Ok(true)
        })?;
        Ok(usage)
    }

    /// Like [`Self::tidy`], and returns what the tree has. Files of full size are read; damaged ones are removed.
    pub fn take_stock(&self, manifest: &Manifest) -> Result<Stock, RootError> {
        let mut stock = Stock::default();
        self.look_through(manifest, |entry, meta| {
            match entry.digest() {
                Some(_) if meta.size < entry.size() => stock.parts.push(Part {
                    path: entry.path.clone(),
                    len: meta.size,
                }),
                Some(digest) if self.is_whole(entry, meta, digest) => drop(stock.whole.insert(digest)),
                Some(_) => return Ok(false),
                None => {}
            }
            Ok(true)
        })?;
        // An empty file has no rest to resume.
        stock.parts.retain(|part| part.len > 0);
        Ok(stock)
    }

    /// Whether a file matches its digest. If the stream broke before the file's end, its mtime is set here.
    fn is_whole(&self, entry: &Entry, meta: &Meta, digest: Digest) -> bool {
        let Ok((file, _)) = self.tree().open_file_no_links(&entry.path) else {
            return false;
        };
        hash_file(&file).is_ok_and(|found| found == digest)
            && (meta.mtime == entry.mtime || sys::futimens(&file, &timestamps(entry.mtime)).is_ok())
    }

    /// Calls `stays` for every node that matches the manifest. Removes all others, and those for which it returns `false`.
    fn look_through(
        &self,
        manifest: &Manifest,
        mut stays: impl FnMut(&Entry, &Meta) -> Result<bool, RootError>,
    ) -> Result<(), RootError> {
        let tree = self.tree();
        // Listings hide this folder.
        remove(tree, &STAGING.parse().expect("a plain name"))?;
        for found in tree.walk(&RelPath::root()) {
            match found {
                Ok(found) => match manifest.get(&found.path) {
                    Some(entry) if may_become(&found.meta, entry) && stays(entry, &found.meta)? => {
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
        Ok(())
    }
}

/// Whether the node is what an entry describes, or the beginning of it.
fn may_become(meta: &Meta, entry: &Entry) -> bool {
    match (&entry.node, &meta.kind) {
        (Node::Dir, Kind::Dir) => true,
        (Node::Symlink { target }, Kind::Symlink(found)) => target == found,
        (Node::File { size, executable, .. }, Kind::File) => {
            meta.size <= *size && meta.executable == *executable
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
