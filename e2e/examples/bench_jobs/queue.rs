//! Durable submits through REST, and tables over a long history.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::TestEnvironment;
use serde_json::json;

use crate::process::{cost, cpu_used, median};
use crate::rest::{Connection, socket};
use crate::table::{Figure, Question, Row, Unit, middle};

const CLIENTS: usize = 64;
const PAGE: usize = 100;
/// How often a table is printed.
const TABLES: usize = 11;

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
    let explained = get_jobs(env, &["get", "jobs", "-o", "wide"]);
    let killed = from_many_clients(env, jobs, |connection, index| {
        let (status, reply) = connection.ask("DELETE", &format!("/api/v1/jobs/queued-{index}"), "");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&reply));
    });
    let history = get_jobs(env, &["get", "jobs", "-a"]);
    let page = page_of_history(env);
    vec![
        Row::new(
            format!("durable submits, {CLIENTS} clients"),
            submitted,
            "≥ 2000/s",
        )
        .comparable_to(Question::Submits),
        Row::new(format!("kills, {CLIENTS} clients"), killed, ""),
        Row::new(format!("get jobs, {jobs} waiting"), pending, ""),
        Row::new(format!("get jobs -o wide, {jobs} waiting"), explained, ""),
        Row::new(
            format!("a page of {PAGE} jobs, {jobs} in the history"),
            [Figure::time(page)],
            "≤ 50 ms",
        ),
        Row::new(format!("get jobs -a, {jobs} in the history"), history, ""),
    ]
}

/// A job bigger than the machine runs alone, so that everything behind it waits.
fn hold_the_machine(env: &TestEnvironment) {
    let package = env.package("hold").file("train.sh", "exec tail -f /dev/null\n");
    env.submit("hold", &package, &["-cpu", "1000", "-entry", "sh train.sh"]);
    env.wait_for_status("hold", "Running");
}

/// Does `work` for every index, from many connections at once. The rate, and the server's cpu time for each.
fn from_many_clients(
    env: &TestEnvironment,
    jobs: usize,
    work: impl Fn(&mut Connection, usize) + Sync,
) -> [Figure; 2] {
    let next = AtomicUsize::new(0);
    let socket = socket(env);
    let server = Watched::new(env);
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
    let rate = jobs as f64 / started.elapsed().as_secs_f64();
    let each = server.used().as_secs_f64() * 1e6 / jobs as f64;
    [
        Figure::new(rate, Unit::PerSecond),
        Figure::new(each, Unit::Microseconds).labelled("server's cpu"),
    ]
}

/// A server, from now on.
struct Watched {
    pid: u32,
    before: Duration,
}

impl Watched {
    fn new(env: &TestEnvironment) -> Self {
        let pid = env.server_pid();
        let before = cpu_used(pid).expect("the server runs");
        Self { pid, before }
    }

    fn used(&self) -> Duration {
        cpu_used(self.pid).expect("the server runs") - self.before
    }
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

fn get_jobs(env: &TestEnvironment, args: &[&str]) -> [Figure; 2] {
    let server = Watched::new(env);
    let wall = median(TABLES, || cost(&mut env.command("paddlectl", args))).wall;
    let each = server.used() / TABLES as u32;
    [Figure::time(wall), Figure::time(each).labelled("server's cpu")]
}
