//! The server's log store: segments on disk, one folder per attempt.
//!
//! Bytes arrive in one of two ways: they are appended here, or a supervisor of this machine writes them into the folder and its
//! engine only reports the growth ([`SegmentLogs::attach`]).

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::{AttemptKey, Chunk, Follower, LogError, LogMark, LogReader, LogStore, Piece};
use paddlecloud_worker::attempts::{ATTEMPTS, attempt_folder, ignore_not_found, job_folder};
use paddlecloud_worker::log::{self, LogWriter, StoredSegment, delete_segment, stored_segments};
use paddlecloud_worker::protocol::{LogLimits, UnixNanos, files};
use tokio::sync::{Notify, watch};

/// All logs of this server. Cheap to clone.
#[derive(Clone)]
pub struct SegmentLogs {
    inner: Arc<Inner>,
}

struct Inner {
    data: PathBuf,
    limits: LogLimits,
    /// Logs that are still growing.
    growing: Mutex<HashMap<AttemptKey, Growing>>,
}

#[derive(Clone)]
struct Growing {
    mark: watch::Sender<LogMark>,
    /// Signalled when a follower joins.
    followed: Arc<Notify>,
    /// `None` if a supervisor writes the log; the inner value is `None` once the log is closed.
    writer: Option<Arc<Mutex<Option<LogWriter>>>>,
}

impl Growing {
    fn new(mark: LogMark, writer: Option<LogWriter>) -> Growing {
        Growing {
            mark: watch::Sender::new(mark),
            followed: Arc::default(),
            writer: writer.map(|writer| Arc::new(Mutex::new(Some(writer)))),
        }
    }
}

impl SegmentLogs {
    /// Opens the logs below the server's data folder.
    pub fn open(data: &Path, limits: LogLimits) -> io::Result<SegmentLogs> {
        std::fs::create_dir_all(data.join(ATTEMPTS))?;
        let inner = Inner {
            data: data.to_owned(),
            limits,
            growing: Mutex::default(),
        };
        Ok(SegmentLogs {
            inner: Arc::new(inner),
        })
    }

    /// Registers a log that another process writes. Its growth is reported through the returned value.
    pub fn attach(&self, attempt: &AttemptKey, mark: LogMark) -> Tail {
        let growing = Growing::new(mark, None);
        self.inner.growing().insert(attempt.clone(), growing.clone());
        Tail {
            logs: Arc::clone(&self.inner),
            attempt: attempt.clone(),
            growing,
        }
    }

    fn find(&self, attempt: &AttemptKey) -> Option<Growing> {
        self.inner.growing().get(attempt).cloned()
    }

    /// Opens the log for appending.
    fn appended(&self, attempt: &AttemptKey) -> io::Result<Growing> {
        let writer = LogWriter::resume(&self.inner.folder(attempt), self.inner.limits)?;
        let mark = LogMark {
            length: writer.end(),
            complete: false,
        };
        let mut all = self.inner.growing();
        match all.get(attempt).filter(|growing| growing.writer.is_some()) {
            Some(faster) => Ok(faster.clone()),
            None => {
                let growing = Growing::new(mark, Some(writer));
                all.insert(attempt.clone(), growing.clone());
                Ok(growing)
            }
        }
    }

    fn writable(&self, attempt: &AttemptKey) -> Result<Growing, LogError> {
        if let Some(growing) = self.find(attempt).filter(|growing| growing.writer.is_some()) {
            return Ok(growing);
        }
        let created = std::fs::create_dir_all(attempt_folder(&self.inner.data, attempt))
            .and_then(|()| self.appended(attempt));
        created.map_err(|source| problem("write", attempt, source))
    }
}

impl Inner {
    fn growing(&self) -> MutexGuard<'_, HashMap<AttemptKey, Growing>> {
        self.growing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, attempt: &AttemptKey) -> PathBuf {
        attempt_folder(&self.data, attempt).join(files::LOG)
    }
}

