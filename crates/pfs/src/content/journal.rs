//! The journal, on disk, of what an unfinished file has received.
//!
//! Append-only records of 64 bytes, each with its own checksum, so that several writers may append and a torn last record is
//! ignored.

use std::fs::File;
use std::io;
use std::ops::Range;

use super::chunk::{ChunkName, Layout};
use crate::sys::FileExt;

/// One entry of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// A whole chunk whose bytes have this name.
    Chunk { index: u64, name: ChunkName },
    /// Bytes that are not checked yet.
    Range { offset: u64, len: u64 },
}

pub(crate) const RECORD: usize = 64;

/// The size of ranges on connections that break often.
const SMALLEST_RANGE: u64 = 64 << 10;

// Not 1: in former journals, chunks with that tag could lose their names again.
const CHUNK_TAG: u64 = 4;
const RANGE_TAG: u64 = 2;

impl Record {
    pub fn of(range: Range<u64>) -> Self {
        Self::Range {
            offset: range.start,
            len: range.end - range.start,
        }
    }

    pub fn encode(self) -> [u8; RECORD] {
        let (tag, a, b, name) = match self {
            Self::Chunk { index, name } => (CHUNK_TAG, index, 0, *name.as_bytes()),
            Self::Range { offset, len } => (RANGE_TAG, offset, len, [0; 32]),
        };
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&tag.to_le_bytes());
        record[8..16].copy_from_slice(&a.to_le_bytes());
        record[16..24].copy_from_slice(&b.to_le_bytes());
        record[24..56].copy_from_slice(&name);
        let check = check_of(&record);
        record[56..].copy_from_slice(&check);
        record
    }

    /// `None` for a torn or damaged record.
    pub fn decode(record: &[u8; RECORD]) -> Option<Self> {
        // Zeros are a hole in the file that was never written.
        if record[..8] == [0; 8] || record[56..] != check_of(record) {
            return None;
        }
        let number = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
        match number(0) {
            CHUNK_TAG => {
                let name = record[24..56].try_into().expect("32 bytes");
                Some(Self::Chunk {
                    index: number(8),
                    name: ChunkName::from_bytes(name),
                })
            }
            RANGE_TAG => Some(Self::Range {
                offset: number(8),
                len: number(16),
            }),
            _ => None,
        }
    }
}

fn check_of(record: &[u8; RECORD]) -> [u8; 8] {
    let hash = blake3::hash(&record[..56]);
    hash.as_bytes()[..8].try_into().expect("eight of 32 bytes")
}

/// The maximum length of the journal of a file of a given size. Longer ones are refused.
///
/// On bad connections a file arrives in ranges of 64 KiB; there is room to receive all of it twice in this way. Whatever size a
/// job claims for a file, a journal is read beyond 256 MiB only if one record per chunk needs more, and never beyond 1 GiB, which
/// is enough for a file of 64 TiB.
pub(crate) fn longest(layout: Layout) -> u64 {
    let in_ranges = layout
        .size()
        .div_ceil(SMALLEST_RANGE)
        .saturating_mul(2 * RECORD as u64);
    let in_chunks = layout.count().saturating_mul(RECORD as u64);
    in_ranges.clamp(8 << 20, 256 << 20).max(in_chunks.min(1 << 30))
}

/// Passes all records to `take` one by one, because there may be many. Damaged records are skipped.
pub(crate) fn read_records(file: &File, layout: Layout, mut take: impl FnMut(Record)) -> io::Result<()> {
    let len = file.metadata()?.len();
    if len > longest(layout) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is longer than any that is ours",
        ));
    }
    let mut buffer = vec![0; RECORD << 10];
    let mut offset = 0;
    while offset < len / RECORD as u64 * RECORD as u64 {
        let step = (buffer.len() as u64).min(len - offset) as usize / RECORD * RECORD;
        file.read_exact_at(&mut buffer[..step], offset)?;
        let read = buffer[..step].chunks_exact(RECORD);
        read.filter_map(|record| Record::decode(record.try_into().expect("exact chunks")))
            .for_each(&mut take);
        offset += step as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn records() -> [Record; 2] {
        let name = ChunkName::from_bytes([7; 32]);
        let range = Record::Range {
            offset: 9,
            len: u64::MAX,
        };
        [Record::Chunk { index: 3, name }, range]
    }

    fn read(file: &File, layout: Layout) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        read_records(file, layout, |record| records.push(record))?;
        Ok(records)
    }

    #[test]
    fn records_are_read_back_and_a_torn_one_is_dropped() {
        let mut file = tempfile::tempfile().unwrap();
        for record in records() {
            file.write_all(&record.encode()).unwrap();
        }
        file.write_all(&records()[0].encode()[..40]).unwrap();
        assert_eq!(read(&file, Layout::of(5)).unwrap(), records());
    }

    #[test]
    fn many_records_come_back_and_holes_are_nothing() {
        let mut file = tempfile::tempfile().unwrap();
        for index in 0..5000 {
            file.write_all(&Record::of(index..index + 1).encode()).unwrap();
        }
        file.set_len(file.metadata().unwrap().len() + (1 << 20)).unwrap();
        let found = read(&file, Layout::of(5)).unwrap();
        assert_eq!(found.len(), 5000);
        assert_eq!(found[4999], Record::of(4999..5000));
    }

    /// As `truncate -s 16T` makes it: the file takes no space, but reading it would take all memory.
    #[test]
    fn an_impossibly_long_journal_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let error = read(&file, Layout::of(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let error = read(&file, Layout::of(1 << 50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_journal_is_as_long_as_its_file_needs_and_no_longer() {
        for terabytes in [1, 4, 5, 60] {
            let layout = Layout::of(terabytes << 40);
            assert!(layout.count() * RECORD as u64 <= longest(layout), "{terabytes}");
        }
        for gigabytes in [1, 5, 59] {
            let in_ranges = (gigabytes << 30) / SMALLEST_RANGE * RECORD as u64;
            assert!(in_ranges <= longest(Layout::of(gigabytes << 30)), "{gigabytes}");
        }
        assert_eq!(longest(Layout::of(5)), 8 << 20);
        assert_eq!(longest(Layout::of(1 << 40)), 256 << 20);
        assert_eq!(longest(Layout::of(u64::MAX)), 1 << 30);
        let file = tempfile::tempfile().unwrap();
        file.set_len((8 << 20) + RECORD as u64).unwrap();
        let error = read(&file, Layout::of(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_flipped_bit_anywhere_hides_the_record() {
        for bit in 0..RECORD * 8 {
            let mut bytes = records()[0].encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&bytes), None, "bit {bit}");
        }
    }
}
