//! How long the first things take, and what a server costs that does nothing.

use std::thread;
use std::time::{Duration, Instant};

use e2e::TestEnvironment;

use crate::Row;
use crate::process::{Cost, cost, cpu_used, median, megabytes, milliseconds, resident_kib};

const RUNS: usize = 41;
const IDLE: Duration = Duration::from_secs(20);

pub fn measure(env: &TestEnvironment) -> Vec<Row> {
    let mut rows = vec![client(env, &["version"])];
    env.paddlectl(&["server", "start"]).ok();
    rows.push(client(env, &["get", "jobs"]));
    rows.push(first_line(env));
    rows.extend(idle(env));
    rows
}

fn client(env: &TestEnvironment, args: &[&str]) -> Row {
    let Cost { wall, cpu, peak_kib } = median(RUNS, || cost(&mut env.command("paddlectl", args)));
    let memory = megabytes(u64::try_from(peak_kib).unwrap_or(0));
    let measured = format!("{}, cpu {}, {memory}", milliseconds(wall), milliseconds(cpu));
    Row::new(
        format!("paddlectl {}", args.join(" ")),
        measured,
        "≤ 10 ms, ≤ 15 MB",
    )
}

/// From Enter to the first line of a job's own.
fn first_line(env: &TestEnvironment) -> Row {
    let package = env.package("hello").file("train.sh", "echo here I am\n");
    let mut times: Vec<Duration> = (0..11)
        .map(|_| submit_to_first_line(env, package.arg()))
        .collect();
    times.sort();
    Row::new(
        "submit -f to the first log line",
        milliseconds(times[times.len() / 2]),
        "≤ 100 ms",
    )
}

fn submit_to_first_line(env: &TestEnvironment, package: &str) -> Duration {
    let begun = Instant::now();
    let submit = [
        "submit",
        "-cpu",
        "100m",
        "-memory",
        "32Mi",
        "-pservers",
        "0",
        "-entry",
        "sh train.sh",
        "-f",
        package,
    ];
    let mut follower = env.start(&submit);
    follower.wait_for_line("here I am");
    let took = begun.elapsed();
    follower.end();
    took
}

fn idle(env: &TestEnvironment) -> Vec<Row> {
    let pid = env.server_pid();
    let before = cpu_used(pid);
    // Nothing happens for this long: that is what is measured.
    thread::park_timeout(IDLE);
    let used = cpu_used(pid) - before;
    let share = 100.0 * used.as_secs_f64() / IDLE.as_secs_f64();
    vec![
        Row::new("server idle: memory", megabytes(resident_kib(pid)), "≤ 30 MB"),
        Row::new("server idle: cpu", format!("{share:.2} %"), "~0 %"),
    ]
}
