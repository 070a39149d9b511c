//! Other systems cannot hold a node without opening it, so it is examined by name in its opened folder.

use std::ffi::CString;

use super::{Follow, Resolver, walk_to};
use crate::relpath::RelPath;
use crate::sys::{self, AsFd, AtFlags, BorrowedFd, Errno, FileType, Mode, OFlags, OwnedFd, Stat};

impl Resolver {
    /// There is only one method here.
    pub fn probe(_: BorrowedFd<'_>) -> Self {
        Self::Walk
    }
}

/// A node by its folder and name.
pub(crate) struct Seen {
    folder: OwnedFd,
    name: Vec<u8>,
    follow: Follow,
}

impl Seen {
    pub fn find(_: Resolver, root: BorrowedFd<'_>, path: &RelPath, follow: Follow) -> Result<Self, Errno> {
        let open = |at: BorrowedFd<'_>| sys::openat(at, ".", sys::WAY | OFlags::CLOEXEC, Mode::empty());
        let (folder, name) = match path.split_last() {
            None => (open(root)?, b".".to_vec()),
            Some((parent, name)) => match walk_to(root, &parent)? {
                Some(folder) => (folder, name.to_vec()),
                None => (open(root)?, name.to_vec()),
            },
        };
        Ok(Self { folder, name, follow })
    }

    pub fn stat(&self) -> Result<Stat, Errno> {
        let stat = sys::statat(
            self.folder.as_fd(),
            self.name.as_slice(),
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        match is_link && self.follow != Follow::Parents {
            true => Err(Errno::LOOP),
            false => Ok(stat),
        }
    }

    /// The target; only for links.
    pub fn target(&self) -> Result<CString, Errno> {
        sys::readlinkat(self.folder.as_fd(), self.name.as_slice(), Vec::new())
    }
}
