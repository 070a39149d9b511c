//! Reusable buffers for bytes in transfer.
//!
//! Fresh memory costs a page fault for every 4 KiB, as much as reading the bytes. Reused buffers are not zeroed, so callers see
//! only the bytes that were read into them.

use std::io;
use std::sync::{Mutex, PoisonError};

/// A pool of buffers of one size.
#[derive(Debug)]
pub struct Buffers {
    size: usize,
    /// Idle buffers beyond this number are freed.
    most_kept: usize,
    kept: Mutex<Vec<Vec<u8>>>,
}

/// A buffer in use; returned to the pool on drop.
#[derive(Debug)]
pub struct Buffer {
    home: &'static Buffers,
    memory: Vec<u8>,
    filled: usize,
}

impl Buffers {
    /// A pool of buffers of `size` bytes that keeps at most `most_kept` idle ones.
    pub const fn new(size: usize, most_kept: usize) -> Self {
        Self {
            size,
            most_kept,
            kept: Mutex::new(Vec::new()),
        }
    }

    /// An empty buffer.
    pub fn take(&'static self) -> Buffer {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Buffer {
            home: self,
            memory: kept.unwrap_or_else(|| vec![0; self.size]),
            filled: 0,
        }
    }
}

impl Buffer {
    /// Calls `read` on the next `len` bytes; it returns how many it filled. Returns the added bytes.
    pub fn fill(
        &mut self,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<&[u8]> {
        let begin = self.filled;
        let space = &mut self.memory[begin..][..len];
        let read = read(space)?;
        assert!(read <= len, "nobody reads more than there is room for");
        self.filled += read;
        Ok(&self.memory[begin..self.filled])
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut kept = self.home.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < self.home.most_kept {
            kept.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_shows_only_what_was_put_into_it_this_time() {
        static STORE: Buffers = Buffers::new(8, 1);
        let mut first = STORE.take();
        first
            .fill(6, |space| {
                space.copy_from_slice(b"secret");
                Ok(6)
            })
            .unwrap();
        let place = first.as_ref().as_ptr();
        drop(first);
        let mut second = STORE.take();
        assert_eq!(second.as_ref(), b"");
        second
            .fill(4, |space| {
                space[..2].copy_from_slice(b"ok");
                Ok(2)
            })
            .unwrap();
        assert_eq!(second.as_ref(), b"ok");
        assert_eq!(second.as_ref().as_ptr(), place, "the same memory is used again");
    }

    #[test]
    fn the_number_of_kept_buffers_is_bounded() {
        static STORE: Buffers = Buffers::new(8, 1);
        let (first, second) = (STORE.take(), STORE.take());
        drop((first, second));
        assert_eq!(STORE.kept.lock().unwrap().len(), 1);
    }
}
