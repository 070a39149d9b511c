//! Bytes that can be read by offset.
//!
//! # Why a file is read and not mapped
//!
//! Reading a mapped page that another process has just truncated raises SIGBUS, and no earlier check can rule that out.
//! `pread` into a reused buffer has no such problem: a file that shrinks gives a short read, which becomes
//! [`ReadError::Shrunk`]. With the buffer in the cache it runs at the speed of the page cache. (`mapped` offers maps
//! for the cases where safety can be proven.)

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::ReadError;
use crate::fault::Fault;

/// Bytes that can be read at any offset, by many threads at once.
#[expect(clippy::len_without_is_empty, reason = "the length is asked once, at open")]
pub trait ReadAt: Send + Sync + 'static {
    fn len(&self) -> io::Result<u64>;

    /// Fills all of `buf` from `offset` on, or fails with [`io::ErrorKind::UnexpectedEof`].
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)
    }

    #[cfg(windows)]
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            let read = std::os::windows::fs::FileExt::seek_read(self, buf, offset)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf = &mut buf[read..];
            offset += read as u64;
        }
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.as_slice().len() as u64)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset)
            .ok()
            .and_then(|at| self.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buf, offset)
    }
}

/// A named source of a length that was fixed when it was opened.
#[derive(Debug)]
pub(crate) struct SizedSource<S> {
    inner: S,
    name: PathBuf,
    len: u64,
}

impl<S: ReadAt> SizedSource<S> {
    pub(crate) fn new(inner: S, name: PathBuf) -> Result<Self, ReadError> {
        let len = inner.len().map_err(|e| ReadError::io(&name, e))?;
        Ok(Self { inner, name, len })
    }

    pub(crate) fn into_inner(self) -> S {
        self.inner
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buf` from bytes that existed at open.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> Result<(), ReadError> {
        debug_assert!(
            offset + buf.len() as u64 <= self.len,
            "callers stay inside the file"
        );
        self.inner.read_exact_at(buf, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.shrunk(),
            _ => ReadError::io(&self.name, e),
        })
    }

    pub(crate) fn damaged(&self, offset: u64, fault: Fault) -> ReadError {
        ReadError::damaged(&self.name, offset, fault)
    }

    fn shrunk(&self) -> ReadError {
        match self.inner.len() {
            Ok(found) => ReadError::Shrunk {
                file: self.name.clone(),
                expected: self.len,
                found,
            },
            Err(e) => ReadError::io(&self.name, e),
        }
    }
}
