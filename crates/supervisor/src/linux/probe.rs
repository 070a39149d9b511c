//! Tries which isolation this machine permits, and describes what it does not permit.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::cgroup::Groups;
use super::namespaces::{self, Fork, Ids};
use super::own_files;
use super::view::{self, View};
use super::{Refusal as _, Refused};
use paddlecloud_worker::protocol::{CgroupParent, CgroupVersion, Isolation, Limits, NO_OWN_VIEW, Namespaces};

const PROBE_MEMORY: u64 = 64 << 20;
const PROBE_PROCESSES: u64 = 64;

/// Returns the isolation that works here. Takes a few milliseconds and leaves nothing behind.
///
/// Forks once per trial. The child runs Rust code, so call this before other threads hold locks that matter, best at
/// the program's start.
pub fn probe() -> Isolation {
    let mut isolation = Isolation::default();
    probe_namespaces(&mut isolation);
    let memory = Limits {
        memory_bytes: Some(PROBE_MEMORY),
        ..Limits::default()
    };
    let only = |parent| Isolation {
        memory: Some(parent),
        ..Default::default()
    };
    match find_group(candidates("memory"), only, memory) {
        Ok(parent) => isolation.memory = Some(parent),
        Err(reason) => isolation.degraded.push(format!(
            "memory is checked four times a second, so a worker can exceed its limit for a moment, because no memory control group can be used ({reason})"
        )),
    }
    let cpu = Limits {
        cpu_millis: Some(1000),
        ..Limits::default()
    };
    let only = |parent| Isolation {
        cpu: Some(parent),
        ..Default::default()
    };
    match find_group(compatible_with(isolation.memory.as_ref(), candidates("cpu")), only, cpu) {
        Ok(parent) => isolation.cpu = Some(parent),
        Err(reason) => isolation.degraded.push(format!(
            "cpu limits are enforced by binding workers to whole cores, because no cpu control group can be used ({reason})"
        )),
    }
    let pids = Limits {
        processes: Some(PROBE_PROCESSES),
        ..Limits::default()
    };
    let only = |parent| Isolation {
        pids: Some(parent),
        ..Default::default()
    };
    let others = isolation.memory.as_ref().or(isolation.cpu.as_ref());
    match find_group(compatible_with(others, candidates("pids")), only, pids) {
        Ok(parent) => isolation.pids = Some(parent),
        Err(reason) => isolation.degraded.push(format!(
            "a worker may start any number of processes, because no pids control group can be used ({reason})"
        )),
    }
    isolation
}

fn probe_namespaces(isolation: &mut Isolation) {
    let is_root = rustix::process::geteuid().is_root();
    let tried = [(false, true), (true, true), (false, false), (true, false)];
    let mut first_reason = None;
    for (user, pid) in tried.into_iter().filter(|(user, _)| *user || is_root) {
        let namespaces = Namespaces { user, pid };
        match in_child(|| try_namespaces(namespaces)) {
            Ok(()) => {
                isolation.namespaces = Some(namespaces);
                break;
            }
            Err(reason) => first_reason = first_reason.or(Some(reason)),
        }
    }
    let reason = first_reason.unwrap_or_default();
    let sentence = match isolation.namespaces {
        Some(Namespaces { pid: true, .. }) => return,
        Some(_) => format!(
            "a worker's processes are killed one by one instead of by the kernel, because process namespaces are not permitted ({reason})"
        ),
        None => format!(
            "{NO_OWN_VIEW}, and find {} by environment variables with the real paths, because namespaces are not permitted ({reason})",
            match own_files::can_be_offered() {
                true => "/pfs",
                false => "/pfs, /trainer_id and /trainer_count",
            }
        ),
    };
    isolation.degraded.push(sentence);
}

fn try_namespaces(namespaces: Namespaces) -> Result<(), Refused> {
    let ids = Ids::current();
    in_namespaces(namespaces, || {
        if namespaces.user {
            ids.keep()?;
        }
        let files = vec![
            ("/etc/hosts".into(), String::new()),
            ("/trainer_id".into(), String::new()),
        ];
        view::enter(
            &View {
                binds: &[],
                hidden: &[],
                files,
                own_proc: namespaces.pid,
                shared_memory: None,
                owner: None,
            },
            Path::new("/usr"),
        )?;
        rustix::system::sethostname(b"probe").refused(|| "set the host name".into())
    })
}

fn in_namespaces(namespaces: Namespaces, body: impl FnOnce() -> Result<(), Refused>) -> Result<(), Refused> {
    let what = || "start a process in namespaces of its own".to_owned();
    // SAFETY: called in the child of a fork, which has one thread.
    let fork = || unsafe { namespaces::fork(Some(namespaces)) };
    run_forked(fork, body).map_err(|message| Refused {
        what: what(),
        source: io::Error::other(message),
    })
}

/// Runs the body in a forked process, so that this one is not changed.
fn in_child(body: impl FnOnce() -> Result<(), Refused>) -> Result<(), String> {
    let fork = || {
        // SAFETY: the C library's fork leaves its allocator usable in the child; the body takes no lock of this
        // program, and the child exits after it.
        match unsafe { libc::fork() } {
            0 => Ok(Fork::Child),
            pid => Pid::from_raw(pid.max(0))
                .map(Fork::Parent)
                .ok_or_else(io::Error::last_os_error),
        }
    };
    run_forked(fork, body)
}

