//! The messages between a launcher in a pod and the server, and their framing. No I/O.
//!
//! The link carries the supervisor's own protocol ([`crate::protocol`]) over TLS. A pod shares no folder with the
//! server, so the link also carries the plan, the peers' addresses and the log. A frame is the length of the rest (four
//! bytes, big endian), a kind (one byte) and a body: JSON or log bytes.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::log::{Chunk, stream_code, stream_of};
use crate::protocol::{Command, Exit, Report, State, WorkerPlan};

/// Increased when launchers and servers of different versions would misunderstand each other.
pub const VERSION: u32 = 1;

/// The name in the server's certificate, whatever address the launcher connects to.
pub const SERVER_NAME: &str = "paddlecloud-link";

/// How often an idle side sends [`FromLauncher::Alive`] or [`FromServer::Alive`].
pub const ALIVE_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// A side that has received nothing for this long treats the connection as broken.
pub const SILENT_AFTER: std::time::Duration = std::time::Duration::from_secs(20);

/// The longest body of a frame. The longest message is a plan with thousands of peers.
pub const LONGEST_FRAME: usize = 8 << 20;

/// The longest body of a launcher's first frame, which is a [`Hello`].
pub const LONGEST_HELLO: usize = 16 << 10;

/// The most log bytes in one frame.
pub const LOG_BLOCK: usize = 64 << 10;

/// The most log bytes in flight: sent but not yet acknowledged.
pub const LOG_WINDOW: u64 = 4 << 20;

/// The first message on every connection: the launcher's identity and its proof.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u32,
    /// `<job>.<role>-<index>.<attempt>`.
    pub attempt: String,
    /// Known only to this attempt and the server.
    pub secret: String,
    /// The worker's address for its peers.
    pub address: std::net::Ipv4Addr,
    /// The progress of this attempt.
    pub standing: Standing,
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello")
            .field("attempt", &self.attempt)
            .field("address", &self.address)
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}

/// The progress of an attempt when its launcher connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It has no plan yet.
    New,
    Running(State),
    Ended(Exit),
}

/// Launcher → server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromLauncher {
    Hello(Hello),
    /// A report of the supervisor. The exit comes after the last byte of the log.
    Report(Report),
    /// Lost output: rotated away before the server received it, or not stored because the disk was full.
    Gap {
        from: u64,
        to: u64,
    },
    /// The kubelet is stopping this pod; the program has been asked to stop.
    Evicted,
    /// The plan could not be carried out; nothing was started.
    Unable {
        reason: String,
    },
    Alive,
}

/// Server → launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromServer {
    /// The answer to [`Hello`].
    Welcome {
        /// What to run. Only for a new attempt.
        plan: Option<Box<WorkerPlan>>,
        /// The end of the server's copy of the log; the launcher sends from this offset.
        log_end: u64,
    },
    /// This attempt is not, or no longer, wanted: kill its processes and exit.
    Leave {
        reason: String,
    },
    /// Every worker's name and current address.
    Peers {
        hosts: Vec<(String, std::net::Ipv4Addr)>,
    },
    Command(Command),
    /// The log is stored up to this offset.
    Stored {
        offset: u64,
    },
    /// The exit is stored: the launcher may exit.
    Recorded,
    Alive,
}

/// One received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<M> {
    Message(M),
    Log(Chunk),
}

/// Why the received bytes are not a frame. The connection is unusable afterwards.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {length} bytes is longer than {longest}")]
    TooLong { length: usize, longest: usize },
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    #[error("a log frame is truncated")]
    Short,
    #[error("a message cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

const MESSAGE: u8 = 0;
const LOG: u8 = 1;
/// Offset, stamp, stream.
const LOG_HEAD: usize = 17;

pub fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    let body = serde_json::to_vec(message).expect("messages hold only strings, numbers and options");
    frame(MESSAGE, &[&body])
}

pub fn encode_log(chunk: &Chunk) -> Vec<u8> {
    let mut head = [0; LOG_HEAD];
    head[..8].copy_from_slice(&chunk.offset.to_be_bytes());
    head[8..16].copy_from_slice(&chunk.stamp.to_be_bytes());
    head[16] = stream_code(chunk.stream);
    frame(LOG, &[&head, &chunk.bytes])
}

