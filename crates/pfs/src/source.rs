//! Bytes that can be read at any offset: a file of this machine, or one that lies in a remote store.

use std::fs::File;
use std::io;

use crate::sys::FileExt;

/// Something to read from, the same from many threads.
pub trait Source: Send + Sync {
    /// Reads some bytes; zero at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// How many bytes there are, as far as is known now.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// The file of this machine behind it, where there is one: the kernel then copies without us.
    fn file(&self) -> Option<&File> {
        None
    }
}

impl Source for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn file(&self) -> Option<&File> {
        Some(self)
    }
}
