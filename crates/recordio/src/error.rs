//! Errors of readers and writers: each names the file, damage also the offset.

use std::io;
use std::path::{Path, PathBuf};

use crate::damage::SkipBound;
use crate::fault::Fault;

/// Why reading failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read `{}`", file.display())]
    Io { file: PathBuf, source: io::Error },
    #[error("`{}` is damaged at offset {offset}: {fault}", file.display())]
    Damaged {
        file: PathBuf,
        offset: u64,
        fault: Fault,
    },
    #[error("`{}` shrank while it was read: it had {expected} bytes, now {found}", file.display())]
    Shrunk {
        file: PathBuf,
        expected: u64,
        found: u64,
    },
    #[error(
        "`{}` is damaged beyond the bound for skipping ({bound}): {ranges} ranges, {bytes} bytes lost up to offset {offset}",
        file.display()
    )]
    TooMuchDamage {
        file: PathBuf,
        bound: SkipBound,
        ranges: u64,
        bytes: u64,
        offset: u64,
    },
    #[error(
        "`{}` is damaged at offset {offset}: {false_starts} false starts after it, gave up looking for the next chunk",
        file.display()
    )]
    Unrecoverable {
        file: PathBuf,
        offset: u64,
        false_starts: u64,
    },
    #[error(
        "`{}` is damaged at offset {offset}: no trustworthy chunk in the next {searched} bytes, the search limit for a stream (save it to a file and read that)",
        file.display()
    )]
    LostInStream {
        file: PathBuf,
        offset: u64,
        searched: u64,
    },
    #[error("the index `{}` is unusable: {reason}", file.display())]
    BadIndex { file: PathBuf, reason: IndexFault },
    #[error("record {record} does not exist: `{}` has {len}", file.display())]
    NoSuchRecord { file: PathBuf, record: u64, len: u64 },
    #[error("`{}` cannot be read any further after an earlier error", file.display())]
    AlreadyFailed { file: PathBuf },
}

/// What is wrong with a stored index.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexFault {
    #[error("it is missing")]
    Missing,
    #[error("it is not a RecordIO index")]
    NotAnIndex,
    #[error("its version {0} is newer than this program")]
    Version(u32),
    #[error("it is damaged (checksum mismatch)")]
    Checksum,
    #[error("it is damaged ({0})")]
    Malformed(&'static str),
    #[error("it describes {indexed} bytes and the file has {actual}: the file has changed since")]
    Outdated { indexed: u64, actual: u64 },
}

impl ReadError {
    pub(crate) fn io(file: &Path, source: io::Error) -> Self {
        Self::Io {
            file: file.to_owned(),
            source,
        }
    }

    pub(crate) fn damaged(file: &Path, offset: u64, fault: Fault) -> Self {
        Self::Damaged {
            file: file.to_owned(),
            offset,
            fault,
        }
    }
}

/// Why writing failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot write `{}`", file.display())]
    Io { file: PathBuf, source: io::Error },
    #[error("a record of {len} bytes is too large: readers hold at most {max}", max = crate::layout::MAX_RECORD_LEN)]
    RecordTooLarge { len: u64 },
    #[error("a chunk of `{}` grew too large when it was compressed", file.display())]
    ChunkTooLarge { file: PathBuf },
    #[error("`{}` cannot be written any further after an earlier error", file.display())]
    AlreadyFailed { file: PathBuf },
}

impl WriteError {
    pub(crate) fn io(file: &Path, source: io::Error) -> Self {
        Self::Io {
            file: file.to_owned(),
            source,
        }
    }
}
