//! Systems other than Linux: stubs for calls that only Linux has. Callers use a portable fallback.

use std::ffi::CStr;
use std::fs::File;
use std::sync::LazyLock;

use super::{BorrowedFd, Errno, OFlags, OwnedFd, Stat};

/// Opens a folder only to resolve names in it.
pub(crate) const WAY: OFlags = OFlags::DIRECTORY;

/// Whether one call syncs a whole file system; not on these systems.
pub(crate) const SYNCS_FILE_SYSTEMS: bool = false;

/// Never called on these systems.
pub(crate) fn sync_file_system(_: BorrowedFd<'_>) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// A folder that cannot be opened stays as it is.
pub(crate) fn make_usable_at(_: BorrowedFd<'_>, _: &[u8]) -> Result<(), Errno> {
    Err(Errno::ACCESS)
}

/// Shared extents are an optimisation that these systems lack.
pub(crate) fn share_content(_: &File, _: &File) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// Copying in the kernel is also missing.
pub(crate) fn copy_file_range(
    _: &File,
    _: Option<&mut u64>,
    _: &File,
    _: Option<&mut u64>,
    _: usize,
) -> Result<usize, Errno> {
    Err(Errno::NOSYS)
}

/// The device and inode of a node.
#[allow(
    clippy::unnecessary_cast,
    reason = "the width of these numbers differs between systems"
)]
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Numeric attributes exist only on CephFS, which is mounted on Linux.
pub(crate) fn number_attribute(_: &OwnedFd, _: &CStr) -> Result<Option<u64>, Errno> {
    Ok(None)
}

/// A new id in every process: a reboot cannot be detected here, so the journal of an earlier process is always checked before
/// use.
pub(crate) fn boot_id() -> String {
    static ID: LazyLock<String> = LazyLock::new(crate::root::fresh_name);
    ID.clone()
}
