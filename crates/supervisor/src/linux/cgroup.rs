//! The control groups of one attempt: created, limited, watched for out-of-memory kills, removed.
//!
//! `probe` finds out where they can be created.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::process::Pid;

use super::probe::own_group;
use super::{Refusal as _, Refused};
use paddlecloud_worker::protocol::{CgroupParent, CgroupVersion, Isolation, Limits};

const PERIOD_US: u64 = 100_000;
/// The smallest value that the kernel accepts.
const LEAST_QUOTA_US: u64 = 1_000;

/// Removing a group that was just emptied can fail for a moment, until the kernel releases it.
const REMOVE_ATTEMPTS: u32 = 500;
const REMOVE_PAUSE: Duration = Duration::from_millis(2);

/// The groups of one attempt. A group is created only for a limit whose controller is available.
#[derive(Default)]
pub struct Groups {
    dirs: Vec<PathBuf>,
    cpu: Option<(CgroupVersion, PathBuf)>,
    memory: Option<(CgroupVersion, PathBuf)>,
}

impl Groups {
    pub fn create(isolation: &Isolation, limits: Limits, marker: &str) -> Result<Self, Refused> {
        let mut groups = Self::default();
        let made = groups.fill(isolation, limits, marker);
        if made.is_err() {
            groups.remove();
        }
        made.map(|()| groups)
    }

    fn fill(&mut self, isolation: &Isolation, limits: Limits, marker: &str) -> Result<(), Refused> {
        if let Some((parent, millis)) = isolation.cpu.as_ref().zip(limits.cpu_millis) {
            let dir = self.make(parent, marker)?;
            limit_cpu(parent.version, &dir, millis).refused(|| limiting("cpu", &dir))?;
            self.cpu = Some((parent.version, dir));
        }
        if let Some((parent, bytes)) = isolation.memory.as_ref().zip(limits.memory_bytes) {
            let dir = self.make(parent, marker)?;
            limit_memory(parent.version, &dir, bytes).refused(|| limiting("memory", &dir))?;
            self.memory = Some((parent.version, dir));
        }
        if let Some((parent, processes)) = isolation.pids.as_ref().zip(limits.processes) {
            let dir = self.make(parent, marker)?;
            let limited = fs::write(dir.join("pids.max"), processes.to_string());
            limited.refused(|| limiting("processes", &dir))?;
        }
        Ok(())
    }

    fn make(&mut self, parent: &CgroupParent, marker: &str) -> Result<PathBuf, Refused> {
        let dir = parent.path.join(marker);
        if !self.dirs.contains(&dir) {
            make_group(parent, &dir).refused(|| format!("create control group `{}`", dir.display()))?;
            self.dirs.push(dir.clone());
        }
        Ok(dir)
    }

    /// Puts a process, and everything it will fork, into every group.
    pub fn join(&self, pid: Pid) -> Result<(), Refused> {
        self.dirs.iter().try_for_each(|dir| {
            let joined = fs::write(dir.join("cgroup.procs"), pid.as_raw_pid().to_string());
            joined.refused(|| format!("join control group `{}`", dir.display()))
        })
    }

    /// Whether a group limits memory. If not, the supervisor has to watch memory itself.
    pub fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Speeds up the exit of thousands of busy processes. Init, which has to kill them, leaves their group: with its share of
    /// their processor time it would wait for minutes for its turn. Then their limit is lifted, because exiting takes
    /// processor time too. Failures are ignored: the processes exit anyway, only later.
    pub fn hasten_exit(&self, init: Pid) {
        let Some((version, dir)) = &self.cpu else {
            return;
        };
        let (controller, limit, none) = match version {
            CgroupVersion::V1 => (Some("cpu"), "cpu.cfs_quota_us", "-1"),
            CgroupVersion::V2 => (None, "cpu.max", "max"),
        };
        if let Some(own) = own_group(controller) {
            let _ = fs::write(own.join("cgroup.procs"), init.as_raw_pid().to_string());
        }
        let _ = fs::write(dir.join(limit), none);
    }

    pub fn watch_oom(&self) -> Result<Option<OomWatch>, Refused> {
        let Some((version, dir)) = &self.memory else {
            return Ok(None);
        };
        OomWatch::new(*version, dir)
            .map(Some)
            .refused(|| format!("watch memory in `{}`", dir.display()))
    }

    /// How many processes of the group the kernel has killed because memory ran out.
    pub fn oom_kills(&self) -> u64 {
        let Some((version, dir)) = &self.memory else {
            return 0;
        };
        let file = match version {
            CgroupVersion::V1 => "memory.oom_control",
            CgroupVersion::V2 => "memory.events",
        };
        let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
            .unwrap_or(0)
    }

    pub fn remove(&mut self) {
        for dir in self.dirs.drain(..) {
            if let Err(error) = remove_group(&dir) {
                crate::trouble!("cannot remove control group `{}`: {error}", dir.display());
            }
        }
    }
}

fn limiting(what: &str, dir: &Path) -> String {
    format!("limit {what} in `{}`", dir.display())
}

/// Other system users may enter the parent, but not list it: its entries name all running jobs.
const PARENT_MODE: u32 = 0o711;

