//! Kills what an attempt left behind after its supervisor was lost.
//!
//! With a process namespace the kernel has already done that; this handles the cases without one.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::cgroup::remove_group;
use super::{Refusal as _, Refused, is_alive, tree};
use paddlecloud_worker::protocol::files;

/// Rounds of searching for processes; a tree that forks faster than this cannot be stopped by searching.
const ROUNDS: usize = 100;

/// What was found and killed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    pub processes: usize,
    pub cgroups: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("processes of attempt `{marker}` keep coming back")]
    StillThere { marker: String },
    #[error("cannot clean up after attempt `{marker}`: {reason}")]
    Refused { marker: String, reason: String },
}

/// Kills every process of the attempt and removes its control groups. Returns when they are gone.
pub fn sweep(marker: &str) -> Result<Swept, SweepError> {
    let refused = |error: Refused| SweepError::Refused {
        marker: marker.into(),
        reason: error.to_string(),
    };
    let groups = groups_of(marker);
    let mut swept = Swept::default();
    for round in 0.. {
        let found = members(marker, &groups);
        if found.is_empty() {
            break;
        }
        if round == ROUNDS {
            return Err(SweepError::StillThere {
                marker: marker.into(),
            });
        }
        swept.processes += end_all(&found, marker, &groups);
    }
    for group in groups {
        remove_group(&group)
            .refused(|| format!("remove `{}`", group.display()))
            .map_err(refused)?;
        swept.cgroups += 1;
    }
    Ok(swept)
}

/// Kills a hung supervisor: it was asked to stop, but its worker still runs. The worker dies with it. A supervisor
/// whose worker is gone is only waiting to record the exit and is left alone. Returns whether one was killed.
pub fn end_hung(dir: &Path, marker: &str) -> bool {
    if !is_alive(dir) || members(marker, &groups_of(marker)).is_empty() {
        return false;
    }
    let supervisor = fs::read_to_string(dir.join(files::PID)).ok().and_then(|text| {
        let (pid, start) = text.trim().split_once(' ')?;
        let pid = Pid::from_raw(pid.parse().ok()?)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        (tree::start_time(pid) == start.parse().ok()).then_some(handle)
    });
    supervisor.is_some_and(|handle| pidfd_send_signal(&handle, Signal::KILL).is_ok())
}

fn members(marker: &str, groups: &[PathBuf]) -> Vec<Pid> {
    let mut found: Vec<_> = groups.iter().flat_map(|group| group_members(group)).collect();
    let marked = tree::all().filter(|pid| tree::marker(*pid).as_deref() == Some(marker));
    found.extend(marked.filter(|pid| *pid != rustix::process::getpid()));
    found.sort_unstable_by_key(|pid| pid.as_raw_pid());
    found.dedup();
    found
}

fn group_members(group: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines()
        .filter_map(|line| Pid::from_raw(line.parse().ok()?))
        .collect()
}

/// Stops all processes before it kills any, then waits for each. Returns their number.
fn end_all(found: &[Pid], marker: &str, groups: &[PathBuf]) -> usize {
    let open = |pid: &Pid| Some((*pid, pidfd_open(*pid, PidfdFlags::empty()).ok()?));
    let mut held: Vec<_> = found.iter().filter_map(open).collect();
    // A pid may have been reused between the search and the handle: check again.
    let still = members(marker, groups);
    held.retain(|(pid, _)| still.contains(pid));
    for signal in [Signal::STOP, Signal::KILL] {
        for (_, handle) in &held {
            let _ = pidfd_send_signal(handle, signal);
        }
    }
    for (_, handle) in &held {
        let _ = poll(&mut [PollFd::new(handle, PollFlags::IN)], None);
    }
    held.len()
}

/// The attempt's control groups, wherever the hierarchies are mounted.
fn groups_of(marker: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = pending.pop() {
        if dir.ends_with("paddlecloud") {
            let group = dir.join(marker);
            found.extend(group.is_dir().then_some(group));
            continue;
        }
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        pending.extend(folders.map(|entry| entry.path()));
    }
    found
}
