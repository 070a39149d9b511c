//! Counts the cpu time of this process and all it starts, servers and their children included.
//!
//! Only a separate control group counts every process: rsync's daemon never waits for its children.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The account; without root there is none.
#[derive(Debug)]
pub struct Meter {
    group: Option<PathBuf>,
}

impl Meter {
    /// Moves this process, and with it everything it starts later, into a group of its own.
    pub fn enter() -> Self {
        let group = unified().map(|root| root.join(format!("paddlecloud-bench-{}", std::process::id())));
        let entered = group.filter(|group| fs::create_dir(group).is_ok() && join(group));
        if entered.is_none() {
            eprintln!("cpu time is not counted: that takes a control group, and making one takes root");
        }
        Self { group: entered }
    }

    /// What was used so far.
    pub fn used(&self) -> Option<Duration> {
        let stat = fs::read_to_string(self.group.as_ref()?.join("cpu.stat")).ok()?;
        let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        micros.trim().parse().ok().map(Duration::from_micros)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let Some(group) = &self.group else { return };
        let left = group.parent().is_some_and(join);
        if !left || fs::remove_dir(group).is_err() {
            eprintln!("the control group {} is left behind", group.display());
        }
    }
}

/// Where control groups of the second version are.
fn unified() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    line.split(' ').nth(1).map(PathBuf::from)
}

fn join(group: &Path) -> bool {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string()).is_ok()
}
