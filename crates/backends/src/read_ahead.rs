//! Combines many small sequential reads into few large ones, because each request to a remote store is expensive.

use std::io;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// Bytes fetched at once for sequential reads.
const AHEAD: u64 = 4 << 20;

/// The latest piece fetched from one file.
#[derive(Default)]
pub(crate) struct ReadAhead(Mutex<(u64, Bytes)>);

impl ReadAhead {
    /// Fills the buffer as far as possible. `fetch` takes offset and length and is never called beyond `size`.
    pub(crate) fn read_at(
        &self,
        buffer: &mut [u8],
        offset: u64,
        size: u64,
        fetch: impl FnOnce(u64, u64) -> io::Result<Bytes>,
    ) -> io::Result<usize> {
        if offset >= size || buffer.is_empty() {
            return Ok(0);
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = copy(&kept, buffer, offset) {
            return Ok(read);
        }
        let in_order = offset == kept.0 + kept.1.len() as u64 || offset.is_multiple_of(AHEAD);
        let len = match in_order {
            true => AHEAD.max(buffer.len() as u64),
            false => buffer.len() as u64,
        };
        let len = len.min(size - offset);
        let fetched = fetch(offset, len)?;
        if fetched.len() as u64 != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *kept = (offset, fetched);
        Ok(copy(&kept, buffer, offset).unwrap_or(0))
    }
}

fn copy((start, kept): &(u64, Bytes), buffer: &mut [u8], offset: u64) -> Option<usize> {
    let at = usize::try_from(offset.checked_sub(*start)?).ok()?;
    let there = kept.get(at..).filter(|there| !there.is_empty())?;
    let len = there.len().min(buffer.len());
    buffer[..len].copy_from_slice(&there[..len]);
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_reads_are_few_and_random_reads_are_small() {
        let content: Vec<u8> = (0..10_000_000_u32).map(|i| (i >> 3) as u8).collect();
        let size = content.len() as u64;
        let mut asked = Vec::new();
        let ahead = ReadAhead::default();
        let mut read = |buffer: &mut [u8], offset| {
            ahead.read_at(buffer, offset, size, |from, len| {
                asked.push((from, len));
                Ok(Bytes::copy_from_slice(
                    &content[from as usize..(from + len) as usize],
                ))
            })
        };
        let mut out = Vec::new();
        let mut buffer = vec![0; 300_000];
        loop {
            match read(&mut buffer, out.len() as u64).unwrap() {
                0 => break,
                len => out.extend_from_slice(&buffer[..len]),
            }
        }
        assert_eq!(read(&mut buffer[..10], 123).unwrap(), 10);
        assert!(out == content && buffer[..10] == content[123..133]);
        assert_eq!(
            asked,
            [
                (0, AHEAD),
                (AHEAD, AHEAD),
                (2 * AHEAD, size - 2 * AHEAD),
                (123, 10)
            ]
        );
    }

    #[test]
    fn a_short_read_is_not_taken_for_the_end() {
        let ahead = ReadAhead::default();
        let short = ahead.read_at(&mut [0; 8], 0, 8, |_, _| Ok(Bytes::from_static(b"half")));
        assert_eq!(short.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
