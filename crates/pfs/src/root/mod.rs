//! A folder nobody gets out of: every operation is relative to its open descriptor, and the kernel
//! refuses whatever leads elsewhere at the moment of use.
//!
//! Decides nothing about users; a caller opens the root of what a user may reach.

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

pub use self::copy::Copied;
pub use self::error::RootError;
pub use self::glob::{GlobError, GlobPattern};
pub use self::kept::{Counted, OwnQuota, in_the_way};
pub use self::meta::{Kind, Meta, Stamp};
use self::real::Spared;
use self::resolve::{Follow, Resolver, Seen};
pub use self::staged::{Existing, FileAttributes, StagedFile};
pub use self::tree::{DirEntry, Walk};
pub use self::usage::Usage;
use crate::entry::{LinkTarget, Mtime};
use crate::relpath::RelPath;
use crate::sys::{self, AsFd, AtFlags, BorrowedFd, Errno, Mode, OFlags, OwnedFd};

pub(crate) use self::copy::copy_source;
use self::error::if_seen;
pub(crate) use self::error::if_there;
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
    /// What is not changed through it.
    spared: Option<Arc<Spared>>,
}

/// Whether what is published must survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Files and folders are synced before an operation returns.
    #[default]
    Synced,
    /// What a file holds is on the disk before the file has its name, so that a name never stands for bytes that were
    /// lost; the name itself may be lost.
    Contents,
    /// The operating system writes when it likes; for caches, scratch trees and measurements.
    Relaxed,
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

impl Root {
    /// Opens `dir` itself; links in `dir` are followed, as it is the operator's word.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, RootError> {
        let fd = sys::open(dir.as_ref(), FOLDER | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| RootError::errno("open the folder", &RelPath::root(), errno))?;
        Ok(Self {
            resolver: Resolver::probe(fd.as_fd()),
            fd: Arc::new(fd),
            durability: Durability::Synced,
            spared: None,
        })
    }

    /// The same root with another promise about power cuts.
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The same root on a kernel without `openat2`.
    #[cfg(test)]
    pub(crate) fn walking(mut self) -> Self {
        self.resolver = Resolver::Walk;
        self
    }

    /// What is promised about power cuts.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// A root further down; nothing resolved in it gets even to the upper one. No link may lie on the way.
    pub fn descend(&self, path: &RelPath) -> Result<Self, RootError> {
        let fd = self.open_at(path, FOLDER, Follow::Never, "open the folder")?;
        Ok(self.below(fd))
    }

    /// A root further down, also where links inside this one lead to it.
    pub(crate) fn follow(&self, path: &RelPath) -> Result<Self, RootError> {
        Ok(self.below(self.open_dir(path)?))
    }

    fn below(&self, folder: OwnedFd) -> Self {
        Self {
            fd: Arc::new(folder),
            // Named from further up.
            spared: None,
            ..self.clone()
        }
    }

    /// What `path` is, following links inside the root.
    pub fn stat(&self, path: &RelPath) -> Result<Meta, RootError> {
        self.look_at(path, Follow::Inside)
    }

    /// What `path` itself is: a link is told as a link.
    pub fn stat_link(&self, path: &RelPath) -> Result<Meta, RootError> {
        self.look_at(path, Follow::Parents)
    }

    /// What each of some paths itself is; `None` where there is nothing, or nothing that may be seen.
    ///
    /// Of a folder that is not there, what lies in it is not looked for: paths that follow each other cost nothing.
    pub fn stat_many(&self, paths: &[RelPath]) -> Result<Vec<Option<Meta>>, RootError> {
        let mut absent: Option<RelPath> = None;
        let look = |path: &RelPath| {
            if absent.as_ref().is_some_and(|absent| path.is_within(absent)) {
                return Ok(None);
            }
            let found = if_seen(self.stat_link(path))?;
            if found.is_none()
                && let Some(parent) = path.parent().filter(|parent| !parent.is_root())
                && absent.as_ref() != Some(&parent)
            {
                absent = if_seen(self.stat(&parent))?.is_none().then_some(parent);
            }
            Ok(found)
        };
        paths.iter().map(look).collect()
    }

    /// What an open file is now.
    pub fn look_again(&self, file: &File, path: &RelPath) -> Result<Meta, RootError> {
        let stat = sys::fstat(file).map_err(|errno| RootError::errno("look at", path, errno))?;
        Meta::new(&stat, || Err(RootError::NotAFile(path.clone())))
    }

    fn look_at(&self, path: &RelPath, follow: Follow) -> Result<Meta, RootError> {
        let failed = |errno| RootError::errno("look at", path, errno);
        let seen = Seen::find(self.resolver, self.fd(), path, follow).map_err(failed)?;
        Meta::new(&seen.stat().map_err(failed)?, || {
            link_target(path, seen.target().map_err(failed)?.as_bytes())
        })
    }

    /// Whether anything, a broken link included, is at `path`.
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

    /// Opens a regular file for reading; a link anywhere on the way is an error.
    pub fn open_file_no_links(&self, path: &RelPath) -> Result<(File, Meta), RootError> {
        self.open_regular(path, Follow::Never)
    }

    fn open_regular(&self, path: &RelPath, follow: Follow) -> Result<(File, Meta), RootError> {
        let fd = self.open_at(path, READ, follow, "open")?;
        let stat = sys::fstat(&fd).map_err(|errno| RootError::errno("look at", path, errno))?;
        let meta = Meta::new(&stat, || Err(RootError::NotAFile(path.clone())))?;
        match meta.kind {
            Kind::File => Ok((File::from(fd), meta)),
            Kind::Dir => Err(RootError::IsAFolder(path.clone())),
            Kind::Symlink(_) | Kind::Special => Err(RootError::NotAFile(path.clone())),
        }
    }

    /// Bytes free for an ordinary user on the file system, and its size.
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

    /// The folder `path` lies in, opened to be written to, and the last name. The root has neither.
    pub(crate) fn open_parent<'a>(&self, path: &'a RelPath) -> Result<(OwnedFd, &'a [u8]), RootError> {
        let (parent, name) = path
            .split_last()
            .ok_or_else(|| RootError::IsAFolder(path.clone()))?;
        let (fd, real) = self.open_to_write(&parent).map_err(|error| match error {
            RootError::NotFound(_) => RootError::NotFound(path.clone()),
            other => other,
        })?;
        self.refuse_spared(&real.child(name)?, path)?;
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

    /// Syncs a folder, where its names are to last.
    pub(crate) fn sync_fd(&self, fd: impl AsFd, path: &RelPath) -> Result<(), RootError> {
        match self.durability {
            Durability::Synced => sync(fd, path),
            Durability::Contents | Durability::Relaxed => Ok(()),
        }
    }

    /// Syncs what a file holds, before it gets its name.
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

/// Sets the time of last change, leaving the time of last access to the kernel.
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
