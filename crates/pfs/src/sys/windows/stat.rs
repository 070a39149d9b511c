//! Metadata of a node.

use std::fs::{File, Metadata, OpenOptions};
use std::os::windows::fs::{MetadataExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::Path;

use windows_sys::Win32::Storage::FileSystem as win;

use super::held::Name;
use super::{AsFd, AtFlags, BorrowedFd, Errno};

/// Kind, size, times and identity, with Unix field names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    pub st_dev: u64,
    pub st_ino: u64,
    /// Only the kind; executable bits are not stored.
    pub st_mode: u32,
    pub st_size: i64,
    pub st_mtime: i64,
    pub st_mtime_nsec: i64,
    pub st_ctime: i64,
    pub st_ctime_nsec: i64,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileType {
    RegularFile,
    Directory,
    Symlink,
    /// Never the result of a call on Windows.
    #[allow(dead_code, reason = "one set of words for all systems")]
    Unknown,
}

const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

impl FileType {
    pub fn from_raw_mode(mode: u32) -> Self {
        match mode & 0o170_000 {
            REGULAR => Self::RegularFile,
            DIRECTORY => Self::Directory,
            LINK => Self::Symlink,
            _ => Self::Unknown,
        }
    }
}

/// The metadata of `name` in a folder, without following a link.
pub(crate) fn statat(folder: impl AsFd, name: impl Name, _: AtFlags) -> Result<Stat, Errno> {
    stat_path(&folder.as_fd().at(name)?)
}

pub(crate) fn fstat(node: impl AsFd) -> Result<Stat, Errno> {
    match node.as_fd() {
        BorrowedFd::Folder(path) => stat_path(path),
        BorrowedFd::File(file) => stat_file(file),
    }
}

fn stat_path(path: &Path) -> Result<Stat, Errno> {
    stat_file(&open_itself(path, win::FILE_READ_ATTRIBUTES)?)
}

/// Opens a node of any kind for its attributes; a link is not followed.
pub(super) fn open_itself(path: &Path, access: u32) -> Result<File, Errno> {
    let mut options = OpenOptions::new();
    options
        .access_mode(access)
        .custom_flags(win::FILE_FLAG_BACKUP_SEMANTICS | win::FILE_FLAG_OPEN_REPARSE_POINT);
    Ok(options.open(path)?)
}

fn stat_file(file: &File) -> Result<Stat, Errno> {
    let metadata = file.metadata()?;
    let (st_dev, st_ino) = identity(file)?;
    let (st_mtime, st_mtime_nsec) = moment(i64::try_from(metadata.last_write_time()).unwrap_or(i64::MAX));
    let (st_ctime, st_ctime_nsec) = moment(change_time(file)?);
    Ok(Stat {
        st_dev,
        st_ino,
        st_mode: mode(&metadata),
        st_size: i64::try_from(metadata.len()).unwrap_or(i64::MAX),
        st_mtime,
        st_mtime_nsec,
        st_ctime,
        st_ctime_nsec,
    })
}

fn mode(metadata: &Metadata) -> u32 {
    let kind = metadata.file_type();
    match (kind.is_symlink(), kind.is_dir()) {
        (true, _) => LINK,
        (_, true) => DIRECTORY,
        _ => REGULAR,
    }
}

/// Volume and index of the file.
fn identity(file: &File) -> Result<(u64, u64), Errno> {
    let mut info = win::BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open as long as `file` is borrowed, and the call fills `info`.
    let done = unsafe { win::GetFileInformationByHandle(file.as_raw_handle(), &mut info) };
    match done {
        0 => Err(std::io::Error::last_os_error().into()),
        _ => Ok((
            info.dwVolumeSerialNumber.into(),
            u64::from(info.nFileIndexHigh) << 32 | u64::from(info.nFileIndexLow),
        )),
    }
}

/// When anything about the file last changed, including its other times. Programs do not normally set it.
fn change_time(file: &File) -> Result<i64, Errno> {
    let mut info = win::FILE_BASIC_INFO::default();
    let size = u32::try_from(size_of_val(&info)).expect("a few numbers");
    // SAFETY: the handle is open, and the call fills `info` up to the given size.
    let done = unsafe {
        win::GetFileInformationByHandleEx(
            file.as_raw_handle(),
            win::FileBasicInfo,
            (&raw mut info).cast(),
            size,
        )
    };
    match done {
        0 => Err(std::io::Error::last_os_error().into()),
        _ => Ok(info.ChangeTime),
    }
}

/// Converts units of 100 ns since 1601 to seconds and nanoseconds since 1970.
fn moment(ticks: i64) -> (i64, i64) {
    const PER_SECOND: i64 = 10_000_000;
    const FROM_1601_TO_1970: i64 = 11_644_473_600;
    (
        ticks.div_euclid(PER_SECOND) - FROM_1601_TO_1970,
        ticks.rem_euclid(PER_SECOND) * 100,
    )
}
