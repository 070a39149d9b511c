//! Processes as `/proc` shows them: their ancestry, their open sockets, and how to kill them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};

use paddlecloud_worker::protocol::MARKER_VARIABLE;

/// Bounds the time, not the rounds: among thousands of busy processes, each round waits for its turn.
const FREEZE_LIMIT: Duration = Duration::from_secs(1);
const FREEZE_PAUSE: Duration = Duration::from_millis(1);

/// Every process below `root`, without `root` itself.
pub fn descendants(root: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<Pid>> = HashMap::new();
    for pid in all() {
        if let Some(parent) = stat_field(pid, 4).and_then(|field| field.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = children.remove(&root.as_raw_pid()).unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(&pid.as_raw_pid()).unwrap_or_default());
        next += 1;
    }
    found
}

/// The living direct children of a process.
pub fn children(parent: Pid) -> Vec<Pid> {
    let number = parent.as_raw_pid().to_string();
    let is_child = |pid: &Pid| stat_field(*pid, 4).is_some_and(|field| field == number);
    all().filter(is_child).collect()
}

/// Whether a process is still the shell that every worker starts with.
pub fn is_shell(pid: Pid) -> bool {
    let program = fs::read_link(format!("/proc/{}/exe", pid.as_raw_pid()));
    let shell = fs::canonicalize("/bin/sh");
    matches!((program, shell), (Ok(program), Ok(shell)) if program == shell)
}

/// All processes visible to this one.
pub fn all() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// Distinguishes two processes with the same pid, in clock ticks since boot; absent for a zombie.
pub fn start_time(pid: Pid) -> Option<u64> {
    let state = stat_field(pid, 3)?;
    stat_field(pid, 22)
        .filter(|_| !matches!(state.as_str(), "Z" | "X"))?
        .parse()
        .ok()
}

/// A field of `/proc/<pid>/stat`, numbered from 1 as in proc(5). Only fields after the name can be read.
fn stat_field(pid: Pid, number: usize) -> Option<String> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    let behind_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[behind_name..]).ok()?;
    fields
        .split_whitespace()
        .nth(number.checked_sub(3)?)
        .map(str::to_owned)
}

/// Inodes of the sockets a process has open; empty if access is denied.
pub fn socket_inodes(pid: Pid) -> HashSet<u64> {
    let entries = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid()))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| {
            let link = fs::read_link(entry.path()).ok()?;
            link.to_str()?
                .strip_prefix("socket:[")?
                .strip_suffix(']')?
                .parse()
                .ok()
        })
        .collect()
}

/// The attempt of a process, from its initial environment.
pub fn marker(pid: Pid) -> Option<String> {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).ok()?;
    environment
        .split(|byte| *byte == 0)
        .find_map(|variable| {
            variable
                .strip_prefix(MARKER_VARIABLE.as_bytes())?
                .strip_prefix(b"=")
        })
        .map(|marker| String::from_utf8_lossy(marker).into_owned())
}

/// Whether the processes use more memory than `limit`, with shared pages counted once.
///
/// The exact figure is expensive, so it is computed only if the cheap upper bound is over `limit`.
pub fn exceeds_memory(pids: &[Pid], limit: u64) -> bool {
    let bound: u64 = pids.iter().filter_map(|pid| resident(*pid)).sum();
    bound > limit
        && pids
            .iter()
            .filter_map(|pid| proportional(*pid).or_else(|| resident(*pid)))
            .sum::<u64>()
            > limit
}

fn resident(pid: Pid) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_pid())).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn proportional(pid: Pid) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_pid())).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// A process that is already gone is not an error.
pub fn signal(pids: &[Pid], signal: Signal) {
    for pid in pids {
        if let Err(error) = kill_process(*pid, signal)
            && error != rustix::io::Errno::SRCH
        {
            crate::trouble!("cannot signal process {}: {error}", pid.as_raw_pid());
        }
    }
}

/// Stops (SIGSTOP) all processes below `root` and returns them, so that the tree cannot change meanwhile.
///
/// A fork in progress completes, so finding no new process is not enough: all must be seen stopped. A process that
/// hangs in the kernel does not stop, but cannot fork there either.
pub fn freeze(root: Pid) -> Vec<Pid> {
    let until = Instant::now() + FREEZE_LIMIT;
    while Instant::now() < until {
        let found = descendants(root);
        let running: Vec<_> = found.iter().copied().filter(|pid| !stands_still(*pid)).collect();
        if running.is_empty() {
            return found;
        }
        signal(&running, Signal::STOP);
        std::thread::sleep(FREEZE_PAUSE);
    }
    descendants(root)
}

fn stands_still(pid: Pid) -> bool {
    stat_field(pid, 3).is_none_or(|state| matches!(state.as_str(), "T" | "t" | "Z" | "X"))
}

/// Kills every descendant of this process, which must be their reaper, and waits until all are gone.
pub fn end_descendants(mut on_end: impl FnMut(Pid, WaitStatus)) {
    loop {
        signal(&freeze(rustix::process::getpid()), Signal::KILL);
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => on_end(pid, status),
                Ok(None) | Err(rustix::io::Errno::INTR) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(FREEZE_PAUSE);
    }
}

/// The pid and start time of this process, in the format of the file `pid`.
pub fn describe_self() -> io::Result<String> {
    let pid = rustix::process::getpid();
    let start = start_time(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(format!("{} {start}\n", pid.as_raw_pid()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_is_found_below_its_parent_with_its_marker() {
        let mut child = Command::new("cat")
            .env(MARKER_VARIABLE, "mark")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat is everywhere");
        // Once it answers, all of its memory belongs to the new program.
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        input.write_all(b"!").unwrap();
        output.read_exact(&mut [0]).unwrap();
        let pid = Pid::from_child(&child);
        assert!(descendants(rustix::process::getpid()).contains(&pid));
        assert!(start_time(pid).unwrap() > 0);
        assert_eq!(marker(pid).as_deref(), Some("mark"));
        assert!(exceeds_memory(&[pid], 1));
        assert!(!exceeds_memory(&[pid], 1 << 40));
        drop(input);
        child.wait().unwrap();
        assert!(!descendants(rustix::process::getpid()).contains(&pid));
    }
}
