//! Systems other than Linux: what Linux's kernel does in one call is left to the callers' plain way.

use std::ffi::CStr;
use std::fs::File;
use std::sync::LazyLock;

use super::{BorrowedFd, Errno, OFlags, OwnedFd, Stat};

/// Opens a folder as a way to others.
pub(crate) const WAY: OFlags = OFlags::DIRECTORY;

/// Whether one call writes out a whole file system: nowhere else does it.
pub(crate) const SYNCS_FILE_SYSTEMS: bool = false;

/// Never called where it cannot be done.
pub(crate) fn sync_file_system(_: BorrowedFd<'_>) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// A folder that cannot be opened stays as it is.
pub(crate) fn make_usable_at(_: BorrowedFd<'_>, _: &[u8]) -> Result<(), Errno> {
    Err(Errno::ACCESS)
}

/// Sharing content on the disk is an optimisation; it is not made here.
pub(crate) fn share_content(_: &File, _: &File) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Copying inside the kernel, too.
pub(crate) fn copy_file_range(
    _: &File,
    _: Option<&mut u64>,
    _: &File,
    _: Option<&mut u64>,
    _: usize,
) -> Result<usize, Errno> {
    Err(Errno::NOSYS)
}

/// The file system a node lies on, and its number there.
#[allow(
    clippy::unnecessary_cast,
    reason = "the width of these numbers differs between systems"
)]
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Attributes with numbers are CephFS's, which is mounted on Linux.
pub(crate) fn number_attribute(_: &OwnedFd, _: &CStr) -> Result<Option<u64>, Errno> {
    Ok(None)
}

/// Another in every process: nobody here can tell whether the machine was restarted, so what an earlier process
/// noted is checked before it is believed.
pub(crate) fn boot_id() -> String {
    static ID: LazyLock<String> = LazyLock::new(crate::root::fresh_name);
    ID.clone()
}
