//! Many followers of one log: their cost to the server, and whether each gets every byte.

use std::io::Read;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use e2e::TestEnvironment;

use crate::process::resident_kib;
use crate::rest;
use crate::table::{Figure, Row, Unit};

const FOLLOWERS: usize = 1000;
const LINES: usize = 10_000;

/// A frame's head on the wire: kind, stream, worker, offset, time, length.
const HEAD: usize = 26;
const KIND_DATA: u8 = 2;
const STDOUT: u8 = 1;

pub fn measure(env: &TestEnvironment) -> Vec<Row> {
    let gate = env.gate("talk");
    let package = env
        .package("talk")
        .file("train.sh", format!("cat $GATE\nseq {LINES}\n"));
    env.submit(
        "talk",
        &package,
        &["-env", &gate.variable("GATE"), "-entry", "sh train.sh"],
    );
    env.wait_for_status("talk", "Running");
    let pid = env.server_pid();
    let socket = rest::socket(env);

    let all_there = Barrier::new(FOLLOWERS + 1);
    let mut most = 0;
    let lines: Vec<usize> = thread::scope(|scope| {
        let followers: Vec<_> = (0..FOLLOWERS)
            .map(|_| scope.spawn(|| follow(&socket, &all_there)))
            .collect();
        all_there.wait();
        gate.open();
        while !followers.iter().all(|follower| follower.is_finished()) {
            most = most.max(resident_kib(pid));
            thread::yield_now();
        }
        followers
            .into_iter()
            .map(|follower| follower.join().expect("a follower ends well"))
            .collect()
    });
    let lost: usize = lines.iter().map(|got| LINES.abs_diff(*got)).sum();
    vec![
        Row::new(
            format!("{FOLLOWERS} followers: server's memory"),
            [Figure::memory(most)],
            "< 100 MB",
        ),
        Row::new(
            format!("{FOLLOWERS} followers: lines lost"),
            [Figure::new(lost as f64, Unit::Count)],
            "0",
        ),
    ]
}

/// Follows to the end; returns how many lines the worker's stdout had.
fn follow(socket: &Path, all_there: &Barrier) -> usize {
    let mut stream = rest::stream(socket, "/api/v1/jobs/talk/logs?follow=true");
    all_there.wait();
    let mut lines = 0;
    let mut head = [0; HEAD];
    while stream.read_exact(&mut head).is_ok() {
        let length = u32::from_le_bytes([head[22], head[23], head[24], head[25]]);
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body).expect("a frame is whole");
        if (head[0], head[1]) == (KIND_DATA, STDOUT) {
            lines += body.iter().filter(|byte| **byte == b'\n').count();
        }
    }
    lines
}
