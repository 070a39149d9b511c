//! One chunk in memory: verified, decompressed and split into records.
//!
//! A chunk's records are returned all or not at all: checksum, decompression, record count and every length are
//! verified before the first record is returned.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::compressor::{Compressor, Unpacker};
use crate::error::ReadError;
use crate::fault::Fault;
use crate::index::ChunkInfo;
use crate::layout::{HEADER_LEN, Header, Layout, MAX_PAYLOAD_LEN, WRITTEN_PAYLOAD_LEN};
use crate::source::{ReadAt, SizedSource};
use crate::splitter::Splitter;

/// Limits on the memory of a reader for one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    max_chunk_bytes: u64,
}

impl Limits {
    /// `max_chunk_bytes` limits a chunk's payload both as stored and decompressed.
    pub fn new(max_chunk_bytes: u64) -> Self {
        Self {
            max_chunk_bytes: max_chunk_bytes.min(MAX_PAYLOAD_LEN),
        }
    }

    pub(crate) fn unpacked(&self) -> usize {
        self.max_chunk_bytes as usize
    }

    /// Refuses a header that announces more than the limit.
    pub(crate) fn admit(&self, header: &Header) -> Result<(), Fault> {
        if u64::from(header.stored_len) > self.max_chunk_bytes {
            return Err(Fault::TooLarge {
                limit: self.max_chunk_bytes,
            });
        }
        Ok(())
    }
}

impl Default for Limits {
    /// The limits of writers.
    fn default() -> Self {
        Self::new(WRITTEN_PAYLOAD_LEN)
    }
}

/// Verified in steps of this size, so that the second pass finds the bytes in the cache.
const STEP: usize = 128 << 10;

/// Verifies payloads and finds their records; its buffers are reused for every chunk.
///
/// If the records are in the stored payload itself, nothing is copied, and `records` borrows it.
#[derive(Default)]
pub(crate) struct Opener {
    unpacker: Unpacker,
    unpacked: Buffer,
    in_place: bool,
    splitter: Splitter,
}

impl Opener {
    /// Verifies one payload. After a fault there are no records.
    pub(crate) fn open(&mut self, header: &Header, stored: &[u8], limits: &Limits) -> Result<(), Fault> {
        self.in_place = header.compressor == Compressor::None;
        let result = match self.in_place {
            true => self.open_in_place(header, stored),
            false => self.unpack(header, stored, limits),
        };
        if result.is_err() {
            self.splitter.clear();
        }
        result
    }

    fn open_in_place(&mut self, header: &Header, stored: &[u8]) -> Result<(), Fault> {
        self.splitter.begin(header.records, stored.len());
        let mut hasher = crc32fast::Hasher::new();
        let mut end = 0;
        for step in stored.chunks(STEP) {
            hasher.update(step);
            end += step.len();
            self.splitter.feed(&stored[..end]);
        }
        verify_checksum(header, hasher.finalize())?;
        self.splitter.finish(stored)
    }

    fn unpack(&mut self, header: &Header, stored: &[u8], limits: &Limits) -> Result<(), Fault> {
        verify_checksum(header, crc32fast::hash(stored))?;
        let splitter = &mut self.splitter;
        splitter.begin(header.records, limits.unpacked().min(stored.len()));
        let look = |unpacked: &[u8]| splitter.feed(unpacked);
        let (limit, out) = (limits.unpacked(), &mut self.unpacked);
        self.unpacker
            .unpack(header.compressor, stored, limit, out, look)?;
        self.splitter.finish(&self.unpacked)
    }

    pub(crate) fn clear(&mut self) {
        self.splitter.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.splitter.starts().len().saturating_sub(1)
    }

    pub(crate) fn records<'a>(&'a self, stored: &'a [u8]) -> Records<'a> {
        let bytes = if self.in_place { stored } else { &self.unpacked[..] };
        Records {
            bytes,
            starts: self.splitter.starts(),
        }
    }
}

fn verify_checksum(header: &Header, computed: u32) -> Result<(), Fault> {
    match computed == header.checksum {
        true => Ok(()),
        false => Err(Fault::Checksum {
            expected: header.checksum,
            computed,
        }),
    }
}

/// The end of the record whose length is at `at`, if it ends inside `payload`.
pub(crate) fn record_end(payload: &[u8], at: usize) -> Option<usize> {
    let len = payload.get(at..)?.first_chunk::<4>()?;
    let end = at + 4 + u32::from_le_bytes(*len) as usize;
    (end <= payload.len()).then_some(end)
}

