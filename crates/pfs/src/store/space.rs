//! One space of a store, opened once and used many times.
//!
//! A local folder is used through its open descriptor. Other stores are used through the port, and their unfinished uploads are
//! staged in a spool on this machine.

use std::sync::Arc;

use super::local::OpenFile;
use super::{FileStore, LocalStore, ReadAt, RemoteSpace};
use crate::content::{Assembly, AssemblyError};
use crate::digest::Digest;
use crate::pack::{Merged, PlacedStamps, StagedTree};
use crate::path::Space;
use crate::relpath::RelPath;
use crate::root::{DirEntry, Existing, GlobPattern, Made, Meta, Root, RootError, Usage};

/// An opened space; cheap to clone.
#[derive(Clone)]
pub enum OpenSpace {
    /// A folder in a local file system.
    Folder(Root),
    /// A space in a remote store.
    Remote(RemoteSpace),
}

/// Everything below a folder, in order.
pub type Entries = Box<dyn Iterator<Item = Result<DirEntry, RootError>> + Send>;

impl OpenSpace {
    /// Opens a space of a store. Uploads to a remote store are staged in `spool`.
    pub fn open(store: &Arc<dyn FileStore>, space: &Space, spool: &LocalStore) -> Result<Self, RootError> {
        match store.folder(space)? {
            Some(root) => Ok(Self::Folder(root)),
            None => RemoteSpace::open(store, space, spool).map(Self::Remote),
        }
    }

    /// The root in which uploads to this space are staged.
    pub fn staging(&self) -> &Root {
        match self {
            Self::Folder(root) => root,
            Self::Remote(remote) => &remote.spool,
        }
    }

    /// Returns the space without write access to these folders by any path; see [`Root::protecting`].
    pub fn protecting(self, folders: Vec<RelPath>) -> Self {
        match self {
            Self::Folder(root) => Self::Folder(root.protecting(folders)),
            remote => remote,
        }
    }

    /// Returns the space with write access to one protected node.
    pub fn protecting_all_but(self, path: RelPath) -> Self {
        match self {
            Self::Folder(root) => Self::Folder(root.protecting_all_but(path)),
            remote => remote,
        }
    }

    /// The path of a node after resolving all links on the way. Remote stores have no links.
    pub fn real_place(&self, path: &RelPath) -> Result<RelPath, RootError> {
        match self {
            Self::Folder(root) => root.real_place(path),
            Self::Remote(_) => Ok(path.clone()),
        }
    }

    /// The path of a folder after resolving all links.
    pub fn real_folder(&self, path: &RelPath) -> Result<RelPath, RootError> {
        match self {
            Self::Folder(root) => root.real_folder(path),
            Self::Remote(_) => Ok(path.clone()),
        }
    }

    /// The metadata of a path, following links inside the space.
    pub fn stat(&self, path: &RelPath) -> Result<Meta, RootError> {
        match self {
            Self::Folder(root) => root.stat(path),
            Self::Remote(remote) => remote.stat(path),
        }
    }

    /// The metadata of a path itself, without following a link.
    pub fn stat_link(&self, path: &RelPath) -> Result<Meta, RootError> {
        match self {
            Self::Folder(root) => root.stat_link(path),
            Self::Remote(remote) => remote.stat(path),
        }
    }

    /// The metadata of each path; `None` if it does not exist.
    pub fn stat_many(&self, paths: &[RelPath]) -> Result<Vec<Option<Meta>>, RootError> {
        match self {
            Self::Folder(root) => root.stat_many(paths),
            Self::Remote(remote) => remote.stat_many(paths),
        }
    }

