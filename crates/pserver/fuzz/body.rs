//! One run of the fuzzer: a server gets damaged requests from an authenticated client.
//!
//! It must neither panic nor use more memory than its limit, whatever sizes the requests claim.

use std::sync::Arc;
use std::time::Duration;

use paddlecloud_pserver::hello::Identity;
use paddlecloud_pserver::message::{
    DenseSpec, Encoding, Entry, EntryKind, Init, Limits, Origin, Request, Session, TableSpec, TensorId,
};
use paddlecloud_pserver::optimizer::{Optimizer, Progress, Rule};
use paddlecloud_pserver::server::{Config, Server};
use paddlecloud_pserver::steps::Mode;
use paddlecloud_pserver::wire::Frame;

const MEMORY: u64 = 4 << 20;

/// Serves the requests and checks what must hold after any of them.
pub fn run(requests: &[u8]) {
    let server = Server::new(Config {
        memory: MEMORY,
        patience: Duration::ZERO,
        ..Config::default()
    });
    let identity = Identity {
        trainer: 0,
        trainers: 1,
        attempt: 1,
        server: 0,
        servers: 1,
        lane: 0,
    };
    server.serve_bytes(identity, requests);
    assert!(server.memory_used() <= MEMORY);
}

/// A session that uses every request, undamaged.
pub fn session(mode: Mode) -> Vec<u8> {
    let optimizer = Optimizer::new(
        Rule::Adagrad {
            epsilon: 1e-6,
            lr_decay: 0.0,
            initial: 0.0,
        },
        0.1,
    );
    let dense = DenseSpec {
        name: "w".into(),
        shape: vec![5],
        optimizer: optimizer.clone(),
    };
    let table = TableSpec {
        name: "emb".into(),
        row: 2,
        optimizer: optimizer.clone(),
        init: Init::Zero,
        seed: 1,
        limits: Limits::default(),
    };
    let pushed = Arc::new(optimizer.clone());
    let entry = |tensor, kind| Entry {
        tensor,
        rate: Some(0.5),
        optimizer: Some(Arc::clone(&pushed)),
        samples: 0,
        kind,
    };
    let (epoch, step) = (1, 0);
    let entries = vec![
        entry(0, EntryKind::Dense(Encoding::F32)),
        entry(0, EntryKind::Dense(Encoding::F16)),
        entry(0, EntryKind::Dense(Encoding::Sparse { count: 1 })),
        entry(
            1,
            EntryKind::Rows {
                count: 2,
                encoding: Encoding::Bf16,
            },
        ),
    ];
    let session = Session {
        mode,
        mean: true,
        checkpoints: String::new(),
        checkpoint_every: 0,
        resume: String::new(),
    };
    let place = Some(TensorId { id: 1, first: 0 });
    let requests = [
        (Request::Join { session }, 0),
        (
            Request::CreateDense {
                spec: dense,
                place: None,
            },
            0,
        ),
        (Request::CreateTable { spec: table, place }, 0),
        (
            Request::Assign {
                tensor: 0,
                replace: false,
            },
            20,
        ),
        (Request::AssignRows { tensor: 1, count: 2 }, 32),
        (
            Request::Lookup {
                epoch,
                step,
                tensor: 1,
                count: 3,
                train: true,
            },
            24,
        ),
        (
            Request::Push {
                epoch,
                step,
                part: 0,
                entries,
            },
            20 + 10 + 8 + 16 + 8,
        ),
        (
            Request::Ready {
                epoch,
                step,
                pull: vec![0],
            },
            7,
        ),
        (
            Request::Pull {
                epoch,
                step: 1,
                averaged: false,
                tensors: vec![0],
            },
            0,
        ),
        (
            Request::Scan {
                tensor: 1,
                from: 0,
                limit: 9,
                changed_since: 0,
            },
            0,
        ),
        (
            Request::Barrier {
                epoch,
                step: 1,
                number: 1,
            },
            0,
        ),
        (
            Request::State {
                epoch,
                step: 1,
                tensor: 0,
            },
            0,
        ),
        (
            Request::SetState {
                tensor: 0,
                progress: Progress::default(),
            },
            20,
        ),
        (
            Request::Reject {
                epoch,
                step: 1,
                reason: "rates".into(),
            },
            0,
        ),
        (Request::Kept { step }, 0),
        (Request::Tensors, 0),
        (Request::Stat, 0),
        (
            Request::Recover {
                above: 1,
                seen: 1,
                incarnations: vec![1],
                is_new: false,
            },
            0,
        ),
        (
            Request::RollBack {
                epoch: 3,
                step: 0,
                seen: 1,
                origin: Origin::Start,
            },
            0,
        ),
        (Request::Discard { epoch, step: 1 }, 0),
        (Request::Leave { epoch, step: 1 }, 0),
        (Request::Finish { epoch }, 0),
    ];
    let mut bytes = Vec::new();
    for (request, body) in requests {
        let head = request.encode();
        let frame = Frame {
            kind: request.kind(),
            head: head.len(),
            body,
        };
        bytes.extend(frame.encode());
        bytes.extend(head);
        bytes.extend(std::iter::repeat_n(0, body as usize));
    }
    bytes
}

/// Damages bytes at random: changed, cut, repeated and replaced by extreme numbers.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Noise {
        Noise(seed)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = paddlecloud_pserver::placement::mix(self.0);
        (self.0 % limit.max(1) as u64) as usize
    }

    pub fn damaged(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes[at] = self.below(256) as u8,
                2 => bytes[at] ^= 1 << self.below(8),
                3 => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff),
                4 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0),
                _ => {
                    let end = (at + self.below(64)).min(bytes.len());
                    let copy = bytes[at..end].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        bytes
    }
}
