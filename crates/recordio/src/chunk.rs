//! One chunk in memory: checked, unpacked and divided into records.
//!
//! A chunk's records are seen all or not at all: checksum, unpacking, record count and the fit of every
//! length are verified before the first record is handed out.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::compressor::{Compressor, Unpacker};
use crate::error::ReadError;
use crate::fault::Fault;
use crate::index::ChunkInfo;
use crate::layout::{HEADER_LEN, Header, Layout, MAX_PAYLOAD_LEN};
use crate::source::{ReadAt, Source};

/// Bounds on what a reader will hold in memory for one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    max_chunk_bytes: u64,
}

impl Limits {
    /// `max_chunk_bytes` bounds a chunk's payload both as stored and unpacked.
    pub fn new(max_chunk_bytes: u64) -> Self {
        Self {
            max_chunk_bytes: max_chunk_bytes.min(MAX_PAYLOAD_LEN),
        }
    }

    pub(crate) fn unpacked(&self) -> usize {
        self.max_chunk_bytes as usize
    }

    /// Refuses a header that promises more than may be held.
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
    /// 1 GiB: 32 times the original's default chunk.
    fn default() -> Self {
        Self::new(1 << 30)
    }
}

/// Checks payloads and finds their records; its buffers are used again for every chunk.
///
/// Where the records lie in the stored payload itself, nothing is copied: `bytes` then returns that.
#[derive(Default)]
pub(crate) struct Opener {
    unpacker: Unpacker,
    unpacked: Buffer,
    in_place: bool,
    /// Start of each record, then 4 past the end: record `i` is `starts[i]..starts[i + 1] - 4`.
    starts: Vec<u32>,
}

impl Opener {
    /// Verifies one payload. After a fault there are no records.
    pub(crate) fn open(&mut self, header: &Header, stored: &[u8], limits: &Limits) -> Result<(), Fault> {
        self.starts.clear();
        verify_checksum(header, stored)?;
        self.in_place = header.compressor == Compressor::None;
        if self.in_place {
            return split_records(stored, header.records, &mut self.starts);
        }
        let limit = limits.unpacked();
        self.unpacker
            .unpack(header.compressor, stored, limit, &mut self.unpacked)?;
        split_records(&self.unpacked, header.records, &mut self.starts)
    }

    pub(crate) fn clear(&mut self) {
        self.starts.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    pub(crate) fn records<'a>(&'a self, stored: &'a [u8]) -> Records<'a> {
        let bytes = if self.in_place { stored } else { &self.unpacked[..] };
        Records {
            bytes,
            starts: &self.starts,
        }
    }
}

pub(crate) fn verify_checksum(header: &Header, stored: &[u8]) -> Result<(), Fault> {
    let computed = crc32fast::hash(stored);
    if computed != header.checksum {
        return Err(Fault::Checksum {
            expected: header.checksum,
            computed,
        });
    }
    Ok(())
}

/// Finds `count` records that fill `payload` exactly.
fn split_records(payload: &[u8], count: u32, starts: &mut Vec<u32>) -> Result<(), Fault> {
    // A lying count must not reserve memory that the payload cannot justify.
    starts.reserve((count as usize).min(payload.len() / 4) + 1);
    let mut at = 0usize;
    for record in 0..count {
        let Some(end) = record_end(payload, at) else {
            starts.clear();
            return Err(Fault::RecordOverrun {
                record,
                records: count,
            });
        };
        starts.push(at as u32 + 4);
        at = end;
    }
    if at != payload.len() {
        starts.clear();
        return Err(Fault::TrailingBytes {
            extra: (payload.len() - at) as u64,
            records: count,
        });
    }
    starts.push(at as u32 + 4);
    Ok(())
}

/// Where the record whose length stands at `at` ends, if it ends inside `payload`.
pub(crate) fn record_end(payload: &[u8], at: usize) -> Option<usize> {
    let len = payload.get(at..)?.first_chunk::<4>()?;
    let end = at + 4 + u32::from_le_bytes(*len) as usize;
    (end <= payload.len()).then_some(end)
}

/// The records of one chunk, borrowed: one buffer and where each record lies in it.
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

    /// The chunk's whole payload, lengths included.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where record `i` lies in [`Records::payload`]. Panics when there is no such record.
    pub fn bounds(&self, i: usize) -> Range<usize> {
        self.starts[i] as usize..self.starts[i + 1] as usize - 4
    }

    /// Record `i` of the chunk. Panics when there is no such record.
    pub fn get(&self, i: usize) -> &'a [u8] {
        &self.bytes[self.bounds(i)]
    }

    /// The records `from..to` alone. Panics when there are not so many.
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

/// Why a chunk could not be loaded: damage, which a policy may pass over, or worse.
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

/// A chunk loaded from a source, together with the bytes read ahead behind it.
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
    /// Loads and verifies the chunk at `info`; reads on up to `ahead` bytes in the same call, so that
    /// small chunks do not cost a system call each.
    pub(crate) fn load<S: ReadAt>(
        &mut self,
        source: &Source<S>,
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

    /// Brings `wanted` into the window and returns where it lies there.
    fn fill<S: ReadAt>(
        &mut self,
        source: &Source<S>,
        wanted: Range<u64>,
        ahead: usize,
    ) -> Result<Range<usize>, ReadError> {
        let len = (wanted.end - wanted.start) as usize;
        let window = self.window_at..self.window_at + self.window.len() as u64;
        if window.contains(&wanted.start) {
            let start = (wanted.start - window.start) as usize;
            if wanted.end <= window.end {
                return Ok(start..start + len);
            }
            self.window.discard_front(start);
        } else {
            self.window.clear();
        }
        self.window_at = wanted.start;
        let have = self.window.len();
        let reach = (source.len() - wanted.start).min(len.max(ahead) as u64) as usize;
        let grown = self.window.resize(reach);
        if let Err(error) = source.read(&mut grown[have..], wanted.start + have as u64) {
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

    /// The payload as stored, also of a chunk whose payload turned out to be damaged.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.window[self.stored.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(payload: &[u8], count: u32) -> Result<Vec<u32>, Fault> {
        let mut starts = Vec::new();
        split_records(payload, count, &mut starts)?;
        Ok(starts)
    }

    #[test]
    fn records_must_fill_the_payload_exactly() {
        let payload = b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc";
        assert_eq!(split(payload, 3).unwrap(), [4, 9, 13, 19]);
        assert_eq!(
            split(payload, 2),
            Err(Fault::TrailingBytes { extra: 6, records: 2 })
        );
        assert_eq!(
            split(payload, 4),
            Err(Fault::RecordOverrun {
                record: 3,
                records: 4
            })
        );
        assert_eq!(
            split(&payload[..14], 3),
            Err(Fault::RecordOverrun {
                record: 2,
                records: 3
            })
        );
    }

    #[test]
    fn a_lying_count_reserves_no_memory() {
        let mut starts = Vec::new();
        split_records(&[0; 8], u32::MAX, &mut starts).unwrap_err();
        assert!(starts.capacity() < 100);
    }
}
