//! Logs as plain text: the whole reply of the old API, and the last lines of one worker.

use std::sync::Arc;

use paddlecloud_api::logs::{Frame, LogQuery, LogWorker, REMARK};
use paddlecloud_core::job::{Job, WorkerKey};
use paddlecloud_core::ports::{AttemptKey, Chunk, LogReader, Piece, Stream};

use super::{Logs, LogsError};

/// Size limit of a reply in one text; longer logs need the stream.
const LONGEST_TEXT: usize = 16 << 20;

/// Bytes read for the last lines of a worker.
const TAIL_BYTES: u64 = 64 << 10;

impl Logs {
    /// All requested logs as one text, with each worker's lines complete.
    pub async fn text(&self, job: Arc<Job>, query: &LogQuery) -> Result<String, LogsError> {
        let query = LogQuery {
            follow: false,
            ..query.clone()
        };
        let mut stream = self.open(job, &query).await?;
        let mut text = Text::default();
        while let Some(portion) = stream.next().await {
            text.add(&portion?);
            if text.bytes > LONGEST_TEXT {
                return Err(LogsError::TooLong);
            }
        }
        Ok(text.into_string())
    }

    /// The last lines of a worker's latest attempt with output, without the preamble.
    pub async fn last_lines(&self, job: &Job, worker: WorkerKey, lines: usize) -> Vec<String> {
        let latest = job.worker(worker).map_or(1, |worker| worker.attempt);
        let readers: Vec<_> = (1..=latest)
            .rev()
            .map(|attempt| AttemptKey {
                job: job.id.clone(),
                worker,
                attempt,
            })
            .map(|attempt| self.store.reader(&attempt))
            .collect();
        let read = move || {
            readers
                .into_iter()
                .map(|reader| tail(reader, lines))
                .find(|tail| !tail.is_empty())
        };
        tokio::task::spawn_blocking(read)
            .await
            .ok()
            .flatten()
            .unwrap_or_default()
    }
}

/// The logs of several attempts, one after the other.
#[derive(Default)]
struct Text {
    workers: Vec<LogWorker>,
    logs: Vec<Vec<u8>>,
    bytes: usize,
}

impl Text {
    fn add(&mut self, portion: &[u8]) {
        let mut rest = portion;
        while let Ok(Some((frame, length))) = Frame::decode(rest) {
            rest = &rest[length..];
            match frame {
                Frame::Workers(workers) => self.workers = workers,
                Frame::Data { worker, bytes, .. } => self.put(worker, &bytes),
                Frame::Gap { worker, offset, to } => {
                    let mark = format!("--- bytes {offset} to {to} of the log are missing ---\n");
                    self.put(worker, mark.as_bytes());
                }
                Frame::Alive | Frame::End(_) => {}
            }
        }
    }

