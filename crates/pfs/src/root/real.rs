//! Resolves the links in a path, and refuses changes to protected folders, regardless of the path that leads there.
//!
//! The text of a path is not enough: with links, one file has many paths. The check holds for the folder opened afterwards, because
//! that is opened by a path without links.

use std::collections::VecDeque;
use std::sync::Arc;

use super::resolve::{Follow, Resolver};
use super::{FOLDER, Kind, Root, RootError, STAGING};
use crate::relpath::RelPath;
use crate::staging::is_package;
use crate::sys::{self, AsFd, Errno, OwnedFd};

/// The maximum number of links on a path, as in the kernel.
const MOST_LINKS: usize = 40;
/// How often to resolve links again that change concurrently.
const TRIES: usize = 16;

/// Folders that may not be changed through a root.
#[derive(Debug, Clone, Default)]
pub(super) struct Protected {
    folders: Vec<RelPath>,
    /// An exception: this path and everything below it.
    but: Option<RelPath>,
}

impl Root {
    /// Returns the root without write access to these folders, and to the staging folder by name.
    pub fn protecting(mut self, folders: Vec<RelPath>) -> Self {
        self.protected = Some(Arc::new(Protected { folders, but: None }));
        self
    }

    /// Returns the root with write access to one protected node and everything below it.
    pub fn protecting_all_but(mut self, path: RelPath) -> Self {
        if let Some(protected) = &self.protected {
            self.protected = Some(Arc::new(Protected {
                but: Some(path),
                ..Protected::clone(protected)
            }));
        }
        self
    }

    /// The path of a node after resolving all links on the way. The node itself may be a link.
    ///
    /// Parts that do not exist yet stay as they are.
    pub fn real_place(&self, path: &RelPath) -> Result<RelPath, RootError> {
        match path.split_last() {
            Some((folder, name)) => Ok(self.real_folder(&folder)?.child(name)?),
            None => Ok(RelPath::root()),
        }
    }

    /// The path of a folder after resolving all links, including a link to the folder itself.
    pub fn real_folder(&self, path: &RelPath) -> Result<RelPath, RootError> {
        // Most paths have no links, which one system call shows.
        match self.open_at(path, sys::WAY, Follow::Never, "stat") {
            Err(RootError::ThroughLink(_)) if self.resolver != Resolver::Walk => self.follow_links(path),
            Err(error @ (RootError::ThroughLink(_) | RootError::Denied(_))) => Err(error),
            _ => Ok(path.clone()),
        }
    }

    fn follow_links(&self, path: &RelPath) -> Result<RelPath, RootError> {
        let mut real = RelPath::root();
        let mut left: VecDeque<Vec<u8>> = path.parts().map(<[u8]>::to_vec).collect();
        // How many of the remaining names, at the end, belong to the path itself and not to a link.
        let mut own = left.len();
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            let is_own = left.len() < own;
            own -= usize::from(is_own);
            if name == b".." {
                real = real.parent().ok_or_else(|| RootError::Escapes(path.clone()))?;
                continue;
            }
            let next = real.child(&name)?;
            match self.stat_link(&next).map(|meta| meta.kind) {
                Ok(Kind::Symlink(target)) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(RootError::ThroughLink(path.clone()));
                    }
                    if target.as_bytes().starts_with(b"/") {
                        return Err(RootError::Escapes(path.clone()));
                    }
                    let names = target.as_bytes().split(|byte| *byte == b'/');
                    let names = names.filter(|name| !matches!(*name, b"" | b"."));
                    names.rev().for_each(|name| left.push_front(name.to_vec()));
                }
                Ok(_) => real = next,
                Err(RootError::NotFound(_)) if is_own => {
                    return left.iter().try_fold(next, |real, name| Ok(real.child(name)?));
                }
                // A dangling link is an error too: nothing is created behind it.
                Err(error) => return Err(error.about(path)),
            }
        }
        Ok(real)
    }

    /// Opens a folder for writing and returns its resolved path.
    pub(crate) fn open_to_write(&self, path: &RelPath) -> Result<(OwnedFd, RelPath), RootError> {
        if self.protected.is_none() {
            return Ok((self.open_dir(path)?, path.clone()));
        }
        let mut real = path.clone();
        for _ in 0..TRIES {
            match self.open_at(&real, FOLDER, Follow::Never, "open the folder") {
                Ok(folder) => return Ok((folder, real)),
                // The path contains a link, or one was added since it was resolved.
                Err(RootError::ThroughLink(_)) => real = self.real_folder(path)?,
                Err(error) => return Err(error.about(path)),
            }
        }
        Err(RootError::ThroughLink(path.clone()))
    }

    /// Refuses a protected path, judged by its resolved form; the error has the path that the caller used.
    pub(crate) fn refuse_protected(&self, real: &RelPath, asked: &RelPath) -> Result<(), RootError> {
        let Some(protected) = &self.protected else {
            return Ok(());
        };
        let mut parts = real.parts();
        // Uploads fill the staged tree of a package, and nothing else there.
        if parts.next() == Some(STAGING.as_bytes()) && !parts.next().is_some_and(is_package) {
            return Err(RootError::NotFound(asked.clone()));
        }
        let lies_in = |folder: &RelPath| real.is_within(folder);
        match protected.folders.iter().any(lies_in) && !protected.but.as_ref().is_some_and(lies_in) {
            true => Err(RootError::Protected(asked.clone())),
            false => Ok(()),
        }
    }

    /// Whether an open folder is this root, under any name.
    pub(crate) fn is(&self, folder: impl AsFd) -> bool {
        let number = |stat: Result<sys::Stat, Errno>| stat.ok().map(|stat| sys::identity(&stat));
        let own = number(sys::fstat(self.fd()));
        own.is_some() && own == number(sys::fstat(folder))
    }
}
