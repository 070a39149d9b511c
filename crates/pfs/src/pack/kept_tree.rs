//! A staged tree that outlives the stream that filled it: found again by the package it is to become, and gone on with.
//!
//! It lies where jobs of its owner can write. So it is looked through before anything is done with it: what the package's
//! list does not name goes, and what a file holds is read, not believed.

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

/// What a kept tree has of a package.
#[derive(Debug, Default)]
pub struct Stock {
    /// Contents that are there whole.
    pub whole: HashSet<Digest>,
    pub parts: Vec<Part>,
}

/// A file of which the beginning is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub path: RelPath,
    pub len: u64,
}

/// How often it is looked again for a tree that others take away meanwhile.
const LOOKS: usize = 8;

impl StagedTree {
    /// The tree of a package, begun if there is none; [`RootError::Busy`] while somebody else is at it.
    pub fn keep(root: &Root, package: PackageId) -> Result<Self, RootError> {
        let id = StagedId::of_package(package);
        for _ in 0..LOOKS {
            let (_held, ()) = root::in_staging(root, |folder| make_folder(folder, id.as_str()))?;
            match Self::take(root, &id) {
                Err(RootError::NotFound(_)) => {}
                // Its owner's jobs can lock it or put something else there: then it is no use to anybody.
                Err(RootError::Denied(_) | RootError::NotAFolder(_) | RootError::ThroughLink(_)) => {
                    remove_staged(root, &id)?;
                }
                other => return other,
            }
        }
        Err(RootError::Busy(staged_path(&id)))
    }

    /// The tree of a package, if there is one; [`RootError::Busy`] while somebody else is at it.
    pub fn kept(root: &Root, package: PackageId) -> Result<Option<Self>, RootError> {
        let id = StagedId::of_package(package);
        match Self::take(root, &id) {
            Err(RootError::NotFound(_) | RootError::NotAFolder(_) | RootError::ThroughLink(_)) => Ok(None),
            // A job of its owner's locked it.
            Err(RootError::Denied(_)) => remove_staged(root, &id).map(|()| None),
            other => other.map(Some),
        }
    }

    /// Takes it for itself; the lock goes with the process. Whoever had it may have given it its place meanwhile: then
    /// what was opened is a package that nobody may change.
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

    /// A parser that writes what a list names into this tree, nothing else, and leaves what came of a file when the stream
    /// breaks.
    pub fn keeping_unpacker(&self, list: Arc<Manifest>) -> PackParser<Unpacker> {
        let unpacker = Unpacker::new(self.tree().clone()).keeping_parts();
        PackParser::new(unpacker, PackLimits::default())
            .taking_rests()
            .taking_only(list)
    }

    /// Removes what a list does not name, or names as something else.
    pub fn tidy(&self, manifest: &Manifest) -> Result<Usage, RootError> {
        let mut usage = Usage::default();
        self.look_through(manifest, |_, meta| {
            usage.add(meta);
            Ok(true)
        })?;
        Ok(usage)
    }

    /// The same, and tells what is there. Files that should be whole are read; one that is not as it should be goes.
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
        // Of nothing there is no rest, and what is there whole need not be gone on with.
        stock.parts.retain(|part| part.len > 0);
        Ok(stock)
    }

    /// Whether a file is what its digest says. One that was cut off before that came has no time of its own yet.
    fn is_whole(&self, entry: &Entry, meta: &Meta, digest: Digest) -> bool {
        let Ok((file, _)) = self.tree().open_file_no_links(&entry.path) else {
            return false;
        };
        hash_file(&file).is_ok_and(|found| found == digest)
            && (meta.mtime == entry.mtime || sys::futimens(&file, &timestamps(entry.mtime)).is_ok())
    }

    /// Shows all that a list names as what it is, and removes the rest and what `stays` says no to.
    fn look_through(
        &self,
        manifest: &Manifest,
        mut stays: impl FnMut(&Entry, &Meta) -> Result<bool, RootError>,
    ) -> Result<(), RootError> {
        let tree = self.tree();
        // Hidden from every listing.
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
                // A folder that cannot be read is none that came with the package.
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

/// Whether it is what an entry says, or the beginning of it.
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

/// A job of the owner's may have made a folder read-only.
fn unlock(tree: &Root, folder: &RelPath) {
    // Whoever may not do so hears of it when something cannot be written there.
    let _ = tree
        .open_dir_no_links(folder)
        .map(|folder| sys::make_usable(&folder));
}

/// What is there under this name and is no folder gives way.
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

/// Removes whatever is at a path, without following anything.
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
