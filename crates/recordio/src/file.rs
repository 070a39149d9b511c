//! A RecordIO file opened for random access.
//!
//! Opening finds every chunk (from the stored index, or by reading the headers); readers are created from the open file
//! and share it. Every read passes its offset, so any number of threads, or processes after a fork, can read through
//! the same file.

use std::fs::File;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::chunk::{Chunk, Limits, LoadError, Records};
use crate::damage::{DamageReport, LostRange, LostRecords, Policy, SkipBound};
use crate::error::{IndexFault, ReadError};
use crate::fault::Fault;
use crate::index::Index;
use crate::loss;
use crate::random::RandomReader;
use crate::range::RangeReader;
use crate::repair;
use crate::scan;
use crate::source::{ReadAt, SizedSource};
use crate::stored_index;

/// Whether an index stored beside the file is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexUse {
    #[default]
    IfPresent,
    /// walk the headers, whatever lies beside the file
    Never,
    /// a missing index is an error
    Required,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    policy: Policy,
    limits: Limits,
    index: IndexUse,
}

impl ReadOptions {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    pub fn index(self, index: IndexUse) -> Self {
        Self { index, ..self }
    }

    pub fn open(self, path: impl AsRef<Path>) -> Result<RecordFile, ReadError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| ReadError::io(path, e))?;
        let source = SizedSource::new(file, path.to_owned())?;
        let stored = match self.index {
            IndexUse::Never => None,
            _ => stored_index::load(path, source.len(), self.policy)?,
        };
        if stored.is_none() && self.index == IndexUse::Required {
            return Err(ReadError::BadIndex {
                file: stored_index::index_path(path),
                reason: IndexFault::Missing,
            });
        }
        RecordFile::with_index(source, self, stored)
    }

    /// Opens bytes that are not a local file. `name` is their name in errors.
    pub fn open_source<S: ReadAt>(
        self,
        source: S,
        name: impl Into<PathBuf>,
    ) -> Result<RecordFile<S>, ReadError> {
        RecordFile::with_index(SizedSource::new(source, name.into())?, self, None)
    }

    /// Like [`ReadOptions::open_source`], with the index that was stored beside the bytes; without one the headers are
    /// read. Here the caller decides whether an index is used.
    pub fn open_indexed<S: ReadAt>(
        self,
        source: S,
        name: impl Into<PathBuf>,
        index: Option<&[u8]>,
    ) -> Result<RecordFile<S>, ReadError> {
        let source = SizedSource::new(source, name.into())?;
        let stored = match index {
            Some(bytes) => Some(stored_index::fit(
                bytes,
                source.name(),
                source.len(),
                self.policy,
            )?),
            None => None,
        };
        RecordFile::with_index(source, self, stored)
    }
}

/// An open file. Clones share it.
pub struct RecordFile<S = File> {
    source: Arc<SizedSource<S>>,
    index: Arc<Index>,
    index_is_stored: bool,
    options: ReadOptions,
}

impl<S> Clone for RecordFile<S> {
    fn clone(&self) -> Self {
        Self {
            source: Arc::clone(&self.source),
            index: Arc::clone(&self.index),
            ..*self
        }
    }
}

impl RecordFile {
    /// Opens `path` strictly, with the index beside it if there is one.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        ReadOptions::new().open(path)
    }
}

impl<S: ReadAt> RecordFile<S> {
    fn with_index(
        source: SizedSource<S>,
        options: ReadOptions,
        stored: Option<Index>,
    ) -> Result<Self, ReadError> {
        let index_is_stored = stored.is_some();
        let index = match stored {
            Some(index) => index,
            None => scan::scan(&source, options.policy, &options.limits)?,
        };
        Ok(Self {
            source: Arc::new(source),
            index: Arc::new(index),
            index_is_stored,
            options,
        })
    }

