//! Reads a RecordIO stream from front to back, from anything that gives bytes.
//!
//! A stream cannot be searched for the next chunk and gone back in, so damage always ends it; to skip
//! damage, open a file (`RecordFile`).

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::chunk::{Limits, Opener, Records};
use crate::error::ReadError;
use crate::fault::Fault;
use crate::layout::{HEADER_LEN, Header, Layout};
use crate::peek::stub_fault;

const READ_AHEAD: usize = 64 << 10;
/// A payload is read in steps of this size at first: memory follows the bytes that really come.
const FIRST_STEP: usize = 1 << 20;

/// Gives the records of a stream one by one, chunk by chunk or in batches. Memory: one chunk.
pub struct StreamReader<R> {
    input: BufReader<R>,
    name: PathBuf,
    limits: Limits,
    layout: Option<Layout>,
    /// where the next chunk begins
    offset: u64,
    stored: Buffer,
    opener: Opener,
    next_record: usize,
    failed: bool,
}

impl<R: Read> StreamReader<R> {
    pub fn new(input: R) -> Self {
        Self::named(input, Path::new("<stream>"), Limits::default())
    }

    /// `name` is what errors call the stream.
    pub fn named(input: R, name: &Path, limits: Limits) -> Self {
        Self {
            input: BufReader::with_capacity(READ_AHEAD, input),
            name: name.to_owned(),
            limits,
            layout: None,
            offset: 0,
            stored: Buffer::default(),
            opener: Opener::default(),
            next_record: 0,
            failed: false,
        }
    }

    /// The layout, once a chunk with records has shown it.
    pub fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// The next record, or nothing at the end. After an error there is nothing but errors.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, ReadError> {
        if !self.has_record()? {
            return Ok(None);
        }
        self.next_record += 1;
        Ok(Some(self.opener.records(&self.stored).get(self.next_record - 1)))
    }

    /// The records of the current chunk that have not been read yet, or else those of the next.
    pub fn next_chunk(&mut self) -> Result<Option<Records<'_>>, ReadError> {
        if !self.has_record()? {
            return Ok(None);
        }
        let from = std::mem::replace(&mut self.next_record, self.opener.len());
        let records = self.opener.records(&self.stored);
        Ok(Some(records.slice(from, records.len())))
    }

    /// Adds up to `max` records to `batch` and returns how many; 0 means the end.
    pub fn read_batch(&mut self, max: usize, batch: &mut Batch) -> Result<usize, ReadError> {
        let mut added = 0;
        while added < max && self.has_record()? {
            let to = self.opener.len().min(self.next_record + max - added);
            batch.extend(self.opener.records(&self.stored), self.next_record, to);
            added += to - self.next_record;
            self.next_record = to;
        }
        Ok(added)
    }

    fn has_record(&mut self) -> Result<bool, ReadError> {
        while self.next_record == self.opener.len() {
            if !self.advance()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn advance(&mut self) -> Result<bool, ReadError> {
        if self.failed {
            return Err(ReadError::AlreadyFailed {
                file: self.name.clone(),
            });
        }
        let result = self.load();
        self.failed = result.is_err();
        match result {
            Ok(more) => Ok(more),
            Err(StreamFailure::Fault(fault)) => Err(ReadError::damaged(&self.name, self.offset, fault)),
            Err(StreamFailure::Io(e)) => Err(ReadError::io(&self.name, e)),
        }
    }

    fn load(&mut self) -> Result<bool, StreamFailure> {
        self.opener.clear();
        self.next_record = 0;
        let mut bytes = [0; HEADER_LEN];
        match read_up_to(&mut self.input, &mut bytes)? {
            0 => return Ok(false),
            HEADER_LEN => {}
            cut => return Err(stub_fault(&bytes[..cut]).into()),
        }
        let (header, layout) = match self.layout {
            Some(layout) => (Header::parse(&bytes, layout)?, Some(layout)),
            None => Header::detect(&bytes)?,
        };
        self.limits.admit(&header)?;
        self.read_payload(&header)?;
        self.opener.open(&header, &self.stored, &self.limits)?;
        self.layout = layout;
        self.offset += header.chunk_len();
        Ok(true)
    }

    fn read_payload(&mut self, header: &Header) -> Result<(), StreamFailure> {
        let len = header.stored_len as usize;
        self.stored.clear();
        while self.stored.len() < len {
            let have = self.stored.len();
            let step = have.max(FIRST_STEP).min(len - have);
            let got = read_up_to(&mut self.input, &mut self.stored.grow(step)[have..])?;
            if got < step {
                self.stored.clear();
                let fault = Fault::Truncated {
                    needed: header.chunk_len(),
                    available: (HEADER_LEN + have + got) as u64,
                };
                return Err(fault.into());
            }
        }
        Ok(())
    }
}

enum StreamFailure {
    Fault(Fault),
    Io(io::Error),
}

impl From<Fault> for StreamFailure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for StreamFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Fills `buf` as far as the input goes.
fn read_up_to(input: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match input.read(&mut buf[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
