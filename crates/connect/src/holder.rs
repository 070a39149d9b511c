//! The process that holds the embedded server's data folder, and waiting for processes to exit.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::embedded::EmbeddedFolder;
use crate::error::ConnectError;

/// How long the holder is watched before it is contacted again.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// The process that holds the data folder.
pub struct Holder {
    /// As it wrote it into the lock; empty just before it does.
    pid: String,
    process: Option<OwnedFd>,
}

impl Holder {
    /// `None` if the lock is free: it is then taken only for the duration of this check.
    pub fn of(place: &EmbeddedFolder) -> Option<Holder> {
        let mut file = File::open(place.data.join("lock")).ok()?;
        if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_ok() {
            return None;
        }
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        let pid = text.trim().to_owned();
        Some(Holder {
            process: pid.parse().ok().and_then(pid_handle),
            pid,
        })
    }

    /// Waits briefly for its exit.
    pub fn watch(&self) {
        match &self.process {
            Some(process) => drop(wait_readable(process, LOOK_AGAIN)),
            None => std::thread::sleep(Duration::from_nanos(LOOK_AGAIN.tv_nsec.unsigned_abs())),
        }
    }

    pub fn wedged(&self, place: &EmbeddedFolder) -> ConnectError {
        let pid = &self.pid;
        ConnectError::NoServer {
            message: format!("the embedded server (process {pid}) is running but does not answer"),
            hints: vec![
                format!("its log is `{}`", place.log().display()),
                format!("`kill {pid}` ends it; running jobs are not affected"),
            ],
        }
    }
}

/// A handle that becomes readable when the process has exited.
pub fn pid_handle(pid: u32) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

/// Whether it became readable within the limit.
pub fn wait_readable(fd: &impl std::os::fd::AsFd, limit: Timespec) -> bool {
    loop {
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(count) => return count > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
