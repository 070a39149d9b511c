//! Open nodes: a folder is represented by its path, a file by its handle.

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

/// A borrowed folder or file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BorrowedFd<'a> {
    Folder(&'a Path),
    File(&'a File),
}

/// Anything that can be borrowed as a folder or file.
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
    /// Callers convert only after checking that it is a file.
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

/// A name as passed by callers.
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

/// Reads and writes at an offset. The position of the handle moves, but no caller relies on it.
pub trait FileExt {
    /// Reads some bytes; zero at the end.
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
