//! What is held open: a folder by its path, a file by its handle.

use std::fs::File;
use std::io;
use std::os::windows::fs::FileExt as WindowsFileExt;
use std::path::{Path, PathBuf};

use super::Errno;
use super::names::local_path;

/// A folder or a file.
#[derive(Debug)]
pub(crate) enum OwnedFd {
    Folder(PathBuf),
    File(File),
}

/// The same, lent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BorrowedFd<'a> {
    Folder(&'a Path),
    File(&'a File),
}

/// Whatever can be lent.
pub(crate) trait AsFd {
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Folder(path) => BorrowedFd::Folder(path),
            Self::File(file) => BorrowedFd::File(file),
        }
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd::File(self)
    }
}

impl<T: AsFd + ?Sized> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl From<OwnedFd> for File {
    /// Callers ask for files only after they have seen that it is one.
    fn from(held: OwnedFd) -> Self {
        match held {
            OwnedFd::File(file) => file,
            OwnedFd::Folder(path) => unreachable!("`{}` was opened as a folder", path.display()),
        }
    }
}

impl BorrowedFd<'_> {
    /// The full path of `name` in this folder; `.` is the folder itself.
    pub(super) fn at(self, name: impl Name) -> Result<PathBuf, Errno> {
        let Self::Folder(folder) = self else {
            return Err(Errno::NOTDIR);
        };
        match name.bytes() {
            b"." => Ok(folder.to_owned()),
            bytes => Ok(folder.join(local_path(bytes)?)),
        }
    }
}

/// A name as callers have it.
pub(crate) trait Name {
    fn bytes(&self) -> &[u8];
}

impl Name for &[u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Name for &str {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Reading and writing at an offset. The position of the handle moves, which nobody here relies on.
pub trait FileExt {
    /// Reads some bytes; none at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills all of `buffer`.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        WindowsFileExt::seek_read(self, buffer, offset)
    }

    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buffer = &mut buffer[read..];
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match WindowsFileExt::seek_write(self, bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
