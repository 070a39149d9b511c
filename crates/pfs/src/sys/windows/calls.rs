//! Calls on files and folders.

use std::ffi::{CStr, CString, OsString};
use std::fs::{self, File, FileTimes, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::{symlink_dir, symlink_file};
use std::os::windows::io::{AsRawHandle, FromRawHandle};
use std::path::Path;
use std::time::{Duration, SystemTime};

use windows_sys::Win32::Foundation::{GENERIC_WRITE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Storage::FileSystem as win;

use super::held::Name;
use super::names::{link_path, link_text};
use super::stat::{FileType, open_itself};
use super::{
    Access, AsFd, AtFlags, BorrowedFd, Errno, FlockOperation, Mode, OFlags, OwnedFd, RenameFlags, Timestamps,
};

/// Opens a folder by a path from the user. The canonical form has no length limit and is unique.
pub(crate) fn open(path: &Path, flags: OFlags, _: Mode) -> Result<OwnedFd, Errno> {
    let full = fs::canonicalize(path)?;
    match flags.has(OFlags::DIRECTORY) && !full.is_dir() {
        true => Err(Errno::NOTDIR),
        false => Ok(OwnedFd::Folder(full)),
    }
}

pub(crate) fn openat(folder: impl AsFd, name: impl Name, flags: OFlags, _: Mode) -> Result<OwnedFd, Errno> {
    let path = folder.as_fd().at(name)?;
    if flags.has(OFlags::CREATE) {
        return open_file(&path, flags);
    }
    let kind = fs::symlink_metadata(&path)?.file_type();
    if flags.has(OFlags::DIRECTORY) {
        return match kind.is_dir() {
            true => Ok(OwnedFd::Folder(path)),
            false => Err(Errno::NOTDIR),
        };
    }
    if kind.is_symlink() {
        return Err(Errno::LOOP);
    }
    match (kind.is_dir(), flags.writes()) {
        (true, false) => Ok(OwnedFd::Folder(path)),
        (true, true) => Err(Errno::ISDIR),
        (false, _) => open_file(&path, flags),
    }
}

fn open_file(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut options = OpenOptions::new();
    options
        .read(!flags.has(OFlags::WRONLY))
        .write(flags.writes())
        .create_new(flags.has(OFlags::CREATE) && flags.has(OFlags::EXCL))
        .create(flags.has(OFlags::CREATE) && !flags.has(OFlags::EXCL));
    Ok(OwnedFd::File(options.open(path)?))
}

/// Appends to a file. A file opened only for appending could not be truncated, so this seeks to the end. Callers serialize these
/// calls.
pub(crate) fn append(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::End(0))?;
    file.write_all(bytes)
}

/// On Windows an open file keeps its space until it is closed.
pub(crate) fn empty_if_nameless(_: &File) {}

pub(crate) fn accessat(folder: impl AsFd, name: impl Name, _: Access, _: AtFlags) -> Result<(), Errno> {
    fs::symlink_metadata(folder.as_fd().at(name)?)?;
    Ok(())
}

pub(crate) fn mkdirat(folder: impl AsFd, name: impl Name, _: Mode) -> Result<(), Errno> {
    Ok(fs::create_dir(folder.as_fd().at(name)?)?)
}

pub(crate) fn unlinkat(folder: impl AsFd, name: impl Name, flags: AtFlags) -> Result<(), Errno> {
    let path = folder.as_fd().at(name)?;
    let kind = fs::symlink_metadata(&path)?.file_type();
    match (kind.is_dir(), flags == AtFlags::REMOVEDIR) {
        (true, true) => Ok(fs::remove_dir(path)?),
        (true, false) => Err(Errno::ISDIR),
        (false, true) => Err(Errno::NOTDIR),
        (false, false) => remove_leaf(&path),
    }
}

/// Removes a file or a link; a link to a folder is removed like a folder.
fn remove_leaf(path: &Path) -> Result<(), Errno> {
    use std::os::windows::fs::FileTypeExt;
    match fs::symlink_metadata(path)?.file_type().is_symlink_dir() {
        true => Ok(fs::remove_dir(path)?),
        false => Ok(fs::remove_file(path)?),
    }
}

pub(crate) fn renameat(
    from: impl AsFd,
    name: impl Name,
    to: impl AsFd,
    new_name: impl Name,
) -> Result<(), Errno> {
    let (source, target) = (from.as_fd().at(name)?, to.as_fd().at(new_name)?);
    let is_folder = |path: &Path| fs::symlink_metadata(path).map(|node| node.file_type().is_dir());
    match (is_folder(&source)?, is_folder(&target)) {
        (false, Ok(true)) => return Err(Errno::ISDIR),
        (true, Ok(false)) => return Err(Errno::NOTDIR),
        // A folder can replace only an empty folder.
        (true, Ok(true)) if source != target => fs::remove_dir(&target)?,
        _ => {}
    }
    Ok(fs::rename(source, target)?)
}

pub(crate) fn renameat_with(
    from: impl AsFd,
    name: impl Name,
    to: impl AsFd,
    new_name: impl Name,
    flags: RenameFlags,
) -> Result<(), Errno> {
    if flags == RenameFlags::Exchange {
        return Err(Errno::NOSYS);
    }
    let wide = |path: &Path| -> Vec<u16> { path.as_os_str().encode_wide().chain([0]).collect() };
    let (source, target) = (from.as_fd().at(name)?, to.as_fd().at(new_name)?);
    // SAFETY: both strings are null-terminated and live until the call returns.
    let done = unsafe { win::MoveFileExW(wide(&source).as_ptr(), wide(&target).as_ptr(), 0) };
    match done {
        0 => Err(std::io::Error::last_os_error().into()),
        _ => Ok(()),
    }
}

pub(crate) fn linkat(
    from: impl AsFd,
    name: impl Name,
    to: impl AsFd,
    new_name: impl Name,
    _: AtFlags,
) -> Result<(), Errno> {
    Ok(fs::hard_link(from.as_fd().at(name)?, to.as_fd().at(new_name)?)?)
}

/// Creates a link. Its kind, file or folder, depends on the current target.
pub(crate) fn symlinkat(target: &[u8], folder: impl AsFd, name: impl Name) -> Result<(), Errno> {
    let (path, target) = (folder.as_fd().at(name)?, link_path(target)?);
    let leads_to = path
        .parent()
        .map_or_else(|| target.clone(), |parent| parent.join(&target));
    match leads_to.is_dir() {
        true => Ok(symlink_dir(target, path)?),
        false => Ok(symlink_file(target, path)?),
    }
}

pub(crate) fn readlinkat(folder: impl AsFd, name: impl Name, _: Vec<u8>) -> Result<CString, Errno> {
    let target = fs::read_link(folder.as_fd().at(name)?)?;
    CString::new(link_text(&target)).map_err(|_| Errno::ILSEQ)
}

pub(crate) fn futimens(node: impl AsFd, times: &Timestamps) -> Result<(), Errno> {
    match node.as_fd() {
        BorrowedFd::File(file) => Ok(file.set_times(modified(times))?),
        BorrowedFd::Folder(path) => set_times(path, times),
    }
}

pub(crate) fn utimensat(
    folder: impl AsFd,
    name: impl Name,
    times: &Timestamps,
    _: AtFlags,
) -> Result<(), Errno> {
    set_times(&folder.as_fd().at(name)?, times)
}

fn set_times(path: &Path, times: &Timestamps) -> Result<(), Errno> {
    Ok(open_itself(path, win::FILE_WRITE_ATTRIBUTES)?.set_times(modified(times))?)
}

/// Times before 1601 cannot be stored; they become 1970.
fn modified(times: &Timestamps) -> FileTimes {
    let moment = times.last_modification;
    let nanos = Duration::from_nanos(moment.tv_nsec.unsigned_abs());
    let seconds = Duration::from_secs(moment.tv_sec.unsigned_abs());
    let time = match moment.tv_sec < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
        false => SystemTime::UNIX_EPOCH.checked_add(seconds),
    };
    let time = time.and_then(|time| time.checked_add(nanos));
    FileTimes::new().set_modified(time.unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Folders need no sync: the file system's journal covers them.
pub(crate) fn fsync(node: impl AsFd) -> Result<(), Errno> {
    let BorrowedFd::File(file) = node.as_fd() else {
        return Ok(());
    };
    match file.sync_all() {
        // Syncing needs write access.
        Err(error) if Errno::of(&error) == Errno::ACCESS => Ok(reopen_to_write(file)?.sync_all()?),
        done => Ok(done?),
    }
}

fn reopen_to_write(file: &File) -> Result<File, Errno> {
    let share = win::FILE_SHARE_READ | win::FILE_SHARE_WRITE | win::FILE_SHARE_DELETE;
    // SAFETY: the handle is open as long as `file` is borrowed.
    let handle = unsafe { win::ReOpenFile(file.as_raw_handle(), GENERIC_WRITE, share, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the call has just returned the handle, and nothing else owns it.
    Ok(unsafe { File::from_raw_handle(handle) })
}

/// Locks a file. Holders of a shared lock could not write on Windows, so the first one locks exclusively and later ones proceed
/// without a lock; the file still counts as in use. A folder cannot be locked: an exclusive lock always fails as if it were in
/// use, so that nothing in use is removed.
pub(crate) fn flock(node: impl AsFd, operation: FlockOperation) -> Result<(), Errno> {
    let BorrowedFd::File(file) = node.as_fd() else {
        return match operation {
            FlockOperation::LockExclusive | FlockOperation::NonBlockingLockExclusive => {
                Err(Errno::WOULDBLOCK)
            }
            _ => Ok(()),
        };
    };
    let tried = |tried: Result<(), TryLockError>| match tried {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Errno::WOULDBLOCK),
        Err(TryLockError::Error(error)) => Err(error.into()),
    };
    match operation {
        FlockOperation::LockShared | FlockOperation::NonBlockingLockShared => match tried(file.try_lock()) {
            Err(Errno::WOULDBLOCK) => Ok(()),
            done => done,
        },
        FlockOperation::LockExclusive => Ok(file.lock()?),
        FlockOperation::Unlock => Ok(file.unlock()?),
        FlockOperation::NonBlockingLockExclusive => tried(file.try_lock()),
    }
}

/// The size of a volume, in units of `f_frsize` bytes.
pub(crate) struct StatVfs {
    pub f_bavail: u64,
    pub f_blocks: u64,
    pub f_frsize: u64,
}

pub(crate) fn fstatvfs(folder: impl AsFd) -> Result<StatVfs, Errno> {
    let path = folder.as_fd().at(".")?;
    let wide: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    let (mut free, mut size) = (0, 0);
    // SAFETY: the string is null-terminated; the call fills the two numbers and skips the null pointer.
    let done = unsafe { win::GetDiskFreeSpaceExW(wide.as_ptr(), &mut free, &mut size, std::ptr::null_mut()) };
    match done {
        0 => Err(std::io::Error::last_os_error().into()),
        _ => Ok(StatVfs {
            f_bavail: free,
            f_blocks: size,
            f_frsize: 1,
        }),
    }
}

/// An iterator over a folder.
pub(crate) struct Dir(fs::ReadDir);

/// One name in a folder.
pub(crate) struct Named(CString);

impl Dir {
    pub fn read_from(folder: impl AsFd) -> Result<Self, Errno> {
        Ok(Self(fs::read_dir(folder.as_fd().at(".")?)?))
    }
}

impl Iterator for Dir {
    type Item = Result<Named, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.0.next()?;
        Some(
            entry
                .map_err(Errno::from)
                .and_then(|entry| name(entry.file_name())),
        )
    }
}

fn name(name: OsString) -> Result<Named, Errno> {
    let bytes = name.into_encoded_bytes();
    CString::new(bytes).map(Named).map_err(|_| Errno::ILSEQ)
}

/// The types that a folder reports are not used on Windows.
pub(crate) fn reported_type(_entry: &Named) -> Option<FileType> {
    None
}

impl Named {
    pub fn file_name(&self) -> &CStr {
        &self.0
    }
}
