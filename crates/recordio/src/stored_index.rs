//! An index stored beside its file, as `<file>.idx`.
//!
//! It saves reading all headers and, above all, knows where the complete file ended: a file truncated exactly between
//! two chunks looks complete otherwise.
//!
//! Format, little-endian: `RIOINDEX`, u32 version, u32 layout, u64 file length, u64 number of chunks, per chunk four
//! u32 (checksum, compressor, size, records), u32 CRC-32 of all before.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::atomic_file::AtomicFile;
use crate::compressor::Compressor;
use crate::damage::{LossTotal, LostRange, LostRecords, Policy, SkipBound};
use crate::error::{IndexFault, ReadError, WriteError};
use crate::fault::Fault;
use crate::index::{ChunkInfo, ChunkList, Gap, Index};
use crate::layout::{Header, Layout};

const SIGNATURE: &[u8; 8] = b"RIOINDEX";
const VERSION: u32 = 1;
const PREFIX_LEN: usize = 32;
const ENTRY_LEN: usize = 16;
const CHECKSUM_LEN: usize = 4;

/// The path of the index of `file`.
pub fn index_path(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".idx");
    PathBuf::from(name)
}

/// Stores `index` beside `file`, atomically. Only the index of an undamaged file can be stored.
pub fn store_index(file: &Path, index: &Index) -> Result<PathBuf, WriteError> {
    let path = index_path(file);
    if index.lost().len() > 0 {
        let source = io::Error::other("the file is damaged; an index would hide that");
        return Err(WriteError::io(&path, source));
    }
    store(
        file,
        index.layout(),
        index.chunks().iter().map(|chunk| chunk.header),
    )?;
    Ok(path)
}

/// Stores an index of chunks that follow each other without a gap.
pub(crate) fn store(
    file: &Path,
    layout: Layout,
    headers: impl ExactSizeIterator<Item = Header>,
) -> Result<(), WriteError> {
    let path = index_path(file);
    let mut out = AtomicFile::create(&path)?;
    out.file()
        .write_all(&encode(layout, headers))
        .map_err(|e| WriteError::io(&path, e))?;
    out.publish()
}

fn encode(layout: Layout, headers: impl ExactSizeIterator<Item = Header>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PREFIX_LEN + headers.len() * ENTRY_LEN + CHECKSUM_LEN);
    let count = headers.len() as u64;
    bytes.extend_from_slice(SIGNATURE);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&layout_number(layout).to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&count.to_le_bytes());
    let mut file_len = 0;
    for header in headers {
        file_len += header.chunk_len();
        let words = [
            header.checksum,
            header.compressor.id(),
            header.stored_len,
            header.records,
        ];
        bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
    }
    bytes[16..24].copy_from_slice(&file_len.to_le_bytes());
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn layout_number(layout: Layout) -> u32 {
    match layout {
        Layout::Cloud => 0,
        Layout::Fluid => 1,
    }
}

/// Loads the index of `file` if there is one, and checks that it fits a file of `actual_len` bytes.
pub(crate) fn load(file: &Path, actual_len: u64, policy: Policy) -> Result<Option<Index>, ReadError> {
    let path = index_path(file);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ReadError::io(&path, e)),
    };
    fit(&bytes, file, actual_len, policy).map(Some)
}

/// The index of `file` that is stored as `bytes`, provided that it fits a file of `actual_len` bytes.
pub(crate) fn fit(bytes: &[u8], file: &Path, actual_len: u64, policy: Policy) -> Result<Index, ReadError> {
    let bad = |reason| ReadError::BadIndex {
        file: index_path(file),
        reason,
    };
    let index = decode(bytes).map_err(bad)?;
    let indexed = index.file_len();
    if indexed < actual_len {
        return Err(bad(IndexFault::Outdated {
            indexed,
            actual: actual_len,
        }));
    }
    match policy {
        _ if indexed == actual_len => Ok(index),
        Policy::Strict => Err(ReadError::damaged(file, actual_len, cut(&index))),
        Policy::Skip(bound) => shorten(file, index, actual_len, bound),
    }
}

fn cut(index: &Index) -> Fault {
    Fault::CutBeforeIndexedEnd {
        expected: index.file_len(),
    }
}

