//! A chunk that is being filled, and its conversion to bytes.

use std::io;

use crate::buffer::Buffer;
use crate::compressor::{Compressor, Packer};
use crate::layout::{HEADER_LEN, Header, Layout, WRITTEN_PAYLOAD_LEN};

/// Records of a chunk in progress, already in their stored form.
#[derive(Debug)]
pub(crate) struct Draft {
    /// space for the header, then the payload: an uncompressed chunk is written from here as it is
    bytes: Vec<u8>,
    records: u32,
    /// record bytes without their lengths: what the chunk size is measured in
    data_len: u64,
}

impl Draft {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; HEADER_LEN],
            records: 0,
            data_len: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The original's rule, so that files are the same: a record is added to the chunk unless the records' bytes
    /// together would exceed the chunk size. Beyond that, a chunk never exceeds the limit of readers.
    pub(crate) fn has_room(&self, record_len: u64, chunk_size: u64) -> bool {
        let payload = (self.bytes.len() - HEADER_LEN) as u64;
        self.data_len + record_len <= chunk_size && payload + 4 + record_len <= WRITTEN_PAYLOAD_LEN
    }

    /// Adds a record no longer than [`crate::layout::MAX_RECORD_LEN`].
    pub(crate) fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(record);
        self.records += 1;
        self.data_len += record.len() as u64;
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(HEADER_LEN);
        self.records = 0;
        self.data_len = 0;
    }

    /// Makes a chunk of the records. Its bytes are in `packed`, or here for [`Compressor::None`].
    ///
    /// Returns nothing if compression made the payload too large for readers.
    pub(crate) fn seal(
        &mut self,
        compressor: Compressor,
        packer: &mut Packer,
        packed: &mut Buffer,
    ) -> io::Result<Option<Header>> {
        let chunk = match compressor {
            Compressor::None => &mut self.bytes[..],
            _ => {
                packed.clear();
                packed.grow(HEADER_LEN);
                packer.pack(compressor, &self.bytes[HEADER_LEN..], packed)?;
                packed.grow(0)
            }
        };
        let (space, stored) = chunk.split_at_mut(HEADER_LEN);
        if stored.len() as u64 > WRITTEN_PAYLOAD_LEN {
            return Ok(None);
        }
        let header = Header {
            checksum: crc32fast::hash(stored),
            compressor,
            stored_len: stored.len() as u32,
            records: self.records,
        };
        space.copy_from_slice(&header.to_bytes(Layout::Cloud));
        Ok(Some(header))
    }

    /// The sealed chunk.
    pub(crate) fn chunk<'a>(&'a self, compressor: Compressor, packed: &'a [u8]) -> &'a [u8] {
        match compressor {
            Compressor::None => &self.bytes,
            _ => packed,
        }
    }
}