fn problem(what: &'static str, attempt: &AttemptKey, source: io::Error) -> LogError {
    LogError {
        what,
        job: attempt.job.clone(),
        source,
    }
}

impl LogStore for SegmentLogs {
    fn begin(&self, attempt: &AttemptKey) -> Result<u64, LogError> {
        let mark = *self.writable(attempt)?.mark.borrow();
        Ok(mark.length)
    }

    fn append(&self, attempt: &AttemptKey, chunk: &Chunk) -> Result<u64, LogError> {
        let growing = self.writable(attempt)?;
        let mut writer = growing.writer.iter().map(|writer| lock(writer));
        let mut writer = writer.next().expect("a writable log has a writer");
        let Some(writer) = writer.as_mut() else {
            let closed = io::Error::other("it is closed");
            return Err(problem("write", attempt, closed));
        };
        let stamp = UnixNanos(chunk.stamp);
        let length = writer.append_at(chunk.offset, chunk.stream, &chunk.bytes, stamp);
        growing.mark.send_modify(|mark| mark.length = length);
        Ok(length)
    }

    fn close(&self, attempt: &AttemptKey, end: u64) -> Result<(), LogError> {
        let growing = self.writable(attempt)?;
        let writer = growing.writer.iter().find_map(|writer| lock(writer).take());
        let closed = match writer {
            Some(mut writer) => {
                writer.skip_to(end);
                writer.close().map(|length| {
                    let complete = true;
                    growing.mark.send_replace(LogMark { length, complete });
                })
            }
            None => Ok(()),
        };
        // After a failure, the next call resumes the log.
        self.inner.growing().remove(attempt);
        closed.map_err(|source| problem("write", attempt, source))
    }

    fn reader(&self, attempt: &AttemptKey) -> Box<dyn LogReader> {
        Box::new(SegmentReader {
            attempt: attempt.clone(),
            reader: log::LogReader::open(&self.inner.folder(attempt)),
        })
    }

    fn follow(&self, attempt: &AttemptKey) -> Option<Box<dyn Follower>> {
        let growing = self.find(attempt)?;
        // Subscribe before the signal: the receiver count must include this follower.
        let follower = Watching(growing.mark.subscribe());
        growing.followed.notify_one();
        Some(Box::new(follower))
    }

    fn jobs(&self) -> io::Result<Vec<JobId>> {
        let entries = std::fs::read_dir(self.inner.data.join(ATTEMPTS))?;
        let names = entries.flatten().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
    }

    fn occupied(&self, job: &JobId) -> u64 {
        bytes_below(&job_folder(&self.inner.data, job))
    }

    fn trim(&self, jobs: &[JobId], most: u64) -> u64 {
        let mut stored: u64 = jobs.iter().map(|job| self.occupied(job)).sum();
        let before = stored;
        let mut parts: Vec<Part> = jobs
            .iter()
            .flat_map(|job| finished_parts(&job_folder(&self.inner.data, job)))
            .collect();
        parts.sort_by_key(|part| part.segment.modified);
        for Part { folder, segment } in parts {
            if stored <= most {
                break;
            }
            match delete_segment(&folder, segment.start) {
                Ok(()) => stored = stored.saturating_sub(segment.bytes),
                Err(error) => {
                    tracing::warn!(folder = %folder.display(), %error, "a part of a log cannot be deleted");
                }
            }
        }
        before - stored
    }

    fn discard(&self, job: &JobId) -> Result<(), LogError> {
        self.inner.growing().retain(|attempt, _| attempt.job != *job);
        let removed = std::fs::remove_dir_all(job_folder(&self.inner.data, job));
        removed.or_else(ignore_not_found).map_err(|source| LogError {
            what: "remove",
            job: job.clone(),
            source,
        })
    }
}

fn lock(writer: &Mutex<Option<LogWriter>>) -> MutexGuard<'_, Option<LogWriter>> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A segment to which nothing is appended any more.
struct Part {
    folder: PathBuf,
    segment: StoredSegment,
}