    /// Opens a regular file for reading, following links inside the space.
    pub fn open_file(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>, RootError> {
        match self {
            Self::Folder(root) => root.open_file(path).map(opened),
            Self::Remote(remote) => remote.open_file(path),
        }
    }

    /// Opens a regular file for reading; fails if the path contains a link.
    pub fn open_no_links(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>, RootError> {
        match self {
            Self::Folder(root) => root.open_file_no_links(path).map(opened),
            Self::Remote(remote) => remote.open_file(path),
        }
    }

    /// The entries directly in a folder, by name.
    pub fn list(&self, folder: &RelPath) -> Result<Vec<DirEntry>, RootError> {
        match self {
            Self::Folder(root) => root.list(folder),
            Self::Remote(remote) => remote.list(folder),
        }
    }

    /// Everything below a folder; every folder precedes its contents.
    pub fn walk(&self, folder: &RelPath) -> Entries {
        match self {
            Self::Folder(root) => Box::new(root.walk(folder)),
            Self::Remote(remote) => Box::new(remote.walk(folder)),
        }
    }

    /// All matches of a pattern, in order.
    pub fn glob(&self, pattern: &GlobPattern) -> Result<Vec<DirEntry>, RootError> {
        match self {
            Self::Folder(root) => root.glob(pattern),
            Self::Remote(remote) => pattern.expand(|path| remote.stat(path), |folder| remote.list(folder)),
        }
    }

    /// Creates a folder and its parents; existing ones are fine.
    pub fn make_dirs(&self, path: &RelPath) -> Result<(), RootError> {
        match self {
            Self::Folder(root) => root.make_dirs(path),
            Self::Remote(remote) => remote.make_dirs(path),
        }
    }

    /// The same, and says whether the folder itself is new. A remote store does not know, and its folders count as old.
    pub fn make_folder(&self, path: &RelPath) -> Result<Made, RootError> {
        match self {
            Self::Folder(root) => root.make_folder(path),
            Self::Remote(remote) => remote.make_dirs(path).map(|()| Made::Existed),
        }
    }

    /// Removes a file, a link or an empty folder.
    pub fn remove(&self, path: &RelPath) -> Result<(), RootError> {
        match self {
            Self::Folder(root) => root.remove(path),
            Self::Remote(remote) => remote.store.remove(&remote.at(path)),
        }
    }

    /// Removes whatever is at a path, with everything below.
    pub fn remove_all(&self, path: &RelPath) -> Result<(), RootError> {
        match self {
            Self::Folder(root) => root.remove_all(path),
            Self::Remote(remote) => remote.store.remove_all(&remote.at(path)),
        }
    }

    /// Bytes and files below a path, counted now.
    pub fn usage(&self, path: &RelPath) -> Result<Usage, RootError> {
        match self {
            Self::Folder(root) => root.usage(path),
            Self::Remote(remote) => remote.usage(path),
        }
    }

    /// A folder whose contents are not counted because it cannot be read.
    pub fn unreadable(&self) -> Option<RelPath> {
        match self {
            Self::Folder(root) => root.unreadable(),
            Self::Remote(_) => None,
        }
    }

    /// Like [`Self::usage`], following a link at the path.
    pub fn usage_behind(&self, path: &RelPath) -> Result<Usage, RootError> {
        match self {
            Self::Folder(root) => root.usage_behind(path),
            Self::Remote(remote) => remote.usage(path),
        }
    }

    /// Checks an assembled file and publishes it in this space.
    pub fn commit(
        &self,
        assembly: &Assembly,
        digest: Option<Digest>,
        existing: Existing,
    ) -> Result<Meta, AssemblyError> {
        match self {
            Self::Folder(_) => assembly.commit(digest, existing),
            Self::Remote(remote) => {
                let plan = assembly.plan();
                assembly.commit_elsewhere(digest, |file| {
                    remote.publish(file, &plan.path, plan.attributes(), existing)
                })
            }
        }
    }

    /// Merges a staged tree into a folder of this space, file by file, and returns the result of each.
    pub fn merge(
        &self,
        staged: StagedTree,
        folder: &RelPath,
        existing: Existing,
    ) -> Result<Merged, RootError> {
        match self {
            Self::Folder(_) => staged.merge(folder, existing, PlacedStamps::Return),
            Self::Remote(remote) => remote.merge(staged, folder, existing),
        }
    }
}

fn opened((file, meta): (std::fs::File, Meta)) -> Arc<dyn ReadAt> {
    Arc::new(OpenFile { file, meta })
}
