//! What a supervisor costs: starting a worker, a flood of output, memory while idle.
//!
//! `cargo bench -p paddlecloud-supervisor`. Each figure is shown beside the same work without a supervisor.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run says where")]

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::path::Path;
    use std::process::{Command as Process, Stdio};
    use std::time::{Duration, Instant};

    use paddlecloud_supervisor::{connect, probe};
    use paddlecloud_worker::protocol::{Exit, Isolation, WorkerPlan, files};

    const PROGRAM: &str = env!("CARGO_BIN_EXE_paddlecloud-supervise");
    const STARTS: usize = 50;
    const FLOOD_BYTES: u64 = 2 << 30;

    pub fn main() {
        let isolation = probe();
        for (name, isolation) in [
            ("probed isolation", isolation),
            ("no isolation", Isolation::default()),
        ] {
            println!("{name}");
            start(&isolation);
            flood(&isolation);
            memory(&isolation);
        }
        println!("without a supervisor");
        bare_start();
        bare_flood();
    }

    fn start(isolation: &Isolation) {
        let mut to_first_line = Vec::new();
        let mut to_end = Vec::new();
        for _ in 0..STARTS {
            let dir = attempt(isolation, "exec date +%s%N");
            let (begin, clock) = (now_nanos(), Instant::now());
            run(dir.path());
            to_end.push(clock.elapsed());
            let line = log_text(dir.path());
            to_first_line.push(Duration::from_nanos(
                line.trim().parse::<u64>().unwrap().saturating_sub(begin),
            ));
        }
        report("spawn to the worker's first instruction", to_first_line);
        report("spawn to the recorded end", to_end);
    }

    fn bare_start() {
        let measure = |_| {
            let begin = now_nanos();
            let output = Process::new("sh")
                .args(["-c", "exec date +%s%N"])
                .output()
                .unwrap();
            let at: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
            Duration::from_nanos(at.saturating_sub(begin))
        };
        report("spawn to first instruction", (0..STARTS).map(measure).collect());
    }

    fn flood(isolation: &Isolation) {
        let dir = attempt(
            isolation,
            &format!("yes 'a line of output as programs print them' | head -c {FLOOD_BYTES}"),
        );
        run(dir.path());
        let exit = Exit::load(dir.path()).unwrap().unwrap();
        assert_eq!((exit.final_log_offset, exit.dropped_bytes), (FLOOD_BYTES, 0));
        println!(
            "  flood: {:.0} MB/s into the log",
            FLOOD_BYTES as f64 / 1e3 / exit.duration_ms as f64
        );
    }

    fn bare_flood() {
        let command = format!("yes 'a line of output as programs print them' | head -c {FLOOD_BYTES} | cat");
        let clock = Instant::now();
        Process::new("sh")
            .args(["-c", &command])
            .stdout(Stdio::null())
            .status()
            .unwrap();
        println!(
            "  flood: {:.0} MB/s into `cat`",
            FLOOD_BYTES as f64 / 1e6 / clock.elapsed().as_secs_f64()
        );
    }

    fn memory(isolation: &Isolation) {
        let dir = attempt(isolation, "exec sleep 1000");
        assert!(Process::new(PROGRAM).arg(dir.path()).status().unwrap().success());
        let mut stream = connect(dir.path()).unwrap();
        let mut first = [0; 1];
        std::io::Read::read_exact(&mut stream, &mut first).unwrap();
        let pid = fs::read_to_string(dir.path().join(files::PID)).unwrap();
        let rollup =
            fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.split(' ').next().unwrap())).unwrap();
        let anonymous = rollup
            .lines()
            .find_map(|line| line.strip_prefix("Anonymous:"))
            .unwrap();
        println!(
            "  memory of its own, pages still shared with init included: {}",
            anonymous.trim()
        );
        std::io::Write::write_all(&mut stream, b"{\"command\":\"stop\",\"grace_ms\":0}\n").unwrap();
        // A connection that is not accepted yet when the supervisor exits sees a reset instead of an end.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }

    fn attempt(isolation: &Isolation, command: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let name = dir
            .path()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .trim_start_matches('.')
            .to_owned();
        let plan = serde_json::json!({
            "marker": format!("bench-{name}"),
            "worker": "bench",
            "role": "trainer",
            "index": 0,
            "command": command,
            "env": [["PATH", "/usr/bin:/bin"]],
            "workdir": "/",
            "address": "127.76.0.1",
            "limits": {"cpu_millis": 4000, "memory_bytes": 1 << 30},
            "grace_ms": 1000,
            "isolation": isolation,
            "boot_id": "",
        });
        let plan: WorkerPlan = serde_json::from_value(plan).unwrap();
        plan.store(dir.path()).unwrap();
        dir
    }

    fn run(dir: &Path) {
        assert!(Process::new(PROGRAM).arg(dir).status().unwrap().success());
        if let Ok(mut stream) = connect(dir) {
            // A connection that is not accepted yet when the supervisor exits sees a reset instead of an end.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    }

    fn log_text(dir: &Path) -> String {
        fs::read_to_string(dir.join(files::LOG).join(format!("{:020}.log", 0))).unwrap()
    }

    fn now_nanos() -> u64 {
        paddlecloud_worker::protocol::UnixNanos::now().0
    }

    fn report(what: &str, mut times: Vec<Duration>) {
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        println!("  {what}: median {:.1} ms, 90% {:.1} ms", at(0.5), at(0.9));
    }
}

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
}
