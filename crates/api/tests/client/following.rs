//! Logs over connections that break at any byte: nothing is lost or repeated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paddlecloud_api::client::{Client, Limits, LogEvent};
use paddlecloud_api::jobs::JobStatus;
use paddlecloud_api::logs::{Frame, LogEnd, LogQuery, LogWorker, Stream};

use crate::scripted::{Reply, Seen, serve};

/// Small and repeatable; the seed of a failing run is its name.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }
}

fn worker(index: u32) -> LogWorker {
    LogWorker {
        name: format!("job-trainer-{index}"),
        role: "trainer".into(),
        index,
        attempt: 1,
        from: None,
        is_behind: false,
    }
}

fn content(random: &mut Random, length: usize) -> Vec<u8> {
    let byte = |_| {
        if random.below(8) == 0 {
            b'\n'
        } else {
            random.below(256) as u8
        }
    };
    (0..length).map(byte).collect()
}

/// A job's log on the server's side.
struct Job {
    logs: Vec<Vec<u8>>,
    random: Random,
    connections: usize,
}

impl Job {
    fn new(seed: u64, workers: usize) -> Job {
        let mut random = Random(seed);
        let logs = (0..workers)
            .map(|_| {
                let length = random.below(900);
                content(&mut random, length)
            })
            .collect();
        Job {
            logs,
            random,
            connections: 0,
        }
    }

    /// Where a worker's reply begins: at its cursor, at its last lines, or at 0.
    fn begin(&self, seen: &Seen, index: usize) -> usize {
        let from = seen.query("from").unwrap_or("");
        let name = worker(index as u32).name;
        let cursor = from.split(',').find_map(|cursor| {
            let mut parts = cursor.split(':');
            (parts.next() == Some(name.as_str())).then(|| parts.nth(1).unwrap().parse().unwrap())
        });
        let lines = seen.query("n").map(|text| text.parse().unwrap());
        match (cursor, lines) {
            (Some(offset), _) => offset,
            (None, Some(lines)) => tail_start(&self.logs[index], lines),
            (None, None) => 0,
        }
    }

    /// The frames of one connection. Late ones also know the worker that joined.
    fn frames(&mut self, seen: &Seen) -> Vec<u8> {
        self.connections += 1;
        let known = if self.connections == 1 {
            self.logs.len() - 1
        } else {
            self.logs.len()
        };
        let mut bytes = Vec::new();
        Frame::Workers((0..known as u32).map(worker).collect()).encode(&mut bytes);
        let mut next: Vec<usize> = (0..known).map(|index| self.begin(seen, index)).collect();
        while next.iter().zip(&self.logs).any(|(at, log)| *at < log.len()) {
            let index = self.random.below(known);
            let log = &self.logs[index];
            let length = (1 + self.random.below(60)).min(log.len() - next[index]);
            let piece = Frame::Data {
                worker: index as u32,
                stream: Stream::Output,
                offset: next[index] as u64,
                unix_nanos: 1,
                bytes: log[next[index]..next[index] + length].to_vec(),
            };
            piece.encode(&mut bytes);
            next[index] += length;
            if self.random.below(5) == 0 {
                Frame::Alive.encode(&mut bytes);
            }
        }
        let end = LogEnd {
            id: "j_1".into(),
            status: JobStatus::Succeeded,
            message: None,
        };
        let everything = known == self.logs.len();
        if everything {
            Frame::End(seen.query("follow").map(|_| end)).encode(&mut bytes);
        }
        bytes
    }
}

fn tail_start(log: &[u8], lines: usize) -> usize {
    let body = log.strip_suffix(b"\n").unwrap_or(log);
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(at, _)| at + 1).nth(lines - 1).unwrap_or(0)
}

