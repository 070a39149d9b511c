//! The log of one attempt, as one of the inputs of a merge.

use std::collections::VecDeque;

use paddlecloud_core::ports::{AttemptKey, Follower, LogError, LogMark, LogReader, LogStore, Piece, Stream};

use super::cursor::Begin;

/// Bytes read from one log at a time.
const BLOCK: usize = 64 << 10;

/// A log that is read from some offset.
pub struct LogSource {
    pub attempt: AttemptKey,
    reader: Box<dyn LogReader>,
    begin: Option<Begin>,
    first: Option<u64>,
    /// The offset of the next byte to read.
    next: u64,
    /// Where to stop, if only a snapshot is read.
    stop: Option<u64>,
    ready: VecDeque<Piece>,
    /// Reports growth while the attempt lives, and the length that it last reported.
    pub growth: Option<Box<dyn Follower>>,
    grown_to: Option<u64>,
    /// Whether everything that existed at the last read has been read.
    dry: bool,
}

impl LogSource {
    pub fn new(logs: &dyn LogStore, attempt: AttemptKey, begin: Begin) -> LogSource {
        LogSource {
            reader: logs.reader(&attempt),
            attempt,
            begin: Some(begin),
            first: None,
            next: 0,
            stop: None,
            ready: VecDeque::new(),
            growth: None,
            grown_to: None,
            dry: false,
        }
    }

    /// Stops at the current end.
    pub fn stop_at_present_end(&mut self) -> Result<(), LogError> {
        self.stop = Some(self.reader.length()?);
        Ok(())
    }

    /// Allows further reads: the log may have grown.
    pub fn wake(&mut self) {
        self.dry = false;
        self.grown_to = None;
    }

    /// Allows reads up to the reported length. Growth after it is reported again.
    pub fn grown(&mut self, mark: Option<LogMark>) {
        self.wake();
        self.grown_to = mark.map(|mark| mark.length);
        if mark.is_none_or(|mark| mark.complete) {
            self.growth = None;
        }
    }

    pub fn needs_reading(&self) -> bool {
        self.ready.is_empty() && !self.dry
    }

    /// Whether the next read gets bytes that were written a moment ago, which needs no disk.
    pub fn is_fresh(&self) -> bool {
        self.grown_to
            .is_some_and(|end| end.saturating_sub(self.next) <= BLOCK as u64)
    }

    /// Reads the next block. Blocks on the disk, unless the bytes are fresh.
    pub fn read(&mut self) -> Result<(), LogError> {
        if let Some(begin) = self.begin.take() {
            self.next = self.first_offset(begin)?;
            self.first = Some(self.next);
        }
        let until = self.stop.into_iter().chain(self.grown_to).min();
        let room = until.map_or(u64::MAX, |until| until.saturating_sub(self.next));
        let max = usize::try_from(room).unwrap_or(usize::MAX).min(BLOCK);
        if max == 0 {
            self.dry = true;
            return Ok(());
        }
        let pieces = self.reader.read(self.next, max)?;
        if let Some(last) = pieces.last() {
            self.next = last.end();
        }
        self.dry = pieces.is_empty() || until.is_some_and(|until| self.next >= until);
        self.ready.extend(pieces);
        Ok(())
    }

    fn first_offset(&self, begin: Begin) -> Result<u64, LogError> {
        match begin {
            Begin::Start => Ok(0),
            Begin::Offset(offset) => Ok(offset),
            Begin::Tail(lines) => self.reader.tail_lines(lines),
            Begin::Since(nanos) => self.reader.seek_time(nanos),
        }
    }

    /// The offset of the first requested byte; known after the first read.
    pub fn first(&self) -> Option<u64> {
        self.first
    }

    /// When the next piece was written; a gap sorts first.
    pub fn stamp(&self) -> Option<u64> {
        match self.ready.front()? {
            Piece::Chunk(chunk) => Some(chunk.stamp),
            Piece::Gap(_) => Some(0),
        }
    }

    pub fn take(&mut self) -> Option<Piece> {
        self.ready.pop_front()
    }
}

/// The stream's number on the wire.
pub fn wire_stream(stream: Stream) -> u8 {
    match stream {
        Stream::Launcher => 0,
        Stream::Output => 1,
    }
}
