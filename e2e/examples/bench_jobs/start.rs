//! Start-up times, and the cost of an idle server.

use std::thread;
use std::time::{Duration, Instant};

use e2e::TestEnvironment;

use crate::process::{cost, cpu_used, median, resident_kib};
use crate::table::{Figure, Question, Row, middle};

const RUNS: usize = 41;

/// How long a server is watched doing nothing.
pub const IDLE: Duration = Duration::from_secs(20);

pub fn measure(env: &TestEnvironment) -> Vec<Row> {
    let mut rows = vec![client(env, &["version"]).comparable_to(Question::Command)];
    env.paddlectl(&["server", "start"]).ok();
    rows.push(client(env, &["get", "jobs"]));
    rows.push(first_line(env));
    rows.extend(idle(env));
    rows
}

fn client(env: &TestEnvironment, args: &[&str]) -> Row {
    let cost = median(RUNS, || cost(&mut env.command("paddlectl", args)));
    let what = format!("paddlectl {}", args.join(" "));
    Row::new(what, cost.figures(), "≤ 10 ms, ≤ 15 MB")
}

/// From Enter to the first line of a job's own.
fn first_line(env: &TestEnvironment) -> Row {
    let package = env.package("hello").file("train.sh", "echo here I am\n");
    let times = (0..11).map(|_| submit_to_first_line(env, package.arg()));
    let time = middle(times.collect());
    let figure = Figure::time(time);
    Row::new("submit -f to the first log line", [figure], "≤ 100 ms").comparable_to(Question::FirstLine)
}

fn submit_to_first_line(env: &TestEnvironment, package: &str) -> Duration {
    let started = Instant::now();
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
    let took = started.elapsed();
    follower.end();
    took
}

fn idle(env: &TestEnvironment) -> Vec<Row> {
    let pid = env.server_pid();
    let used = || cpu_used(pid).expect("the server runs");
    let before = used();
    // Nothing happens for this long: that is what is measured.
    thread::park_timeout(IDLE);
    let share = (used() - before).as_secs_f64() / IDLE.as_secs_f64();
    let memory = Figure::memory(resident_kib(pid));
    vec![
        Row::new("server idle: memory", [memory], "≤ 30 MB").comparable_to(Question::IdleMemory),
        Row::new("server idle: cpu", [Figure::share(share)], "~0 %").comparable_to(Question::IdleCpu),
    ]
}