/// Creates the group and, if missing, its parent. The last attempt to end removes the parent.
pub fn make_group(parent: &CgroupParent, dir: &Path) -> io::Result<()> {
    loop {
        match fs::create_dir(&parent.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Also if the umask is different, or another server created it before.
        let _ = fs::set_permissions(&parent.path, fs::Permissions::from_mode(PARENT_MODE));
        if parent.version == CgroupVersion::V2 {
            offer_controllers(&parent.path);
        }
        match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
    }
}

/// Enables these controllers for child groups. A controller that this group lacks is noticed when its limit is set.
pub fn offer_controllers(dir: &Path) {
    for controller in ["+cpu", "+memory", "+pids"] {
        let _ = fs::write(dir.join("cgroup.subtree_control"), controller);
    }
}

/// Removes an empty group, and its parent if that is empty too.
pub fn remove_group(dir: &Path) -> io::Result<()> {
    for attempt in 1.. {
        match fs::remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && attempt < REMOVE_ATTEMPTS => {
                std::thread::sleep(REMOVE_PAUSE);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
            Ok(()) => break,
        }
    }
    if let Some(parent) = dir.parent() {
        let _ = fs::remove_dir(parent);
    }
    Ok(())
}

fn limit_cpu(version: CgroupVersion, dir: &Path, millis: u64) -> io::Result<()> {
    let quota = (millis * PERIOD_US / 1000).max(LEAST_QUOTA_US);
    match version {
        CgroupVersion::V1 => {
            fs::write(dir.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(dir.join("cpu.cfs_quota_us"), quota.to_string())
        }
        CgroupVersion::V2 => fs::write(dir.join("cpu.max"), format!("{quota} {PERIOD_US}")),
    }
}

/// Limits swap too, if the kernel can: swap must not bypass the limit.
fn limit_memory(version: CgroupVersion, dir: &Path, bytes: u64) -> io::Result<()> {
    let (limit, swap, swap_limit) = match version {
        CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes),
        CgroupVersion::V2 => ("memory.max", "memory.swap.max", 0),
    };
    fs::write(dir.join(limit), bytes.to_string())?;
    match fs::write(dir.join(swap), swap_limit.to_string()) {
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Becomes readable (v1) or exceptional (v2) when the group runs out of memory.
pub struct OomWatch {
    fd: OwnedFd,
    flags: PollFlags,
    _source: Option<File>,
}

impl OomWatch {
    fn new(version: CgroupVersion, dir: &Path) -> io::Result<Self> {
        if version == CgroupVersion::V2 {
            let fd = File::open(dir.join("memory.events"))?.into();
            return Ok(Self {
                fd,
                flags: PollFlags::PRI,
                _source: None,
            });
        }
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let source = File::open(dir.join("memory.oom_control"))?;
        let order = format!("{} {}", fd.as_raw_fd(), source.as_raw_fd());
        fs::write(dir.join("cgroup.event_control"), order)?;
        Ok(Self {
            fd,
            flags: PollFlags::IN,
            _source: Some(source),
        })
    }

    pub fn interest(&self) -> PollFlags {
        self.flags
    }

    /// Consumes the event, so that the next poll waits again.
    pub fn acknowledge(&self) {
        let mut buffer = [0; 4096];
        let _ = if self.flags == PollFlags::PRI {
            rustix::io::pread(&self.fd, &mut buffer, 0)
        } else {
            rustix::io::read(&self.fd, &mut buffer)
        };
    }
}

impl AsFd for OomWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with files that the kernel provides for a group.
    fn group(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        files
            .iter()
            .for_each(|file| fs::write(dir.path().join(file), "").unwrap());
        dir
    }

    fn read(dir: &tempfile::TempDir, file: &str) -> String {
        fs::read_to_string(dir.path().join(file)).unwrap()
    }

    #[test]
    fn limits_are_written_as_each_version_wants_them() {
        let two = group(&["cpu.max", "memory.max", "memory.swap.max"]);
        limit_cpu(CgroupVersion::V2, two.path(), 1500).unwrap();
        limit_memory(CgroupVersion::V2, two.path(), 4096).unwrap();
        assert_eq!(read(&two, "cpu.max"), "150000 100000");
        assert_eq!(
            (read(&two, "memory.max"), read(&two, "memory.swap.max")),
            ("4096".into(), "0".into())
        );

        let one = group(&["cpu.cfs_period_us", "cpu.cfs_quota_us", "memory.limit_in_bytes"]);
        limit_cpu(CgroupVersion::V1, one.path(), 1).unwrap();
        limit_memory(CgroupVersion::V1, one.path(), 4096).unwrap();
        assert_eq!(
            read(&one, "cpu.cfs_quota_us"),
            "1000",
            "the kernel accepts no less"
        );
        assert_eq!(read(&one, "memory.limit_in_bytes"), "4096");
    }

    #[test]
    fn kills_are_counted_in_the_file_of_each_version() {
        let dir = group(&[]);
        let texts = [
            (
                CgroupVersion::V1,
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
            (
                CgroupVersion::V2,
                "memory.events",
                "low 0\nhigh 9\nmax 7\noom 3\noom_kill 2\noom_group_kill 1\n",
            ),
        ];
        for (version, file, text) in texts {
            fs::write(dir.path().join(file), text).unwrap();
            let groups = Groups {
                memory: Some((version, dir.path().to_owned())),
                ..Groups::default()
            };
            assert_eq!(groups.oom_kills(), 2, "{version:?}");
        }
    }
}
