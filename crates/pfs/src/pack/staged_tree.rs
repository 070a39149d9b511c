//! A folder that is being filled, by one stream or by several, and appears all at once.
//!
//! It has a name of its own, so an upload goes on after client or server were restarted.

use std::fmt;
use std::str::FromStr;

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::{PackError, PackLimits, PackParser, PackTotals, Unpacker, unpack};
use crate::content::hash_file;
use crate::entry::{Entry, Node};
use crate::links::Links;
use crate::package::Manifest;
use crate::relpath::RelPath;
use crate::root::{self, Existing, Kind, Root, RootError};

/// The name of a staged tree, given to the client so that it can go on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TreeId(String);

/// Text that is no such name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of an unfinished upload")]
pub struct TreeIdError(String);

impl FromStr for TreeId {
    type Err = TreeIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_ours = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_ours {
            Ok(Self(text.to_owned()))
        } else {
            Err(TreeIdError(text.to_owned()))
        }
    }
}

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A tree below the staging folder of `root`. It stays until it is published or discarded.
#[derive(Debug)]
pub struct StagedTree {
    root: Root,
    tree: Root,
    id: TreeId,
}

impl StagedTree {
    /// Begins an empty tree.
    pub fn create(root: &Root) -> Result<Self, RootError> {
        let id = TreeId(root::fresh_name());
        root::in_staging(root, |folder| {
            rustix::fs::mkdirat(folder, id.0.as_str(), Mode::from_raw_mode(0o755))
        })?;
        Self::open(root, &id)
    }

    /// Goes on with a tree begun earlier.
    pub fn open(root: &Root, id: &TreeId) -> Result<Self, RootError> {
        let tree = root.descend(&staged_path(id))?;
        Ok(Self {
            root: root.clone(),
            tree,
            id: id.clone(),
        })
    }

    /// The name to go on with later.
    pub fn id(&self) -> &TreeId {
        &self.id
    }

    /// The folder itself, for filling it from elsewhere than a stream.
    pub fn tree(&self) -> &Root {
        &self.tree
    }

    /// A parser that writes into this tree as it is fed; for callers that do not block on a reader.
    pub fn unpacker(&self, limits: PackLimits) -> PackParser<Unpacker> {
        PackParser::new(Unpacker::new(self.tree.clone()), limits)
    }

    /// Unpacks a whole stream. Files that came complete stay, even when the stream breaks later.
    pub fn unpack(&self, stream: impl std::io::Read, limits: PackLimits) -> Result<PackTotals, PackError> {
        unpack(&self.tree, stream, limits)
    }

    /// Which entries of a manifest are not here, or not as it says. Content is read, not believed.
    pub fn missing<'a>(&self, manifest: &'a Manifest) -> Result<Vec<&'a Entry>, RootError> {
        let mut missing = Vec::new();
        for entry in manifest.entries() {
            if !holds(&self.tree, entry)? {
                missing.push(entry);
            }
        }
        Ok(missing)
    }

    /// Syncs the tree and gives it its place in one step. What it replaces is removed afterwards.
    ///
    /// Links are checked once more: two streams, each harmless, may together lead out.
    pub fn publish(self, path: &RelPath, existing: Existing) -> Result<(), RootError> {
        check_links(&self.tree)?;
        let staged = staged_path(&self.id);
        root::sync_tree(&self.root, &staged)?;
        let folder = root::staging_folder(&self.root)?;
        let (parent, name) = self.root.open_parent(path)?;
        let replaced = root::publish_folder((&folder, self.id.0.as_bytes()), (&parent, name), existing)
            .map_err(|errno| RootError::errno("publish", path, errno))?;
        self.root.sync_fd(&parent, path)?;
        if replaced {
            self.remove_staged(&folder)?;
        }
        root::tidy_staging(&self.root);
        Ok(())
    }

    /// Removes the tree.
    pub fn discard(self) -> Result<(), RootError> {
        let folder = root::staging_folder(&self.root)?;
        self.remove_staged(&folder)?;
        root::tidy_staging(&self.root);
        Ok(())
    }

    /// The replaced node may be a file.
    fn remove_staged(&self, folder: &std::os::fd::OwnedFd) -> Result<(), RootError> {
        match rustix::fs::unlinkat(folder, self.id.0.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(_) => root::remove_tree_in(folder, self.id.0.as_bytes(), &staged_path(&self.id)),
        }
    }
}

fn staged_path(id: &TreeId) -> RelPath {
    let staging: RelPath = root::STAGING.parse().expect("a plain name");
    staging
        .child(id.0.as_bytes())
        .expect("hex digits are a plain name")
}

fn check_links(tree: &Root) -> Result<(), RootError> {
    let mut links = Links::default();
    for entry in tree.walk(&RelPath::root()) {
        let entry = entry?;
        if let Kind::Symlink(target) = entry.meta.kind {
            links.insert(entry.path, target);
        }
    }
    links.check().map_err(|link| RootError::Escapes(link.path))
}

/// Whether a tree holds exactly what an entry says (times aside).
fn holds(tree: &Root, entry: &Entry) -> Result<bool, RootError> {
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
            let (file, _) = tree.open_file_no_links(&entry.path)?;
            let found = hash_file(&file).map_err(|error| RootError::io("read", &entry.path, error))?;
            Ok(Some(found) == *digest)
        }
        _ => Ok(false),
    }
}
