//! Finds the next chunk after damage.
//!
//! Bytes that look like a header are not enough: a record may itself contain a RecordIO file. A position counts as a
//! chunk's start in three cases only.
//!
//! 1. The damaged chunk's own size leads there, and the chunk there is complete and valid (or it is the end).
//! 2. The damaged chunk's own checksum matches the bytes up to there: then only its header is wrong.
//! 3. The chain of headers from there on reaches the end of the file exactly, and nothing before shows that the
//!    position is inside a record: neither a record's length just before it, nor the records or Snappy frames of the
//!    damaged chunk, counted from its start, span it and end at a joint of that chain. (If they end exactly at the
//!    position, it is a chunk's start.)
//!
//! Every position is followed once: chains are remembered by where they lead, so the time is linear in the bytes
//! searched. The memory for failed positions is limited; a file crafted to exceed it is given up.

use std::collections::HashSet;

use crate::buffer::Buffer;
use crate::chunk::{Chunk, Limits, LoadError};
use crate::error::ReadError;
use crate::index::ChunkInfo;
use crate::layout::{HEADER_LEN, Layout, MAGIC, RawHeader};
use crate::peek::Peek;
use crate::snappy;
use crate::source::{ReadAt, SizedSource};

const SEARCH_STEP: usize = 256 << 10;
/// Failed positions that are remembered before a file is given up; about 100 MB.
const MAX_DEAD_ENDS: usize = 4 << 20;

/// Bytes of chunks that may be read without success because a damaged one points there, per byte of the file. Beyond that, a
/// damaged chunk's size is no longer trusted.
const MAX_WASTED: u64 = 16;

/// Searches for chunks after damage in one file.
pub(crate) struct Resync<'a, S> {
    source: &'a SizedSource<S>,
    headers: Peek<'a, S>,
    limits: Limits,
    horizon: Horizon,
    memory: Memory,
}

/// What has been learned about positions, so that none is examined twice.
#[derive(Default)]
pub(crate) struct Memory {
    /// places from which the chain of headers is known to break
    dead_ends: HashSet<(u64, Layout)>,
    /// places from which it is known to reach the end of the file
    alive: HashSet<(u64, Layout)>,
    /// bytes of chunks that turned out not to be valid
    wasted: u64,
}

/// What follows the bytes of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Horizon {
    /// nothing: the file ends with them
    End,
    /// more, and nobody knows how much: chains cannot be followed to the end
    More,
}

/// Where reading can resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resume<O = u64> {
    /// a chunk starts here, or the file ends
    At(O),
    /// nothing up to the end of what was to be searched
    NotFound,
}

impl<'a, S: ReadAt> Resync<'a, S> {
    pub(crate) fn new(source: &'a SizedSource<S>, limits: Limits) -> Self {
        Self::remembering(source, limits, Horizon::End, Memory::default())
    }

    /// Continues with what was learned about the same bytes before.
    pub(crate) fn remembering(
        source: &'a SizedSource<S>,
        limits: Limits,
        horizon: Horizon,
        memory: Memory,
    ) -> Self {
        Self {
            source,
            headers: Peek::new(source),
            limits,
            horizon,
            memory,
        }
    }

    pub(crate) fn into_memory(self) -> Memory {
        self.memory
    }

    /// Where to resume after damage that begins at `start`, searching no further than `search_end`.
    pub(crate) fn resume(
        &mut self,
        start: u64,
        layout: Option<Layout>,
        search_end: u64,
    ) -> Result<Resume, ReadError> {
        match self.declared(start, layout)? {
            Resume::NotFound => self.search(start, &candidates(layout), search_end),
            found => Ok(found),
        }
    }

    /// Like [`Resync::resume`], but uses only the damaged chunk's own size.
    pub(crate) fn declared(&mut self, start: u64, layout: Option<Layout>) -> Result<Resume, ReadError> {
        for layout in candidates(layout) {
            if let Some(end) = self.declared_end(start, layout)? {
                return Ok(Resume::At(end));
            }
        }
        Ok(Resume::NotFound)
    }

    /// The end according to the damaged chunk's own header, if a valid chunk or the file's end is there.
    fn declared_end(&mut self, start: u64, layout: Layout) -> Result<Option<u64>, ReadError> {
        let Some(bytes) = self.headers.bytes::<HEADER_LEN>(start)? else {
            return Ok(None);
        };
        let size = RawHeader::split(&bytes, layout).stored_len;
        let end = start + HEADER_LEN as u64 + u64::from(size);
        if end == self.source.len() && self.horizon == Horizon::End {
            return Ok(Some(end));
        }
        Ok(self.is_valid_chunk(end, layout)?.then_some(end))
    }

