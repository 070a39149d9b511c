//! Reads a RecordIO stream from front to back, from any reader.
//!
//! Damage can be skipped here too, within the limits of a stream: see `stream_resync`.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::chunk::{Limits, Opener, Records};
use crate::damage::{DamageReport, LostRange, LostRecords, Policy, SkipBound};
use crate::error::ReadError;
use crate::fault::Fault;
use crate::layout::{HEADER_LEN, Header, Layout};
use crate::lookahead::Lookahead;
use crate::loss;
use crate::peek::stub_fault;
use crate::repair;
use crate::stream_resync::{Damaged, StreamResync};

/// A payload is read in steps of this size at first: memory follows the bytes that really arrive.
const FIRST_STEP: usize = 1 << 20;

/// Returns the records of a stream one by one, chunk by chunk or in batches. Memory: one chunk, and while damage is
/// skipped what is needed to be sure where the stream resumes.
pub struct StreamReader<R> {
    input: Lookahead<R>,
    name: PathBuf,
    limits: Limits,
    policy: Policy,
    layout: Option<Layout>,
    /// where the next chunk begins
    offset: u64,
    /// the current chunk as it came, its header up to where the stream ended
    header: [u8; HEADER_LEN],
    header_len: usize,
    stored: Buffer,
    opener: Opener,
    next_record: usize,
    /// number of the loaded chunk's first record
    first_record: u64,
    resync: StreamResync,
    damage: DamageReport,
    failed: bool,
}

impl<R: Read> StreamReader<R> {
    pub fn new(input: R) -> Self {
        Self::named(input, Path::new("<stream>"), Limits::default())
    }

    /// `name` is the stream's name in errors.
    pub fn named(input: R, name: &Path, limits: Limits) -> Self {
        Self {
            input: Lookahead::new(input),
            name: name.to_owned(),
            limits,
            policy: Policy::Strict,
            layout: None,
            offset: 0,
            header: [0; HEADER_LEN],
            header_len: 0,
            stored: Buffer::default(),
            opener: Opener::default(),
            next_record: 0,
            first_record: 0,
            resync: StreamResync::new(limits),
            damage: DamageReport::default(),
            failed: false,
        }
    }

    /// What to do about damage; [`Policy::Strict`] by default.
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// What has been skipped so far.
    pub fn damage(&self) -> &DamageReport {
        &self.damage
    }

    /// The number of the next record, unless damage is found before it. Lost records keep their numbers if it is known
    /// how many they were.
    pub fn position(&self) -> u64 {
        self.first_record + self.next_record as u64
    }

    /// The layout, once a chunk with records has shown it.
    pub fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// The next record, or `None` at the end. After an error it only returns errors.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, ReadError> {
        if !self.has_record()? {
            return Ok(None);
        }
        self.next_record += 1;
        Ok(Some(self.opener.records(&self.stored).get(self.next_record - 1)))
    }

    /// The unread records of the current chunk, otherwise those of the next.
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
        let result = match (self.load(), self.policy) {
            (Ok(more), _) => Ok(more),
            (Err(StreamFailure::Io(e)), _) => Err(ReadError::io(&self.name, e)),
            (Err(StreamFailure::Fault(fault)), Policy::Strict) => {
                Err(ReadError::damaged(&self.name, self.offset, fault))
            }
            (Err(StreamFailure::Fault(fault)), Policy::Skip(bound)) => self.skip(fault, bound).map(|()| true),
        };
        self.failed = result.is_err();
        result
    }

    fn load(&mut self) -> Result<bool, StreamFailure> {
        self.first_record += self.opener.len() as u64;
        self.opener.clear();
        self.next_record = 0;
        self.stored.clear();
        self.input.mark();
        self.header_len = read_up_to(&mut self.input, &mut self.header)?;
        match self.header_len {
            0 => return Ok(false),
            HEADER_LEN => {}
            cut => return Err(stub_fault(&self.header[..cut]).into()),
        }
        let (header, layout) = self.parse_header()?;
        self.limits.admit(&header)?;
        self.read_payload(&header)?;
        self.opener.open(&header, &self.stored, &self.limits)?;
        self.layout = layout;
        self.offset += header.chunk_len();
        Ok(true)
    }

    fn parse_header(&self) -> Result<(Header, Option<Layout>), Fault> {
        match self.layout {
            Some(layout) => Ok((Header::parse(&self.header, layout)?, Some(layout))),
            None => Header::detect(&self.header),
        }
    }

    fn read_payload(&mut self, header: &Header) -> Result<(), StreamFailure> {
        let len = header.stored_len as usize;
        let cut_off = |available: usize| Fault::Truncated {
            needed: header.chunk_len(),
            available: (HEADER_LEN + available) as u64,
        };
        if let Some(left) = self.input.left().filter(|left| *left < len) {
            return Err(cut_off(left).into());
        }
        while self.stored.len() < len {
            let have = self.stored.len();
            let step = have.max(FIRST_STEP).min(len - have);
            let got = read_up_to(&mut self.input, &mut self.stored.grow(step)[have..])?;
            if got < step {
                self.stored.truncate(have + got);
                return Err(cut_off(have + got).into());
            }
        }
        Ok(())
    }

    /// Skips the damage at the current chunk and keeps account of it.
    fn skip(&mut self, fault: Fault, bound: SkipBound) -> Result<(), ReadError> {
        let header = &self.header[..self.header_len];
        self.input.give_back([header, &self.stored]);
        let damaged = Damaged {
            name: &self.name,
            offset: self.offset,
            layout: self.layout,
            read: (header.len() + self.stored.len()) as u64,
            allowed: bound.max_bytes.saturating_sub(self.damage.lost_bytes()),
        };
        let len = match self.end_inside(&fault) {
            Some(len) => len,
            None => self.resync.lost_len(&mut self.input, &damaged)?,
        };
        let records = self.count_lost(len, &fault)?;
        if let LostRecords::Known(count) = records {
            self.first_record += count;
        }
        let start = self.offset;
        self.offset += len as u64;
        self.input.pass(len);
        self.damage.push(LostRange {
            bytes: start..self.offset,
            records,
            fault,
        });
        bound.check(self.damage.tally(), &self.name, self.offset)
    }

    /// Where the current chunk really ends, if its size led past later chunks to the start of another.
    fn end_inside(&self, fault: &Fault) -> Option<usize> {
        let Fault::Checksum { .. } = fault else {
            return None;
        };
        let (header, layout) = self.parse_header().ok()?;
        let end = repair::end_inside(&header, &self.stored, layout?)?;
        Some(HEADER_LEN + end)
    }

    /// Records in the next `len` bytes, which are lost.
    fn count_lost(&mut self, len: usize, fault: &Fault) -> Result<LostRecords, ReadError> {
        // If its own size was right, the bytes read are exactly the lost chunk.
        let is_chunk = |header: &Header| {
            header.stored_len as usize == self.stored.len() && header.chunk_len() == len as u64
        };
        if let Some((header, _)) = self.parse_header().ok().filter(|(header, _)| is_chunk(header)) {
            let unpacked = self.opener.records(&self.stored);
            return Ok(loss::in_chunk(
                &header,
                &self.stored,
                unpacked,
                fault,
                &self.limits,
            ));
        }
        if len > self.limits.unpacked().saturating_add(HEADER_LEN) {
            return Ok(LostRecords::Unknown);
        }
        let lost = self.input.see(len).map_err(|e| ReadError::io(&self.name, e))?;
        Ok(loss::in_gap(lost, self.layout, &self.limits))
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

/// Fills `buf` as far as the input reaches.
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
