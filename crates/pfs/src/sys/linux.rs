//! Linux: what only its kernel does for us.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

pub(crate) use rustix::fs::{ResolveFlags, copy_file_range, openat2};

/// Opens a folder as a way to others; its own content is out of reach.
pub(crate) const WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Whether one call writes out a whole file system ([`sync_file_system`]).
pub(crate) const SYNCS_FILE_SYSTEMS: bool = true;

/// Writes out the file system that something lies on.
pub(crate) fn sync_file_system(node: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::syncfs(node)
}

/// Lets the owner of a folder that cannot even be opened read, change and enter it. Links are not followed.
pub(crate) fn make_usable_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode) | Mode::RWXU;
    // Opened like this its mode can be changed only by the name it has among our descriptors.
    rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), mode)
}

/// Gives an empty file the content of another by sharing it on the disk.
pub(crate) fn share_content(target: &File, source: &File) -> Result<(), Errno> {
    rustix::fs::ioctl_ficlone(target, source)
}

/// The file system a node lies on, and its number there.
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// What a link says that was opened as itself.
pub(crate) fn read_opened_link(link: &OwnedFd) -> Result<CString, Errno> {
    rustix::fs::readlinkat(link.as_fd(), c"", Vec::new())
}

/// An extended attribute that holds a decimal number; `None` when there is no such.
pub(crate) fn number_attribute(folder: &OwnedFd, name: &CStr) -> Result<Option<u64>, Errno> {
    let mut value = [0; 32];
    match rustix::fs::fgetxattr(folder, name, &mut value) {
        Ok(len) => Ok(std::str::from_utf8(&value[..len])
            .ok()
            .and_then(|text| text.trim().parse().ok())),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::INVAL | Errno::PERM | Errno::RANGE) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The run of the machine we are in; another after every restart.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}
