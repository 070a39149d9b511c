//! The end of a pod: detects out-of-memory kills, and determines the exit code and the message for the kubelet.

use std::path::Path;

use paddlecloud_core::exit;
use paddlecloud_worker::log::LogReader;
use paddlecloud_worker::protocol::{Ending, Exit, UnixNanos};
use rustix::process::{Signal, WaitOptions};

/// Where the kubelet reads a container's termination message.
const LAST_WORDS: &str = "/dev/termination-log";

/// The exit code of a launcher whose attempt was stopped or rejected.
pub const STOPPED: u8 = 143;
const UNABLE: u8 = 126;

/// How often the kernel has killed a process of this container because memory ran out.
#[derive(Debug)]
pub struct MemoryKills(u64);

impl MemoryKills {
    pub fn now() -> MemoryKills {
        MemoryKills(count_kills())
    }

    pub fn happened_since(&self) -> bool {
        count_kills() > self.0
    }
}

/// A container sees its own control group at the root of the hierarchy, in both versions.
fn count_kills() -> u64 {
    let files = [
        "/sys/fs/cgroup/memory.events",
        "/sys/fs/cgroup/memory/memory.oom_control",
    ];
    let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
    text.as_deref().and_then(parse_kills).unwrap_or(0)
}

fn parse_kills(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill "))
        .and_then(|count| count.trim().parse().ok())
}

/// The exit of a worker whose supervisor was killed.
pub fn exit_of_lost(log: &LogReader, started: bool) -> Exit {
    Exit {
        ending: if started {
            Ending::Signal(9)
        } else {
            Ending::NeverStarted
        },
        oom: false,
        started_at: None,
        finished_at: UnixNanos::now(),
        duration_ms: 0,
        final_log_offset: log.len().unwrap_or(0),
        dropped_bytes: 0,
        clash: None,
        message: Some("its supervisor was killed".into()),
        stopped: Some(false),
    }
}

/// Kills every other process of the container, if this is its first process.
pub fn end_everything() {
    if rustix::process::getpid().is_init() {
        // SAFETY: sends a signal and touches no memory.
        unsafe { libc::kill(-1, Signal::KILL.as_raw()) };
    }
}

/// Reaps exited processes: the first process inherits orphans.
pub fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

/// Records the exit beside the log, for a server that is away.
pub fn keep_end(log: &Path, exit: &Exit) {
    if let Some(folder) = log.parent()
        && let Err(error) = exit.store(folder)
    {
        eprintln!("paddle launch: {error}");
    }
}

/// Removes the folder that contains the log and the recorded exit.
pub fn remove_spool(log: &Path) {
    if let Some(folder) = log.parent()
        && let Err(error) = std::fs::remove_dir_all(folder)
    {
        eprintln!("paddle launch: cannot remove `{}`: {error}", folder.display());
    }
}

/// Returns the exit code that a shell would show, and writes an explanation for `kubectl describe`.
pub fn explain(exit: &Exit) -> u8 {
    let (code, signal) = match exit.ending {
        Ending::Code(code) => (Some(code), None),
        Ending::Signal(signal) => (None, Some(signal)),
        Ending::NeverStarted => (None, None),
    };
    let end = exit::Exit {
        code,
        signal,
        message: exit.message.clone(),
        ..exit::Exit::default()
    };
    match (exit.oom, code) {
        (true, _) => say("out of memory: the worker used more than its limit"),
        (false, Some(0)) => {}
        (false, _) => say(&exit::in_words(&end, paddlecloud_core::quantity::Bytes::new(0))),
    }
    shell_code(exit.ending)
}

/// Writes a reason for the kubelet and returns the exit code.
pub fn complain(reason: &str) -> u8 {
    say(reason);
    UNABLE
}

/// Writes an explanation to the pod's log and for `kubectl describe`.
pub fn say(words: &str) {
    eprintln!("paddle launch: {words}");
    // The file does not exist outside a pod.
    let _ = std::fs::write(LAST_WORDS, words);
}

fn shell_code(ending: Ending) -> u8 {
    match ending {
        Ending::Code(code) => u8::try_from(code).unwrap_or(1),
        Ending::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
        Ending::NeverStarted => UNABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_counted_under_both_versions_of_control_groups() {
        let second = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n";
        let first = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
        assert_eq!(parse_kills(second), Some(2));
        assert_eq!(parse_kills(first), Some(1));
        assert_eq!(parse_kills("oom_kill_disable 0\n"), None);
    }

    #[test]
    fn a_pod_ends_with_the_code_of_its_program() {
        assert_eq!(shell_code(Ending::Code(0)), 0);
        assert_eq!(shell_code(Ending::Code(3)), 3);
        assert_eq!(shell_code(Ending::Signal(9)), 137);
        assert_eq!(shell_code(Ending::NeverStarted), 126);
    }
}
