//! The RecordIO file format: records in checksummed chunks, one after the other, and nothing else.
//!
//! | to do | use |
//! | --- | --- |
//! | write a file that appears whole or not at all | [`FileWriter`] |
//! | write to anything | [`Writer`] |
//! | read a pipe or socket | [`StreamReader`] |
//! | read a file: all, a range, in parallel, by number | [`RecordFile`] |
//! | read what is in memory already | [`SliceReader`], [`MappedFile`] |
//! | keep an index beside a file | [`store_index`], [`FileWriter::create_with_index`] |
//!
//! ```
//! use paddlecloud_recordio::{FileWriter, RecordFile, WriteOptions};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("train-00000");
//! let mut writer = FileWriter::create(&path, WriteOptions::new())?;
//! writer.write(b"one")?;
//! writer.write(b"")?;
//! writer.finish()?;
//!
//! let file = RecordFile::open(&path)?;
//! let mut records = file.records();
//! while let Some(record) = records.next_record()? {
//!     println!("{} bytes", record.len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Promises
//!
//! - Files written without compression are those of the original library, byte for byte; the
//!   others have the same contents and are read by it. [`Compressor::Zstd`] is ours alone.
//! - Damage is never silent. No record of a chunk is returned before the whole chunk has been verified; an
//!   error names file, offset and fault. [`Policy::Skip`] skips damage up to a limit and accounts for it; in a
//!   stream it does so only if the buffered bytes prove where the stream resumes.
//!   Only a truncation exactly between two chunks cannot be detected, unless an index is stored.
//! - No length in a file is trusted: memory is limited by [`Limits`] and by the bytes that really exist.
//! - A file that shrinks while it is read is an error, not a signal.
//!
//! This crate knows nothing of jobs, users or networks, and starts threads only on request.

mod atomic_file;
mod batch;
mod buffer;
mod cache;
mod chunk;
mod compressor;
mod damage;
mod draft;
mod error;
mod fault;
mod file;
mod file_writer;
mod index;
mod layout;
mod lookahead;
mod loss;
mod mapped;
mod old_snappy;
mod peek;
mod pool;
mod random;
mod range;
mod repair;
mod resync;
mod scan;
mod slice;
mod snappy;
mod source;
mod splitter;
mod stored_index;
mod stream;
mod stream_resync;
mod writer;

pub use atomic_file::sync_names;
pub use batch::Batch;
pub use chunk::{Limits, Records};
pub use compressor::{Compressor, UnknownCompressor};
pub use damage::{DamageReport, LostRange, LostRecords, Policy, SkipBound};
pub use error::{IndexFault, ReadError, WriteError};
pub use fault::Fault;
pub use file::{IndexUse, ReadOptions, RecordFile, Verified};
pub use file_writer::{FileWriter, IndexFile};
pub use index::{ChunkInfo, Index};
pub use layout::{HEADER_LEN, Header, Layout, MAGIC, MAX_RECORD_LEN};
pub use mapped::MappedFile;
pub use random::RandomReader;
pub use range::RangeReader;
pub use slice::SliceReader;
pub use source::ReadAt;
pub use stored_index::{index_path, store_index};
pub use stream::StreamReader;
pub use writer::{DEFAULT_CHUNK_SIZE, WriteOptions, Writer, Written};
