//! A worker's output on disk: any bytes, addressed by offset, stamped, bounded.
//!
//! The folder holds segments `<start offset, 20 digits>.log` with the raw bytes in the order they
//! arrived, and beside each an index `<same>.idx` of [`Entry`]s. An entry says when and from where
//! the bytes from its offset up to the next entry's came. The writer puts an entry down *before*
//! its bytes, so bytes that a reader finds always have their entry; an entry without bytes is
//! ignored. Where one segment does not begin where the one before ends, bytes are missing: dropped
//! by rotation (at the front) or by a full disk.
//!
//! Nothing here knows about lines of a job, workers or sockets.

mod reader;
mod writer;

use std::path::{Path, PathBuf};

pub use reader::{Chunk, Gap, LogError, LogReader, Piece};
pub use writer::LogWriter;

use crate::protocol::UnixNanos;

/// Where bytes came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Written by the supervisor itself: the preamble, a reason why nothing started.
    Launcher,
    Stdout,
    Stderr,
}

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
        bytes[16] = match self.stream {
            Stream::Launcher => 0,
            Stream::Stdout => 1,
            Stream::Stderr => 2,
        };
        bytes
    }

    /// `None` for a stream this version does not know.
    fn decode(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let (offset, rest) = bytes.split_first_chunk::<8>()?;
        let (stamp, rest) = rest.split_first_chunk::<8>()?;
        let stream = match rest[0] {
            0 => Stream::Launcher,
            1 => Stream::Stdout,
            2 => Stream::Stderr,
            _ => return None,
        };
        Some(Self {
            offset: u64::from_le_bytes(*offset),
            stamp: UnixNanos(u64::from_le_bytes(*stamp)),
            stream,
        })
    }
}

fn data_path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("{start:020}.log"))
}

fn index_path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("{start:020}.idx"))
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
            stream: Stream::Stderr,
        };
        let bytes = entry.encode();
        assert_eq!(bytes[..2], [2, 1]);
        assert_eq!(bytes[8..10], [4, 3]);
        assert_eq!(bytes[16..], [2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Entry::decode(&bytes), Some(entry));
    }
}
