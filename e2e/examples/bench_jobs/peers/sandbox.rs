//! A sandbox for a peer's servers: a network with only loopback, a folder, and no process left behind.
//!
//! Some peers always listen on every address, without a password. In a separate network namespace nothing else can
//! reach them, and the namespace identifies their processes.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use e2e::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::Installed;
use crate::process::{cpu_used, proportional_kib};
use crate::start::IDLE;
use crate::table::{Figure, PeerFigure, Question};

const HOST: &str = "localhost";

/// See the top of the file; what runs in it is ended when it is dropped.
pub struct Sandbox {
    folder: TempDir,
    /// What the kernel calls its network.
    network: PathBuf,
    bin: PathBuf,
}

impl Sandbox {
    /// Does `work` in a fresh sandbox.
    pub fn with<T: Send>(
        peer: &Installed,
        work: impl FnOnce(&Sandbox) -> Result<T, String> + Send,
    ) -> Result<T, String> {
        // Namespaces belong to a thread and are inherited by what it starts.
        let alone = || {
            let sandbox = Self::enter(peer).map_err(|error| format!("no network of its own: {error}"))?;
            work(&sandbox)
        };
        thread::scope(|scope| scope.spawn(alone).join()).unwrap_or_else(|_| Err("it gave up".to_owned()))
    }

    /// Moves the calling thread into a network and a host name of its own.
    fn enter(peer: &Installed) -> io::Result<Self> {
        // SAFETY: the flags name nothing that threads share memory-unsafely: no files, no file system.
        result(unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWUTS) })?;
        // SAFETY: the pointer and the length are those of one live string.
        result(unsafe { libc::sethostname(HOST.as_ptr().cast(), HOST.len()) })?;
        raise_loopback()?;
        Ok(Self {
            // Short, because Ray puts sockets deep below it and their paths have a limit.
            folder: tempfile::Builder::new().prefix("peer-").tempdir()?,
            network: fs::read_link("/proc/thread-self/ns/net")?,
            bin: peer.bin.clone(),
        })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// One of the peer's programs, in an environment of its own and under a limit.
    pub fn command(&self, program: &str, limit: Duration) -> Command {
        let mut command = Command::new("timeout");
        command
            .arg("--kill-after=5")
            .arg(limit.as_secs().to_string())
            .arg(self.bin.join(program));
        let path = [self.bin.as_os_str(), OsStr::new("/usr/bin:/bin")].join(OsStr::new(":"));
        command
            .stdin(Stdio::null())
            .current_dir(self.folder())
            .env_clear()
            .env("HOME", self.folder())
            .env("TMPDIR", self.folder())
            .env("PATH", path)
            .env("LANG", "C.UTF-8")
            // Otherwise Python holds lines back when it does not write to a terminal.
            .env("PYTHONUNBUFFERED", "1");
        command
    }

    /// Memory of everything that runs here; pages that several share count once.
    fn memory_kib(&self) -> u64 {
        self.processes().into_iter().filter_map(proportional_kib).sum()
    }

    /// Cpu time of everything that runs here, so far.
    fn cpu_used(&self) -> Duration {
        self.processes().into_iter().filter_map(cpu_used).sum()
    }

    /// What it costs while nothing happens.
    pub fn idle(&self) -> Idle {
        let before = self.cpu_used();
        // Nothing happens for this long: that is what is measured.
        thread::park_timeout(IDLE);
        let used = self.cpu_used().saturating_sub(before);
        Idle {
            memory_kib: self.memory_kib(),
            cpu_share: used.as_secs_f64() / IDLE.as_secs_f64(),
        }
    }

    pub fn processes(&self) -> Vec<u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| self.is_mine(*pid))
            .collect()
    }

    fn is_mine(&self, pid: u32) -> bool {
        fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|network| network == self.network)
    }

    fn end_all(&self) {
        for pid in self.processes() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // It may be gone already.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// What idling costs.
pub struct Idle {
    memory_kib: u64,
    /// Of one core.
    cpu_share: f64,
}

impl Idle {
    /// As figures of a peer, its memory with a remark.
    pub fn figures(&self, peer: &Installed, remark: &str) -> [PeerFigure; 2] {
        let (memory, cpu) = (Figure::memory(self.memory_kib), Figure::share(self.cpu_share));
        [
            PeerFigure::measured(Question::IdleMemory, &peer.name, remark, &[memory]),
            PeerFigure::measured(Question::IdleCpu, &peer.name, "", &[cpu]),
        ]
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        wait_until("a peer's processes must end when killed", || {
            self.end_all();
            self.processes().is_empty().then_some(())
        });
    }
}

fn raise_loopback() -> io::Result<()> {
    let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: zeroes are a valid request: an empty name and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).expect("a small flag");
    // SAFETY: the kernel only reads the request, which is of the type this call takes.
    result(unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS, &request) })
}

fn result(code: libc::c_int) -> io::Result<()> {
    if code < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
