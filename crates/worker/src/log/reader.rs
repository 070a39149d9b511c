//! Reads a log by offset, by time or from its end, also while its writer appends.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::{Chunk, Entry, Gap, Piece, Stream, data_path, index_path, segments};
use crate::protocol::UnixNanos;

const BLOCK: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
#[error("cannot read the log in `{dir}`")]
pub struct LogError {
    dir: PathBuf,
    source: io::Error,
}

impl LogError {
    /// The system's error.
    pub fn into_source(self) -> io::Error {
        self.source
    }
}

/// A view of one worker's log. Cheap to create; remembers the segment it read last.
pub struct LogReader {
    dir: PathBuf,
    open: Option<Segment>,
}

impl LogReader {
    /// A folder that does not exist yet is an empty log.
    pub fn open(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            open: None,
        }
    }

    /// The offset after the last byte.
    pub fn len(&self) -> Result<u64, LogError> {
        self.bounds().map(|(_, end)| end)
    }

    /// Whether nothing has been written yet.
    pub fn is_empty(&self) -> Result<bool, LogError> {
        self.len().map(|len| len == 0)
    }

    /// The offset of the oldest byte that still exists.
    pub fn start(&self) -> Result<u64, LogError> {
        self.bounds().map(|(start, _)| start)
    }

    /// Reads at most `max` bytes from `offset`; returns nothing at or beyond the end.
    ///
    /// Pieces are contiguous and begin at `offset`: missing bytes are a [`Gap`].
    pub fn read_at(&mut self, offset: u64, max: usize) -> Result<Vec<Piece>, LogError> {
        let mut pieces = Vec::new();
        let (mut offset, mut budget) = (offset, max as u64);
        while budget > 0 {
            match self.locate(offset).map_err(|source| self.error(source))? {
                OffsetLookup::End => break,
                OffsetLookup::Missing { until } => {
                    pieces.push(Piece::Gap(Gap {
                        from: offset,
                        to: until,
                    }));
                    offset = until;
                }
                OffsetLookup::Held { len } => {
                    let take = budget.min(len);
                    let segment = self.open.as_mut().expect("a held offset has its segment open");
                    let read = segment.read(offset, take, &mut pieces);
                    read.map_err(|source| LogError {
                        dir: self.dir.clone(),
                        source,
                    })?;
                    offset += take;
                    budget -= take;
                }
            }
        }
        Ok(pieces)
    }

    /// The offset of the first byte that arrived at `time` or later; the end if there is none.
    pub fn seek_time(&self, time: UnixNanos) -> Result<u64, LogError> {
        self.retry_rotated(|| self.try_seek_time(time))
    }

    /// The offset where the last `n` lines begin. Bytes after the last newline count as a line.
    pub fn tail_lines(&self, n: usize) -> Result<u64, LogError> {
        self.retry_rotated(|| self.try_tail_lines(n))
    }

    fn bounds(&self) -> Result<(u64, u64), LogError> {
        self.retry_rotated(|| {
            let starts = self.segments()?;
            let Some((first, last)) = starts.first().zip(starts.last()) else {
                return Ok((0, 0));
            };
            let tail = std::fs::metadata(data_path(&self.dir, *last))?.len();
            Ok((*first, last + tail))
        })
    }

    /// Finds the segment of `offset` and opens it.
    fn locate(&mut self, offset: u64) -> io::Result<OffsetLookup> {
        if let Some(len) = self.held(offset)? {
            return Ok(OffsetLookup::Held { len });
        }
        loop {
            // List segments before reading any length: a segment with a successor no longer grows, so a gap between the
            // two is final and not a write in progress.
            let starts = self.segments()?;
            let next = starts.partition_point(|start| *start <= offset);
            if let Some(start) = next.checked_sub(1).map(|at| starts[at]) {
                if !self.holds(start)? {
                    match Segment::open(&self.dir, start) {
                        Ok(segment) => self.open = Some(segment),
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => return Err(error),
                    }
                }
                if let Some(len) = self.held(offset)? {
                    return Ok(OffsetLookup::Held { len });
                }
            }
            return Ok(starts
                .get(next)
                .map_or(OffsetLookup::End, |until| OffsetLookup::Missing { until: *until }));
        }
    }

    /// Whether this segment is open. An empty one is opened again: its writer may have replaced it.
    fn holds(&self, start: u64) -> io::Result<bool> {
        match self.open.as_ref().filter(|segment| segment.start == start) {
            Some(segment) => Ok(segment.data.metadata()?.len() > 0),
            None => Ok(false),
        }
    }

    /// How many bytes the open segment has from `offset` on, if any.
    fn held(&self, offset: u64) -> io::Result<Option<u64>> {
        let Some(segment) = self.open.as_ref().filter(|segment| segment.start <= offset) else {
            return Ok(None);
        };
        let end = segment.start + segment.data.metadata()?.len();
        Ok(end.checked_sub(offset).filter(|len| *len > 0))
    }

    fn try_seek_time(&self, time: UnixNanos) -> io::Result<u64> {
        let starts = self.segments()?;
        let mut answer = None;
        for start in starts.iter().rev() {
            let mut segment = Segment::open(&self.dir, *start)?;
            let end = start + segment.data.metadata()?.len();
            segment.load_entries()?;
            let at = segment.entries.partition_point(|entry| entry.stamp < time);
            let found = segment
                .entries
                .get(at)
                .map(|entry| entry.offset)
                .filter(|offset| *offset < end);
            answer = found.or(answer).or(Some(end));
            if at > 0 {
                break;
            }
        }
        Ok(answer.unwrap_or(0))
    }

    fn try_tail_lines(&self, n: usize) -> io::Result<u64> {
        let starts = self.segments()?;
        let Some(last) = starts.last() else { return Ok(0) };
        let end = last + File::open(data_path(&self.dir, *last))?.metadata()?.len();
        if n == 0 {
            return Ok(end);
        }
        // A newline that is the very last byte ends the last line and does not begin another.
        let mut newlines = 0;
        for start in starts.iter().rev() {
            let mut data = File::open(data_path(&self.dir, *start))?;
            let mut high = data.metadata()?.len().min(end - start);
            while high > 0 {
                let low = high.saturating_sub(BLOCK);
                let block = read_range(&mut data, low, high - low)?;
                for at in (0..block.len()).rev().filter(|at| block[*at] == b'\n') {
                    let next = start + low + at as u64 + 1;
                    newlines += usize::from(next < end);
                    if newlines == n && next < end {
                        return Ok(next);
                    }
                }
                high = low;
            }
        }
        Ok(starts[0])
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        match segments(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            result => result,
        }
    }

    /// Retries if a segment was rotated away between listing and opening.
    fn retry_rotated<T>(&self, read: impl Fn() -> io::Result<T>) -> Result<T, LogError> {
        loop {
            match read() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => return result.map_err(|source| self.error(source)),
            }
        }
    }

    fn error(&self, source: io::Error) -> LogError {
        LogError {
            dir: self.dir.clone(),
            source,
        }
    }
}

