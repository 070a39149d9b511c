//! Windows: the words of Unix that this crate uses, said with what Windows offers.
//!
//! A folder is held by its full path, not by a handle: an open handle would keep others, and ourselves, from renaming
//! what it lies in. Links are looked for at every name on the way, so a path does not leave its root by one that was
//! there before; one that is swapped in at the same moment is not stopped, as the kernel does it on Linux. Only the
//! client runs here, in folders of its own user.

mod calls;
mod errno;
mod flags;
mod held;
mod names;
mod stat;

pub(crate) use self::calls::{
    Dir, accessat, append, empty_if_nameless, flock, fstatvfs, fsync, futimens, linkat, mkdirat, open,
    openat, readlinkat, renameat, renameat_with, symlinkat, told_type, unlinkat, utimensat,
};
pub(crate) use self::errno::Errno;
pub(crate) use self::flags::{
    Access, AtFlags, FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT,
};
pub use self::held::FileExt;
pub(crate) use self::held::{AsFd, BorrowedFd, OwnedFd};
pub(crate) use self::names::{local_path, path_to_match};
pub(crate) use self::stat::{FileType, Stat, fstat, statat};

/// Whether a folder that is open leads to the one above it; a path is all that is held of it.
pub(crate) const GOES_UP: bool = false;

/// What keeps others out of a folder here is not its mode.
pub(crate) fn make_usable(_: impl AsFd) -> Result<(), Errno> {
    Ok(())
}

/// Whether a file has no other name; who must know is not told here.
pub(crate) fn has_one_name(_: &Stat) -> bool {
    false
}

/// Whether a file remembers that it is a program; here its name tells.
pub const KEEPS_EXECUTABLE_BITS: bool = false;