fn run_forked(
    fork: impl FnOnce() -> io::Result<Fork>,
    body: impl FnOnce() -> Result<(), Refused>,
) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| words(error.into()))?;
    match fork().map_err(words)? {
        Fork::Child => {
            let message = body().map_or_else(|error| error.to_string(), |()| "\n".to_owned());
            let _ = File::from(write).write_all(message.as_bytes());
            // SAFETY: ends the process; no code of the parent runs in it.
            unsafe { libc::_exit(0) }
        }
        Fork::Parent(pid) => {
            drop(write);
            let mut message = String::new();
            let read = File::from(read).read_to_string(&mut message);
            let _ = waitpid(Some(pid), WaitOptions::empty());
            match read {
                Ok(_) if message == "\n" => Ok(()),
                Ok(_) => Err(message),
                Err(error) => Err(words(error)),
            }
        }
    }
}

/// The nearest folder where a group with this controller can be created, limited and joined.
fn find_group(
    candidates: Vec<CgroupParent>,
    only: impl Fn(CgroupParent) -> Isolation,
    limits: Limits,
) -> Result<CgroupParent, String> {
    let marker = format!("probe-{}", std::process::id());
    let mut reason = "it is not mounted".to_owned();
    for parent in candidates {
        let mut groups = match Groups::create(&only(parent.clone()), limits, &marker) {
            Ok(groups) => groups,
            Err(error) => {
                reason = error.to_string();
                continue;
            }
        };
        let joined = in_child(|| groups.join(rustix::process::getpid()));
        groups.remove();
        match joined {
            Ok(()) => return Ok(parent),
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

/// A process is in only one group of version 2: if memory has such a group, the CPU is limited there or not at all.
fn compatible_with(memory: Option<&CgroupParent>, mut cpu: Vec<CgroupParent>) -> Vec<CgroupParent> {
    if let Some(memory) = memory.filter(|parent| parent.version == CgroupVersion::V2) {
        cpu.retain(|parent| parent.version == CgroupVersion::V1 || parent == memory);
    }
    cpu
}

/// Our own group first; with v2 also its ancestors, because a group that contains processes cannot enable controllers
/// for its children.
fn candidates(controller: &str) -> Vec<CgroupParent> {
    let (own, mounts) = own_groups();
    let parent = |version, dir: &Path| CgroupParent {
        version,
        path: dir.join("paddlecloud"),
    };
    if let Some((dir, _)) = locate(&own, &mounts, Some(controller)) {
        return vec![parent(CgroupVersion::V1, &dir)];
    }
    let Some((dir, top)) = locate(&own, &mounts, None) else {
        return Vec::new();
    };
    let has = |dir: &Path, file: &str| {
        let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
        text.split_whitespace().any(|word| word == controller)
    };
    if has(&dir, "cgroup.controllers") && !has(&dir, "cgroup.subtree_control") {
        let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    let around = dir.ancestors().take_while(|dir| dir.starts_with(&top));
    let able = around.filter(|dir| has(dir, "cgroup.subtree_control"));
    able.map(|dir| parent(CgroupVersion::V2, dir)).collect()
}

/// This process's own group, in the hierarchy of a controller (v1) or the only one (v2).
pub fn own_group(controller: Option<&str>) -> Option<PathBuf> {
    let (own, mounts) = own_groups();
    locate(&own, &mounts, controller).map(|(dir, _)| dir)
}

/// The groups of this process, and the mount points of hierarchies.
fn own_groups() -> (String, String) {
    let read = |name| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    (read("cgroup"), read("mountinfo"))
}

/// The path of our own group in a hierarchy, and the hierarchy's mount point: v1 by its controller, v2 without one.
fn locate(own: &str, mounts: &str, controller: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let names = |list: &str, name: &str| list.split(',').any(|item| item == name);
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let matches = controller.map_or(controllers.is_empty(), |name| names(controllers, name));
        matches.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let matches = controller.map_or(kind == "cgroup2", |name| kind == "cgroup" && names(options, name));
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, Path::new(left.next()?));
        let below = Path::new(path).strip_prefix(root).ok()?;
        matches.then(|| (point.join(below), point.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "4:memory:/box/a\n1:cpu,cpuacct:/\n0::/user.slice/a.scope\n";
    const MOUNTS: &str = "\
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 /user.slice /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn a_second_group_of_version_2_is_not_used() {
        let parent = |version, path: &str| CgroupParent {
            version,
            path: path.into(),
        };
        let (near, far) = (
            parent(CgroupVersion::V2, "/a/b/paddlecloud"),
            parent(CgroupVersion::V2, "/a/paddlecloud"),
        );
        let old = parent(CgroupVersion::V1, "/cpu/paddlecloud");
        let both = vec![near.clone(), far.clone()];
        assert_eq!(
            compatible_with(Some(&far), both.clone()),
            std::slice::from_ref(&far)
        );
        assert_eq!(compatible_with(None, both.clone()), both);
        assert_eq!(compatible_with(Some(&old), both.clone()), both);
        assert_eq!(compatible_with(Some(&far), vec![old.clone()]), [old]);
    }

    #[test]
    fn own_group_is_found_per_controller() {
        let found = |controller| locate(OWN, MOUNTS, controller).map(|(dir, _)| dir);
        assert_eq!(found(Some("memory")), Some("/sys/fs/cgroup/memory/box/a".into()));
        assert_eq!(found(Some("cpu")), Some("/sys/fs/cgroup/cpu".into()));
        assert_eq!(found(Some("io")), None);
        assert_eq!(
            found(None),
            Some("/sys/fs/cgroup/unified/a.scope".into()),
            "a part of the tree is mounted"
        );
    }
}
