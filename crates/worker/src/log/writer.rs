//! Appends a worker's output to its segments and never fails: a full disk must not affect a worker. Bytes that cannot
//! be stored are counted and leave a gap in the offsets.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{Entry, Stream, data_path, index_path};
use crate::protocol::{LogLimits, UnixNanos};

/// Bytes of one origin that arrive within this time share an index entry.
const SAME_MOMENT_NANOS: u64 = 1_000_000;

pub struct LogWriter {
    dir: PathBuf,
    segment_bytes: u64,
    keep_bytes: u64,
    finished: VecDeque<Finished>,
    current: Option<Current>,
    offset: u64,
    dropped: u64,
    last_stamp: UnixNanos,
}

struct Finished {
    start: u64,
    len: u64,
}

struct Current {
    start: u64,
    len: u64,
    data: File,
    index: File,
    last: Option<Entry>,
}

impl LogWriter {
    /// Creates the log's folder, which must not exist yet.
    pub fn create(dir: &Path, limits: LogLimits) -> io::Result<Self> {
        fs::create_dir(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
            segment_bytes: limits.segment_bytes.min(limits.keep_bytes / 2).max(1),
            keep_bytes: limits.keep_bytes,
            finished: VecDeque::new(),
            current: None,
            offset: 0,
            dropped: 0,
            last_stamp: UnixNanos::default(),
        })
    }

    /// Continues the log of an earlier writer, or starts a new one. New bytes go into a new segment.
    pub fn resume(dir: &Path, limits: LogLimits) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let starts = super::segments(dir)?;
        let mut finished = VecDeque::new();
        let mut offset = 0;
        for start in &starts {
            let len = fs::metadata(data_path(dir, *start))?.len();
            offset = start + len;
            if len > 0 {
                finished.push_back(Finished { start: *start, len });
            }
        }
        let last = starts.last().map(|start| fs::read(index_path(dir, *start)));
        let last_stamp = last
            .and_then(|index| Entry::last_of(&index.ok()?))
            .map_or(UnixNanos::default(), |entry| entry.stamp);
        Ok(Self {
            dir: dir.to_owned(),
            segment_bytes: limits.segment_bytes.min(limits.keep_bytes / 2).max(1),
            keep_bytes: limits.keep_bytes,
            finished,
            current: None,
            offset,
            dropped: 0,
            last_stamp,
        })
    }

    /// The current end of the log for a reader. Bytes lost to a full disk after it are not included.
    pub fn len(&self) -> u64 {
        let finished = self.finished.back().map(|segment| segment.start + segment.len);
        self.current
            .as_ref()
            .map(|current| current.start + current.len)
            .or(finished)
            .unwrap_or(0)
    }

    /// The offset of the next bytes, after everything received or known to be missing.
    pub fn end(&self) -> u64 {
        self.offset
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes were lost to a full disk so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Appends bytes. Time stamps never go back, so that a log can be searched by time even if the clock was changed.
    pub fn append(&mut self, stream: Stream, bytes: &[u8], now: UnixNanos) {
        if bytes.is_empty() {
            return;
        }
        self.last_stamp = self.last_stamp.max(now);
        let entry = Entry {
            offset: self.offset,
            stamp: self.last_stamp,
            stream,
        };
        let stored = self.store(entry, bytes);
        self.offset += bytes.len() as u64;
        self.dropped += bytes.len() as u64 - stored;
    }

    /// Appends those bytes from `offset` on that are not stored yet. Returns the new end of the log.
    ///
    /// Bytes that cannot be stored are not counted as lost: the log does not end after them, and they may be sent
    /// again. If `offset` is beyond the end, a gap is left.
    pub fn append_at(&mut self, offset: u64, stream: Stream, bytes: &[u8], now: UnixNanos) -> u64 {
        let known = usize::try_from(self.offset.saturating_sub(offset)).unwrap_or(usize::MAX);
        let fresh = &bytes[known.min(bytes.len())..];
        if fresh.is_empty() {
            return self.offset;
        }
        self.skip_to(offset);
        self.last_stamp = self.last_stamp.max(now);
        let entry = Entry {
            offset: self.offset,
            stamp: self.last_stamp,
            stream,
        };
        self.offset += self.store(entry, fresh);
        self.offset
    }

    /// Leaves a gap up to `offset`.
    pub fn skip_to(&mut self, offset: u64) {
        if offset > self.offset {
            self.finish_current();
            self.offset = offset;
        }
    }

    /// Makes everything durable and returns the end of the log for a reader. After an error, the log can be resumed and
    /// closed again.
    pub fn close(mut self) -> io::Result<u64> {
        if self.current.is_none() && self.offset > self.len() {
            // An empty segment at the end shows readers that bytes before it are missing.
            self.current = Some(Current::create(&self.dir, self.offset)?);
        }
        self.finish_current();
        let mut synced = Ok(());
        for segment in &self.finished {
            for path in [
                data_path(&self.dir, segment.start),
                index_path(&self.dir, segment.start),
            ] {
                let file = File::open(&path).and_then(|file| file.sync_data());
                // `remove_before` may have removed the file.
                synced = synced.and(file.or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                }));
            }
        }
        synced.and(File::open(&self.dir).and_then(|dir| dir.sync_all()))?;
        Ok(self.len())
    }

    /// Returns how many of the bytes are now in the log.
    fn store(&mut self, entry: Entry, bytes: &[u8]) -> u64 {
        if self
            .current
            .as_ref()
            .is_none_or(|current| current.len >= self.segment_bytes)
        {
            self.finish_current();
            self.drop_oldest();
            self.current = Current::create(&self.dir, self.offset).ok();
        }
        let Some(current) = &mut self.current else {
            return 0;
        };
        let stored = current.append(entry, bytes);
        if stored < bytes.len() as u64 {
            self.abandon_current();
        }
        stored
    }

    fn finish_current(&mut self) {
        if let Some(Current { start, len, .. }) = self.current.take() {
            self.finished.push_back(Finished { start, len });
        }
    }

    /// After a failed write: the next append tries a new segment, which begins after the gap.
    fn abandon_current(&mut self) {
        match self.current.take() {
            Some(Current { start, len: 0, .. }) => remove(&self.dir, start),
            current => {
                self.current = current;
                self.finish_current();
            }
        }
    }

    /// Makes room for one more full segment.
    fn drop_oldest(&mut self) {
        let mut total: u64 = self.finished.iter().map(|segment| segment.len).sum();
        while total + self.segment_bytes > self.keep_bytes {
            let Some(oldest) = self.finished.pop_front() else {
                return;
            };
            total -= oldest.len;
            remove(&self.dir, oldest.start);
        }
    }
}

