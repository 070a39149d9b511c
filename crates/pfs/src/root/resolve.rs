//! Opens a path below a folder so that nothing, not even a link swapped in meanwhile, leads out.
//!
//! The kernel does the walk (`openat2`). Where it lacks the call the path is walked name by name and
//! no symbolic link is followed at all: safe, only less convenient.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::relpath::RelPath;

/// How paths are resolved on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolver {
    Openat2,
    Walk,
}

/// What to do with symbolic links on the way and at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Follow them as long as they stay below the root.
    Inside,
    /// Follow those on the way, open the last name itself.
    Parents,
    /// Meet one and fail.
    Never,
}

impl Resolver {
    /// Tries the kernel's call once; a sandbox may forbid it with other errors than "no such call".
    pub fn probe(root: BorrowedFd<'_>) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat2(root, ".", flags, Mode::empty(), ResolveFlags::BENEATH) {
            Err(Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL) => Self::Walk,
            _ => Self::Openat2,
        }
    }

    /// Opens `path` below `root`. [`Errno::XDEV`] says that it leads out.
    pub fn open(
        self,
        root: BorrowedFd<'_>,
        path: &RelPath,
        flags: OFlags,
        mode: Mode,
        follow: Follow,
    ) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        match self {
            Self::Openat2 => by_kernel(root, path, flags, mode, follow),
            Self::Walk => by_walk(root, path, flags, mode, follow),
        }
    }
}

/// The kernel gives up with EAGAIN when something was renamed during the walk; it means "ask again".
const RETRIES: usize = 128;

fn by_kernel(
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
        match rustix::fs::openat2(root, path.as_path(), flags, mode, resolve) {
            Err(errno @ (Errno::AGAIN | Errno::INTR)) => last = errno,
            done => return done,
        }
    }
    Err(last)
}

fn by_walk(
    root: BorrowedFd<'_>,
    path: &RelPath,
    flags: OFlags,
    mode: Mode,
    follow: Follow,
) -> Result<OwnedFd, Errno> {
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Some((parent, name)) = path.split_last() else {
        return rustix::fs::openat(root, ".", flags, mode);
    };
    let mut here: Option<OwnedFd> = None;
    for part in parent.parts() {
        let at = here.as_ref().map_or(root, AsFd::as_fd);
        let next = rustix::fs::openat(at, part, folder, Mode::empty());
        here = Some(next.map_err(|errno| link_or(at, part, errno))?);
    }
    let at = here.as_ref().map_or(root, AsFd::as_fd);
    let fd = rustix::fs::openat(at, name, flags | OFlags::NOFOLLOW, mode)
        .map_err(|errno| link_or(at, name, errno))?;
    // Opened by path only, a link opens as itself; that is wanted only where links are not followed.
    if follow != Follow::Parents && is_link(&fd)? {
        return Err(Errno::LOOP);
    }
    Ok(fd)
}

fn is_link(fd: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::Symlink)
}

/// `O_DIRECTORY` on a link says "not a folder"; tell it as what it is.
fn link_or(at: BorrowedFd<'_>, name: &[u8], errno: Errno) -> Errno {
    if errno == Errno::NOTDIR && rustix::fs::readlinkat(at, name, Vec::new()).is_ok() {
        return Errno::LOOP;
    }
    errno
}
