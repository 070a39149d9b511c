//! Assembles lines from pieces of logs: each worker's stream separately.

use std::collections::HashMap;
use std::sync::Arc;

use paddlecloud_api::client::LogEvent;
use paddlecloud_api::logs::{LogWorker, Stream};

/// A line that grows beyond this is returned in parts: a program that never ends its lines must not fill the memory.
const LONGEST: usize = 1 << 20;

/// One line, without its end.
pub struct Line {
    pub worker: Arc<LogWorker>,
    pub stream: &'static str,
    pub unix_nanos: u64,
    pub bytes: Vec<u8>,
}

#[derive(PartialEq, Eq, Hash)]
struct StreamKey {
    name: String,
    attempt: u32,
    stream: &'static str,
}

struct Part {
    worker: Arc<LogWorker>,
    /// When its first byte was written.
    unix_nanos: u64,
    bytes: Vec<u8>,
}

/// Lines that are not complete yet.
#[derive(Default)]
pub struct Lines {
    parts: HashMap<StreamKey, Part>,
}

impl Lines {
    /// Handles one event and appends the lines that are now complete.
    pub fn take(&mut self, event: LogEvent, out: &mut Vec<Line>) {
        match event {
            LogEvent::Data {
                worker,
                stream,
                unix_nanos,
                bytes,
                ..
            } => self.add(worker, word(stream), unix_nanos, &bytes, out),
            LogEvent::Gap { worker, from, to } => {
                self.end_of(&worker, out);
                out.push(Line {
                    worker,
                    stream: "gap",
                    unix_nanos: 0,
                    bytes: format!("[{} bytes are gone]", to.saturating_sub(from)).into_bytes(),
                });
            }
            LogEvent::Workers(_) | LogEvent::Lost(_) => {}
            LogEvent::End(_) => self.end(out),
        }
    }

    fn add(
        &mut self,
        worker: Arc<LogWorker>,
        stream: &'static str,
        unix_nanos: u64,
        bytes: &[u8],
        out: &mut Vec<Line>,
    ) {
        let place = StreamKey {
            name: worker.name.clone(),
            attempt: worker.attempt,
            stream,
        };
        let part = self.parts.entry(place).or_insert_with(|| Part {
            worker,
            unix_nanos,
            bytes: Vec::new(),
        });
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if part.bytes.is_empty() {
                part.unix_nanos = unix_nanos;
            }
            part.bytes.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                part.bytes.pop();
                out.push(part.cut(stream));
            } else if part.bytes.len() >= LONGEST {
                out.push(part.cut(stream));
            }
        }
    }

    /// Bytes after a gap do not continue the line before it.
    fn end_of(&mut self, worker: &LogWorker, out: &mut Vec<Line>) {
        for (place, part) in &mut self.parts {
            if place.name == worker.name && place.attempt == worker.attempt && !part.bytes.is_empty() {
                out.push(part.cut(place.stream));
            }
        }
    }

    /// At the end of the log: returns the unterminated lines, in the order they were written.
    fn end(&mut self, out: &mut Vec<Line>) {
        let parts = self.parts.drain();
        let mut rest: Vec<Line> = parts
            .filter(|(_, part)| !part.bytes.is_empty())
            .map(|(place, mut part)| part.cut(place.stream))
            .collect();
        rest.sort_by_key(|line| line.unix_nanos);
        out.append(&mut rest);
    }
}

impl Part {
    fn cut(&mut self, stream: &'static str) -> Line {
        Line {
            worker: self.worker.clone(),
            stream,
            unix_nanos: self.unix_nanos,
            bytes: std::mem::take(&mut self.bytes),
        }
    }
}

fn word(stream: Stream) -> &'static str {
    match stream {
        Stream::Launcher => "launcher",
        Stream::Output => "output",
    }
}
