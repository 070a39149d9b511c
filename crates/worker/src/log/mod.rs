//! A worker's output on disk: any bytes, addressed by offset, with time stamps, bounded.
//!
//! The folder contains segments `<start offset, 20 digits>.log` with the raw bytes in the order they arrived, and
//! beside each an index `<same>.idx` of [`Entry`]s. An entry gives the time and origin of the bytes from its offset up
//! to the next entry's. The writer writes an entry *before* its bytes, so bytes that a reader finds always have an
//! entry; an entry without bytes is ignored. If a segment does not begin where the previous one ends, bytes are
//! missing: dropped by rotation (at the front) or because the disk was full.
//!
//! Nothing here knows about lines, workers or sockets.

mod reader;
mod writer;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use paddlecloud_core::ports::{Chunk, Gap, Piece, Stream};
pub use reader::{LogError, LogReader};
pub use writer::{LogWriter, remove_before};

use crate::protocol::UnixNanos;

/// Prefix of the supervisor's remarks on a worker's exit; the preamble does not have it.
pub const REMARK: &str = "paddlecloud: ";

/// One record of an index: from this offset on, bytes of this stream arrived at this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    offset: u64,
    stamp: UnixNanos,
    stream: Stream,
}

impl Entry {
    /// Little-endian offset, little-endian stamp, stream, seven zeros.
    const SIZE: usize = 24;

    fn encode(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stamp.0.to_le_bytes());
        bytes[16] = stream_code(self.stream);
        bytes
    }

    /// The last complete entry of an index.
    fn last_of(index: &[u8]) -> Option<Self> {
        let (entries, _torn) = index.as_chunks::<{ Self::SIZE }>();
        Self::decode(entries.last()?)
    }

    /// `None` for a stream this version does not know.
    fn decode(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let (offset, rest) = bytes.split_first_chunk::<8>()?;
        let (stamp, rest) = rest.split_first_chunk::<8>()?;
        // 2 was standard error, when it had its own pipe.
        let stream = if rest[0] == 2 {
            Some(Stream::Output)
        } else {
            stream_of(rest[0])
        };
        Some(Self {
            offset: u64::from_le_bytes(*offset),
            stamp: UnixNanos(u64::from_le_bytes(*stamp)),
            stream: stream?,
        })
    }
}

/// A stream in an index and in a frame of the link.
pub(crate) fn stream_code(stream: Stream) -> u8 {
    match stream {
        Stream::Launcher => 0,
        Stream::Output => 1,
    }
}

/// `None` for a stream this version does not know.
pub(crate) fn stream_of(code: u8) -> Option<Stream> {
    match code {
        0 => Some(Stream::Launcher),
        1 => Some(Stream::Output),
        _ => None,
    }
}

fn data_path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("{start:020}.log"))
}

fn index_path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("{start:020}.idx"))
}

/// A part of a log on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredSegment {
    /// The offset of its first byte.
    pub start: u64,
    /// Its size on disk, including its index.
    pub bytes: u64,
    /// When it was last written to.
    pub modified: SystemTime,
}

/// The segments of the log in a folder, the oldest first. The last one may still be written to.
pub fn stored_segments(dir: &Path) -> std::io::Result<Vec<StoredSegment>> {
    let stored = |start| {
        let data = std::fs::metadata(data_path(dir, start)).ok()?;
        let index = std::fs::metadata(index_path(dir, start)).map_or(0, |index| index.len());
        Some(StoredSegment {
            start,
            bytes: data.len() + index,
            modified: data.modified().ok()?,
        })
    };
    Ok(segments(dir)?.into_iter().filter_map(stored).collect())
}

/// Deletes a segment that is no longer written to: readers find a gap.
pub fn delete_segment(dir: &Path, start: u64) -> std::io::Result<()> {
    std::fs::remove_file(data_path(dir, start))?;
    std::fs::remove_file(index_path(dir, start))
}

/// Start offsets of the segments in the folder, in order.
fn segments(dir: &Path) -> std::io::Result<Vec<u64>> {
    let mut starts = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let start = name.to_str().and_then(|name| name.strip_suffix(".log"));
        starts.extend(start.and_then(|start| start.parse::<u64>().ok()));
    }
    starts.sort_unstable();
    Ok(starts)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod format {
    use super::*;

    #[test]
    fn an_entry_has_its_documented_bytes() {
        let entry = Entry {
            offset: 0x0102,
            stamp: UnixNanos(0x0304),
            stream: Stream::Output,
        };
        let mut bytes = entry.encode();
        assert_eq!(bytes[..2], [2, 1]);
        assert_eq!(bytes[8..10], [4, 3]);
        assert_eq!(bytes[16..], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Entry::decode(&bytes), Some(entry));
        bytes[16] = 2;
        assert_eq!(
            Entry::decode(&bytes),
            Some(entry),
            "an older segment's standard error"
        );
    }
}
