//! How fast logs are written and read.

use std::time::Instant;

use e2e::TestEnvironment;

use crate::process::cost;
use crate::table::{Figure, Row, Unit};

const LINES: usize = 1_000_000;
const WORKERS: usize = 2;

pub fn measure(env: &TestEnvironment) -> Vec<Row> {
    // 100 bytes with the newline: a usual line of a training log.
    let line = "x".repeat(99);
    let package = env
        .package("talk")
        .file("train.sh", format!("yes {line} | head -n {LINES}\n"));
    let workers = WORKERS.to_string();
    let started = Instant::now();
    env.submit(
        "talk",
        &package,
        &["-parallelism", &workers, "-cpu", "1", "-entry", "sh train.sh"],
    );
    env.paddlectl(&["wait", "talk"]).ok();
    let written = started.elapsed();

    let megabytes = (LINES * WORKERS * 100) as f64 / 1e6;
    let read = cost(&mut env.command("paddlectl", &["logs", "talk"]));
    let rate = |seconds: f64| Figure::new(megabytes / seconds, Unit::MegabytesPerSecond);
    let lines = (LINES * WORKERS) as f64 / read.wall.as_secs_f64() / 1e6;
    let merged = [
        rate(read.wall.as_secs_f64()),
        Figure::new(lines, Unit::MillionLinesPerSecond),
    ];
    vec![
        Row::new(
            format!("{megabytes:.0} MB printed by {WORKERS} workers"),
            [rate(written.as_secs_f64())],
            "",
        ),
        Row::new(format!("{megabytes:.0} MB read back, merged"), merged, ""),
    ]
}