impl Current {
    fn create(dir: &Path, start: u64) -> io::Result<Self> {
        let index = File::create(index_path(dir, start))?;
        match File::create(data_path(dir, start)) {
            Ok(data) => Ok(Self {
                start,
                len: 0,
                data,
                index,
                last: None,
            }),
            Err(error) => {
                remove(dir, start);
                Err(error)
            }
        }
    }

    fn append(&mut self, entry: Entry, bytes: &[u8]) -> u64 {
        let same_moment = self.last.is_some_and(|last| {
            last.stream == entry.stream && entry.stamp.0 - last.stamp.0 < SAME_MOMENT_NANOS
        });
        if !same_moment {
            if self.index.write_all(&entry.encode()).is_err() {
                return 0;
            }
            self.last = Some(entry);
        }
        let stored = write_what_fits(&mut self.data, bytes);
        self.len += stored;
        stored
    }
}

fn write_what_fits(file: &mut File, bytes: &[u8]) -> u64 {
    let mut rest = bytes;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(0) => break,
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    (bytes.len() - rest.len()) as u64
}

/// Removes whole segments that end before `offset`, except the last. For a reader that has copied them.
pub fn remove_before(dir: &Path, offset: u64) {
    let starts = super::segments(dir).unwrap_or_default();
    for pair in starts.windows(2) {
        if pair[1] <= offset {
            remove(dir, pair[0]);
        }
    }
}

/// The data is removed first: a reader opens the index first and then finds both or neither.
fn remove(dir: &Path, start: u64) {
    for path in [data_path(dir, start), index_path(dir, start)] {
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            let line = format!("cannot remove `{}`: {error}\n", path.display());
            // Unlike `eprintln!`, this does not panic if the write fails: the disk may be full.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
}
