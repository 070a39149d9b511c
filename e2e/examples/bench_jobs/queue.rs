//! Durable submits through REST, and tables over a long history.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::TestEnvironment;
use serde_json::json;

use crate::process::{cost, median, milliseconds};
use crate::rest::{Connection, socket};
use crate::table::{Question, Row, middle};

const CLIENTS: usize = 64;
const PAGE: usize = 100;

pub fn measure(env: &TestEnvironment, jobs: usize) -> Vec<Row> {
    hold_the_machine(env);
    let package = env.describe("hold")["job"]["job_package"]
        .as_str()
        .expect("it has a package")
        .to_owned();
    let submitted = from_many_clients(env, jobs, |connection, index| {
        let name = format!("queued-{index}");
        let body =
            json!({"name": name, "job_package": package, "entry": "true", "parallelism": 1, "pservers": 0});
        let (status, reply) = connection.ask("POST", "/api/v1/jobs", &body.to_string());
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&reply));
    });
    let pending = get_jobs(env, &["get", "jobs"]);
    let killed = from_many_clients(env, jobs, |connection, index| {
        let (status, reply) = connection.ask("DELETE", &format!("/api/v1/jobs/queued-{index}"), "");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&reply));
    });
    let history = get_jobs(env, &["get", "jobs", "-a"]);
    let page = page_of_history(env);
    let rate = |took: Duration| jobs as f64 / took.as_secs_f64();
    let per_second = |took: Duration| format!("{:.0}/s", rate(took));
    vec![
        Row::new(
            format!("durable submits, {CLIENTS} clients"),
            per_second(submitted),
            "≥ 2000/s",
        )
        .comparable_to(Question::Submits, rate(submitted)),
        Row::new(format!("kills, {CLIENTS} clients"), per_second(killed), ""),
        Row::new(format!("get jobs, {jobs} waiting"), milliseconds(pending), ""),
        Row::new(
            format!("a page of {PAGE} jobs, {jobs} in the history"),
            milliseconds(page),
            "≤ 50 ms",
        ),
        Row::new(
            format!("get jobs -a, {jobs} in the history"),
            milliseconds(history),
            "",
        ),
    ]
}

/// A job bigger than the machine runs alone, so that everything behind it waits.
fn hold_the_machine(env: &TestEnvironment) {
    let package = env.package("hold").file("train.sh", "exec tail -f /dev/null\n");
    env.submit("hold", &package, &["-cpu", "1000", "-entry", "sh train.sh"]);
    env.wait_for_status("hold", "Running");
}

/// Does `work` for every index, from many connections at once.
fn from_many_clients(
    env: &TestEnvironment,
    jobs: usize,
    work: impl Fn(&mut Connection, usize) + Sync,
) -> Duration {
    let next = AtomicUsize::new(0);
    let socket = socket(env);
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut connection = Connection::open(&socket);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= jobs {
                        break;
                    }
                    work(&mut connection, index);
                }
            });
        }
    });
    started.elapsed()
}

/// The middle of several requests for one page.
fn page_of_history(env: &TestEnvironment) -> Duration {
    let mut connection = Connection::open(&socket(env));
    let times = (0..21).map(|_| {
        let started = Instant::now();
        let (status, _) = connection.ask("GET", &format!("/api/v1/jobs?all=true&limit={PAGE}"), "");
        assert_eq!(status, 200);
        started.elapsed()
    });
    middle(times.collect())
}

fn get_jobs(env: &TestEnvironment, args: &[&str]) -> Duration {
    median(11, || cost(&mut env.command("paddlectl", args))).wall
}