    fn is_valid_chunk(&mut self, offset: u64, layout: Layout) -> Result<bool, ReadError> {
        let is_believed = self.memory.wasted <= MAX_WASTED.saturating_mul(self.source.len());
        if offset >= self.source.len() || !is_believed {
            return Ok(false);
        }
        let Ok((header, _)) = self.headers.header(offset, Some(layout))? else {
            return Ok(false);
        };
        let info = ChunkInfo {
            offset,
            first_record: 0,
            header,
        };
        match Chunk::default().load(self.source, &info, layout, &self.limits, 0) {
            Ok(()) => Ok(true),
            Err(LoadError::Fault(_)) => {
                self.memory.wasted += info.header.chunk_len();
                Ok(false)
            }
            Err(LoadError::Fatal(error)) => Err(error),
        }
    }

    fn search(&mut self, start: u64, layouts: &[Layout], search_end: u64) -> Result<Resume, ReadError> {
        let end = search_end.min(self.source.len());
        let checksums = self.checksums(start, layouts)?;
        let mut candidates = MagicSearch::new(self.source, start, end);
        let mut insides = Insides::new(self.source, start)?;
        let mut inside_until = 0;
        while let Some((candidate, checksum)) = candidates.next()? {
            if checksum.is_some_and(|checksum| checksums.contains(&checksum)) {
                return Ok(Resume::At(candidate));
            }
            if candidate < inside_until || self.horizon == Horizon::More {
                continue;
            }
            for layout in layouts {
                if !self.reaches_end(candidate, *layout, start)? {
                    continue;
                }
                let is_joint = |end: &u64| self.memory.alive.contains(&(*end, *layout));
                match insides.enclosing(candidate, is_joint)? {
                    Some(record_end) => inside_until = record_end,
                    None => return Ok(Resume::At(candidate)),
                }
            }
        }
        let is_end = end == self.source.len() && self.horizon == Horizon::End;
        Ok(if is_end { Resume::At(end) } else { Resume::NotFound })
    }

    /// The payload checksum in the header at `start`, in each layout.
    fn checksums(&mut self, start: u64, layouts: &[Layout]) -> Result<Vec<u32>, ReadError> {
        let header = self.headers.bytes::<HEADER_LEN>(start)?;
        let checksum = |layout: &Layout| Some(RawHeader::split(header.as_ref()?, *layout).checksum);
        Ok(layouts.iter().filter_map(checksum).collect())
    }

    /// Whether the chunks from `from` on lead to the end of the file.
    fn reaches_end(&mut self, from: u64, layout: Layout, damage: u64) -> Result<bool, ReadError> {
        let mut joints = vec![(from, layout)];
        let mut at = from;
        let alive = loop {
            if at == self.source.len() || self.memory.alive.contains(&(at, layout)) {
                break true;
            }
            if self.memory.dead_ends.contains(&(at, layout)) {
                break false;
            }
            let Ok((header, _)) = self.headers.header(at, Some(layout))? else {
                break false;
            };
            at += header.chunk_len();
            joints.push((at, layout));
        };
        let known = if alive {
            &mut self.memory.alive
        } else {
            &mut self.memory.dead_ends
        };
        known.extend(joints);
        if self.memory.dead_ends.len() > MAX_DEAD_ENDS {
            return Err(ReadError::Unrecoverable {
                file: self.source.name().to_owned(),
                offset: damage,
                false_starts: self.memory.dead_ends.len() as u64,
            });
        }
        Ok(alive)
    }
}

fn candidates(layout: Option<Layout>) -> Vec<Layout> {
    layout.map_or(Layout::ALL.to_vec(), |known| vec![known])
}

/// Finds the magic number at any position after the start of a damaged chunk.
struct MagicSearch<'a, S> {
    source: &'a SizedSource<S>,
    window: Buffer,
    window_at: u64,
    /// first offset not looked at yet
    next: u64,
    end: u64,
    payload: Checksum,
}

impl<'a, S: ReadAt> MagicSearch<'a, S> {
    fn new(source: &'a SizedSource<S>, damaged: u64, end: u64) -> Self {
        Self {
            source,
            window: Buffer::default(),
            window_at: damaged + 1,
            next: damaged + 1,
            end,
            payload: Checksum::from(damaged + HEADER_LEN as u64),
        }
    }

