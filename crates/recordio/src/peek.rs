//! Small reads at increasing offsets, without a system call for each.

use crate::buffer::Buffer;
use crate::error::ReadError;
use crate::fault::Fault;
use crate::layout::{HEADER_LEN, Header, Layout, MAGIC};
use crate::source::{ReadAt, SizedSource};

/// How much is read at once if the last read was near; otherwise only what is requested.
const NEAR: u64 = 16 << 10;

/// Reads a few bytes here and there in a source.
pub(crate) struct Peek<'a, S> {
    source: &'a SizedSource<S>,
    window: Buffer,
    window_at: u64,
}

impl<'a, S: ReadAt> Peek<'a, S> {
    pub(crate) fn new(source: &'a SizedSource<S>) -> Self {
        Self {
            source,
            window: Buffer::default(),
            window_at: 0,
        }
    }

    /// The `N` bytes at `offset`, or nothing if the file ends before.
    pub(crate) fn bytes<const N: usize>(&mut self, offset: u64) -> Result<Option<[u8; N]>, ReadError> {
        let left = self.source.len().saturating_sub(offset);
        if left < N as u64 {
            return Ok(None);
        }
        let end = self.window_at + self.window.len() as u64;
        if offset < self.window_at || offset + N as u64 > end {
            let near = offset.abs_diff(end) <= NEAR;
            let reach = if near { left.min(NEAR) } else { N as u64 };
            self.refill(offset, reach as usize)?;
        }
        let at = (offset - self.window_at) as usize;
        Ok(self.window[at..].first_chunk().copied())
    }

    fn refill(&mut self, offset: u64, len: usize) -> Result<(), ReadError> {
        self.window_at = offset;
        let window = self.window.resize(len);
        let result = self.source.read(window, offset);
        if result.is_err() {
            self.window.clear();
        }
        result
    }

    /// The header at `offset`, provided that its chunk fits into the file.
    ///
    /// A layout is returned if it was unknown before and this header determines it.
    pub(crate) fn header(
        &mut self,
        offset: u64,
        layout: Option<Layout>,
    ) -> Result<Result<(Header, Option<Layout>), Fault>, ReadError> {
        let Some(bytes) = self.bytes::<HEADER_LEN>(offset)? else {
            return Ok(Err(self.stub(offset)?));
        };
        let parsed = match layout {
            Some(layout) => Header::parse(&bytes, layout).map(|header| (header, Some(layout))),
            None => Header::detect(&bytes),
        };
        let available = self.source.len() - offset;
        Ok(parsed.and_then(|(header, layout)| match header.chunk_len() {
            needed if needed > available => Err(Fault::Truncated { needed, available }),
            _ => Ok((header, layout)),
        }))
    }

    /// What is wrong with the end of a file that is too short for a header.
    fn stub(&mut self, offset: u64) -> Result<Fault, ReadError> {
        let available = self.source.len() - offset;
        let mut rest = [0; HEADER_LEN];
        let rest = &mut rest[..available as usize];
        self.source.read(rest, offset)?;
        Ok(stub_fault(rest))
    }
}

/// Distinguishes the beginning of a truncated chunk from bytes that never were one.
pub(crate) fn stub_fault(rest: &[u8]) -> Fault {
    let seen = rest.len().min(4);
    if rest[..seen] == MAGIC.to_le_bytes()[..seen] {
        return Fault::Truncated {
            needed: HEADER_LEN as u64,
            available: rest.len() as u64,
        };
    }
    let mut found = [0; 4];
    found[..seen].copy_from_slice(&rest[..seen]);
    Fault::NotAChunk {
        found: u32::from_le_bytes(found),
    }
}