    fn put(&mut self, worker: u32, bytes: &[u8]) {
        let at = worker as usize;
        if self.logs.len() <= at {
            self.logs.resize_with(at + 1, Vec::new);
        }
        self.logs[at].extend_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// With several workers, each log starts with a header, the worker's name between `=`, as in the original.
    fn into_string(self) -> String {
        let is_several = self
            .workers
            .iter()
            .any(|worker| worker.name != self.workers[0].name);
        let mut text = String::with_capacity(self.bytes);
        for (at, log) in self.logs.iter().enumerate().filter(|(_, log)| !log.is_empty()) {
            if let Some(worker) = self.workers.get(at).filter(|_| is_several) {
                text += &banner(worker);
            }
            text += &String::from_utf8_lossy(log);
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        text
    }
}

fn banner(worker: &LogWorker) -> String {
    match worker.attempt {
        1 => format!("==== {} ====\n", worker.name),
        attempt => format!("==== {}, attempt {attempt} ====\n", worker.name),
    }
}

fn tail(mut reader: Box<dyn LogReader>, lines: usize) -> Vec<String> {
    let Ok(length) = reader.length() else {
        return Vec::new();
    };
    let from = reader
        .tail_lines(lines)
        .unwrap_or(0)
        .max(length.saturating_sub(TAIL_BYTES));
    let mut bytes = Vec::new();
    let mut at = from;
    while let Ok(pieces) = reader.read(at, TAIL_BYTES as usize) {
        let Some(last) = pieces.last() else { break };
        at = last.end();
        for piece in pieces {
            if let Piece::Chunk(chunk) = piece {
                bytes.extend(without_preamble(chunk));
            }
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..]
        .iter()
        .map(|line| last_step(line).to_owned())
        .collect()
}

/// What a reader sees of a line with a progress bar, whose steps end with `\r`.
fn last_step(line: &str) -> &str {
    let mut steps = line.rsplit('\r');
    steps.find(|step| !step.trim().is_empty()).unwrap_or_default()
}

/// Keeps, of the launcher's own lines, only its remarks on the worker's exit.
fn without_preamble(chunk: Chunk) -> Vec<u8> {
    if chunk.stream != Stream::Launcher {
        return chunk.bytes;
    }
    let lines = chunk.bytes.split_inclusive(|byte| *byte == b'\n');
    let remarks: Vec<&[u8]> = lines.filter(|line| line.starts_with(REMARK.as_bytes())).collect();
    remarks.concat()
}

#[cfg(test)]
mod tests {
    use paddlecloud_api::logs::{Stream as WireStream, encode_data};

    use super::*;

    fn worker(name: &str, attempt: u32) -> LogWorker {
        LogWorker {
            name: name.to_owned(),
            role: "trainer".to_owned(),
            index: 0,
            attempt,
            from: None,
            is_behind: false,
        }
    }

    fn text(workers: Vec<LogWorker>, pieces: &[(u32, &str)]) -> String {
        let mut portion = Vec::new();
        Frame::Workers(workers).encode(&mut portion);
        for (worker, bytes) in pieces {
            encode_data(
                &mut portion,
                *worker,
                WireStream::Output as u8,
                0,
                0,
                bytes.as_bytes(),
            );
        }
        let mut text = Text::default();
        text.add(&portion);
        text.into_string()
    }

    #[test]
    fn the_last_lines_have_no_preamble_and_one_step_of_a_bar() {
        use paddlecloud_core::names::JobId;
        use paddlecloud_core::ports::LogStore as _;
        use paddlecloud_worker::protocol::LogLimits;

        let folder = tempfile::tempdir().unwrap();
        let limits = LogLimits {
            segment_bytes: 1 << 20,
            keep_bytes: 1 << 20,
        };
        let logs = super::super::SegmentLogs::open(folder.path(), limits).unwrap();
        let attempt = AttemptKey {
            job: JobId::new(1, 0),
            worker: WorkerKey::trainer(0),
            attempt: 1,
        };
        let pieces: [(Stream, &[u8]); 4] = [
            (Stream::Launcher, b"label selector: a\n"),
            (Stream::Launcher, b"Starting training job: b\n"),
            (Stream::Output, b"\r1%\r2%\r   \r\nTraceback\n"),
            (Stream::Launcher, b"paddlecloud: no such program\n"),
        ];
        let mut offset = logs.begin(&attempt).unwrap();
        for (stream, bytes) in pieces {
            let chunk = Chunk {
                offset,
                stamp: 1,
                stream,
                bytes: bytes.to_vec(),
            };
            offset = logs.append(&attempt, &chunk).unwrap();
        }
        logs.close(&attempt, offset).unwrap();
        assert_eq!(
            tail(logs.reader(&attempt), 20),
            ["2%", "Traceback", "paddlecloud: no such program"]
        );
    }

    #[test]
    fn supervisors_begin_remarks_as_clients_expect() {
        assert_eq!(paddlecloud_worker::log::REMARK, REMARK);
    }

    #[test]
    fn several_workers_get_headers_and_a_single_one_does_not() {
        assert_eq!(text(vec![worker("a", 1)], &[(0, "one\ntwo")]), "one\ntwo\n");
        let workers = vec![worker("a", 1), worker("b", 1), worker("b", 2)];
        let pieces = [(1, "x\n"), (0, "one"), (1, "y\n"), (2, "again\n")];
        assert_eq!(
            text(workers, &pieces),
            "==== a ====\none\n==== b ====\nx\ny\n==== b, attempt 2 ====\nagain\n"
        );
    }
}
