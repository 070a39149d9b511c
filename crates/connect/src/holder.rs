//! Who holds the embedded server's data folder, and waiting for processes to end.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::embedded::Place;
use crate::error::ConnectError;

/// How long the holder of the data folder is watched before it is asked again whether it answers.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// The process that holds the data folder.
pub struct Holder {
    /// As it wrote it into the lock; empty in the moment before it does.
    pid: String,
    process: Option<OwnedFd>,
}

impl Holder {
    /// Nobody, when the lock is free: then it is taken for no longer than this look.
    pub fn of(place: &Place) -> Option<Holder> {
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

    /// Waits for its end, a moment at most.
    pub fn watch(&self) {
        match &self.process {
            Some(process) => drop(wait_readable(process, LOOK_AGAIN)),
            None => std::thread::sleep(Duration::from_nanos(LOOK_AGAIN.tv_nsec.unsigned_abs())),
        }
    }

    pub fn wedged(&self, place: &Place) -> ConnectError {
        let pid = &self.pid;
        ConnectError::NoServer {
            message: format!("the embedded server (process {pid}) runs but does not answer"),
            hints: vec![
                format!("its log is `{}`", place.log().display()),
                format!("`kill {pid}` ends it; running jobs are not disturbed"),
            ],
        }
    }
}

/// A handle that becomes readable when the process has ended.
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
