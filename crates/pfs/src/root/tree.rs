//! Folders below a root: list, walk, create, rename, remove single nodes.

use std::ffi::CStr;

use super::{Existing, Kind, Meta, Root, RootError, STAGING, link_target, publish_node, stat_name};
use crate::entry::{Entry, LinkTarget, Node};
use crate::relpath::RelPath;
use crate::sys::{self, AtFlags, Dir, Errno, FileType, Mode, OFlags, OwnedFd};

/// One entry of a folder's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub path: RelPath,
    pub meta: Meta,
}

impl DirEntry {
    /// Converts it to an [`Entry`] without a digest. Returns the path of a socket, pipe or device as an error.
    pub fn into_entry(self) -> Result<Entry, RelPath> {
        let DirEntry { path, meta } = self;
        let node = match meta.kind {
            Kind::Dir => Node::Dir,
            Kind::File => Node::file(meta.size, meta.executable),
            Kind::Symlink(target) => Node::Symlink { target },
            Kind::Special => return Err(path),
        };
        let mtime = meta.mtime;
        Ok(Entry { path, node, mtime })
    }
}

/// What became of a folder that was to exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// This call created it.
    New,
    /// It existed, or a concurrent call created it.
    Existed,
}

/// An entry, or why it cannot be listed.
type Listed = Result<DirEntry, RootError>;

impl Root {
    /// The entries directly in a folder, by name. The staging folder is hidden.
    pub fn list(&self, folder: &RelPath) -> Result<Vec<DirEntry>, RootError> {
        let fd = self.open_dir(folder)?;
        self.list_fd(folder, &fd)?.into_iter().collect()
    }

    /// An entry that cannot be named or examined is an error in its place.
    fn list_fd(&self, folder: &RelPath, fd: &OwnedFd) -> Result<Vec<Listed>, RootError> {
        let mut entries = Vec::new();
        let mut nameless = Vec::new();
        for name in names(folder, fd)? {
            if name == STAGING.as_bytes() && (folder.is_root() || self.is(fd)) {
                continue;
            }
            match folder.child(&name) {
                Ok(path) => entries.push((path, name)),
                // The path is too long. Names in a folder this deep are all reported by one error.
                Err(_) => nameless = vec![Err(RootError::TooLong(folder.clone()))],
            }
        }
        entries.sort();
        let looked_at = entries.into_iter().filter_map(|(path, name)| {
            // An entry removed since the folder was read is skipped.
            let meta = self.meta_at(fd, &path, &name).transpose()?;
            Some(meta.map(|meta| DirEntry { path, meta }))
        });
        Ok(looked_at.chain(nameless).collect())
    }

