//! Writes one chunk into an unfinished file.

use super::{AssemblyError, Claim};
use crate::content::chunk::{ChunkHasher, ChunkName};
use crate::content::journal::Record;
use crate::relpath::RelPath;

/// Receives one chunk in pieces. The chunk counts only after [`ChunkWriter::finish`].
#[derive(Debug)]
pub struct ChunkWriter {
    claim: Claim,
    index: u64,
    offset: u64,
    left: u64,
    /// The name of the chunk, if it was already received and checked.
    here: Option<ChunkName>,
    hasher: ChunkHasher,
}

impl ChunkWriter {
    pub(super) fn new(
        claim: Claim,
        index: u64,
        (offset, left): (u64, u64),
        here: Option<ChunkName>,
        hasher: ChunkHasher,
    ) -> Self {
        Self {
            claim,
            index,
            offset,
            left,
            here,
            hasher,
        }
    }

    /// Writes the next bytes of the chunk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), AssemblyError> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(|| self.wrong_length())?;
        self.hasher.update(bytes);
        if self.here.is_none() {
            let _open = self.claim.inner.still_open()?;
            self.claim.inner.write_at(bytes, self.offset)?;
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Accepts the chunk if it is complete and has the expected name. Without one, from a sender that sends only the digest of
    /// the whole file, the commit checks that digest without reading the bytes again.
    pub fn finish(self, expected: Option<ChunkName>) -> Result<(), AssemblyError> {
        if self.left > 0 {
            return Err(self.wrong_length());
        }
        let (index, name) = (self.index, self.hasher.finish());
        if [expected, self.here]
            .into_iter()
            .flatten()
            .any(|other| other != name)
        {
            let path = self.path();
            return Err(AssemblyError::DamagedChunk { path, index });
        }
        if self.here.is_some() {
            return Ok(());
        }
        let _open = self.claim.inner.still_open()?;
        self.claim.inner.note(Record::Chunk { index, name })
    }

    /// Keeps what arrived of the chunk, unchecked: the rest may come as a range.
    pub fn keep(self) -> Result<(), AssemblyError> {
        let (start, _) = self.claim.inner.chunk_range(self.index)?;
        if self.here.is_some() || self.offset == start {
            return Ok(());
        }
        let _open = self.claim.inner.still_open()?;
        self.claim.inner.note(Record::of(start..self.offset))
    }

    fn path(&self) -> RelPath {
        self.claim.inner.plan.path.clone()
    }

    fn wrong_length(&self) -> AssemblyError {
        AssemblyError::WrongLength {
            path: self.path(),
            index: self.index,
        }
    }
}
