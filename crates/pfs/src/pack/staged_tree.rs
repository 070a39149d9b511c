//! A folder that is filled by one or more streams and published atomically.

use std::collections::HashMap;

use super::{PackError, PackLimits, PackParser, PackTotals, Unpacker};
use crate::content::hash_file;
use crate::digest::Digest;
use crate::entry::{Entry, Node};
use crate::links::Links;
use crate::package::Manifest;
use crate::relpath::RelPath;
use crate::root::{self, Existing, Kind, Root, RootError, Stamp};
use crate::staging::{StagedId, remove_staged, staged_path};
use crate::sys::{self, Mode};

/// A tree below the staging folder of `root`. It stays until it is published or discarded, or until its process has exited and a
/// sweep removes it.
#[derive(Debug)]
pub struct StagedTree {
    root: Root,
    tree: Root,
    id: StagedId,
}

impl StagedTree {
    /// Creates an empty tree.
    pub fn create(root: &Root) -> Result<Self, RootError> {
        let id = StagedId::fresh();
        let (_held, ()) = root::in_staging(root, |folder| {
            sys::mkdirat(folder, id.as_str(), Mode::from_raw_mode(0o755))
        })?;
        let tree = root.descend(&staged_path(&id))?;
        // The folder is new: only its owner could have locked it, and then loses only their own upload.
        let _ = root::hold(tree.fd());
        Ok(Self::of(root, tree, id))
    }

    /// The name in the staging folder.
    pub fn id(&self) -> &StagedId {
        &self.id
    }

    /// The path below the root.
    pub fn place(&self) -> RelPath {
        staged_path(&self.id)
    }

    pub(super) fn of(root: &Root, tree: Root, id: StagedId) -> Self {
        let root = root.clone();
        Self { root, tree, id }
    }

    pub(super) fn root(&self) -> &Root {
        &self.root
    }

    /// The folder itself, for filling it without a stream.
    pub fn tree(&self) -> &Root {
        &self.tree
    }

    /// A parser that writes into this tree as it is fed, for callers that do not block on a reader.
    pub fn unpacker(&self, limits: PackLimits) -> PackParser<Unpacker> {
        PackParser::new(Unpacker::new(self.tree.clone()), limits)
    }

    /// Unpacks a whole stream. Complete files stay, even if the stream breaks later.
    pub fn unpack(&self, stream: &[u8], limits: PackLimits) -> Result<PackTotals, PackError> {
        let mut parser = self.unpacker(limits);
        parser.feed(stream)?;
        Ok(parser.finish_unpacking()?.0)
    }

    /// The entries of a manifest that the tree lacks or has with differences. Contents are hashed, except of files whose stamp is
    /// known.
    pub fn missing<'a>(
        &self,
        manifest: &'a Manifest,
        known: &HashMap<Stamp, Digest>,
    ) -> Result<Vec<&'a Entry>, RootError> {
        let mut missing = Vec::new();
        for entry in manifest.entries() {
            if !holds(&self.tree, entry, known)? {
                missing.push(entry);
            }
        }
        Ok(missing)
    }

    /// Syncs the tree and moves it to `path` atomically. A replaced folder is removed afterwards.
    pub fn publish(self, path: &RelPath, existing: Existing) -> Result<(), RootError> {
        self.sync()?;
        self.take_place(path, existing)
    }

    /// The slow part of publishing: syncs the tree.
    ///
    /// Links are checked again: two streams, each harmless, may together lead out.
    pub fn sync(&self) -> Result<(), RootError> {
        check_links(&self.tree)?;
        root::sync_tree(&self.root, &staged_path(&self.id))
    }

    /// Moves a synced tree to `path` atomically. A replaced folder is removed afterwards.
    pub fn take_place(&self, path: &RelPath, existing: Existing) -> Result<(), RootError> {
        let folder = root::staging_folder(&self.root)?;
        let (parent, name) = self.root.open_parent(path)?;
        let replaced =
            root::publish_folder((&folder, self.id.as_str().as_bytes()), (&parent, name), existing)
                .map_err(|errno| RootError::errno("publish", path, errno))?;
        self.root.sync_fd(&parent, path)?;
        if replaced {
            remove_staged(&self.root, &self.id)?;
        }
        root::tidy_staging(&self.root);
        Ok(())
    }

    /// Undoes [`Self::take_place`]: moves the tree back to staging, and restores the replaced folder if it still exists. Does
    /// nothing if the tree is not at `path`.
    pub fn step_back(&self, path: &RelPath) -> Result<(), RootError> {
        match self.root.descend(path) {
            Ok(there) if there.is(self.tree.fd()) => {}
            _ => return Ok(()),
        }
        let folder = root::staging_folder(&self.root)?;
        let (parent, name) = self.root.open_parent(path)?;
        let staged = (&folder, self.id.as_str().as_bytes());
        root::publish_folder((&parent, name), staged, Existing::Replace)
            .map_err(|errno| RootError::errno("take back", path, errno))?;
        self.root.sync_fd(&parent, path)
    }

    /// Removes the tree. Does nothing if it has left its place: another one of the same name may be there.
    pub fn discard(self) -> Result<(), RootError> {
        match self.root.descend(&self.place()) {
            Ok(there) if there.is(self.tree.fd()) => remove_staged(&self.root, &self.id),
            _ => Ok(()),
        }
    }
}

pub(super) fn check_links(tree: &Root) -> Result<(), RootError> {
    let mut links = Links::default();
    for (path, target) in tree.links_below(&RelPath::root())? {
        links.insert(path, target);
    }
    links.check().map_err(|link| RootError::Escapes(link.path))
}

/// Whether a tree contains exactly what an entry describes (except times).
fn holds(tree: &Root, entry: &Entry, known: &HashMap<Stamp, Digest>) -> Result<bool, RootError> {
    let meta = match tree.stat_link(&entry.path) {
        Ok(meta) => meta,
        Err(RootError::NotFound(_) | RootError::NotAFolder(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    match (&entry.node, &meta.kind) {
        (Node::Dir, Kind::Dir) => Ok(true),
        (Node::Symlink { target }, Kind::Symlink(found)) => Ok(target == found),
        (
            Node::File {
                size,
                executable,
                digest,
            },
            Kind::File,
        ) => {
            if *size != meta.size || *executable != meta.executable {
                return Ok(false);
            }
            if let Some(written) = known.get(&meta.stamp) {
                return Ok(Some(*written) == *digest);
            }
            let (file, _) = tree.open_file_no_links(&entry.path)?;
            let found = hash_file(&file).map_err(|error| RootError::io("read", &entry.path, error))?;
            Ok(Some(found) == *digest)
        }
        _ => Ok(false),
    }
}
