//! Where a path really lies once its links are followed, and what is not changed by whatever path leads there.
//!
//! Text alone decides neither: a link gives one place many names. What is decided here holds for the folder that is
//! then opened, as that is opened by a path without links.

use std::collections::VecDeque;
use std::sync::Arc;

use super::resolve::{Follow, Resolver};
use super::{FOLDER, Kind, Root, RootError, STAGING};
use crate::relpath::RelPath;
use crate::sys::{self, AsFd, Errno, OwnedFd};

/// Links on the way to one node; the kernel does not follow more either.
const MOST_LINKS: usize = 40;
/// How often links that change meanwhile are followed again.
const TRIES: usize = 16;

/// What is not changed through a root.
#[derive(Debug, Clone, Default)]
pub(super) struct Spared {
    folders: Vec<RelPath>,
    /// Except for what lies here.
    but: Option<RelPath>,
}

impl Root {
    /// The same root, through which nothing in these folders is changed, and nothing in the staging folder by name.
    pub fn sparing(mut self, folders: Vec<RelPath>) -> Self {
        self.spared = Some(Arc::new(Spared { folders, but: None }));
        self
    }

    /// The same root, through which one node of what it spares, with all below it, may be changed.
    pub fn sparing_all_but(mut self, path: RelPath) -> Self {
        if let Some(spared) = &self.spared {
            self.spared = Some(Arc::new(Spared {
                but: Some(path),
                ..Spared::clone(spared)
            }));
        }
        self
    }

    /// Where a node really lies: the path without links that `path` stands for. The node itself may be a link.
    ///
    /// What is not there yet has no links.
    pub fn real_place(&self, path: &RelPath) -> Result<RelPath, RootError> {
        match path.split_last() {
            Some((folder, name)) => Ok(self.real_folder(&folder)?.child(name)?),
            None => Ok(RelPath::root()),
        }
    }

    /// Where a folder really lies; a link that leads to it is followed too.
    pub fn real_folder(&self, path: &RelPath) -> Result<RelPath, RootError> {
        // Most paths have no links, which one call tells.
        match self.open_at(path, sys::WAY, Follow::Never, "look at") {
            Err(RootError::ThroughLink(_)) if self.resolver != Resolver::Walk => self.follow_links(path),
            Err(error @ (RootError::ThroughLink(_) | RootError::Denied(_))) => Err(error),
            _ => Ok(path.clone()),
        }
    }

    fn follow_links(&self, path: &RelPath) -> Result<RelPath, RootError> {
        let mut real = RelPath::root();
        let mut left: VecDeque<Vec<u8>> = path.parts().map(<[u8]>::to_vec).collect();
        // How many of those are names of the path itself, not of a link on it; they come last.
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
                // Also behind a link that leads nowhere: nothing is made there.
                Err(error) => return Err(error.about(path)),
            }
        }
        Ok(real)
    }

    /// Opens a folder that is to be written to, and says where it really lies.
    pub(crate) fn open_to_write(&self, path: &RelPath) -> Result<(OwnedFd, RelPath), RootError> {
        if self.spared.is_none() {
            return Ok((self.open_dir(path)?, path.clone()));
        }
        let mut real = path.clone();
        for _ in 0..TRIES {
            match self.open_at(&real, FOLDER, Follow::Never, "open the folder") {
                Ok(folder) => return Ok((folder, real)),
                // There is a link, or has been since its place was looked up.
                Err(RootError::ThroughLink(_)) => real = self.real_folder(path)?,
                Err(error) => return Err(error.about(path)),
            }
        }
        Err(RootError::ThroughLink(path.clone()))
    }

    /// Refuses what is spared, by where it really lies; the error names it as it was asked for.
    pub(crate) fn refuse_spared(&self, real: &RelPath, asked: &RelPath) -> Result<(), RootError> {
        let Some(spared) = &self.spared else {
            return Ok(());
        };
        if real.parts().next() == Some(STAGING.as_bytes()) {
            return Err(RootError::NotFound(asked.clone()));
        }
        let lies_in = |folder: &RelPath| real.is_within(folder);
        match spared.folders.iter().any(lies_in) && !spared.but.as_ref().is_some_and(lies_in) {
            true => Err(RootError::Spared(asked.clone())),
            false => Ok(()),
        }
    }

    /// Whether an open folder is this root itself, whatever name led there.
    pub(crate) fn is(&self, folder: impl AsFd) -> bool {
        let number = |stat: Result<sys::Stat, Errno>| stat.ok().map(|stat| sys::identity(&stat));
        let own = number(sys::fstat(self.fd()));
        own.is_some() && own == number(sys::fstat(folder))
    }
}
