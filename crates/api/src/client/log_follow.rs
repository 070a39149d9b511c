//! Reads a log to its end: decodes frames, resumes after a lost connection, loses and repeats nothing.
//!
//! This relies on offsets: for each worker's attempt it knows the next byte it needs, asks for that after a reconnect,
//! and drops what it already has. The caller prints.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use hyper::body::Incoming;

use super::call::{Attempt, Call};
use super::query::Target;
use super::{Client, ClientError};
use crate::error::ErrorName;
use crate::logs::{Frame, HEAD, LogEnd, LogQuery, LogWorker, Stream};

const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// An event while a log is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEvent {
    /// All workers known so far; repeated when one joins.
    Workers(Vec<Arc<LogWorker>>),
    Data {
        worker: Arc<LogWorker>,
        stream: Stream,
        offset: u64,
        unix_nanos: u64,
        bytes: Vec<u8>,
    },
    /// These bytes are lost permanently.
    Gap {
        worker: Arc<LogWorker>,
        from: u64,
        to: u64,
    },
    /// The connection was lost; the next call reconnects.
    Lost(String),
    /// The end. With a body: the job is final.
    End(Option<LogEnd>),
}

struct Cursor {
    worker: Arc<LogWorker>,
    /// The next byte needed; `None` until the first one arrived, or the server said where it begins.
    next: Option<u64>,
}

/// What is being requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The tail chosen by `n` or `since`; ends by itself.
    Tail,
    /// Everything from the cursors on.
    Rest,
    Done,
}

/// A log that is being read.
pub struct LogFollow<'a> {
    client: &'a Client,
    job: String,
    query: LogQuery,
    phase: Phase,
    cursors: Vec<Cursor>,
    /// The open stream's worker numbers as indexes into `cursors`.
    numbers: Vec<usize>,
    body: Option<Incoming>,
    buffer: BytesMut,
    lost_since: Option<Instant>,
    pause: Duration,
    connected_once: bool,
    /// The tail is complete: what follows continues it.
    tail_done: bool,
    /// Older pieces are not needed.
    since_nanos: u64,
}

