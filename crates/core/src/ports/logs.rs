//! The port for logs: bytes addressed by offset, with time and origin, bounded in size.
//!
//! A log belongs to one attempt. Engines append to it, or let it be written directly where the store keeps it;
//! everything else reads. All methods block on the disk, except [`LogStore::follow`] and the follower it returns.

use std::future::Future;
use std::io;
use std::pin::Pin;

use super::AttemptKey;
use crate::names::JobId;

/// The origin of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The launcher itself: the preamble, or the reason why nothing started.
    Launcher,
    /// The worker's processes; standard output and standard error are not distinguished.
    Output,
}

/// Bytes that arrived together from one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the first byte in the log.
    pub offset: u64,
    /// Nanoseconds since 1970.
    pub stamp: u64,
    pub stream: Stream,
    pub bytes: Vec<u8>,
}

/// Missing bytes: rotated away, or lost before they could be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    pub from: u64,
    pub to: u64,
}

/// A part of a log, in order of offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Chunk(Chunk),
    Gap(Gap),
}

impl Piece {
    /// Where the next piece begins.
    pub fn end(&self) -> u64 {
        match self {
            Piece::Chunk(chunk) => chunk.offset + chunk.bytes.len() as u64,
            Piece::Gap(gap) => gap.to,
        }
    }
}

/// The current end of a log, for followers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogMark {
    pub length: u64,
    /// Nothing will be added.
    pub complete: bool,
}

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} the log of {job}: {source}")]
pub struct LogError {
    /// `read`, `write`, `remove`.
    pub what: &'static str,
    pub job: JobId,
    pub source: io::Error,
}

/// Stores the logs of all attempts, of running jobs and of those in the history.
pub trait LogStore: Send + Sync {
    /// Opens a log for appending and returns its current end, where the writer resumes.
    ///
    /// From now on the log can be followed, until it is closed. Calling it again changes nothing.
    fn begin(&self, attempt: &AttemptKey) -> Result<u64, LogError>;

    /// Appends bytes and returns the new end of the log: everything before it is stored and need not be sent again.
    ///
    /// Bytes that are already stored are skipped, so sending them twice does no harm. A chunk that begins beyond the
    /// end leaves a [`Gap`]. If only a part of the chunk could be stored, the rest must be sent again.
    fn append(&self, attempt: &AttemptKey, chunk: &Chunk) -> Result<u64, LogError>;

    /// Ends the log at `end`: bytes missing before that become a [`Gap`].
    ///
    /// The log is durable when this returns, and its followers know that it is complete.
    fn close(&self, attempt: &AttemptKey, end: u64) -> Result<(), LogError>;

    /// A reader of this log, which may be empty or not exist yet.
    fn reader(&self, attempt: &AttemptKey) -> Box<dyn LogReader>;

    /// Follows the growth of a log. `None`: nothing is being appended, so everything can be read now.
    fn follow(&self, attempt: &AttemptKey) -> Option<Box<dyn Follower>>;

    /// Every job that still has a log.
    fn jobs(&self) -> io::Result<Vec<JobId>>;

    /// The bytes that all logs of a job occupy; unreadable ones count as zero.
    fn occupied(&self, job: &JobId) -> u64;

    /// Deletes the oldest parts of the logs of these jobs until they occupy at most `most` bytes, and returns the
    /// number of deleted bytes. Readers find a [`Gap`]. The latest part of each log stays, because more may be appended
    /// to it.
    fn trim(&self, jobs: &[JobId], most: u64) -> u64;

    /// Removes all logs of a job. It is not an error if there are none.
    fn discard(&self, job: &JobId) -> Result<(), LogError>;
}

/// A view of one log, also while it grows.
pub trait LogReader: Send {
    /// The offset after the last byte.
    fn length(&self) -> Result<u64, LogError>;

    /// The pieces from `offset` on, at most `most` bytes; none at or beyond the end.
    ///
    /// Pieces are contiguous and begin at `offset`: missing bytes are a [`Gap`].
    fn read(&mut self, offset: u64, most: usize) -> Result<Vec<Piece>, LogError>;

    /// The offset of the first byte that arrived at this time (nanoseconds since 1970) or later; the end if there is
    /// none.
    fn seek_time(&self, stamp: u64) -> Result<u64, LogError>;

    /// The offset of the last `lines` lines. Bytes after the last newline count as a line.
    fn tail_lines(&self, lines: usize) -> Result<u64, LogError>;
}

/// Waits for the growth of one log.
pub trait Follower: Send {
    /// Resolves when the log has grown since the last call, or is complete. `None`: no further growth will be reported.
    fn changed(&mut self) -> Pin<Box<dyn Future<Output = Option<LogMark>> + Send + '_>>;
}
