//! The pack stream: many files in one self-delimiting stream, each with its digest.
//!
//! ```text
//! stream  = magic entry* end
//! magic   = "PFSPACK1"
//! entry   = head path body                  head is 20 bytes, integers are little-endian:
//!           tag u8 | flags u8 | path length u16 | size u64 | mtime i64 (nanoseconds since 1970)
//! body    = (tag 1, folder)  nothing
//!         | (tag 2, file)    size bytes, then their BLAKE3 (32 bytes)
//!         | (tag 3, link)    size bytes of target
//! end     = tag 4 | 0 u8 | 0 u16 | entries u64 | bytes u64 | seal (32 bytes)
//! seal    = BLAKE3 of every byte of the stream before it that is not content of a file
//! ```
//!
//! Entries ascend in the order of [`crate::RelPath`] and every folder precedes its contents, so a reader needs no list of names
//! to refuse duplicates and paths through links.

mod head;
mod kept_tree;
mod merge;
mod parser;
mod staged_tree;
mod unpack;
mod writer;

pub use self::merge::{Merged, PlacedStamps};
pub use self::parser::{PackLimits, PackParser, PackSink};
pub use self::staged_tree::StagedTree;
pub use self::unpack::{Unpacked, Unpacker};
pub use self::writer::{PackWriter, write_pack};
use crate::entry::LinkTargetError;
use crate::links::LinkOutside;
use crate::order::OrderError;
use crate::relpath::{RelPath, RelPathError};
use crate::root::RootError;

/// The contents of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PackTotals {
    pub entries: u64,
    /// Bytes of file content.
    pub bytes: u64,
}

/// Why a stream was refused or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("this is not a pack stream")]
    Magic,
    #[error("the stream was cut off after {0} bytes")]
    Cut(u64),
    #[error("the stream continues after its end")]
    Trailing,
    #[error("the stream was refused already")]
    Refused,
    #[error("the stream has an entry of an unknown kind (tag {0})")]
    Tag(u8),
    #[error("the entry `{0}` is malformed")]
    Malformed(RelPath),
    #[error(transparent)]
    Path(#[from] RelPathError),
    #[error(transparent)]
    Target(#[from] LinkTargetError),
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(transparent)]
    LinkOutside(#[from] LinkOutside),
    #[error("the content of `{0}` was damaged in transit")]
    Damaged(RelPath),
    #[error("the stream's list of entries was damaged in transit")]
    Seal,
    #[error("the stream says it holds {said:?} but held {found:?}")]
    Totals { said: PackTotals, found: PackTotals },
    #[error("the stream holds more than {limit} {what}")]
    Limit { what: &'static str, limit: u64 },
    #[error("`{0}` changed while it was being sent")]
    Changed(RelPath),
    #[error(transparent)]
    Storage(#[from] RootError),
    #[error("the stream broke")]
    Stream(#[source] std::io::Error),
}

const MAGIC: &[u8; 8] = b"PFSPACK1";

#[cfg(test)]
mod tests;