impl<'a> LogFollow<'a> {
    pub(super) fn new(client: &'a Client, job: String, query: LogQuery) -> LogFollow<'a> {
        // A tail is requested separately first: after a lost connection in a followed tail, a worker whose tail has not
        // arrived yet would look like one that joined later.
        let tail = query.n.is_some_and(|lines| lines > 0) || query.since.is_some();
        LogFollow {
            client,
            job,
            phase: if tail && query.follow {
                Phase::Tail
            } else {
                Phase::Rest
            },
            since_nanos: query.since.as_deref().map_or(0, nanos_of),
            query,
            cursors: Vec::new(),
            numbers: Vec::new(),
            body: None,
            buffer: BytesMut::new(),
            lost_since: None,
            pause: Duration::ZERO,
            connected_once: false,
            tail_done: false,
        }
    }

    /// The next event; `None` after [`LogEvent::End`].
    pub async fn next(&mut self) -> Result<Option<LogEvent>, ClientError> {
        loop {
            if self.phase == Phase::Done {
                return Ok(None);
            }
            if self.body.is_none() {
                self.connect().await?;
            }
            match Frame::decode(&self.buffer) {
                Ok(Some((frame, length))) => {
                    self.buffer.advance(length);
                    if let Some(event) = self.take(frame) {
                        return Ok(Some(event));
                    }
                }
                Ok(None) => {
                    if let Some(reason) = self.fill().await {
                        return self.lose(reason).map(Some);
                    }
                }
                // Damage is treated as a lost connection: the cursors say where to resume.
                Err(error) => return self.lose(error.to_string()).map(Some),
            }
        }
    }

    /// Whether the next event is already here, so that output can be collected before it is flushed.
    pub fn has_more(&self) -> bool {
        let length = self.buffer.get(HEAD - 4..HEAD);
        let length = length.map(|four| u32::from_le_bytes(four.try_into().expect("four bytes")));
        length.is_some_and(|length| self.buffer.len() >= HEAD + length as usize)
    }

    /// Reads more bytes; returns why if there are none.
    async fn fill(&mut self) -> Option<String> {
        let body = self.body.as_mut().expect("connected before reading");
        match self.client.piece(body).await {
            Ok(Some(bytes)) => {
                self.buffer.extend_from_slice(&bytes);
                None
            }
            Ok(None) => Some("the stream ended too early".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn lose(&mut self, reason: String) -> Result<LogEvent, ClientError> {
        self.body = None;
        self.buffer.clear();
        let since = *self.lost_since.get_or_insert_with(Instant::now);
        if since.elapsed() > self.client.limits.give_up {
            return Err(self
                .client
                .broken(format!("was lost while the log was read: {reason}")));
        }
        Ok(LogEvent::Lost(reason))
    }

    /// Opens the stream; after a loss it retries until the client's limit.
    async fn connect(&mut self) -> Result<(), ClientError> {
        loop {
            // The first retry is immediate; only failed ones make the next one wait.
            if self.lost_since.is_some() {
                tokio::time::sleep(self.pause).await;
                self.pause = (self.pause * 2).clamp(self.client.limits.pause, LONGEST_PAUSE);
            }
            let call = self.call();
            match self.client.respond(&call).await {
                Ok((response, _)) => {
                    self.body = Some(response.into_body());
                    self.numbers.clear();
                    self.connected_once = true;
                    return Ok(());
                }
                Err(attempt) => {
                    let (error, again) = self.judge(attempt);
                    let asked = error.retry_after().unwrap_or_default();
                    self.pause = self.pause.max(asked);
                    let since = *self.lost_since.get_or_insert_with(Instant::now);
                    if !again || since.elapsed() + asked > self.client.limits.give_up {
                        return Err(self.client.classify(error));
                    }
                }
            }
        }
    }

    /// Whether a retry may help.
    fn judge(&mut self, attempt: Attempt) -> (ClientError, bool) {
        let revives = self.client.reviver.is_some();
        match attempt {
            Attempt::NotSent(error) => {
                let again = self.connected_once || revives;
                let again = again && !matches!(error, ClientError::Tls(_));
                (error, again)
            }
            Attempt::Lost(error) => {
                self.connected_once = true;
                (error, true)
            }
            // A proxy may answer for a server that restarts; there is none in front of a server that is restarted by
            // us.
            Attempt::Final(error) => {
                let limited = error.refusal() == Some(ErrorName::TooManyRequests);
                let limited = limited && error.retry_after().is_some();
                let busy = error.refusal() == Some(ErrorName::Unavailable);
                let by_another = matches!(error, ClientError::Broken { .. }) && !revives;
                let again = limited || (busy && (self.connected_once || revives)) || by_another;
                (error, again)
            }
        }
    }

    fn call(&self) -> Call {
        let from = self.from();
        let finite = self.phase == Phase::Tail || !self.query.follow;
        // A worker in `from` resumes there; `n` and `since` choose for the others. A followed log without a tail (`-n
        // 0`) sends its `n` until the first byte arrived.
        let choose = finite || (from.is_none() && !self.tail_done);
        let target = Target::new("/jobs")
            .word(&self.job)
            .word("logs")
            .maybe("w", self.query.w.as_deref())
            .maybe("role", self.query.role.as_deref())
            .maybe("n", self.query.n.filter(|_| choose))
            .maybe("since", self.query.since.as_deref().filter(|_| choose))
            .maybe("follow", (!finite).then_some("true"))
            .maybe("from", from);
        Call::get(target)
    }

    fn from(&self) -> Option<String> {
        // After the tail is complete, a worker without a byte of it begins at 0 like one that joins later.
        let unseen = self.tail_done.then_some(0);
        let known = self.cursors.iter().filter_map(|cursor| {
            let next = cursor.next.or(unseen)?;
            Some(format!("{}:{}:{next}", cursor.worker.name, cursor.worker.attempt))
        });
        let known: Vec<String> = known.collect();
        (!known.is_empty()).then(|| known.join(","))
    }

    fn take(&mut self, frame: Frame) -> Option<LogEvent> {
        // A frame arrived: this connection works, so a later loss starts its own count.
        self.lost_since = None;
        self.pause = Duration::ZERO;
        match frame {
            Frame::Alive => None,
            Frame::Workers(workers) => self.meet(workers),
            Frame::Data {
                worker,
                stream,
                offset,
                unix_nanos,
                bytes,
            } => self.data(worker, stream, offset, unix_nanos, bytes),
            Frame::Gap { worker, offset, to } => self.gap(worker, offset, to),
            Frame::End(end) => self.end(end),
        }
    }

    fn meet(&mut self, workers: Vec<LogWorker>) -> Option<LogEvent> {
        let before = self.cursors.len();
        self.numbers.clear();
        for worker in workers {
            let same = |cursor: &Cursor| {
                cursor.worker.name == worker.name && cursor.worker.attempt == worker.attempt
            };
            let begins = worker.from;
            let place = self.cursors.iter().position(same).unwrap_or_else(|| {
                self.cursors.push(Cursor {
                    worker: Arc::new(worker),
                    next: None,
                });
                self.cursors.len() - 1
            });
            let next = &mut self.cursors[place].next;
            *next = next.or(begins);
            self.numbers.push(place);
        }
        let joined = self.cursors.len() > before;
        joined.then(|| LogEvent::Workers(self.cursors.iter().map(|cursor| cursor.worker.clone()).collect()))
    }

    fn cursor(&mut self, number: u32) -> Option<&mut Cursor> {
        let place = *self.numbers.get(number as usize)?;
        self.cursors.get_mut(place)
    }

    fn data(
        &mut self,
        number: u32,
        stream: Stream,
        offset: u64,
        unix_nanos: u64,
        mut bytes: Vec<u8>,
    ) -> Option<LogEvent> {
        let since = self.since_nanos;
        let cursor = self.cursor(number)?;
        let end = offset + bytes.len() as u64;
        let next = cursor.next.unwrap_or(offset);
        if next < offset {
            // An unannounced gap: report it instead of joining bytes that do not belong together.
            let worker = cursor.worker.clone();
            self.put_back(number, stream, offset, unix_nanos, bytes);
            return Some(LogEvent::Gap {
                worker,
                from: next,
                to: offset,
            });
        }
        cursor.next = Some(end.max(next));
        let known = (next - offset).min(bytes.len() as u64) as usize;
        bytes.drain(..known);
        let worker = cursor.worker.clone();
        let is_new = !bytes.is_empty() && unix_nanos >= since;
        is_new.then_some(LogEvent::Data {
            worker,
            stream,
            offset: offset + known as u64,
            unix_nanos,
            bytes,
        })
    }

    /// Queues a frame again, before everything else that has arrived.
    fn put_back(&mut self, number: u32, stream: Stream, offset: u64, unix_nanos: u64, bytes: Vec<u8>) {
        if let Some(cursor) = self.cursor(number) {
            cursor.next = Some(offset);
        }
        let mut again = Vec::new();
        crate::logs::encode_data(&mut again, number, stream as u8, offset, unix_nanos, &bytes);
        again.extend_from_slice(&self.buffer);
        self.buffer = BytesMut::from(again.as_slice());
    }

    fn gap(&mut self, number: u32, offset: u64, to: u64) -> Option<LogEvent> {
        let cursor = self.cursor(number)?;
        let from = cursor.next.unwrap_or(offset).max(offset);
        if to <= from {
            return None;
        }
        cursor.next = Some(to);
        Some(LogEvent::Gap {
            worker: cursor.worker.clone(),
            from,
            to,
        })
    }

    fn end(&mut self, end: Option<LogEnd>) -> Option<LogEvent> {
        if self.phase == Phase::Tail {
            self.phase = Phase::Rest;
            self.tail_done = true;
            self.body = None;
            self.buffer.clear();
            return None;
        }
        self.phase = Phase::Done;
        Some(LogEvent::End(end))
    }
}

/// An unparsable time chooses nothing here; the server refuses it with a message.
fn nanos_of(since: &str) -> u64 {
    let time = since.parse::<jiff::Timestamp>();
    time.map_or(0, |time| u64::try_from(time.as_nanosecond()).unwrap_or(0))
}
