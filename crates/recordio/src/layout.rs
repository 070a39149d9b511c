//! The 20 bytes in front of every chunk, in both historical orders.
//!
//! All integers are unsigned 32-bit little-endian. The original library and everything written here
//! use [`Layout::Cloud`]; the C++ code in later PaddlePaddle wrote [`Layout::Fluid`].
//!
//! # Why a layout is never guessed wrong
//!
//! Call the four words after the magic number A, B, C, D.
//!
//! | layout | A | B | C | D |
//! | --- | --- | --- | --- | --- |
//! | cloud | checksum | compressor | size | records |
//! | fluid | records | checksum | compressor | size |
//!
//! A header is *possible* in a layout when its compressor is known there and its size can hold its
//! records. Suppose one header is possible in both. Fluid knows compressors 0 and 1, so C is 0 or 1; as
//! cloud's size that is too small for anything but an empty chunk, so C = 0 and D = 0. Then fluid's size
//! is 0 with compressor 0, so A = 0 too. What is left is a chunk without records, which reads the
//! same either way. So the header of a chunk that holds records fits one layout at most, and its checksum
//! then confirms it.

use crate::compressor::Compressor;
use crate::fault::Fault;

pub const MAGIC: u32 = 0x0102_0304;
pub const HEADER_LEN: usize = 20;
/// The most bytes a chunk's records may take together with their lengths.
pub(crate) const MAX_PAYLOAD_LEN: u64 = u32::MAX as u64 - 4;
/// The most that is written into a chunk, packed or not, because by default readers accept no more: 1 GiB,
/// 32 times the original's default chunk.
pub(crate) const WRITTEN_PAYLOAD_LEN: u64 = 1 << 30;
/// The largest record that is written.
pub const MAX_RECORD_LEN: u64 = WRITTEN_PAYLOAD_LEN - 4;

/// The order of the fields in a chunk's header; one for the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// magic, checksum, compressor, size, records: PaddlePaddle/recordio and this crate
    Cloud,
    /// magic, records, checksum, compressor, size: PaddlePaddle's C++ `recordio`
    Fluid,
}

/// A chunk's header that has been found possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// CRC-32 (IEEE) of the payload as stored
    pub checksum: u32,
    pub compressor: Compressor,
    /// size of the payload as stored
    pub stored_len: u32,
    pub records: u32,
}

/// The words of a header, unjudged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawHeader {
    pub(crate) magic: u32,
    pub(crate) checksum: u32,
    pub(crate) compressor: u32,
    pub(crate) stored_len: u32,
    pub(crate) records: u32,
}

impl Layout {
    pub const ALL: [Self; 2] = [Self::Cloud, Self::Fluid];

    fn knows(self, compressor: Compressor) -> bool {
        match self {
            Self::Cloud => true,
            Self::Fluid => matches!(compressor, Compressor::None | Compressor::Snappy),
        }
    }
}

impl RawHeader {
    pub(crate) fn split(bytes: &[u8; HEADER_LEN], layout: Layout) -> Self {
        let word = |i: usize| {
            let word = bytes[4 * i..4 * i + 4]
                .try_into()
                .expect("four bytes make a word");
            u32::from_le_bytes(word)
        };
        let (checksum, compressor, stored_len, records) = match layout {
            Layout::Cloud => (1, 2, 3, 4),
            Layout::Fluid => (2, 3, 4, 1),
        };
        Self {
            magic: word(0),
            checksum: word(checksum),
            compressor: word(compressor),
            stored_len: word(stored_len),
            records: word(records),
        }
    }

    /// Judges everything but the magic number.
    pub(crate) fn judge(self, layout: Layout) -> Result<Header, Fault> {
        let compressor = Compressor::from_id(self.compressor)
            .filter(|c| layout.knows(*c))
            .ok_or(Fault::UnknownCompressor { id: self.compressor })?;
        if !compressor.can_hold(self.records, self.stored_len) {
            return Err(Fault::ImpossibleHeader {
                compressor,
                stored_len: self.stored_len,
                records: self.records,
            });
        }
        Ok(Header {
            checksum: self.checksum,
            compressor,
            stored_len: self.stored_len,
            records: self.records,
        })
    }
}

impl Header {
    pub fn parse(bytes: &[u8; HEADER_LEN], layout: Layout) -> Result<Self, Fault> {
        let raw = RawHeader::split(bytes, layout);
        if raw.magic != MAGIC {
            return Err(Fault::NotAChunk { found: raw.magic });
        }
        raw.judge(layout)
    }

    /// Reads a header when the file's layout is not known yet.
    ///
    /// The layout comes back with it, unless the chunk is empty and so proves nothing.
    pub fn detect(bytes: &[u8; HEADER_LEN]) -> Result<(Self, Option<Layout>), Fault> {
        let as_cloud = Self::parse(bytes, Layout::Cloud);
        match (as_cloud, Self::parse(bytes, Layout::Fluid)) {
            (Ok(header), Ok(_)) => Ok((header, None)),
            (Ok(header), Err(_)) => Ok((header, Some(Layout::Cloud))),
            (Err(_), Ok(header)) => Ok((header, Some(Layout::Fluid))),
            (Err(fault), Err(_)) => Err(fault),
        }
    }

    pub fn to_bytes(&self, layout: Layout) -> [u8; HEADER_LEN] {
        let (sum, comp, len, n) = (self.checksum, self.compressor.id(), self.stored_len, self.records);
        let words = match layout {
            Layout::Cloud => [MAGIC, sum, comp, len, n],
            Layout::Fluid => [MAGIC, n, sum, comp, len],
        };
        let mut bytes = [0; HEADER_LEN];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Header and payload together.
    pub fn chunk_len(&self) -> u64 {
        HEADER_LEN as u64 + u64::from(self.stored_len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_header_of_an_original_file_is_parsed() {
        let bytes = [
            4, 3, 2, 1, 0x5c, 0x43, 0x94, 0xa0, 1, 0, 0, 0, 0xe6, 0xd1, 0xc9, 1, 3, 0, 0, 0,
        ];
        let expected = Header {
            checksum: 0xa094_435c,
            compressor: Compressor::Snappy,
            stored_len: 30_003_686,
            records: 3,
        };
        assert_eq!(Header::detect(&bytes), Ok((expected, Some(Layout::Cloud))));
        assert_eq!(expected.to_bytes(Layout::Cloud), bytes);
    }

    /// Words that make both layouts likely, so that a clash would be found if there were one.
    fn telling_word() -> impl Strategy<Value = u32> {
        prop_oneof![0..4u32, 4..64u32, Just(Compressor::Zstd.id()), any::<u32>()]
    }

    proptest! {
        #[test]
        fn no_chunk_with_records_fits_both_layouts(words in prop::array::uniform4(telling_word())) {
            let mut bytes = [0; HEADER_LEN];
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            for (to, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            if let (Ok(a), Ok(b)) = (Header::parse(&bytes, Layout::Cloud), Header::parse(&bytes, Layout::Fluid)) {
                prop_assert_eq!((a.records, a.stored_len, b.records, b.stored_len), (0, 0, 0, 0));
            }
        }
    }
}
