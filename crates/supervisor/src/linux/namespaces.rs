//! Forks a process into new namespaces. `init` does the work inside.

use std::fs;
use std::io;

use rustix::process::Pid;

use super::{Refusal as _, Refused};
use paddlecloud_worker::protocol::Namespaces;

pub enum Fork {
    Child,
    Parent(Pid),
}

/// The user and group outside the namespace, read before the fork.
#[derive(Clone, Copy)]
pub struct Ids {
    uid: u32,
    gid: u32,
}

impl Ids {
    pub fn current() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// Maps the user to itself in a new user namespace.
    pub fn keep(self) -> Result<(), Refused> {
        let maps = [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{0} {0} 1", self.uid)),
            ("gid_map", format!("{0} {0} 1", self.gid)),
        ];
        for (file, text) in maps {
            fs::write(format!("/proc/self/{file}"), text)
                .refused(|| format!("keep the user in a user namespace ({file})"))?;
        }
        Ok(())
    }
}

/// Like fork(2), but the child is the first process of new namespaces.
///
/// # Safety
/// The process must have one thread: the child continues to run Rust code without an exec.
pub unsafe fn fork(namespaces: Option<Namespaces>) -> io::Result<Fork> {
    let mut flags = libc::SIGCHLD;
    if let Some(namespaces) = namespaces {
        flags |= libc::CLONE_NEWNS | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;
        flags |= if namespaces.user { libc::CLONE_NEWUSER } else { 0 };
        flags |= if namespaces.pid { libc::CLONE_NEWPID } else { 0 };
    }
    // SAFETY: without a stack and pointers this is a fork; the caller vouches for the single thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) };
    match pid {
        0 => Ok(Fork::Child),
        // A failure is -1, which must not become a process id.
        pid => i32::try_from(pid)
            .ok()
            .filter(|pid| *pid > 0)
            .and_then(Pid::from_raw)
            .map(Fork::Parent)
            .ok_or_else(io::Error::last_os_error),
    }
}
