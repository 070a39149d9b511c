//! Logs as plain text: the old interface's whole reply, and the last lines of one worker.

use std::sync::Arc;

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::logs::{Frame, LogQuery};
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
        let mut stream = self.open(job, &query)?;
        let mut workers: Vec<Vec<u8>> = Vec::new();
        let mut total = 0;
        while let Some(portion) = stream.next().await {
            total += sort_by_worker(&portion?, &mut workers);
            if total > LONGEST_TEXT {
                return Err(ErrorBody::new(
                    ErrorName::PayloadTooLarge,
                    "the logs are too long for one reply",
                )
                .with_hint("ask for the last lines with `n`, or read the stream `/api/v1/jobs/{job}/logs`"));
            }
        }
        let mut text = String::with_capacity(total);
        for log in workers.iter().filter(|log| !log.is_empty()) {
            text += &String::from_utf8_lossy(log);
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        Ok(text)
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

/// Adds a portion's bytes to those of their workers; says how many there were.
fn sort_by_worker(portion: &[u8], workers: &mut Vec<Vec<u8>>) -> usize {
    let (mut rest, mut total) = (portion, 0);
    while let Ok(Some((frame, length))) = Frame::decode(rest) {
        rest = &rest[length..];
        if let Frame::Data { worker, bytes, .. } = frame {
            total += bytes.len();
            let at = worker as usize;
            if workers.len() <= at {
                workers.resize_with(at + 1, Vec::new);
            }
            workers[at].extend(bytes);
        }
    }
    total
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
