//! The supervisor's side of a worker: starts its init, sends orders, receives notes, reads output.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open, pidfd_send_signal, waitpid,
};

use super::init::{self, Ends, Note, Order};
use super::namespaces::{self, Fork, Ids};
use super::{Refusal as _, Refused};
use paddlecloud_worker::protocol::{WorkerPlan, decode};

const BIG_PIPE: usize = 1 << 20;
/// Pipes of one user share 64 MiB; using all of it would leave tiny pipes for the user's other programs.
const MODEST_PIPE: usize = 256 << 10;

pub struct Worker {
    pub init: Pid,
    /// Readable when init has exited, and with it the whole tree.
    pub end: OwnedFd,
    /// Absent once init has closed its end.
    pub notes: Option<OwnedFd>,
    /// Standard output and standard error: one pipe keeps the order in which they were written.
    pub output: Option<OwnedFd>,
    orders: OwnedFd,
    heard: Vec<u8>,
}

impl Worker {
    /// # Safety
    /// The process must have one thread.
    pub unsafe fn start(plan: &WorkerPlan, dir: &Path) -> Result<Self, Refused> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).refused(|| "create a pipe".into());
        let ((orders_in, orders), (notes, notes_out)) = (pipe()?, pipe()?);
        let (output, output_in) = pipe()?;
        let _ = fcntl_setpipe_size(&output, pipe_size());
        for fd in [&output, &notes] {
            rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK).refused(|| "prepare a pipe".into())?;
        }
        let ends = Ends {
            orders: orders_in,
            notes: notes_out,
            output: output_in,
        };
        let ids = Ids::current();
        // SAFETY: the caller vouches for the single thread.
        let fork = unsafe { namespaces::fork(plan.isolation.namespaces) };
        let init = match fork.refused(|| "start a process in namespaces of its own".into())? {
            Fork::Child => init::run(plan, dir, ids, ends),
            Fork::Parent(init) => init,
        };
        let end = pidfd_open(init, PidfdFlags::empty()).refused(|| "watch the worker".into())?;
        Ok(Self {
            init,
            end,
            notes: Some(notes),
            output: Some(output),
            orders,
            heard: Vec::new(),
        })
    }

    /// An init that is gone receives nothing; its exit is detected elsewhere.
    pub fn order(&self, order: Order) {
        let _ = rustix::io::write(&self.orders, &[order as u8]);
    }

    /// Kills a worker that was not started yet.
    pub fn abandon(self) {
        self.force_end();
        self.reap();
    }

    /// The last resort, for an init that does not respond.
    pub fn force_end(&self) {
        let _ = pidfd_send_signal(&self.end, Signal::KILL);
    }

    /// Notes of init since the last call.
    pub fn hear(&mut self) -> Vec<Note> {
        let mut buffer = [0; 4096];
        while let Some(len) = self
            .notes
            .as_ref()
            .and_then(|notes| read_pipe(notes, &mut buffer))
        {
            self.heard.extend_from_slice(&buffer[..len]);
            if len == 0 {
                self.notes = None;
            }
        }
        let whole = self
            .heard
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.heard.drain(..whole).collect();
        lines
            .split(|byte| *byte == b'\n')
            .filter_map(|line| decode(line).ok())
            .collect()
    }

    /// Reaps the exited init.
    pub fn reap(&self) -> Option<WaitStatus> {
        waitpid(Some(self.init), WaitOptions::empty())
            .ok()
            .flatten()
            .map(|(_, status)| status)
    }
}

/// One read: `None` if nothing is available now, zero at the end.
pub fn read_pipe(fd: &OwnedFd, buffer: &mut [u8]) -> Option<usize> {
    loop {
        match rustix::io::read(fd, &mut *buffer) {
            Ok(len) => return Some(len),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return None,
            Err(error) => {
                crate::trouble!("cannot read from the worker: {}", io::Error::from(error));
                return Some(0);
            }
        }
    }
}

fn pipe_size() -> usize {
    if rustix::process::geteuid().is_root() {
        BIG_PIPE
    } else {
        MODEST_PIPE
    }
}
