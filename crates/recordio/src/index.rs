//! The positions of all chunks and records of a file.
//!
//! Built by `scan` or loaded by `stored_index`; this file only answers queries.

use std::ops::Range;

use crate::damage::LostRange;
use crate::layout::{Header, Layout};

/// The position of one chunk in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    pub offset: u64,
    /// number of the chunk's first record in the file
    pub first_record: u64,
    pub header: Header,
}

impl ChunkInfo {
    /// Header and payload.
    pub fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.header.chunk_len()
    }

    pub fn records(&self) -> Range<u64> {
        self.first_record..self.first_record + u64::from(self.header.records)
    }
}

/// A range without readable chunks, found by the scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    /// how many chunks come before it
    pub(crate) chunks_before: usize,
    pub(crate) lost: LostRange,
}

/// All chunks of a file in order.
///
/// Records are numbered through the chunks listed here, including those whose payload turns out to be damaged; records
/// in a gap have no number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    layout: Layout,
    file_len: u64,
    chunks: Vec<ChunkInfo>,
    gaps: Vec<Gap>,
}

impl Index {
    pub(crate) fn new(layout: Layout, file_len: u64, chunks: Vec<ChunkInfo>, gaps: Vec<Gap>) -> Self {
        Self {
            layout,
            file_len,
            chunks,
            gaps,
        }
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The length of the indexed file.
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    pub fn chunks(&self) -> &[ChunkInfo] {
        &self.chunks
    }

    /// Damage seen in the headers; damaged payloads are found only when they are read.
    pub fn lost(&self) -> impl ExactSizeIterator<Item = &LostRange> {
        self.gaps.iter().map(|gap| &gap.lost)
    }

    pub fn record_count(&self) -> u64 {
        self.chunks.last().map_or(0, |last| last.records().end)
    }

    /// The chunk of `record`, as a position in [`Index::chunks`].
    pub fn chunk_of(&self, record: u64) -> Option<usize> {
        let chunk = self.chunks.partition_point(|c| c.records().end <= record);
        (chunk < self.chunks.len()).then_some(chunk)
    }

    pub(crate) fn gaps(&self) -> &[Gap] {
        &self.gaps
    }
}

/// Puts chunks in file order and numbers their records.
#[derive(Debug, Default)]
pub(crate) struct ChunkList {
    chunks: Vec<ChunkInfo>,
}

impl ChunkList {
    pub(crate) fn push(&mut self, offset: u64, header: Header) {
        let first_record = self.chunks.last().map_or(0, |last| last.records().end);
        self.chunks.push(ChunkInfo {
            offset,
            first_record,
            header,
        });
    }

    pub(crate) fn last(&self) -> Option<&ChunkInfo> {
        self.chunks.last()
    }

    pub(crate) fn pop(&mut self) {
        self.chunks.pop();
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    pub(crate) fn into_chunks(self) -> Vec<ChunkInfo> {
        self.chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressor::Compressor;

    fn index_of(counts: &[u32]) -> Index {
        let mut list = ChunkList::default();
        let mut offset = 0;
        for &records in counts {
            let header = Header {
                checksum: 0,
                compressor: Compressor::None,
                stored_len: records * 4,
                records,
            };
            list.push(offset, header);
            offset += header.chunk_len();
        }
        Index::new(Layout::Cloud, offset, list.into_chunks(), Vec::new())
    }

    #[test]
    fn every_record_is_found_in_its_chunk() {
        let index = index_of(&[0, 2, 0, 0, 3, 0]);
        let chunks: Vec<_> = (0..6).map(|record| index.chunk_of(record)).collect();
        assert_eq!(chunks, [Some(1), Some(1), Some(4), Some(4), Some(4), None]);
        assert_eq!(index.record_count(), 5);
    }

    #[test]
    fn an_empty_file_has_no_records() {
        let index = index_of(&[]);
        assert_eq!((index.record_count(), index.chunk_of(0)), (0, None));
    }
}
