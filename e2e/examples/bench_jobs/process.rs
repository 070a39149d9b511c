//! The cost of a process: time, memory, cpu.

use std::fs;
use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::table::Figure;

/// One run of a command.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub wall: Duration,
    pub cpu: Duration,
    /// The most memory it had at once.
    pub peak_kib: i64,
}

impl Cost {
    pub fn figures(&self) -> [Figure; 3] {
        let memory = u64::try_from(self.peak_kib).unwrap_or(0);
        [
            Figure::time(self.wall),
            Figure::time(self.cpu).labelled("cpu"),
            Figure::memory(memory),
        ]
    }
}

/// Runs a command to its end, its output thrown away.
#[expect(clippy::zombie_processes, reason = "`reap` waits for it")]
pub fn cost(command: &mut Command) -> Cost {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started = Instant::now();
    let child = command.spawn().expect("the program was built");
    let usage = reap(child.id());
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    Cost {
        wall: started.elapsed(),
        cpu,
        peak_kib: usage.ru_maxrss,
    }
}

/// The run in the middle of several, by wall time.
pub fn median(runs: usize, mut run: impl FnMut() -> Cost) -> Cost {
    let mut costs: Vec<Cost> = (0..runs).map(|_| run()).collect();
    costs.sort_by_key(|cost| cost.wall);
    costs[costs.len() / 2]
}

/// Waits for a child and takes its usage, which the standard library does not give.
fn reap(pid: u32) -> libc::rusage {
    let pid = libc::pid_t::try_from(pid).expect("a pid is small");
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    let mut status = 0;
    // SAFETY: both pointers lead to memory of the right type that lives through the call.
    let ended = unsafe { libc::wait4(pid, &mut status, 0, usage.as_mut_ptr()) };
    assert_eq!(ended, pid, "our own child can be waited for");
    // SAFETY: wait4 returned the child's pid, so it has filled the structure in.
    unsafe { usage.assume_init() }
}

fn seconds(time: libc::timeval) -> Duration {
    let whole = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(whole) + Duration::from_micros(micros)
}

/// Memory that a running process has now.
pub fn resident_kib(pid: u32) -> u64 {
    kib_of(pid, "status", "VmRSS:").expect("the process runs")
}

/// Memory that a process has now, pages that several processes share divided among them; `None` when it is gone.
pub fn proportional_kib(pid: u32) -> Option<u64> {
    kib_of(pid, "smaps_rollup", "Pss:")
}

fn kib_of(pid: u32, file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Cpu time a process has used so far; `None` when it is gone.
pub fn cpu_used(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain anything but ends with a parenthesis.
    let fields = stat.rsplit_once(") ")?.1;
    let ticks = fields
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum::<u64>();
    Some(Duration::from_millis(ticks * 10))
}
