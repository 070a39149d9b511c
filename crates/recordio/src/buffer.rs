//! A reusable byte buffer: memory that it already owns is never zeroed again.

use std::io::{self, Write};
use std::ops::Deref;

/// Bytes `0..len` are in use; the memory after them stays initialised for the next chunk.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes the buffer exactly `len` long and returns it, old contents unspecified.
    pub(crate) fn resize(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.enlarge(len);
        }
        self.len = len;
        &mut self.bytes[..len]
    }

    fn enlarge(&mut self, len: usize) {
        if self.len == 0 {
            // Nothing to keep: new memory comes zeroed from the system, and is not touched before it is used.
            self.bytes = Vec::new();
            self.bytes = vec![0; len];
        } else {
            self.bytes.truncate(self.len);
            self.bytes.resize(len, 0);
        }
    }

    /// Adds `more` bytes at the end, contents unspecified, and returns all of it.
    pub(crate) fn grow(&mut self, more: usize) -> &mut [u8] {
        self.resize(self.len + more)
    }

    /// Adds these bytes at the end.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let start = self.len;
        self.grow(bytes.len())[start..].copy_from_slice(bytes);
    }

    /// Drops the first `count` bytes and moves the rest to the front.
    pub(crate) fn discard_front(&mut self, count: usize) {
        self.bytes.copy_within(count..self.len, 0);
        self.len -= count;
    }
}

/// For encoders that write at any position.
impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