enum OffsetLookup {
    Held { len: u64 },
    Missing { until: u64 },
    End,
}

struct Segment {
    start: u64,
    data: File,
    index: File,
    /// The entries read so far, with increasing offsets.
    entries: Vec<Entry>,
    index_read: u64,
}

impl Segment {
    fn open(dir: &Path, start: u64) -> io::Result<Self> {
        // Rotation removes the data first: opened in this order, both exist or the segment is gone.
        let index = File::open(index_path(dir, start))?;
        let data = File::open(data_path(dir, start))?;
        Ok(Self {
            start,
            data,
            index,
            entries: Vec::new(),
            index_read: 0,
        })
    }

    /// Appends `len` existing bytes from `offset`, split at the entries.
    fn read(&mut self, offset: u64, len: u64, pieces: &mut Vec<Piece>) -> io::Result<()> {
        let bytes = read_range(&mut self.data, offset - self.start, len)?;
        self.load_entries()?;
        let mut rest = bytes.as_slice();
        let mut offset = offset;
        while !rest.is_empty() {
            let next = self.entries.partition_point(|entry| entry.offset <= offset);
            let entry = next.checked_sub(1).map(|at| self.entries[at]);
            let until = self.entries.get(next).map_or(u64::MAX, |entry| entry.offset);
            let (head, tail) = rest.split_at((until - offset).min(rest.len() as u64) as usize);
            pieces.push(Piece::Chunk(chunk(offset, entry, head)));
            offset += head.len() as u64;
            rest = tail;
        }
        Ok(())
    }

    fn load_entries(&mut self) -> io::Result<()> {
        self.index.seek(SeekFrom::Start(self.index_read))?;
        let mut bytes = Vec::new();
        self.index.read_to_end(&mut bytes)?;
        let (whole, _torn) = bytes.as_chunks::<{ Entry::SIZE }>();
        self.index_read += (whole.len() * Entry::SIZE) as u64;
        for entry in whole.iter().filter_map(Entry::decode) {
            // After a power cut the end of an index may be zeros.
            let floor = self.entries.last().map_or(self.start, |last| last.offset + 1);
            if entry.offset >= floor {
                self.entries.push(entry);
            }
        }
        Ok(())
    }
}

/// Bytes whose entry was lost in a power cut are still returned, without a time.
fn chunk(offset: u64, entry: Option<Entry>, bytes: &[u8]) -> Chunk {
    let (stamp, stream) = entry.map_or((UnixNanos::default(), Stream::Output), |entry| {
        (entry.stamp, entry.stream)
    });
    Chunk {
        offset,
        stamp: stamp.0,
        stream,
        bytes: bytes.to_vec(),
    }
}

fn read_range(file: &mut File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}
