//! Reads a RecordIO file that is completely in memory: uncompressed records are not copied.

use std::path::{Path, PathBuf};

use crate::chunk::{Limits, Opener, Records};
use crate::error::ReadError;
use crate::fault::Fault;
use crate::layout::{HEADER_LEN, Header, Layout};
use crate::peek::stub_fault;

/// Returns the chunks and records of a slice; damage is an error.
pub struct SliceReader<'a> {
    bytes: &'a [u8],
    name: PathBuf,
    limits: Limits,
    layout: Option<Layout>,
    offset: usize,
    stored: &'a [u8],
    opener: Opener,
    next_record: usize,
}

impl<'a> SliceReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::named(bytes, Path::new("<memory>"), Limits::default())
    }

    /// `name` is the slice's name in errors.
    pub fn named(bytes: &'a [u8], name: &Path, limits: Limits) -> Self {
        Self {
            bytes,
            name: name.to_owned(),
            limits,
            layout: None,
            offset: 0,
            stored: &[],
            opener: Opener::default(),
            next_record: 0,
        }
    }

    /// The next record, or `None` at the end. After an error it returns the same error again.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, ReadError> {
        if !self.has_record()? {
            return Ok(None);
        }
        self.next_record += 1;
        Ok(Some(self.opener.records(self.stored).get(self.next_record - 1)))
    }

    /// The unread records of the current chunk, otherwise those of the next.
    pub fn next_chunk(&mut self) -> Result<Option<Records<'_>>, ReadError> {
        if !self.has_record()? {
            return Ok(None);
        }
        let from = std::mem::replace(&mut self.next_record, self.opener.len());
        let records = self.opener.records(self.stored);
        Ok(Some(records.slice(from, records.len())))
    }

    fn has_record(&mut self) -> Result<bool, ReadError> {
        while self.next_record == self.opener.len() {
            self.opener.clear();
            self.next_record = 0;
            if self.offset == self.bytes.len() {
                return Ok(false);
            }
            let offset = self.offset as u64;
            self.load()
                .map_err(|fault| ReadError::damaged(&self.name, offset, fault))?;
        }
        Ok(true)
    }

    fn load(&mut self) -> Result<(), Fault> {
        let rest = &self.bytes[self.offset..];
        let Some((header, payload)) = rest.split_first_chunk::<HEADER_LEN>() else {
            return Err(stub_fault(rest));
        };
        let (header, layout) = match self.layout {
            Some(layout) => (Header::parse(header, layout)?, Some(layout)),
            None => Header::detect(header)?,
        };
        let stored = payload
            .get(..header.stored_len as usize)
            .ok_or(Fault::Truncated {
                needed: header.chunk_len(),
                available: rest.len() as u64,
            })?;
        self.limits.admit(&header)?;
        self.opener.open(&header, stored, &self.limits)?;
        self.layout = layout;
        self.stored = stored;
        self.offset += HEADER_LEN + stored.len();
        Ok(())
    }
}
