//! Opens a path below a folder so that nothing leads out, not even a link swapped in concurrently.
//!
//! On Linux the kernel resolves the path (`openat2`). Without that call, and on other systems, the path is walked name by name
//! and no symbolic link is followed: safe, but less convenient.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use self::elsewhere::Seen;
#[cfg(target_os = "linux")]
pub(crate) use self::linux::Seen;
use crate::relpath::RelPath;
use crate::sys::{self, AsFd, BorrowedFd, Errno, FileType, Mode, OFlags, OwnedFd};

/// How paths are resolved on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolver {
    #[cfg(target_os = "linux")]
    Openat2,
    Walk,
}

/// How to treat symbolic links on the path and at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Follow links that stay below the root.
    Inside,
    /// Follow links on the path, but not at its end.
    Parents,
    /// Fail on any link.
    Never,
}

impl Resolver {
    /// Opens `path` below `root`. Returns [`Errno::XDEV`] if it leads out.
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
            #[cfg(target_os = "linux")]
            Self::Openat2 => linux::open(root, path, flags, mode, follow),
            Self::Walk => by_walk(root, path, flags, mode, follow),
        }
    }
}

fn by_walk(
    root: BorrowedFd<'_>,
    path: &RelPath,
    flags: OFlags,
    mode: Mode,
    follow: Follow,
) -> Result<OwnedFd, Errno> {
    let Some((parent, name)) = path.split_last() else {
        return sys::openat(root, ".", flags, mode);
    };
    let here = walk_to(root, &parent)?;
    let at = here.as_ref().map_or(root, AsFd::as_fd);
    let fd =
        sys::openat(at, name, flags | OFlags::NOFOLLOW, mode).map_err(|errno| link_or(at, name, errno))?;
    // Opened with `O_PATH`, a link opens as itself, which only `Follow::Parents` allows.
    if follow != Follow::Parents && is_link(&fd)? {
        return Err(Errno::LOOP);
    }
    Ok(fd)
}

/// The folder at `path`, opened name by name; `None` for the root itself.
fn walk_to(root: BorrowedFd<'_>, path: &RelPath) -> Result<Option<OwnedFd>, Errno> {
    let flags = sys::WAY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here: Option<OwnedFd> = None;
    for part in path.parts() {
        let at = here.as_ref().map_or(root, AsFd::as_fd);
        let next = sys::openat(at, part, flags, Mode::empty());
        here = Some(next.map_err(|errno| link_or(at, part, errno))?);
    }
    Ok(here)
}

fn is_link(fd: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(sys::fstat(fd)?.st_mode) == FileType::Symlink)
}

/// `O_DIRECTORY` on a link fails with `ENOTDIR`; return `ELOOP` instead.
fn link_or(at: BorrowedFd<'_>, name: &[u8], errno: Errno) -> Errno {
    if errno == Errno::NOTDIR && sys::readlinkat(at, name, Vec::new()).is_ok() {
        return Errno::LOOP;
    }
    errno
}
