//! The server may die at any moment: workers are not affected, logs have no gap, results are correct.

use std::env::var;
use std::fs;

use e2e::{Gate, TestEnvironment, wait_until};

/// As many as run at once when the server dies.
const JOBS: usize = 50;

/// How often to repeat; `cargo xtask test --with crash` asks for many.
fn rounds() -> usize {
    var("PADDLECLOUD_CRASH_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

/// Counts to 300 with a stop after each hundred, then ends with the code it was given.
const COUNTER: &str = "seq 1 100\ncat $FIRST\nseq 101 200\ncat $SECOND\nseq 201 300\nexit $1\n";

/// One job and the gates at which it waits for the test.
struct Counting {
    name: String,
    exit: i32,
    first: Gate,
    second: Gate,
}

impl Counting {
    fn submit(env: &TestEnvironment, round: usize, index: usize) -> Self {
        let name = format!("count-{round}-{index}");
        let (first, second) = (
            env.gate(&format!("{name}-first")),
            env.gate(&format!("{name}-second")),
        );
        let exit = i32::from(index % 2 == 1);
        let package = env.package("count").file("train.sh", COUNTER);
        let entry = format!("sh train.sh {exit}");
        let gates = [
            "-env",
            &first.variable("FIRST"),
            "-env",
            &second.variable("SECOND"),
        ];
        env.submit(&name, &package, &[&gates[..], &["-entry", &entry]].concat());
        Self {
            name,
            exit,
            first,
            second,
        }
    }

    fn check_end(&self, env: &TestEnvironment) {
        let waited = env.paddlectl(&["wait", &self.name]);
        assert_eq!(waited.code, Some(self.exit), "{waited}");
        let log = env
            .paddlectl(&["logs", "--raw", "--role", "trainer", &self.name])
            .ok()
            .stdout;
        let numbers: Vec<u32> = log.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(
            numbers,
            (1..=300).collect::<Vec<u32>>(),
            "{}: its log has a gap",
            self.name
        );
    }
}

#[test]
fn workers_outlive_a_crashed_server_and_their_logs_have_no_gap() {
    let env = TestEnvironment::new();
    for round in 0..rounds() {
        let jobs: Vec<Counting> = (0..JOBS)
            .map(|index| Counting::submit(&env, round, index))
            .collect();
        for job in &jobs {
            env.wait_for_status(&job.name, "Running");
        }
        let workers = env.workers();
        env.crash_server();
        assert!(!workers.is_empty());
        // They write while there is no server.
        jobs.iter().for_each(|job| job.first.open());
        for job in &jobs {
            assert_eq!(env.status(&job.name), "Running", "the new server adopted it");
        }
        env.crash_server();
        // Half of them end while there is no server, the other half under the next.
        let (early, late) = jobs.split_at(JOBS / 2);
        early.iter().for_each(|job| job.second.open());
        env.paddlectl(&["server", "start"]).ok();
        late.iter().for_each(|job| job.second.open());
        jobs.iter().for_each(|job| job.check_end(&env));
    }
}

#[test]
fn an_acknowledged_submit_survives_a_crash() {
    let env = TestEnvironment::new();
    let package = env.package("job").file("train.sh", "echo ran\n");
    for round in 0..rounds() {
        let name = format!("kept-{round}");
        env.submit(&name, &package, &["-entry", "sh train.sh"]);
        env.crash_server();
        env.paddlectl(&["wait", &name]).ok();
        assert_eq!(env.status(&name), "Succeeded");
        env.paddlectl(&["logs", "--raw", &name]).ok().prints("ran\n");
    }
}

#[test]
fn a_log_follower_resumes_when_the_server_comes_back() {
    let env = TestEnvironment::new();
    let job = Counting::submit(&env, 0, 0);
    let mut follower = env.start(&["logs", "-f", "--raw", "--role", "trainer", &job.name]);
    follower.wait_for_line("100");
    env.crash_server();
    job.first.open();
    env.paddlectl(&["server", "start"]).ok();
    job.second.open();
    let (status, lines) = follower.end();
    assert_eq!(status.code(), Some(0), "{lines:?}");
    let numbers: Vec<u32> = lines.iter().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(
        numbers,
        (1..=300).collect::<Vec<u32>>(),
        "no line lost, none twice"
    );
}

#[test]
fn a_machine_restart_loses_a_job_without_retries() {
    let mut env = TestEnvironment::new();
    let gate = env.gate("go");
    let package = env.package("job").file("train.sh", "echo up\ncat $GATE\n");
    let flags = ["-env", &gate.variable("GATE"), "-entry", "sh train.sh"];
    env.submit("once", &package, &flags);
    env.submit("again", &package, &[&flags[..], &["-retries", "1"]].concat());
    env.wait_for_status("once", "Running");
    env.wait_for_status("again", "Running");

    // What a restart does: everything is gone, and the kernel has another name for its boot.
    env.crash_server();
    env.end_all_processes();
    wait_until("all workers must be gone", || {
        env.workers().is_empty().then_some(())
    });
    let boot = env.folder("boot").join("id");
    fs::write(&boot, "11111111-2222-3333-4444-555555555555\n").unwrap();
    env.set("PADDLECLOUD_BOOT_ID_FILE", boot.to_str().unwrap());
    let data = env.home().join(".paddle/local");
    let mut server = env.start_as(
        "paddlecloud-server",
        &["--embedded", "--data", data.to_str().unwrap()],
    );
    server.wait_for_line("ready");

    assert_eq!(env.status("once"), "Lost");
    env.wait_for_status("again", "Running");
    gate.open();
    env.paddlectl(&["wait", "again"]).ok();
    env.paddlectl(&["server", "stop"]).ok();
    server.end();
}