fn frame(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(4 + length);
    let length = u32::try_from(length).expect("a frame is far shorter than four gigabytes");
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.push(kind);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// Splits a stream of bytes into frames.
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// How much of `bytes` was consumed.
    read: usize,
    /// The longest frame that is accepted.
    longest: usize,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::with_longest(LONGEST_FRAME)
    }
}

impl Decoder {
    /// For a peer that is not trusted with [`LONGEST_FRAME`] yet.
    pub fn with_longest(longest: usize) -> Decoder {
        Decoder {
            bytes: Vec::new(),
            read: 0,
            longest,
        }
    }

    /// From now on accepts frames up to [`LONGEST_FRAME`].
    pub fn trust(&mut self) {
        self.longest = LONGEST_FRAME;
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.read > 0 {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete frame, if it has arrived.
    pub fn next_frame<M: DeserializeOwned>(&mut self) -> Result<Option<Frame<M>>, FrameError> {
        let rest = &self.bytes[self.read..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        let longest = self.longest;
        if length > longest {
            return Err(FrameError::TooLong { length, longest });
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = decode(body)?;
        self.read += 4 + length;
        if self.read == self.bytes.len() {
            // An idle link keeps no buffer.
            (self.bytes, self.read) = (Vec::new(), 0);
        }
        Ok(Some(frame))
    }
}

fn decode<M: DeserializeOwned>(body: &[u8]) -> Result<Frame<M>, FrameError> {
    match body.split_first() {
        Some((&MESSAGE, json)) => Ok(Frame::Message(serde_json::from_slice(json)?)),
        Some((&LOG, log)) => decode_log(log).map(Frame::Log).ok_or(FrameError::Short),
        Some((kind, _)) => Err(FrameError::Kind(*kind)),
        None => Err(FrameError::Short),
    }
}

fn decode_log(log: &[u8]) -> Option<Chunk> {
    let (offset, rest) = log.split_first_chunk::<8>()?;
    let (stamp, rest) = rest.split_first_chunk::<8>()?;
    let (stream, bytes) = rest.split_first()?;
    Some(Chunk {
        offset: u64::from_be_bytes(*offset),
        stamp: u64::from_be_bytes(*stamp),
        stream: stream_of(*stream)?,
        bytes: bytes.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Stream;

    fn chunk() -> Chunk {
        Chunk {
            offset: 7,
            stamp: 9,
            stream: Stream::Output,
            bytes: vec![0, 255, b'\n'],
        }
    }

    #[test]
    fn frames_read_back_however_the_bytes_are_cut() {
        let message = FromLauncher::Report(Report::Ready);
        let mut bytes = encode(&message);
        bytes.extend(encode_log(&chunk()));
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for byte in bytes {
            decoder.push(&[byte]);
            frames.extend(decoder.next_frame::<FromLauncher>().unwrap());
        }
        assert_eq!(frames, [Frame::Message(message), Frame::Log(chunk())]);
        assert_eq!(decoder.next_frame::<FromLauncher>().unwrap(), None);
    }

    #[test]
    fn an_invalid_frame_is_refused_before_it_fills_the_memory() {
        let mut decoder = Decoder::default();
        decoder.push(&[255, 255, 255, 255, 0]);
        assert!(matches!(
            decoder.next_frame::<FromServer>(),
            Err(FrameError::TooLong { .. })
        ));
        let hello = &[0, 0, 64, 1, 0];
        let mut decoder = Decoder::with_longest(LONGEST_HELLO);
        decoder.push(hello);
        assert!(matches!(
            decoder.next_frame::<FromServer>(),
            Err(FrameError::TooLong { .. })
        ));
        decoder.trust();
        assert_eq!(decoder.next_frame::<FromServer>().unwrap(), None);
        for (bytes, expected) in [
            (&[0u8, 0, 0, 1, 9][..], "a frame of the unknown kind 9"),
            (&[0, 0, 0, 2, 1, 0], "a log frame is truncated"),
            (&[0, 0, 0, 0], "a log frame is truncated"),
        ] {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            let error = decoder.next_frame::<FromServer>().unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        let hello = Hello {
            version: VERSION,
            attempt: "j_1.trainer-0.1".into(),
            secret: "hush".into(),
            address: [10, 0, 0, 1].into(),
            standing: Standing::New,
        };
        assert!(!format!("{hello:?}").contains("hush"));
    }
}
