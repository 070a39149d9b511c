//! Linux: the kernel resolves paths, and holds a node without opening it.

use std::ffi::CString;

use super::{Follow, Resolver};
use crate::relpath::RelPath;
use crate::sys::{self, BorrowedFd, Errno, Mode, OFlags, OwnedFd, ResolveFlags, Stat};

/// How often to retry `EAGAIN`, which the kernel returns after a concurrent rename.
const RETRIES: usize = 128;

impl Resolver {
    /// Tries `openat2` once; a sandbox may forbid it with errors other than `ENOSYS`.
    pub fn probe(root: BorrowedFd<'_>) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match sys::openat2(root, ".", flags, Mode::empty(), ResolveFlags::BENEATH) {
            Err(Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL) => Self::Walk,
            _ => Self::Openat2,
        }
    }
}

pub(super) fn open(
    root: BorrowedFd<'_>,
    path: &RelPath,
    mut flags: OFlags,
    mode: Mode,
    follow: Follow,
) -> Result<OwnedFd, Errno> {
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match follow {
        Follow::Inside => {}
        Follow::Parents => flags |= OFlags::NOFOLLOW,
        Follow::Never => resolve |= ResolveFlags::NO_SYMLINKS,
    }
    let mut last = Errno::AGAIN;
    for _ in 0..RETRIES {
        match sys::openat2(root, path.as_path(), flags, mode, resolve) {
            Err(errno @ (Errno::AGAIN | Errno::INTR)) => last = errno,
            done => return done,
        }
    }
    Err(last)
}

/// A node that is held by a descriptor while it is examined.
pub(crate) struct Seen(OwnedFd);

impl Seen {
    pub fn find(
        resolver: Resolver,
        root: BorrowedFd<'_>,
        path: &RelPath,
        follow: Follow,
    ) -> Result<Self, Errno> {
        resolver
            .open(root, path, OFlags::PATH, Mode::empty(), follow)
            .map(Self)
    }

    pub fn stat(&self) -> Result<Stat, Errno> {
        sys::fstat(&self.0)
    }

    /// The target; only for links.
    pub fn target(&self) -> Result<CString, Errno> {
        sys::read_opened_link(&self.0)
    }
}
