//! Bytes that can be read at any offset: a local file or one in a remote store.

use std::fs::File;
use std::io;

use crate::sys::FileExt;

/// A readable source, usable from many threads.
pub trait Source: Send + Sync {
    /// Reads some bytes; zero at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads until the buffer is full or the source ends.
    fn read_full(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at_least(buffer.len(), buffer, offset)
    }

    /// Reads a source whose last known size is `size`, and at most one byte more if it has grown. Growth is not always noticed, which
    /// would cost a second call: compare the stamp afterwards.
    fn read_whole(&self, size: usize, content: &mut Vec<u8>) -> io::Result<()> {
        content.resize(size + 1, 0);
        let read = self.read_at_least(size, content, 0)?;
        content.truncate(read);
        Ok(())
    }

    /// Reads until the buffer has `least` bytes or the source ends; perhaps more.
    fn read_at_least(&self, least: usize, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < least {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// The current size, as far as known.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// The local file behind the source, if any: the kernel can then copy it.
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
