//! A confined folder: every operation is relative to its open descriptor, and the kernel refuses paths that lead out at the
//! moment of use.
//!
//! Makes no decisions about users; a caller opens the root that a user may access.

mod copy;
mod error;
mod glob;
mod kept;
mod meta;
mod real;
mod removal;
mod resolve;
mod staged;
mod tree;
mod usage;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

pub use self::error::RootError;
pub use self::glob::{GlobError, GlobPattern};
pub use self::meta::{Kind, Meta, Stamp};
use self::real::Protected;
use self::resolve::{Follow, Resolver, Seen};
pub use self::staged::{Existing, FileAttributes, StagedFile};
pub use self::tree::{DirEntry, Made, Walk};
pub use self::usage::Usage;
use crate::entry::{LinkTarget, Mtime};
use crate::relpath::RelPath;
use crate::sys::{self, AsFd, AtFlags, BorrowedFd, Errno, Mode, OFlags, OwnedFd};

pub(crate) use self::copy::copy_source;
pub(crate) use self::error::if_exists;
use self::error::if_visible;
pub(crate) use self::removal::remove_tree_in;
pub(crate) use self::staged::{
    STAGING, fresh_name, hold, hold_alone, in_staging, is_free, lock_within, publish_folder, publish_node,
    publish_over, staging_folder, sync_tree, tidy_staging,
};

/// An opened folder; cheap to clone.
#[derive(Debug, Clone)]
pub struct Root {
    fd: Arc<OwnedFd>,
    resolver: Resolver,
    durability: Durability,
    /// Folders that may not be changed through this root.
    protected: Option<Arc<Protected>>,
}

/// Whether published files must survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Files and folders are synced before an operation returns.
    #[default]
    Synced,
    /// The content of a file is synced before the file gets its name, so that a name never refers to lost bytes; the name itself
    /// may be lost.
    Contents,
    /// The operating system writes at any time; for caches, scratch trees and measurements.
    Relaxed,
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