    fn meta_at(&self, dir: &OwnedFd, path: &RelPath, name: &[u8]) -> Result<Option<Meta>, RootError> {
        let failed = |errno| RootError::errno("stat", path, errno);
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

    /// Everything below a folder in the order of [`RelPath`], folders before their contents.
    ///
    /// Keeps one listing per level in memory and one descriptor open, so that wide and deep trees are fine. Links are listed, not
    /// followed. A folder that cannot be read is an error in its place, and the walk continues.
    pub fn walk(&self, folder: &RelPath) -> Walk {
        Walk {
            root: self.clone(),
            start: folder.clone(),
            only_finished: false,
            has_started: false,
            opened: None,
            levels: Vec::new(),
        }
    }

    /// The links below a folder and their targets, in no order. If the folder reports the types of its entries, only links are
    /// examined.
    pub(crate) fn links_below(&self, folder: &RelPath) -> Result<Vec<(RelPath, LinkTarget)>, RootError> {
        let mut links = Vec::new();
        let mut waiting = vec![folder.clone()];
        while let Some(folder) = waiting.pop() {
            let fd = self.open_dir_no_links(&folder)?;
            for (name, reported) in typed_names(&folder, &fd)? {
                let path = folder.child(&name)?;
                let failed = |errno| RootError::errno("stat", &path, errno);
                let kind = match reported {
                    Some(kind) => kind,
                    None => FileType::from_raw_mode(stat_name(&fd, &name).map_err(failed)?.st_mode),
                };
                match kind {
                    FileType::Directory => waiting.push(path),
                    FileType::Symlink => {
                        let target = sys::readlinkat(&fd, name.as_slice(), Vec::new()).map_err(failed)?;
                        let target = link_target(&path, target.as_bytes())?;
                        links.push((path, target));
                    }
                    _ => {}
                }
            }
        }
        Ok(links)
    }

    /// Creates a folder and its parents; existing ones are fine.
    pub fn make_dirs(&self, path: &RelPath) -> Result<(), RootError> {
        self.make_folder(path).map(drop)
    }

    /// The same, and says whether the folder itself is new.
    pub fn make_folder(&self, path: &RelPath) -> Result<Made, RootError> {
        let mut missing: Vec<&[u8]> = Vec::new();
        let mut existing = path.clone();
        let (mut here, real) = loop {
            match self.open_to_write(&existing) {
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
        if !missing.is_empty() {
            let below = path.strip_prefix(&existing).expect("a prefix of the path");
            self.refuse_protected(&real.join(&below)?, path)?;
        }
        let mut made = Made::Existed;
        while let Some(name) = missing.pop() {
            (here, made) = self.make_and_open(path, here, name)?;
        }
        Ok(made)
    }

    fn make_and_open(
        &self,
        path: &RelPath,
        parent: OwnedFd,
        name: &[u8],
    ) -> Result<(OwnedFd, Made), RootError> {
        let made = match sys::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => Made::New,
            Err(Errno::EXIST) => Made::Existed,
            Err(errno) => return Err(RootError::errno("create the folder", path, errno)),
        };
        if made == Made::New {
            self.sync_fd(&parent, path)?;
        }
        // Just created, by us or a concurrent process. A link here would be a trap, so it is not followed.
        let flags = super::FOLDER | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = sys::openat(&parent, name, flags, Mode::empty())
            .map_err(|errno| RootError::errno("open the folder", path, errno))?;
        Ok((folder, made))
    }

    /// Removes a file, a link or an empty folder.
    pub fn remove(&self, path: &RelPath) -> Result<(), RootError> {
        let (parent, name) = self.open_parent(path)?;
        self.unlink(&parent, path, name)?;
        self.sync_fd(&parent, path)
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

    /// Renames a node. A folder can replace only an empty folder.
    pub fn rename(&self, from: &RelPath, to: &RelPath, existing: Existing) -> Result<(), RootError> {
        self.rename_to(from, self, to, existing)
    }

    /// Moves a node to another root of the same file system, or within this one.
    pub fn rename_to(
        &self,
        from: &RelPath,
        target: &Root,
        to: &RelPath,
        existing: Existing,
    ) -> Result<(), RootError> {
        if let (Ok(real_from), Ok(real_to)) = (self.real_place(from), target.real_place(to))
            && real_to != real_from
            && real_to.is_within(&real_from)
            && self.is(target.fd())
        {
            return Err(RootError::IntoItself {
                from: from.clone(),
                to: to.clone(),
            });
        }
        let (source_dir, source_name) = self.open_parent(from)?;
        let (target_dir, target_name) = target.open_parent(to)?;
        // A missing source and a missing target folder give the same errno; distinguish them here.
        stat_name(&source_dir, source_name).map_err(|errno| RootError::errno("rename", from, errno))?;
        publish_node((&source_dir, source_name), (&target_dir, target_name), existing)
            .map_err(|errno| RootError::errno("rename", to, errno))?;
        self.sync_fd(&source_dir, from)?;
        target.sync_fd(&target_dir, to)
    }

    /// Creates a symbolic link with the text `target`. The target is checked when the link is followed.
    pub fn make_link(&self, path: &RelPath, target: &LinkTarget) -> Result<(), RootError> {
        let (parent, name) = self.open_parent(path)?;
        sys::symlinkat(target.as_bytes(), &parent, name)
            .map_err(|errno| RootError::errno("create the link", path, errno))?;
        self.sync_fd(&parent, path)
    }
}

/// Walks a tree; see [`Root::walk`].
#[derive(Debug)]
pub struct Walk {
    root: Root,
    start: RelPath,
    only_finished: bool,
    has_started: bool,
    /// The folder at the start, as opened then: a link may lead to it, but links below are not followed.
    opened: Option<Root>,
    levels: Vec<std::vec::IntoIter<Listed>>,
}

impl Walk {
    /// Skips the staging folder in every folder, because each may have been the root of a download.
    pub fn only_finished(self) -> Self {
        Self {
            only_finished: true,
            ..self
        }
    }

    fn begin(&mut self) -> Result<(), RootError> {
        let opened = self.root.follow(&self.start)?;
        self.levels
            .push(self.root.list_fd(&self.start, &opened.fd)?.into_iter());
        self.opened = Some(opened);
        Ok(())
    }

    fn enter(&mut self, opened: &Root, folder: &RelPath) -> Result<(), RootError> {
        let below = folder.strip_prefix(&self.start).unwrap_or_else(|| folder.clone());
        let fd = opened
            .open_dir_no_links(&below)
            .map_err(|error| error.about(folder))?;
        self.levels.push(self.root.list_fd(folder, &fd)?.into_iter());
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry, RootError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !std::mem::replace(&mut self.has_started, true)
            && let Err(error) = self.begin()
        {
            return Some(Err(error));
        }
        let opened = self.opened.clone()?;
        let entry = loop {
            match self.levels.last_mut()?.next() {
                Some(Ok(entry)) if self.only_finished && entry.path.name() == Some(STAGING.as_bytes()) => {}
                Some(Ok(entry)) => break entry,
                Some(Err(error)) => return Some(Err(error)),
                None => drop(self.levels.pop()),
            }
        };
        if entry.meta.is_dir() {
            match self.enter(&opened, &entry.path) {
                Ok(()) => {}
                // Removed or replaced since it was listed: it is no longer a folder.
                Err(RootError::NotFound(_) | RootError::NotAFolder(_) | RootError::ThroughLink(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(entry))
    }
}

pub(super) fn names(folder: &RelPath, fd: &OwnedFd) -> Result<Vec<Vec<u8>>, RootError> {
    let names = typed_names(folder, fd)?.into_iter().map(|(name, _)| name);
    Ok(names.collect())
}

/// A name in a folder, and its type if the folder reports it.
pub(super) type TypedName = (Vec<u8>, Option<FileType>);

fn typed_names(folder: &RelPath, fd: &OwnedFd) -> Result<Vec<TypedName>, RootError> {
    raw_names(fd).map_err(|errno| RootError::errno("list", folder, errno))
}

pub(super) fn raw_names(fd: &OwnedFd) -> Result<Vec<TypedName>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        if !is_dots(entry.file_name()) {
            names.push((entry.file_name().to_bytes().to_vec(), sys::reported_type(&entry)));
        }
    }
    Ok(names)
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
