//! The log stream: `GET /api/v1/jobs/{job}/logs` replies with frames, so that any bytes can be sent.
//!
//! A frame is a 26-byte head (little-endian) and its bytes: `kind u8 · stream u8 · worker u32 · offset u64 · unix
//! nanoseconds u64 · length u32`. `worker` is an index into the `Workers` frame, which comes first and again whenever a
//! worker joins. A client that loses the connection asks again with the offsets it has and gets the rest, once.

use serde::{Deserialize, Serialize};

/// Content type of the stream.
pub const CONTENT_TYPE: &str = "application/vnd.paddlecloud.log";

/// Bytes of a frame's head.
pub const HEAD: usize = 26;

/// Most bytes one frame carries.
pub const MAX_FRAME: usize = 1 << 20;

/// How the launcher's remarks on a worker begin; its other lines are the preamble.
pub const REMARK: &str = "paddlecloud: ";

/// The origin of a piece of log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stream {
    /// Lines of the launcher itself: the preamble, or why a start failed.
    Launcher = 0,
    /// The worker's processes; standard output and standard error are not distinguished.
    Output = 1,
}

/// One worker attempt whose log is in the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogWorker {
    pub name: String,
    pub role: String,
    pub index: u32,
    pub attempt: u32,
    /// Where its log begins in this stream: a client that loses the connection before the first byte resumes there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// It has no connection to the server now: what it wrote last is not in the log yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_behind: bool,
}

/// How the job ended; the last frame of a followed log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEnd {
    pub id: String,
    pub status: crate::jobs::JobStatus,
    pub message: Option<String>,
}

/// One element of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// All workers known so far; indexes never change their meaning within a stream.
    Workers(Vec<LogWorker>),
    /// Bytes `[offset, offset + bytes.len())` of a worker's log.
    Data {
        worker: u32,
        stream: Stream,
        offset: u64,
        unix_nanos: u64,
        bytes: Vec<u8>,
    },
    /// Bytes `[offset, to)` are missing: rotated away, or the disk was full.
    Gap { worker: u32, offset: u64, to: u64 },
    /// Nothing happened for a while; the connection is alive.
    Alive,
    /// The reply is complete. With a body: the job is final.
    End(Option<LogEnd>),
}

/// Why a stream cannot be read any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the log stream has a frame of unknown kind {0}")]
    Kind(u8),
    #[error("the log stream has a frame of {0} bytes, more than is allowed")]
    Length(u32),
    #[error("the log stream has an unreadable frame")]
    Body,
}

const KIND_WORKERS: u8 = 1;
const KIND_DATA: u8 = 2;
const KIND_GAP: u8 = 3;
const KIND_ALIVE: u8 = 4;
const KIND_END: u8 = 5;

impl Frame {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Workers(workers) => {
                let body = serde_json::to_vec(workers).expect("plain fields always serialize");
                put(out, KIND_WORKERS, 0, 0, 0, 0, &body);
            }
            Frame::Data {
                worker,
                stream,
                offset,
                unix_nanos,
                bytes,
            } => {
                put(
                    out,
                    KIND_DATA,
                    *stream as u8,
                    *worker,
                    *offset,
                    *unix_nanos,
                    bytes,
                );
            }
            Frame::Gap { worker, offset, to } => put(out, KIND_GAP, 0, *worker, *offset, *to, &[]),
            Frame::Alive => put(out, KIND_ALIVE, 0, 0, 0, 0, &[]),
            Frame::End(end) => {
                let body = serde_json::to_vec(end).expect("plain fields always serialize");
                put(out, KIND_END, 0, 0, 0, 0, &body);
            }
        }
    }

    /// Takes one frame from the front of `input`: the frame and its length, or `None` if it is not complete yet.
    pub fn decode(input: &[u8]) -> Result<Option<(Frame, usize)>, FrameError> {
        let Some(head) = input.get(..HEAD) else {
            return Ok(None);
        };
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (kind, stream, worker, offset, time, length) =
            (head[0], head[1], word(2), long(6), long(14), word(22));
        if length as usize > MAX_FRAME {
            return Err(FrameError::Length(length));
        }
        let end = HEAD + length as usize;
        let Some(body) = input.get(HEAD..end) else {
            return Ok(None);
        };
        let frame = match kind {
            KIND_WORKERS => Frame::Workers(serde_json::from_slice(body).map_err(|_| FrameError::Body)?),
            KIND_DATA => Frame::Data {
                worker,
                stream: stream_of(stream)?,
                offset,
                unix_nanos: time,
                bytes: body.to_vec(),
            },
            KIND_GAP => Frame::Gap {
                worker,
                offset,
                to: time,
            },
            KIND_ALIVE => Frame::Alive,
            KIND_END => Frame::End(serde_json::from_slice(body).map_err(|_| FrameError::Body)?),
            other => return Err(FrameError::Kind(other)),
        };
        Ok(Some((frame, end)))
    }
}

fn stream_of(byte: u8) -> Result<Stream, FrameError> {
    match byte {
        0 => Ok(Stream::Launcher),
        // 2 was standard error, when it was still distinguished.
        1 | 2 => Ok(Stream::Output),
        _ => Err(FrameError::Body),
    }
}

/// Appends a data frame without an intermediate copy of its bytes.
pub fn encode_data(out: &mut Vec<u8>, worker: u32, stream: u8, offset: u64, unix_nanos: u64, bytes: &[u8]) {
    put(out, KIND_DATA, stream, worker, offset, unix_nanos, bytes);
}

fn put(out: &mut Vec<u8>, kind: u8, stream: u8, worker: u32, offset: u64, time: u64, body: &[u8]) {
    out.reserve(HEAD + body.len());
    out.extend_from_slice(&[kind, stream]);
    out.extend_from_slice(&worker.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&time.to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(body);
}

/// What to read of a job's logs; the query of the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogQuery {
    /// Only the last lines of each worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// One worker by name, or by `trainer-0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub w: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Only what was written since then, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
    /// Where to resume, `<worker name>:<attempt>:<offset>` separated by commas. Overrides `n` and `since`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(frame: Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Frame::decode(&bytes[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(Frame::decode(&bytes), Ok(Some((frame, bytes.len()))));
    }

    #[test]
    fn every_frame_survives_the_wire_and_is_never_read_in_part() {
        let worker = LogWorker {
            name: "j-trainer-0".into(),
            role: "trainer".into(),
            index: 0,
            attempt: 2,
            from: Some(7),
            is_behind: true,
        };
        round_trip(Frame::Workers(vec![worker]));
        round_trip(Frame::Data {
            worker: 7,
            stream: Stream::Output,
            offset: u64::MAX - 1,
            unix_nanos: 5,
            bytes: b"\xff\0\r".to_vec(),
        });
        round_trip(Frame::Gap {
            worker: 1,
            offset: 2,
            to: 3,
        });
        round_trip(Frame::Alive);
        round_trip(Frame::End(None));
    }

    #[test]
    fn hostile_heads_are_errors() {
        let mut bytes = Vec::new();
        Frame::Alive.encode(&mut bytes);
        bytes[0] = 99;
        assert_eq!(Frame::decode(&bytes), Err(FrameError::Kind(99)));
        bytes[22..26].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Frame::decode(&bytes), Err(FrameError::Length(u32::MAX)));
    }
}
