//! Windows: implements the Unix calls that this crate uses.
//!
//! A folder is represented by its full path, not by a handle: an open handle would prevent renaming its parents. Every name on a
//! path is checked for links, so an existing link cannot lead out of a root. Unlike `openat2` on Linux, this does not stop a link
//! that is swapped in concurrently. Only the client runs on Windows, in its own user's folders.

mod calls;
mod errno;
mod flags;
mod held;
mod names;
mod stat;

pub(crate) use self::calls::{
    Dir, accessat, append, empty_if_nameless, flock, fstatvfs, fsync, futimens, linkat, mkdirat, open,
    openat, readlinkat, renameat, renameat_with, reported_type, symlinkat, unlinkat, utimensat,
};
pub(crate) use self::errno::Errno;
pub(crate) use self::flags::{
    Access, AtFlags, FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT,
};
pub use self::held::FileExt;
pub(crate) use self::held::{AsFd, BorrowedFd, OwnedFd};
pub(crate) use self::names::{local_path, path_to_match};
pub(crate) use self::stat::{FileType, Stat, fstat, statat};

/// Whether an open folder gives access to its parent; here it is only a path.
pub(crate) const GOES_UP: bool = false;

/// Access to a folder does not depend on its mode on Windows.
pub(crate) fn make_usable(_: impl AsFd) -> Result<(), Errno> {
    Ok(())
}

/// Whether the file system stores executable bits; on Windows the name decides.
pub const KEEPS_EXECUTABLE_BITS: bool = false;