/// The records of one chunk, borrowed: one buffer and the position of each record.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    bytes: &'a [u8],
    starts: &'a [u32],
}

impl<'a> Records<'a> {
    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The chunk's whole payload, including lengths.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes
    }

    /// The position of record `i` in [`Records::payload`]. Panics if there is no such record.
    pub fn bounds(&self, i: usize) -> Range<usize> {
        self.starts[i] as usize..self.starts[i + 1] as usize - 4
    }

    /// Record `i` of the chunk. Panics if there is no such record.
    pub fn get(&self, i: usize) -> &'a [u8] {
        &self.bytes[self.bounds(i)]
    }

    /// Only the records `from..to`. Panics if there are not that many.
    pub fn slice(&self, from: usize, to: usize) -> Self {
        let starts = match from == to {
            true => &[],
            false => &self.starts[from..=to],
        };
        Self { starts, ..*self }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        let pairs = self.starts.windows(2);
        pairs.map(move |pair| &bytes[pair[0] as usize..pair[1] as usize - 4])
    }
}

/// Why a chunk could not be loaded: damage, which a policy may skip, or worse.
#[derive(Debug)]
pub(crate) enum LoadError {
    Fault(Fault),
    Fatal(ReadError),
}

impl From<ReadError> for LoadError {
    fn from(error: ReadError) -> Self {
        Self::Fatal(error)
    }
}

impl From<Fault> for LoadError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A chunk loaded from a source, together with the bytes read ahead.
#[derive(Default)]
pub(crate) struct Chunk {
    window: Buffer,
    /// where `window` begins in the source
    window_at: u64,
    /// where in `window` the loaded chunk's payload lies
    stored: Range<usize>,
    opener: Opener,
}

impl Chunk {
    /// Loads and verifies the chunk at `info`; reads ahead up to `ahead` bytes in the same call, so that small chunks
    /// do not need a system call each.
    pub(crate) fn load<S: ReadAt>(
        &mut self,
        source: &SizedSource<S>,
        info: &ChunkInfo,
        layout: Layout,
        limits: &Limits,
        ahead: usize,
    ) -> Result<(), LoadError> {
        self.opener.clear();
        self.stored = 0..0;
        limits.admit(&info.header)?;
        let chunk = self.fill(source, info.bytes(), ahead)?;
        let header = self.window[chunk.start..]
            .first_chunk::<HEADER_LEN>()
            .expect("a chunk is at least its header");
        if header != &info.header.to_bytes(layout) {
            return Err(Fault::HeaderDiffersFromIndex.into());
        }
        self.stored = chunk.start + HEADER_LEN..chunk.end;
        let stored = &self.window[self.stored.clone()];
        Ok(self.opener.open(&info.header, stored, limits)?)
    }

    /// Brings `range` into the window and returns its position there.
    fn fill<S: ReadAt>(
        &mut self,
        source: &SizedSource<S>,
        range: Range<u64>,
        ahead: usize,
    ) -> Result<Range<usize>, ReadError> {
        let len = (range.end - range.start) as usize;
        let window = self.window_at..self.window_at + self.window.len() as u64;
        if window.contains(&range.start) {
            let start = (range.start - window.start) as usize;
            if range.end <= window.end {
                return Ok(start..start + len);
            }
            self.window.discard_front(start);
        } else {
            self.window.clear();
        }
        self.window_at = range.start;
        let have = self.window.len();
        let reach = (source.len() - range.start).min(len.max(ahead) as u64) as usize;
        let grown = self.window.resize(reach);
        if let Err(error) = source.read(&mut grown[have..], range.start + have as u64) {
            self.window.clear();
            return Err(error);
        }
        Ok(0..len)
    }

    pub(crate) fn len(&self) -> usize {
        self.opener.len()
    }

    pub(crate) fn records(&self) -> Records<'_> {
        self.opener.records(self.stored())
    }

    /// The payload as stored, even of a chunk whose payload is damaged.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.window[self.stored.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::MAX_RECORD_LEN;

    #[test]
    fn the_largest_record_that_is_written_is_read_by_default() {
        let header = Header {
            checksum: 0,
            compressor: Compressor::None,
            stored_len: (MAX_RECORD_LEN + 4) as u32,
            records: 1,
        };
        assert_eq!(Limits::default().admit(&header), Ok(()));
        assert!(Limits::new(1 << 20).admit(&header).is_err());
    }
}
