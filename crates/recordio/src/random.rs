//! Reads records by number.
//!
//! The first access to a chunk reads and verifies all of it. What is then cached depends on how it is stored: the
//! records of a compressed chunk; only the position and checksum of each record of an uncompressed one, so that later
//! records are read alone and still verified.

use std::fs::File;

use crate::batch::Batch;
use crate::cache::Cache;
use crate::chunk::{Chunk, LoadError};
use crate::compressor::Compressor;
use crate::error::ReadError;
use crate::fault::Fault;
use crate::file::RecordFile;
use crate::layout::HEADER_LEN;
use crate::source::ReadAt;

/// Returns records by number, one at a time or, much faster for scattered ones, many.
///
/// A damaged chunk is an error under every policy: the requested record cannot be returned.
pub struct RandomReader<S = File> {
    file: RecordFile<S>,
    known: Cache<Known>,
    scratch: Chunk,
    gathered: Batch,
}

/// What is remembered about a chunk.
enum Known {
    Stored(Vec<StoredRecord>),
    Records(Batch),
}

/// A record of an uncompressed chunk.
#[derive(Debug, Clone, Copy)]
struct StoredRecord {
    /// from the start of the payload
    start: u32,
    len: u32,
    checksum: u32,
}

impl<S: ReadAt> RandomReader<S> {
    pub(crate) fn new(file: RecordFile<S>, cache_bytes: usize) -> Self {
        Self {
            file,
            known: Cache::new(cache_bytes),
            scratch: Chunk::default(),
            gathered: Batch::new(),
        }
    }

    pub fn file(&self) -> &RecordFile<S> {
        &self.file
    }

    /// The record with this number.
    pub fn get(&mut self, record: u64) -> Result<&[u8], ReadError> {
        self.gathered.clear();
        self.gather(record)?;
        Ok(self.gathered.get(0))
    }

    /// Adds the records with these numbers to `batch`, in the order given; duplicates are allowed.
    ///
    /// All or none: after an error the batch is unchanged.
    pub fn get_many(&mut self, records: &[u64], batch: &mut Batch) -> Result<(), ReadError> {
        self.gathered.clear();
        if records.is_sorted() {
            self.gather_all(records.iter().copied())?;
            self.gathered.iter().for_each(|record| batch.push(record));
            return Ok(());
        }
        // In file order every chunk is needed once, however small the cache.
        let mut order: Vec<usize> = (0..records.len()).collect();
        order.sort_unstable_by_key(|i| records[*i]);
        self.gather_all(order.iter().map(|i| records[*i]))?;
        let mut rank = vec![0; records.len()];
        for (gathered, i) in order.into_iter().enumerate() {
            rank[i] = gathered;
        }
        rank.into_iter().for_each(|i| batch.push(self.gathered.get(i)));
        Ok(())
    }

    fn gather_all(&mut self, records: impl Iterator<Item = u64>) -> Result<(), ReadError> {
        for record in records {
            self.gather(record)?;
        }
        Ok(())
    }

    /// Appends one record to `gathered`.
    fn gather(&mut self, record: u64) -> Result<(), ReadError> {
        let index = self.file.index();
        let n = index
            .chunk_of(record)
            .ok_or_else(|| self.file.no_such_record(record))?;
        let info = index.chunks()[n];
        let within = (record - info.first_record) as usize;
        if self.known.get(n).is_none() {
            self.learn(n)?;
        }
        match self.known.get(n).expect("what was just learned is kept") {
            Known::Records(records) => self.gathered.push(records.get(within)),
            Known::Stored(places) => {
                let payload = info.offset + HEADER_LEN as u64;
                fetch(&self.file, payload, places[within], &mut self.gathered)?;
            }
        }
        Ok(())
    }

    fn learn(&mut self, n: usize) -> Result<(), ReadError> {
        let info = self.file.index().chunks()[n];
        self.file
            .load_chunk(&mut self.scratch, n, 0)
            .map_err(|error| match error {
                LoadError::Fatal(error) => error,
                LoadError::Fault(fault) => self.file.source().damaged(info.offset, fault),
            })?;
        let records = self.scratch.records();
        let (known, cost) = match info.header.compressor {
            Compressor::None => {
                let place = |i| {
                    let bounds = records.bounds(i);
                    StoredRecord {
                        start: bounds.start as u32,
                        len: bounds.len() as u32,
                        checksum: crc32fast::hash(records.get(i)),
                    }
                };
                let places: Vec<StoredRecord> = (0..records.len()).map(place).collect();
                let cost = size_of_val(&places[..]);
                (Known::Stored(places), cost)
            }
            _ => {
                let mut copy = Batch::new();
                copy.extend(records, 0, records.len());
                let cost = copy.data().len() + size_of_val(copy.offsets());
                (Known::Records(copy), cost)
            }
        };
        self.known.insert(n, known, cost);
        Ok(())
    }
}

/// Reads one record of an uncompressed chunk that was verified before, and verifies it again.
fn fetch<S: ReadAt>(
    file: &RecordFile<S>,
    payload: u64,
    place: StoredRecord,
    batch: &mut Batch,
) -> Result<(), ReadError> {
    let offset = payload + u64::from(place.start);
    batch.push_with(place.len as usize, |space| file.source().read(space, offset))?;
    let computed = crc32fast::hash(batch.get(batch.len() - 1));
    if computed != place.checksum {
        let fault = Fault::Checksum {
            expected: place.checksum,
            computed,
        };
        return Err(file.source().damaged(offset, fault));
    }
    Ok(())
}
