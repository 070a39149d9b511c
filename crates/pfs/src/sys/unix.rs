//! Unix: the calls as they are.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

pub(crate) use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub(crate) use std::os::unix::ffi::OsStrExt;
pub use std::os::unix::fs::FileExt;

pub(crate) use rustix::fs::{
    Access, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps,
    UTIME_OMIT, accessat, flock, fstat, fstatvfs, fsync, futimens, linkat, mkdirat, open, openat, readlinkat,
    renameat, renameat_with, statat, symlinkat, unlinkat, utimensat,
};
pub(crate) use rustix::io::Errno;

/// Whether a file remembers that it is a program.
pub const KEEPS_EXECUTABLE_BITS: bool = true;

/// Writes at the end of a file that was opened for that.
pub(crate) fn append(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)
}

/// A name, or names joined by `/`, as this system's own paths are written.
pub(crate) fn local_path(bytes: &[u8]) -> Result<Cow<'_, Path>, Errno> {
    Ok(Cow::Borrowed(Path::new(OsStr::from_bytes(bytes))))
}

/// Names to match patterns against; never opened.
pub(crate) fn path_to_match(bytes: &[u8]) -> Cow<'_, Path> {
    Cow::Borrowed(Path::new(OsStr::from_bytes(bytes)))
}
