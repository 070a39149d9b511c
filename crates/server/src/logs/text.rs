//! Logs as plain text: the old interface's whole reply, and the last lines of one worker.

use std::sync::Arc;

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::logs::{Frame, LogQuery, LogWorker};
use paddlecloud_core::job::{Job, WorkerKey};
use paddlecloud_core::ports::AttemptKey;
use paddlecloud_supervisor::log::{LogReader, Piece};
use paddlecloud_supervisor::protocol::files;

use super::Logs;
use crate::engine::local::attempt_folder;

/// Most bytes of a reply that is one text; more is what the stream is for.
const LONGEST_TEXT: usize = 16 << 20;

/// Bytes read for the last lines of a worker.
const TAIL_BYTES: u64 = 64 << 10;

impl Logs {
    /// All asked-for logs as one text, each worker's lines whole.
    pub async fn text(&self, job: Arc<Job>, query: &LogQuery) -> Result<String, ErrorBody> {
        let query = LogQuery {
            follow: false,
            ..query.clone()
        };
        let mut stream = self.open(job, &query).await?;
        let mut text = Text::default();
        while let Some(portion) = stream.next().await {
            text.add(&portion?);
            if text.bytes > LONGEST_TEXT {
                return Err(ErrorBody::new(
                    ErrorName::PayloadTooLarge,
                    "the logs are too long for one reply",
                )
                .with_hint("ask for the last lines with `n`, or read the stream `/api/v1/jobs/{job}/logs`"));
            }
        }
        Ok(text.into_string())
    }

    /// The last lines of a worker's latest attempt that wrote any.
    pub async fn last_lines(&self, job: &Job, worker: WorkerKey, lines: usize) -> Vec<String> {
        let latest = job.worker(worker).map_or(1, |worker| worker.attempt);
        let folders: Vec<_> = (1..=latest)
            .rev()
            .map(|attempt| AttemptKey {
                job: job.id.clone(),
                worker,
                attempt,
            })
            .map(|attempt| attempt_folder(&self.data, &attempt).join(files::LOG))
            .collect();
        let read = move || {
            folders
                .iter()
                .map(|folder| tail(folder, lines))
                .find(|tail| !tail.is_empty())
        };
        tokio::task::spawn_blocking(read)
            .await
            .ok()
            .flatten()
            .unwrap_or_default()
    }
}

/// The logs of several attempts, each in one piece.
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
                    let mark = format!("--- bytes {offset} to {to} of the log are gone ---\n");
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

    /// Where several workers speak, each is introduced by its name between `=`, as the original did.
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

fn tail(folder: &std::path::Path, lines: usize) -> Vec<String> {
    let mut reader = LogReader::open(folder);
    let Ok(length) = reader.len() else {
        return Vec::new();
    };
    let from = reader
        .tail_lines(lines)
        .unwrap_or(0)
        .max(length.saturating_sub(TAIL_BYTES));
    let mut bytes = Vec::new();
    let mut at = from;
    while let Ok(pieces) = reader.read_at(at, TAIL_BYTES as usize) {
        let Some(last) = pieces.last() else { break };
        at = last.end();
        for piece in pieces {
            if let Piece::Chunk(chunk) = piece {
                bytes.extend(chunk.bytes);
            }
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use paddlecloud_api::logs::{Stream, encode_data};

    use super::*;

    fn worker(name: &str, attempt: u32) -> LogWorker {
        LogWorker {
            name: name.to_owned(),
            role: "trainer".to_owned(),
            index: 0,
            attempt,
            from: None,
        }
    }

    fn text(workers: Vec<LogWorker>, pieces: &[(u32, &str)]) -> String {
        let mut portion = Vec::new();
        Frame::Workers(workers).encode(&mut portion);
        for (worker, bytes) in pieces {
            encode_data(
                &mut portion,
                *worker,
                Stream::Stdout as u8,
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
    fn several_workers_are_told_apart_and_one_is_left_as_it_is() {
        assert_eq!(text(vec![worker("a", 1)], &[(0, "one\ntwo")]), "one\ntwo\n");
        let workers = vec![worker("a", 1), worker("b", 1), worker("b", 2)];
        let pieces = [(1, "x\n"), (0, "one"), (1, "y\n"), (2, "again\n")];
        assert_eq!(
            text(workers, &pieces),
            "==== a ====\none\n==== b ====\nx\ny\n==== b, attempt 2 ====\nagain\n"
        );
    }
}