/// Drops the chunks that are beyond the end of a truncated file.
fn shorten(file: &Path, index: Index, actual_len: u64, bound: SkipBound) -> Result<Index, ReadError> {
    let fault = cut(&index);
    let mut chunks = index.chunks().to_vec();
    let kept = chunks.partition_point(|chunk| chunk.bytes().end <= actual_len);
    let lost: Vec<ChunkInfo> = chunks.drain(kept..).collect();
    let start = lost.first().map_or(actual_len, |first| first.offset);
    let lost = LostRange {
        bytes: start..index.file_len(),
        records: LostRecords::Known(lost.iter().map(|chunk| u64::from(chunk.header.records)).sum()),
        fault,
    };
    let tally = LossTotal {
        ranges: 1,
        bytes: lost.bytes.end - lost.bytes.start,
    };
    bound.check(tally, file, actual_len)?;
    let gap = Gap {
        chunks_before: kept,
        lost,
    };
    Ok(Index::new(index.layout(), index.file_len(), chunks, vec![gap]))
}

/// Parses a stored index of any origin: nothing in it is trusted unchecked.
fn decode(bytes: &[u8]) -> Result<Index, IndexFault> {
    if !bytes.starts_with(SIGNATURE) || bytes.len() < PREFIX_LEN + CHECKSUM_LEN {
        return Err(IndexFault::NotAnIndex);
    }
    let (body, checksum) = bytes.split_at(bytes.len() - CHECKSUM_LEN);
    if crc32fast::hash(body).to_le_bytes() != checksum {
        return Err(IndexFault::Checksum);
    }
    let (prefix, entries) = body.split_at(PREFIX_LEN);
    let version = word(prefix, 2);
    if version != VERSION {
        return Err(IndexFault::Version(version));
    }
    let layout = match word(prefix, 3) {
        0 => Layout::Cloud,
        1 => Layout::Fluid,
        _ => return Err(IndexFault::Malformed("unknown layout")),
    };
    let expected = double_word(prefix, 6).checked_mul(ENTRY_LEN as u64);
    if expected != Some(entries.len() as u64) {
        return Err(IndexFault::Malformed("wrong number of chunks"));
    }
    let chunks = decode_entries(entries)?;
    let file_len = double_word(prefix, 4);
    if chunks.last().map_or(0, |last| last.bytes().end) != file_len {
        return Err(IndexFault::Malformed("chunks do not add up to the file's length"));
    }
    Ok(Index::new(layout, file_len, chunks, Vec::new()))
}

fn decode_entries(entries: &[u8]) -> Result<Vec<ChunkInfo>, IndexFault> {
    let mut chunks = ChunkList::default();
    let mut offset = 0;
    for entry in entries.chunks_exact(ENTRY_LEN) {
        let compressor =
            Compressor::from_id(word(entry, 1)).ok_or(IndexFault::Malformed("unknown compressor"))?;
        let header = Header {
            checksum: word(entry, 0),
            compressor,
            stored_len: word(entry, 2),
            records: word(entry, 3),
        };
        chunks.push(offset, header);
        offset += header.chunk_len();
    }
    Ok(chunks.into_chunks())
}

/// The `i`th u32 of `bytes`.
fn word(bytes: &[u8], i: usize) -> u32 {
    u32::from_le_bytes(
        bytes[4 * i..4 * i + 4]
            .try_into()
            .expect("four bytes make a word"),
    )
}

/// The u64 that begins at the `i`th u32 of `bytes`.
fn double_word(bytes: &[u8], i: usize) -> u64 {
    u64::from(word(bytes, i)) | u64::from(word(bytes, i + 1)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let headers = [(0xdead_beef, 40, 3), (7, 4, 1)].map(|(checksum, stored_len, records)| Header {
            checksum,
            compressor: Compressor::None,
            stored_len,
            records,
        });
        encode(Layout::Cloud, headers.into_iter())
    }

    #[test]
    fn an_index_survives_being_stored() {
        let index = decode(&sample()).unwrap();
        assert_eq!((index.file_len(), index.record_count()), (84, 4));
        assert_eq!(index.chunks()[1].offset, 60);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_an_index_is_noticed() {
        let good = sample();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit} went unnoticed");
        }
        for len in 0..good.len() {
            assert!(decode(&good[..len]).is_err(), "a cut at {len} went unnoticed");
        }
    }

    #[test]
    fn a_count_that_would_overflow_is_refused() {
        let mut bytes = sample();
        bytes.truncate(bytes.len() - CHECKSUM_LEN);
        bytes[24..32].copy_from_slice(&(1u64 << 60).to_le_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        assert_eq!(
            decode(&bytes),
            Err(IndexFault::Malformed("wrong number of chunks"))
        );
    }
}
