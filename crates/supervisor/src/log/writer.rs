//! Appends a worker's output to its segments and never fails: a worker must not suffer from a
//! full disk. What cannot be stored is counted and leaves a hole in the offsets.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{Entry, Stream, data_path, index_path};
use crate::protocol::{LogLimits, UnixNanos};

/// Bytes of one stream that arrive within this time share an index entry.
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
    /// Makes the folder; a log is written by one writer, once.
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

    /// Where the log ends for a reader now: what a full disk has swallowed since is not in it.
    pub fn len(&self) -> u64 {
        let finished = self.finished.back().map(|segment| segment.start + segment.len);
        self.current
            .as_ref()
            .map(|current| current.start + current.len)
            .or(finished)
            .unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes a full disk has cost so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Stamps never go back, so that a log can be searched by time even when the clock was set.
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

    /// Makes everything durable and returns where the log ends for a reader.
    pub fn close(mut self) -> u64 {
        if self.current.is_none() && self.offset > self.len() {
            // An empty segment at the end shows readers that bytes before it are missing.
            self.current = Current::create(&self.dir, self.offset).ok();
        }
        self.finish_current();
        for segment in &self.finished {
            for path in [
                data_path(&self.dir, segment.start),
                index_path(&self.dir, segment.start),
            ] {
                let synced = File::open(&path).and_then(|file| file.sync_data());
                complain(synced, &format_args!("sync `{}`", path.display()));
            }
        }
        complain(
            File::open(&self.dir).and_then(|dir| dir.sync_all()),
            &"sync the log's folder",
        );
        self.len()
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

    /// After a failed write: the next append tries a new segment, which begins behind the hole.
    fn abandon_current(&mut self) {
        match self.current.take() {
            Some(Current { start, len: 0, .. }) => remove(&self.dir, start),
            current => {
                self.current = current;
                self.finish_current();
            }
        }
    }

    /// Leaves room for one more full segment.
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

/// The data goes first: a reader opens the index first and then finds both or neither.
fn remove(dir: &Path, start: u64) {
    for path in [data_path(dir, start), index_path(dir, start)] {
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            crate::trouble!("cannot remove `{}`: {error}", path.display());
        }
    }
}

fn complain(result: io::Result<()>, what: &dyn std::fmt::Display) {
    if let Err(error) = result {
        crate::trouble!("cannot {what}: {error}");
    }
}
