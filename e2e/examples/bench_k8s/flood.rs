//! Pods that print 200 MB each as fast as they can: what the server has of it afterwards.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Instant;

use e2e::cluster::Cluster;

use crate::figures::Row;
use crate::site::Site;

const PODS: usize = 2;
const LINES: usize = 2_000_000;
/// With its number, a space and the newline.
const LINE_BYTES: usize = 100;

pub fn measure(cluster: &Cluster) -> Vec<Row> {
    let site = Site::start(cluster);
    let filler = "x".repeat(LINE_BYTES - 10);
    let script =
        format!("exec awk 'BEGIN {{ for (i = 0; i < {LINES}; i++) printf \"%08d {filler}\\n\", i }}'\n");
    let package = site.env.package("flood").file("train.sh", script);
    let pods = PODS.to_string();
    let flags = [
        "-entry",
        "sh train.sh",
        "-parallelism",
        &pods,
        "-cpu",
        "500m",
        "-memory",
        "128Mi",
    ];
    let started = Instant::now();
    site.env.submit("flood", &package, &flags);
    let waited = site
        .env
        .start(&["wait", "flood"])
        .end_within(std::time::Duration::from_secs(600));
    let took = started.elapsed().as_secs_f64();
    assert!(waited.0.success(), "{:?}", waited.1);
    let (mut lost, mut strange) = (0, 0);
    for index in 0..PODS {
        let read = read_back(&site, index);
        lost += LINES.saturating_sub(read.good) * LINE_BYTES;
        strange += read.strange;
    }
    site.server.wait_until_empty(0);
    let megabytes = (PODS * LINES * LINE_BYTES) as f64 / 1e6;
    let measured = format!(
        "{lost} bytes lost, {strange} strange lines; {megabytes:.0} MB in {took:.0} s, {:.0} MB/s",
        megabytes / took
    );
    vec![Row::new(
        format!("200 MB of log per pod, {PODS} pods, full speed"),
        measured,
        "0 bytes lost",
    )]
}

/// What was read of one worker's log.
#[derive(Default)]
struct Read {
    /// Lines that are whole and in their place.
    good: usize,
    /// Numbered lines that are not.
    strange: usize,
}

fn read_back(site: &Site, index: usize) -> Read {
    let worker = format!("trainer-{index}");
    let mut logs = site
        .env
        .command("paddlectl", &["logs", "flood", "--worker", &worker]);
    let mut child = logs
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let stdout = child.stdout.take().expect("it is piped");
    let mut read = Read::default();
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        let number = line.get(..8).and_then(|digits| std::str::from_utf8(digits).ok());
        // The launcher's own lines have no number.
        let Some(number) = number.and_then(|digits| digits.parse::<usize>().ok()) else {
            continue;
        };
        match number == read.good && line.len() + 1 == LINE_BYTES {
            true => read.good += 1,
            false => read.strange += 1,
        }
    }
    let status = child.wait().expect("a child can be waited for");
    assert!(status.success(), "`paddlectl logs` failed");
    read
}