    /// How many records can be read by number.
    pub fn len(&self) -> u64 {
        self.index().record_count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Whether the index was stored beside the file.
    pub fn index_is_stored(&self) -> bool {
        self.index_is_stored
    }

    pub fn path(&self) -> &Path {
        self.source().name()
    }

    pub fn policy(&self) -> Policy {
        self.options.policy
    }

    /// Reads all records in order.
    pub fn records(&self) -> RangeReader<S> {
        self.range(0..self.len()).expect("the file has its own records")
    }

    /// Reads the records with these numbers in order.
    pub fn range(&self, records: Range<u64>) -> Result<RangeReader<S>, ReadError> {
        self.check_range(&records)?;
        Ok(RangeReader::new(self.clone(), records))
    }

    /// Like [`RecordFile::range`], with chunks loaded and decompressed ahead on `threads` threads.
    ///
    /// Keeps at most two chunks per thread and one. Create it after a fork, not before: a child has no threads.
    pub fn range_parallel(
        &self,
        records: Range<u64>,
        threads: NonZeroUsize,
    ) -> Result<RangeReader<S>, ReadError> {
        self.check_range(&records)?;
        RangeReader::parallel(self.clone(), records, threads)
    }

    /// Reads records by number, with a cache of up to `cache_bytes` about chunks.
    pub fn random(&self, cache_bytes: usize) -> RandomReader<S> {
        RandomReader::new(self.clone(), cache_bytes)
    }

    /// Reads everything, whatever the policy, and reports what is intact and what is damaged.
    pub fn verify(&self) -> Result<Verified, ReadError> {
        let mut file = self.clone();
        file.options.policy = Policy::Skip(SkipBound::UNLIMITED);
        let mut verified = Verified::default();
        let mut reader = file.records();
        while let Some(chunk) = reader.next_chunk()? {
            verified.add(chunk);
        }
        verified.damage = reader.damage().clone();
        Ok(verified)
    }

    /// The same file with chunk `n` split, if its loaded form `chunk` shows that it must be.
    pub(crate) fn divided(&self, n: usize, chunk: &Chunk, fault: &Fault) -> Result<Option<Self>, ReadError> {
        if self.index_is_stored {
            return Ok(None);
        }
        let limits = &self.options.limits;
        let index = repair::divide(&self.source, &self.index, n, chunk.stored(), fault, limits)?;
        Ok(index.map(|index| Self {
            index: Arc::new(index),
            ..self.clone()
        }))
    }

    fn check_range(&self, records: &Range<u64>) -> Result<(), ReadError> {
        let last = records.start.max(records.end);
        match last > self.len() {
            true => Err(self.no_such_record(last - 1)),
            false => Ok(()),
        }
    }

    pub(crate) fn no_such_record(&self, record: u64) -> ReadError {
        ReadError::NoSuchRecord {
            file: self.path().to_owned(),
            record,
            len: self.len(),
        }
    }

    pub(crate) fn source(&self) -> &SizedSource<S> {
        &self.source
    }

    pub(crate) fn load_chunk(&self, chunk: &mut Chunk, n: usize, ahead: usize) -> Result<(), LoadError> {
        let (index, limits) = (self.index(), &self.options.limits);
        chunk.load(self.source(), &index.chunks()[n], index.layout(), limits, ahead)
    }

    /// The account of chunk `n`, which failed to load into `chunk`.
    pub(crate) fn lost_chunk(&self, chunk: &Chunk, n: usize, fault: Fault) -> LostRange {
        let info = &self.index().chunks()[n];
        let records = match self.index_is_stored {
            true => LostRecords::Known(info.header.records.into()),
            false => loss::in_chunk(
                &info.header,
                chunk.stored(),
                chunk.records(),
                &fault,
                &self.options.limits,
            ),
        };
        LostRange {
            bytes: info.bytes(),
            records,
            fault,
        }
    }
}

/// What [`RecordFile::verify`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// whole chunks, those without records not counted
    pub chunks: u64,
    /// records in them
    pub records: u64,
    /// their bytes, without lengths
    pub record_bytes: u64,
    pub damage: DamageReport,
}

impl Verified {
    fn add(&mut self, chunk: Records<'_>) {
        self.chunks += 1;
        self.records += chunk.len() as u64;
        self.record_bytes += chunk.payload().len() as u64 - 4 * chunk.len() as u64;
    }
}
