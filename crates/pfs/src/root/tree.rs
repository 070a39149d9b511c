//! Folders below a root: list, walk, make, remove, rename, measure.

use std::ffi::CStr;

use super::{Existing, Meta, Root, RootError, STAGING, link_target, publish_node, stat_name};
use crate::relpath::RelPath;
use crate::sys::{self, AsFd, AtFlags, Dir, Errno, FileType, Mode, OFlags, OwnedFd};

/// One line of a folder's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub path: RelPath,
    pub meta: Meta,
}

/// What a tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of content of all files; a file with two names counts twice.
    pub bytes: u64,
    /// Files and links.
    pub files: u64,
    pub folders: u64,
}

impl Usage {
    /// Counts one more node.
    pub fn add(&mut self, meta: &Meta) {
        self.bytes += meta.size;
        if meta.is_dir() {
            self.folders += 1;
        } else {
            self.files += 1;
        }
    }
}

impl Root {
    /// What lies directly in a folder, by name. The staging folder is not shown.
    pub fn list(&self, folder: &RelPath) -> Result<Vec<DirEntry>, RootError> {
        let fd = self.open_dir(folder)?;
        self.list_fd(folder, &fd)
    }

    fn list_fd(&self, folder: &RelPath, fd: &OwnedFd) -> Result<Vec<DirEntry>, RootError> {
        let mut entries = Vec::new();
        for name in names(folder, fd)? {
            if folder.is_root() && name == STAGING.as_bytes() {
                continue;
            }
            let path = folder.child(&name)?;
            // Gone between reading the folder and looking at it: somebody else's removal, not an error.
            if let Some(meta) = self.meta_at(fd, &path, &name)? {
                entries.push(DirEntry { path, meta });
            }
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    fn meta_at(&self, dir: &OwnedFd, path: &RelPath, name: &[u8]) -> Result<Option<Meta>, RootError> {
        let failed = |errno| RootError::errno("look at", path, errno);
        let stat = match stat_name(dir, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let meta = Meta::new(&stat, || {
            let target = sys::readlinkat(dir, name, Vec::new()).map_err(failed)?;
            link_target(path, target.as_bytes())
        });
        match meta {
            Err(RootError::NotFound(_)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Everything below a folder, folders before what they hold, in the order of [`RelPath`].
    ///
    /// Holds one listing per level in memory and one descriptor at a time, so neither a wide nor a deep tree
    /// exhausts it. Links are told, not followed. A folder that cannot be read is an error in its place; the walk
    /// then goes on beside it.
    pub fn walk(&self, folder: &RelPath) -> Walk {
        Walk {
            root: self.clone(),
            start: Some(folder.clone()),
            levels: Vec::new(),
        }
    }

    /// Bytes and files below `path`, itself included when it is not a folder.
    pub fn usage(&self, path: &RelPath) -> Result<Usage, RootError> {
        let meta = self.stat_link(path)?;
        let mut usage = Usage::default();
        if !meta.is_dir() {
            usage.add(&meta);
            return Ok(usage);
        }
        for entry in self.walk(path) {
            usage.add(&entry?.meta);
        }
        Ok(usage)
    }

    /// Makes a folder and every folder on the way; one that is there already is fine.
    pub fn make_dirs(&self, path: &RelPath) -> Result<(), RootError> {
        self.open_or_make_dirs(path).map(drop)
    }

    pub(crate) fn open_or_make_dirs(&self, path: &RelPath) -> Result<OwnedFd, RootError> {
        let mut missing: Vec<&[u8]> = Vec::new();
        let mut existing = path.clone();
        let mut here = loop {
            match self.open_dir(&existing) {
                Err(RootError::NotFound(_)) if !existing.is_root() => {
                    missing.push(
                        path.parts()
                            .nth(existing.depth() - 1)
                            .expect("a prefix of the path"),
                    );
                    existing = existing.parent().expect("not the root");
                }
                other => break other?,
            }
        };
        while let Some(name) = missing.pop() {
            here = self.make_and_open(path, here, name)?;
        }
        Ok(here)
    }

    fn make_and_open(&self, path: &RelPath, parent: OwnedFd, name: &[u8]) -> Result<OwnedFd, RootError> {
        match sys::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => self.sync_fd(&parent, path)?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(RootError::errno("make the folder", path, errno)),
        }
        // Just made by us or by a racing twin: a link here would be a trap, so it is not followed.
        let flags = super::FOLDER | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        sys::openat(&parent, name, flags, Mode::empty())
            .map_err(|errno| RootError::errno("open the folder", path, errno))
    }

    /// Removes a file, a link or an empty folder.
    pub fn remove(&self, path: &RelPath) -> Result<(), RootError> {
        let (parent, name) = self.open_parent(path)?;
        self.unlink(&parent, path, name)?;
        self.sync_fd(&parent, path)
    }

    /// Removes whatever is at `path`, with all that lies below. Links are removed, never followed.
    ///
    /// The tree first moves out of sight, so nobody sees half of it, and then goes.
    pub fn remove_all(&self, path: &RelPath) -> Result<(), RootError> {
        if !self.stat_link(path)?.is_dir() {
            return self.remove(path);
        }
        let (parent, name) = self.open_parent(path)?;
        let grave = super::staging_folder(self)?;
        let buried = super::fresh_name();
        match sys::renameat(&parent, name, &grave, buried.as_str()) {
            Ok(()) => {
                self.sync_fd(&parent, path)?;
                let removed = remove_tree(grave.as_fd(), buried.as_bytes(), path);
                super::staged::tidy_staging(self);
                removed
            }
            // A mount point or a quota border: remove in place.
            Err(Errno::XDEV | Errno::BUSY) => remove_tree(parent.as_fd(), name, path),
            Err(errno) => Err(RootError::errno("remove", path, errno)),
        }
    }

    fn unlink(&self, parent: &OwnedFd, path: &RelPath, name: &[u8]) -> Result<(), RootError> {
        let failed = |errno| RootError::errno("remove", path, errno);
        let stat = stat_name(parent, name).map_err(failed)?;
        let flags = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        sys::unlinkat(parent, name, flags).map_err(failed)
    }

    /// Gives a node another place. A folder takes a place only when nothing or an empty folder is there.
    pub fn rename(&self, from: &RelPath, to: &RelPath, existing: Existing) -> Result<(), RootError> {
        if to.is_within(from) && to != from {
            return Err(RootError::IntoItself {
                from: from.clone(),
                to: to.clone(),
            });
        }
        self.rename_to(from, self, to, existing)
    }

    /// Moves a node to another root of the same file system.
    pub fn rename_to(
        &self,
        from: &RelPath,
        target: &Root,
        to: &RelPath,
        existing: Existing,
    ) -> Result<(), RootError> {
        let (source_dir, source_name) = self.open_parent(from)?;
        let (target_dir, target_name) = target.open_parent(to)?;
        // A missing source and a missing target folder give the same error code; tell them apart here.
        stat_name(&source_dir, source_name).map_err(|errno| RootError::errno("rename", from, errno))?;
        publish_node((&source_dir, source_name), (&target_dir, target_name), existing)
            .map_err(|errno| RootError::errno("rename", to, errno))?;
        self.sync_fd(&source_dir, from)?;
        target.sync_fd(&target_dir, to)
    }

    /// Makes a symbolic link whose text is `target`; where it leads is checked when it is followed.
    pub fn make_link(&self, path: &RelPath, target: &crate::entry::LinkTarget) -> Result<(), RootError> {
        let (parent, name) = self.open_parent(path)?;
        sys::symlinkat(target.as_bytes(), &parent, name)
            .map_err(|errno| RootError::errno("make the link", path, errno))?;
        self.sync_fd(&parent, path)
    }
}

/// Walks a tree; see [`Root::walk`].
#[derive(Debug)]
pub struct Walk {
    root: Root,
    start: Option<RelPath>,
    levels: Vec<std::vec::IntoIter<DirEntry>>,
}

impl Walk {
    fn enter(&mut self, folder: &RelPath, first: bool) -> Result<(), RootError> {
        let fd = if first {
            self.root.open_dir(folder)?
        } else {
            self.root.open_dir_no_links(folder)?
        };
        self.levels.push(self.root.list_fd(folder, &fd)?.into_iter());
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry, RootError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take()
            && let Err(error) = self.enter(&start, true)
        {
            return Some(Err(error));
        }
        let entry = loop {
            match self.levels.last_mut()?.next() {
                Some(entry) => break entry,
                None => drop(self.levels.pop()),
            }
        };
        if entry.meta.is_dir() {
            match self.enter(&entry.path, false) {
                Ok(()) => {}
                // Removed, or replaced by something else, since it was listed: it is no folder any more.
                Err(RootError::NotFound(_) | RootError::NotAFolder(_) | RootError::ThroughLink(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(entry))
    }
}

fn names(folder: &RelPath, fd: &OwnedFd) -> Result<Vec<Vec<u8>>, RootError> {
    let failed = |errno| RootError::errno("list", folder, errno);
    let mut names = Vec::new();
    for entry in Dir::read_from(fd).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !is_dots(entry.file_name()) {
            names.push(entry.file_name().to_bytes().to_vec());
        }
    }
    Ok(names)
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// How often a folder that is being written to while it is removed is emptied again.
const MAX_ROUNDS: usize = 1000;

/// Removes `name` and all below it with one open folder per step and no recursion, so depth costs no stack
/// and no descriptors. Folders are first moved up to `dir` (flattened), then emptied one after the other.
fn remove_tree(dir: sys::BorrowedFd<'_>, name: &[u8], shown: &RelPath) -> Result<(), RootError> {
    let failed = |errno| RootError::errno("remove", shown, errno);
    let mut waiting = vec![name.to_vec()];
    let mut rounds = 0;
    while let Some(current) = waiting.pop() {
        let flags = super::FOLDER | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match sys::openat(dir, current.as_slice(), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(failed(errno)),
        };
        for child in names(shown, &fd)? {
            match sys::unlinkat(&fd, child.as_slice(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => {
                    if sys::unlinkat(&fd, child.as_slice(), AtFlags::REMOVEDIR).is_ok() {
                        continue;
                    }
                    let lifted = super::fresh_name();
                    sys::renameat(&fd, child.as_slice(), dir, lifted.as_str()).map_err(failed)?;
                    waiting.push(lifted.into_bytes());
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
        match sys::unlinkat(dir, current.as_slice(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            // Somebody still writes into it: go round again, but not for ever.
            Err(Errno::NOTEMPTY) if rounds < MAX_ROUNDS => {
                rounds += 1;
                waiting.push(current);
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(())
}

pub(crate) fn remove_tree_in(dir: &OwnedFd, name: &[u8], shown: &RelPath) -> Result<(), RootError> {
    remove_tree(dir.as_fd(), name, shown)
}