/// All segments of a job's logs except the latest of each. Unreadable ones may already be gone.
fn finished_parts(job: &Path) -> Vec<Part> {
    let mut parts = Vec::new();
    for attempt in std::fs::read_dir(job).into_iter().flatten().flatten() {
        let folder = attempt.path().join(files::LOG);
        let mut segments = stored_segments(&folder).unwrap_or_default();
        segments.pop();
        parts.extend(segments.into_iter().map(|segment| Part {
            folder: folder.clone(),
            segment,
        }));
    }
    parts
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// Reports the growth of a log that a supervisor writes. If it is dropped before the log is complete, reports just stop.
pub struct Tail {
    logs: Arc<Inner>,
    attempt: AttemptKey,
    growing: Growing,
}

impl Tail {
    pub fn length(&self) -> u64 {
        self.growing.mark.borrow().length
    }

    /// Reports growth. A log never shrinks.
    pub fn grown(&self, length: u64) {
        self.growing
            .mark
            .send_modify(|mark| mark.length = mark.length.max(length));
    }

    /// Reports that the log is complete.
    pub fn complete(self, length: u64) {
        self.growing.mark.send_modify(|mark| {
            *mark = LogMark {
                length: mark.length.max(length),
                complete: true,
            }
        });
    }

    /// Whether anyone follows.
    pub fn is_followed(&self) -> bool {
        self.growing.mark.receiver_count() > 0
    }

    /// Resolves when a follower joins.
    pub async fn followed(&self) {
        self.growing.followed.notified().await;
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let mut all = self.logs.growing();
        let ours = |other: &Growing| Arc::ptr_eq(&other.followed, &self.growing.followed);
        if all.get(&self.attempt).is_some_and(ours) {
            all.remove(&self.attempt);
        }
    }
}

struct Watching(watch::Receiver<LogMark>);

impl Follower for Watching {
    fn changed(&mut self) -> Pin<Box<dyn Future<Output = Option<LogMark>> + Send + '_>> {
        Box::pin(async {
            self.0.changed().await.ok()?;
            Some(*self.0.borrow_and_update())
        })
    }
}

struct SegmentReader {
    attempt: AttemptKey,
    reader: log::LogReader,
}

impl SegmentReader {
    fn converted<T>(&self, read: Result<T, log::LogError>) -> Result<T, LogError> {
        read.map_err(|error| problem("read", &self.attempt, error.into_source()))
    }
}

impl LogReader for SegmentReader {
    fn length(&self) -> Result<u64, LogError> {
        self.converted(self.reader.len())
    }

    fn read(&mut self, offset: u64, most: usize) -> Result<Vec<Piece>, LogError> {
        let read = self.reader.read_at(offset, most);
        self.converted(read)
    }

    fn seek_time(&self, stamp: u64) -> Result<u64, LogError> {
        self.converted(self.reader.seek_time(UnixNanos(stamp)))
    }

    fn tail_lines(&self, lines: usize) -> Result<u64, LogError> {
        self.converted(self.reader.tail_lines(lines))
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::testing::log_suite::{Shelf, log_suite};

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Shelf for Folder {
        fn store(&self) -> Arc<dyn LogStore> {
            let limits = LogLimits {
                segment_bytes: 64,
                keep_bytes: 1 << 20,
            };
            Arc::new(SegmentLogs::open(self.0.path(), limits).unwrap())
        }

        /// Without its folder, a log gets no new segment.
        fn set_broken(&self, attempt: &AttemptKey, is_broken: bool) {
            let folder = attempt_folder(self.0.path(), attempt).join(files::LOG);
            let (mut from, mut to) = (folder.clone(), folder.with_extension("away"));
            if !is_broken {
                std::mem::swap(&mut from, &mut to);
            }
            std::fs::rename(from, to).unwrap();
        }
    }

    #[tokio::test]
    async fn the_segments_pass_the_suite_of_their_port() {
        log_suite(&Folder(tempfile::tempdir().unwrap())).await;
    }
}