    /// The next position, with the checksum of the damaged chunk's payload if it ended there.
    fn next(&mut self) -> Result<Option<(u64, Option<u32>)>, ReadError> {
        let magic = MAGIC.to_le_bytes();
        loop {
            let skip = (self.next - self.window_at) as usize;
            let unseen = self.window.get(skip..).unwrap_or_default();
            if let Some(found) = unseen.windows(magic.len()).position(|bytes| bytes == magic) {
                let at = self.next + found as u64;
                self.payload.take(&self.window, self.window_at, at);
                self.next = at + 1;
                return Ok(Some((at, self.payload.value())));
            }
            // The last three bytes may be the first three of a magic number.
            self.next += (unseen.len() as u64).saturating_sub(3);
            if self.end.saturating_sub(self.next) < magic.len() as u64 {
                return Ok(None);
            }
            self.payload.take(&self.window, self.window_at, self.next);
            let len = (self.end - self.next).min(SEARCH_STEP as u64) as usize;
            self.window_at = self.next;
            self.source.read(self.window.resize(len), self.next)?;
        }
    }
}

/// The running checksum of a payload of unknown length.
struct Checksum {
    hasher: crc32fast::Hasher,
    start: u64,
    /// first offset not in the checksum yet
    next: u64,
}

impl Checksum {
    fn from(start: u64) -> Self {
        Self {
            hasher: crc32fast::Hasher::new(),
            start,
            next: start,
        }
    }

    /// Adds the bytes before `end`; `window` begins at `window_at` and no later than what is missing.
    fn take(&mut self, window: &[u8], window_at: u64, end: u64) {
        if end > self.next {
            let missing = (self.next - window_at) as usize..(end - window_at) as usize;
            self.hasher.update(&window[missing]);
            self.next = end;
        }
    }

    /// An empty payload proves nothing, so it has no checksum.
    fn value(&self) -> Option<u32> {
        (self.next > self.start).then(|| self.hasher.clone().finalize())
    }
}

/// The contents of a damaged chunk's payload, as far as they can still be followed.
struct Insides<'a, S> {
    peek: Peek<'a, S>,
    payload: u64,
    records: Walk,
    frames: Option<Walk>,
}

/// A sequence of items that each contain their own length.
struct Walk {
    /// where the thing reached last ends
    end: u64,
}

/// How a walk relates to a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// one thing ends and the place begins
    Landed,
    /// the place is inside a thing that ends here
    Inside(u64),
    /// the walk came to something without a length
    Astray,
}

impl Step {
    fn end(self) -> Option<u64> {
        match self {
            Self::Inside(end) => Some(end),
            Self::Landed | Self::Astray => None,
        }
    }
}

impl<'a, S: ReadAt> Insides<'a, S> {
    fn new(source: &'a SizedSource<S>, damaged: u64) -> Result<Self, ReadError> {
        let payload = damaged + HEADER_LEN as u64;
        let at_payload = || Walk { end: payload };
        let mut peek = Peek::new(source);
        let identifier = peek.bytes(payload)?;
        Ok(Self {
            peek,
            payload,
            records: at_payload(),
            frames: (identifier.as_ref() == Some(snappy::STREAM_IDENTIFIER)).then(at_payload),
        })
    }

    /// The end of the record or frame that contains `place`, if there is one and it ends at a joint.
    fn enclosing(&mut self, place: u64, is_joint: impl Fn(&u64) -> bool) -> Result<Option<u64>, ReadError> {
        let walked = [self.record_around(place)?, self.frame_around(place)?];
        if walked.contains(&Step::Landed) {
            return Ok(None);
        }
        let mut ends = vec![self.record_starting_at(place)?];
        ends.extend(walked.map(Step::end));
        Ok(ends
            .into_iter()
            .flatten()
            .find(|end| *end > place && is_joint(end)))
    }

    fn record_starting_at(&mut self, place: u64) -> Result<Option<u64>, ReadError> {
        if place < self.payload + 4 {
            return Ok(None);
        }
        let len = self.peek.bytes::<4>(place - 4)?;
        Ok(len.map(|len| place + u64::from(u32::from_le_bytes(len))))
    }

    fn record_around(&mut self, place: u64) -> Result<Step, ReadError> {
        let extent = |len: [u8; 4]| Some(4 + u64::from(u32::from_le_bytes(len)));
        self.records.around(place, &mut self.peek, extent)
    }

    fn frame_around(&mut self, place: u64) -> Result<Step, ReadError> {
        match &mut self.frames {
            Some(frames) => frames.around(place, &mut self.peek, snappy::frame_extent),
            None => Ok(Step::Astray),
        }
    }
}

impl Walk {
    /// Continues up to `place`; positions must increase from call to call.
    fn around<S: ReadAt>(
        &mut self,
        place: u64,
        peek: &mut Peek<'_, S>,
        extent: impl Fn([u8; 4]) -> Option<u64>,
    ) -> Result<Step, ReadError> {
        while self.end < place {
            let Some(extent) = peek.bytes::<4>(self.end)?.and_then(&extent) else {
                return Ok(Step::Astray);
            };
            self.end += extent;
        }
        Ok(match self.end == place {
            true => Step::Landed,
            false => Step::Inside(self.end),
        })
    }
}
