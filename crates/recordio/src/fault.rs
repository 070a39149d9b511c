//! What can be wrong with one chunk.
//!
//! A fault does not say where the chunk is: readers add file and offset (see `error`).

use crate::compressor::Compressor;

/// Why some bytes are not a complete, valid chunk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("no chunk starts here (found {found:#010x}, a chunk starts with 0x01020304)")]
    NotAChunk { found: u32 },
    #[error("the chunk is truncated: it needs {needed} bytes and {available} are left")]
    Truncated { needed: u64, available: u64 },
    #[error("unknown compressor {id}")]
    UnknownCompressor { id: u32 },
    #[error("the header is impossible: {records} records in {stored_len} bytes ({compressor})")]
    ImpossibleHeader {
        compressor: Compressor,
        stored_len: u32,
        records: u32,
    },
    #[error("checksum mismatch: the header says {expected:#010x}, the payload has {computed:#010x}")]
    Checksum { expected: u32, computed: u32 },
    #[error("the chunk needs more than {limit} bytes, the limit set for one chunk")]
    TooLarge { limit: u64 },
    #[error("{compressor} payload cannot be decompressed: {reason}")]
    Unpack { compressor: Compressor, reason: String },
    #[error("record {record} of {records} in the chunk runs past its end")]
    RecordOverrun { record: u32, records: u32 },
    #[error("{extra} bytes are left after the last of {records} records in the chunk")]
    TrailingBytes { extra: u64, records: u32 },
    #[error("the header is not the one in the index (damaged, or the file was changed since)")]
    HeaderDiffersFromIndex,
    #[error("the file ends here, its stored index says {expected} bytes")]
    CutBeforeIndexedEnd { expected: u64 },
}
