//! Unix: the system calls, unchanged.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

pub(crate) use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub(crate) use std::os::unix::ffi::OsStrExt;
pub use std::os::unix::fs::FileExt;

pub(crate) use rustix::fs::{
    Access, AtFlags, Dir, DirEntry, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, Timespec,
    Timestamps, UTIME_OMIT, accessat, fchmod, flock, fstat, fstatvfs, fsync, futimens, linkat, mkdirat, open,
    openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat, utimensat,
};
pub(crate) use rustix::io::Errno;

/// Whether the file system stores executable bits.
pub const KEEPS_EXECUTABLE_BITS: bool = true;

/// The type of an entry, if the folder reports it: then the entry need not be examined.
pub(crate) fn reported_type(entry: &DirEntry) -> Option<FileType> {
    Some(entry.file_type()).filter(|kind| *kind != FileType::Unknown)
}

/// Whether an open folder gives access to its parent.
pub(crate) const GOES_UP: bool = true;

/// Lets the owner read, change and enter an open folder.
pub(crate) fn make_usable(folder: impl AsFd) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(fstat(&folder)?.st_mode);
    match mode.contains(Mode::RWXU) {
        true => Ok(()),
        false => fchmod(folder, mode | Mode::RWXU),
    }
}

/// Frees the space of a file without a name, even if it is still open elsewhere.
pub(crate) fn empty_if_nameless(file: &File) {
    use std::os::unix::fs::MetadataExt;
    if file.metadata().is_ok_and(|meta| meta.nlink() == 0) {
        // On failure, the space is freed when the last handle is closed.
        let _ = file.set_len(0);
    }
}

/// Appends to a file that was opened for appending.
pub(crate) fn append(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)
}

/// A name, or names joined by `/`, as a local path.
pub(crate) fn local_path(bytes: &[u8]) -> Result<Cow<'_, Path>, Errno> {
    Ok(Cow::Borrowed(Path::new(OsStr::from_bytes(bytes))))
}

/// A path to match against patterns; never opened.
pub(crate) fn path_to_match(bytes: &[u8]) -> Cow<'_, Path> {
    Cow::Borrowed(Path::new(OsStr::from_bytes(bytes)))
}