impl Root {
    /// Opens `dir`. Links in `dir` are followed, because the operator chose the path.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, RootError> {
        let fd = sys::open(dir.as_ref(), FOLDER | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| RootError::errno("open the folder", &RelPath::root(), errno))?;
        Ok(Self {
            resolver: Resolver::probe(fd.as_fd()),
            fd: Arc::new(fd),
            durability: Durability::Synced,
            protected: None,
        })
    }

    /// Returns the root with another durability.
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Returns the root as on a kernel without `openat2`.
    #[cfg(test)]
    pub(crate) fn walking(mut self) -> Self {
        self.resolver = Resolver::Walk;
        self
    }

    /// What must survive a power cut.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// A root further down, which confines paths to its own folder. The path must not contain links.
    pub fn descend(&self, path: &RelPath) -> Result<Self, RootError> {
        let fd = self.open_at(path, FOLDER, Follow::Never, "open the folder")?;
        Ok(self.below(fd))
    }

    /// A root further down; links inside this root are followed.
    pub(crate) fn follow(&self, path: &RelPath) -> Result<Self, RootError> {
        Ok(self.below(self.open_dir(path)?))
    }

    fn below(&self, folder: OwnedFd) -> Self {
        Self {
            fd: Arc::new(folder),
            // Protected paths are relative to the upper root.
            protected: None,
            ..self.clone()
        }
    }

    /// The metadata of `path`, following links inside the root.
    pub fn stat(&self, path: &RelPath) -> Result<Meta, RootError> {
        self.look_at(path, Follow::Inside)
    }

    /// The metadata of `path` itself, without following a link.
    pub fn stat_link(&self, path: &RelPath) -> Result<Meta, RootError> {
        self.look_at(path, Follow::Parents)
    }

    /// The metadata of each path without following links; `None` if it is missing or may not be seen.
    ///
    /// Skips further paths in a folder that is known to be missing, so consecutive ones cost nothing.
    pub fn stat_many(&self, paths: &[RelPath]) -> Result<Vec<Option<Meta>>, RootError> {
        let mut absent: Option<RelPath> = None;
        let look = |path: &RelPath| {
            if absent.as_ref().is_some_and(|absent| path.is_within(absent)) {
                return Ok(None);
            }
            let found = if_visible(self.stat_link(path))?;
            if found.is_none()
                && let Some(parent) = path.parent().filter(|parent| !parent.is_root())
                && absent.as_ref() != Some(&parent)
            {
                absent = if_visible(self.stat(&parent))?.is_none().then_some(parent);
            }
            Ok(found)
        };
        paths.iter().map(look).collect()
    }

    /// The current metadata of an open file.
    pub fn look_again(&self, file: &File, path: &RelPath) -> Result<Meta, RootError> {
        let stat = sys::fstat(file).map_err(|errno| RootError::errno("stat", path, errno))?;
        Meta::new(&stat, || Err(RootError::NotAFile(path.clone())))
    }

    fn look_at(&self, path: &RelPath, follow: Follow) -> Result<Meta, RootError> {
        let failed = |errno| RootError::errno("stat", path, errno);
        let seen = Seen::find(self.resolver, self.fd(), path, follow).map_err(failed)?;
        Meta::new(&seen.stat().map_err(failed)?, || {
            link_target(path, seen.target().map_err(failed)?.as_bytes())
        })
    }

    /// Whether anything exists at `path`, even a dangling link.
    pub fn exists(&self, path: &RelPath) -> Result<bool, RootError> {
        match self.stat_link(path) {
            Ok(_) => Ok(true),
            Err(RootError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file for reading, following links inside the root.
    pub fn open_file(&self, path: &RelPath) -> Result<(File, Meta), RootError> {
        self.open_regular(path, Follow::Inside)
    }

    /// Opens a regular file for reading; fails if the path contains a link.
    pub fn open_file_no_links(&self, path: &RelPath) -> Result<(File, Meta), RootError> {
        self.open_regular(path, Follow::Never)
    }

    fn open_regular(&self, path: &RelPath, follow: Follow) -> Result<(File, Meta), RootError> {
        let fd = self.open_at(path, READ, follow, "open")?;
        let stat = sys::fstat(&fd).map_err(|errno| RootError::errno("stat", path, errno))?;
        let meta = Meta::new(&stat, || Err(RootError::NotAFile(path.clone())))?;
        match meta.kind {
            Kind::File => Ok((File::from(fd), meta)),
            Kind::Dir => Err(RootError::IsAFolder(path.clone())),
            Kind::Symlink(_) | Kind::Special => Err(RootError::NotAFile(path.clone())),
        }
    }

    /// Bytes available to an ordinary user on the file system, and its total size.
    pub fn free_space(&self) -> Result<(u64, u64), RootError> {
        let info =
            sys::fstatvfs(&*self.fd).map_err(|errno| RootError::errno("measure", &RelPath::root(), errno))?;
        Ok((
            info.f_bavail.saturating_mul(info.f_frsize),
            info.f_blocks.saturating_mul(info.f_frsize),
        ))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn open_dir(&self, path: &RelPath) -> Result<OwnedFd, RootError> {
        self.open_at(path, FOLDER, Follow::Inside, "open the folder")
    }

    pub(crate) fn open_dir_no_links(&self, path: &RelPath) -> Result<OwnedFd, RootError> {
        self.open_at(path, FOLDER, Follow::Never, "open the folder")
    }

    /// The parent of `path`, opened for writing, and the last name. Fails for the root.
    pub(crate) fn open_parent<'a>(&self, path: &'a RelPath) -> Result<(OwnedFd, &'a [u8]), RootError> {
        let (parent, name) = path
            .split_last()
            .ok_or_else(|| RootError::IsAFolder(path.clone()))?;
        let (fd, real) = self.open_to_write(&parent).map_err(|error| match error {
            RootError::NotFound(_) => RootError::NotFound(path.clone()),
            other => other,
        })?;
        self.refuse_protected(&real.child(name)?, path)?;
        Ok((fd, name))
    }

    fn open_at(
        &self,
        path: &RelPath,
        flags: OFlags,
        follow: Follow,
        action: &'static str,
    ) -> Result<OwnedFd, RootError> {
        self.resolver
            .open(self.fd(), path, flags, Mode::empty(), follow)
            .map_err(|errno| RootError::errno(action, path, errno))
    }

    /// Syncs a folder, if names must survive a power cut.
    pub(crate) fn sync_fd(&self, fd: impl AsFd, path: &RelPath) -> Result<(), RootError> {
        match self.durability {
            Durability::Synced => sync(fd, path),
            Durability::Contents | Durability::Relaxed => Ok(()),
        }
    }

    /// Syncs the content of a file before it gets its name.
    pub(crate) fn sync_content(&self, file: impl AsFd, path: &RelPath) -> Result<(), RootError> {
        match self.durability {
            Durability::Synced | Durability::Contents => sync(file, path),
            Durability::Relaxed => Ok(()),
        }
    }
}

fn sync(fd: impl AsFd, path: &RelPath) -> Result<(), RootError> {
    sys::fsync(fd).map_err(|errno| RootError::errno("sync", path, errno))
}

pub(crate) fn link_target(path: &RelPath, bytes: &[u8]) -> Result<LinkTarget, RootError> {
    LinkTarget::from_bytes(bytes).map_err(|_| RootError::NotAFile(path.clone()))
}

/// Sets the modification time and leaves the access time unchanged.
pub(crate) fn timestamps(mtime: Mtime) -> sys::Timestamps {
    let (tv_sec, nanos) = mtime.parts();
    sys::Timestamps {
        last_access: sys::Timespec {
            tv_sec: 0,
            tv_nsec: sys::UTIME_OMIT,
        },
        last_modification: sys::Timespec {
            tv_sec,
            tv_nsec: nanos.into(),
        },
    }
}

pub(crate) fn stat_name(dir: impl AsFd, name: &[u8]) -> Result<sys::Stat, Errno> {
    sys::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests;