/// A reply in chunks, cut after `cut` bytes of it all.
fn chunked(frames: &[u8], random: &mut Random, is_cut: bool) -> Reply {
    let mut bytes = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let mut rest = frames;
    while !rest.is_empty() {
        let length = (1 + random.below(200)).min(rest.len());
        bytes.extend_from_slice(format!("{length:x}\r\n").as_bytes());
        bytes.extend_from_slice(&rest[..length]);
        bytes.extend_from_slice(b"\r\n");
        rest = &rest[length..];
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    if !is_cut {
        return Reply::Keep(bytes);
    }
    let cut = random.below(bytes.len());
    bytes.truncate(cut);
    Reply::Cut(bytes)
}

/// Reads the log of a job whose connections break, and returns what arrived for every worker.
async fn read(seed: u64, query: LogQuery, cuts: usize) -> (BTreeMap<String, Vec<u8>>, Vec<Vec<u8>>) {
    let job = Arc::new(Mutex::new(Job::new(seed, 3)));
    let served = job.clone();
    let (endpoint, _) = serve(move |_, seen| {
        let mut job = served.lock().unwrap();
        let frames = job.frames(seen);
        let is_cut = job.connections <= cuts;
        chunked(&frames, &mut job.random, is_cut)
    })
    .await;
    let client = Client::new(endpoint.parse().unwrap()).with_limits(Limits {
        pause: Duration::from_millis(1),
        ..Limits::default()
    });
    let follows = query.follow;
    let mut log = client.job_logs("j_1", query);
    let mut arrived: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    loop {
        match log.next().await.unwrap().expect("the end comes before nothing") {
            LogEvent::Data { worker, bytes, .. } => {
                arrived.entry(worker.name.clone()).or_default().extend(bytes);
            }
            LogEvent::Gap { .. } => panic!("nothing is gone (seed {seed})"),
            LogEvent::End(end) => {
                assert_eq!(end.is_some(), follows, "seed {seed}");
                break;
            }
            LogEvent::Workers(_) | LogEvent::Lost(_) => {}
        }
    }
    assert_eq!(log.next().await.unwrap(), None);
    let logs = job.lock().unwrap().logs.clone();
    (arrived, logs)
}

fn of(arrived: &BTreeMap<String, Vec<u8>>, index: usize) -> &[u8] {
    arrived.get(&worker(index as u32).name).map_or(&[], Vec::as_slice)
}

#[tokio::test]
async fn every_byte_arrives_once_however_the_connections_break() {
    for seed in 0..60 {
        let query = LogQuery {
            follow: true,
            ..LogQuery::default()
        };
        let (arrived, logs) = read(seed, query, 1 + seed as usize % 6).await;
        for (index, log) in logs.iter().enumerate() {
            assert_eq!(of(&arrived, index), log, "seed {seed}, worker {index}");
        }
    }
}

#[tokio::test]
async fn a_log_that_is_not_followed_survives_cuts_too() {
    for seed in 100..130 {
        let (arrived, logs) = read(seed, LogQuery::default(), 3).await;
        for (index, log) in logs.iter().enumerate() {
            assert_eq!(of(&arrived, index), log, "seed {seed}, worker {index}");
        }
    }
}

#[tokio::test]
async fn a_followed_tail_begins_with_the_last_lines_and_misses_nothing_after_them() {
    for seed in 200..240 {
        let query = LogQuery {
            n: Some(2),
            follow: true,
            ..LogQuery::default()
        };
        let (arrived, logs) = read(seed, query, 1 + seed as usize % 5).await;
        for (index, log) in logs.iter().enumerate() {
            let tail = &log[tail_start(log, 2)..];
            assert!(of(&arrived, index).ends_with(tail), "seed {seed}, worker {index}");
            assert!(log.ends_with(of(&arrived, index)), "seed {seed}, worker {index}");
        }
    }
}

#[tokio::test]
async fn a_quiet_worker_resumes_at_its_first_offset() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen_by_server = asked.clone();
    let (endpoint, _) = serve(move |_, seen| {
        let mut asked = seen_by_server.lock().unwrap();
        asked.push((
            seen.query("n").map(str::to_owned),
            seen.query("from").map(str::to_owned),
        ));
        let quiet = LogWorker {
            from: Some(500),
            ..worker(0)
        };
        let mut frames = Vec::new();
        Frame::Workers(vec![quiet]).encode(&mut frames);
        let mut reply = chunked(&frames, &mut Random(1), false);
        if let (1, Reply::Keep(bytes)) = (asked.len(), &mut reply) {
            // Without the last chunk the reply is cut off.
            bytes.truncate(bytes.len() - 5);
            return Reply::Cut(std::mem::take(bytes));
        }
        Frame::End(None).encode(&mut frames);
        chunked(&frames, &mut Random(1), false)
    })
    .await;
    let client = Client::new(endpoint.parse().unwrap());
    let query = LogQuery {
        n: Some(0),
        follow: true,
        ..LogQuery::default()
    };
    let mut log = client.job_logs("j", query);
    while log.next().await.unwrap().is_some() {}
    let asked = asked.lock().unwrap();
    assert_eq!(asked[0], (Some("0".to_owned()), None));
    assert_eq!(asked[1], (None, Some("job-trainer-0:1:500".to_owned())));
}

#[tokio::test]
async fn an_unannounced_hole_is_a_gap_and_repeats_are_dropped() {
    let mut frames = Vec::new();
    Frame::Workers(vec![worker(0)]).encode(&mut frames);
    let mut data = |offset: u64, bytes: &[u8]| {
        let frame = Frame::Data {
            worker: 0,
            stream: Stream::Output,
            offset,
            unix_nanos: 1,
            bytes: bytes.to_vec(),
        };
        frame.encode(&mut frames);
    };
    data(0, b"abcd");
    data(2, b"cdef");
    data(1, b"bc");
    data(10, b"xy");
    Frame::Gap {
        worker: 0,
        offset: 12,
        to: 20,
    }
    .encode(&mut frames);
    Frame::End(None).encode(&mut frames);
    let (endpoint, _) = serve(move |_, _| chunked(&frames, &mut Random(1), false)).await;
    let client = Client::new(endpoint.parse().unwrap());
    let mut log = client.job_logs("j", LogQuery::default());
    let mut story = Vec::new();
    while let Some(event) = log.next().await.unwrap() {
        match event {
            LogEvent::Data { offset, bytes, .. } => {
                story.push(format!("{offset} {}", String::from_utf8(bytes).unwrap()));
            }
            LogEvent::Gap { from, to, .. } => story.push(format!("gap {from}..{to}")),
            _ => {}
        }
    }
    assert_eq!(story, ["0 abcd", "4 ef", "gap 6..10", "10 xy", "gap 12..20"]);
}

#[tokio::test]
async fn a_missing_job_is_refused_at_once() {
    let body = r#"{"code":404,"msg":"no such job","error":"not-found"}"#;
    let (endpoint, log) = serve(|_, _| Reply::Keep(crate::scripted::json(404, body))).await;
    let client = Client::new(endpoint.parse().unwrap());
    let error = client
        .job_logs("j", LogQuery::default())
        .next()
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "no such job");
    assert_eq!(log.lock().unwrap().len(), 1);
}
