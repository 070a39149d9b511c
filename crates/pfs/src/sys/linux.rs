//! Linux: calls that only its kernel has.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

pub(crate) use rustix::fs::{ResolveFlags, copy_file_range, openat2};

/// Opens a folder only to resolve names in it; its contents cannot be read.
pub(crate) const WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Whether one call syncs a whole file system ([`sync_file_system`]).
pub(crate) const SYNCS_FILE_SYSTEMS: bool = true;

/// Syncs the file system that contains a node.
pub(crate) fn sync_file_system(node: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::syncfs(node)
}

/// Lets the owner read, change and enter a folder that cannot be opened. Links are not followed.
pub(crate) fn make_usable_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode) | Mode::RWXU;
    // The mode of an `O_PATH` descriptor can be changed only through `/proc`.
    rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), mode)
}

/// Gives an empty file the content of another by sharing extents.
pub(crate) fn share_content(target: &File, source: &File) -> Result<(), Errno> {
    rustix::fs::ioctl_ficlone(target, source)
}

/// The device and inode of a node.
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The target of a link that was opened with `O_PATH`.
pub(crate) fn read_opened_link(link: &OwnedFd) -> Result<CString, Errno> {
    rustix::fs::readlinkat(link.as_fd(), c"", Vec::new())
}

/// An extended attribute with a decimal number; `None` if it does not exist.
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

/// The boot id, which changes at every restart of the machine.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}
