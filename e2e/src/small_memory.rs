//! A control group that gives a program little memory. Needs root; cgroup v1 or v2.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::wait::wait_until;

/// Distinguishes the groups of one test program.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A memory control group, removed when dropped. End its processes first.
#[derive(Debug)]
pub struct SmallMemory {
    group: PathBuf,
    peak: &'static str,
}

impl SmallMemory {
    /// A group of this size.
    pub fn of(bytes: u64) -> Self {
        let name = format!(
            "paddlecloud-e2e-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (root, limit, peak) = match v1.is_dir() {
            true => (v1, "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max", "memory.peak"),
        };
        let group = root.join(name);
        let made = fs::create_dir(&group).and_then(|()| fs::write(group.join(limit), bytes.to_string()));
        if let Err(error) = made {
            let _ = fs::remove_dir(&group);
            panic!("a control group for memory cannot be made: {error}");
        }
        // Otherwise what does not fit is swapped out instead of counted. Not every kernel has it.
        let _ = fs::write(group.join("memory.swappiness"), "0");
        let _ = fs::write(group.join("memory.swap.max"), "0");
        Self { group, peak }
    }

    /// A shell command that joins the group and becomes the program in its arguments.
    pub fn tool(&self) -> [String; 4] {
        let join = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.group.display());
        ["sh".to_owned(), "-c".to_owned(), join, "sh".to_owned()]
    }

    /// The most bytes that were in use, caches of files included.
    pub fn peak(&self) -> u64 {
        let text = fs::read_to_string(self.group.join(self.peak)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// How many processes the kernel killed because memory ran out.
    pub fn kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"].map(|file| self.group.join(file));
        let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
        let lines: Vec<String> = texts
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let count = lines
            .iter()
            .find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        count.expect("the kernel counts what it ends")
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            wait_until("the control group can be removed", || {
                remove_tree(&self.group).ok()
            });
        }
    }
}

/// Removes a group and those below it, which an engine creates for its workers.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
