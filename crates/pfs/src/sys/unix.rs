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
    Access, AtFlags, Dir, DirEntry, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, Timespec,
    Timestamps, UTIME_OMIT, accessat, fchmod, flock, fstat, fstatvfs, fsync, futimens, linkat, mkdirat, open,
    openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat, utimensat,
};
pub(crate) use rustix::io::Errno;

/// Whether a file remembers that it is a program.
pub const KEEPS_EXECUTABLE_BITS: bool = true;

/// What a folder says of one of its entries, where it says anything: then nobody need look at the entry itself.
pub(crate) fn told_type(entry: &DirEntry) -> Option<FileType> {
    Some(entry.file_type()).filter(|told| *told != FileType::Unknown)
}

/// Whether a folder that is open leads to the one above it.
pub(crate) const GOES_UP: bool = true;

/// Lets the owner of an open folder read, change and enter it.
pub(crate) fn make_usable(folder: impl AsFd) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(fstat(&folder)?.st_mode);
    match mode.contains(Mode::RWXU) {
        true => Ok(()),
        false => fchmod(folder, mode | Mode::RWXU),
    }
}

/// Whether a file has no other name than the one it was opened by.
pub(crate) fn has_one_name(stat: &Stat) -> bool {
    stat.st_nlink == 1
}

/// Gives back the room of a file that no name leads to any more, although somebody may still hold it open.
pub(crate) fn empty_if_nameless(file: &File) {
    use std::os::unix::fs::MetadataExt;
    if file.metadata().is_ok_and(|meta| meta.nlink() == 0) {
        // It goes in the end, when nobody holds it.
        let _ = file.set_len(0);
    }
}

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
