//! The first process of a worker: prepares its view, starts its program, reaps everybody, and
//! sees to it that nobody outlives the program or the supervisor.
//!
//! With a process namespace it is number 1 and the kernel ends the others when it goes. Without
//! one it is the reaper of all its descendants and ends them itself.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use super::namespaces::Ids;
use super::view::{self, View};
use super::{Refusal as _, Refused, hosts, tree};
use crate::protocol::{Ending, MARKER_VARIABLE, Namespaces, WorkerPlan, encode};

/// Supervisor → init, one byte each. The end of the pipe means [`Order::Kill`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Order {
    Go = b'g',
    Terminate = b't',
    Kill = b'k',
}

/// Init → supervisor, one line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    Prepared,
    Started,
    /// Nothing runs; the code is that of a shell which could not, absent when we could not.
    Failed {
        code: Option<i32>,
        message: String,
    },
    /// The program ended; others of its tree may still be there.
    Ended(Ending),
}

/// What init holds: its ends of the pipes.
pub struct Ends {
    pub orders: OwnedFd,
    pub notes: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// Runs in the child of a fork and never returns.
pub fn run(plan: &WorkerPlan, dir: &Path, ids: Ids, ends: Ends) -> ! {
    close_all_except(&ends);
    let mut notes = File::from(ends.notes.try_clone().unwrap_or_else(|_| leave()));
    let namespaces = plan.isolation.namespaces;
    let mut init = match prepare(plan, dir, ids, &ends.orders) {
        Ok(children) => Init {
            exec: Exec::new(plan, ends),
            children,
            notes: notes.try_clone().unwrap_or_else(|_| leave()),
            owns_pids: namespaces.is_some_and(|namespaces| namespaces.pid),
            main: None,
            ended: false,
            terminating: false,
        },
        Err(error) => {
            say(
                &mut notes,
                &Note::Failed {
                    code: None,
                    message: error.to_string(),
                },
            );
            leave()
        }
    };
    drop(notes);
    init.say(&Note::Prepared);
    loop {
        init.turn();
    }
}

/// Leaves without running anything that belongs to the supervisor this was forked from.
fn leave() -> ! {
    // SAFETY: ends the process; nothing runs afterwards.
    unsafe { libc::_exit(0) }
}

/// Returns a descriptor that is readable when a child has ended.
fn prepare(plan: &WorkerPlan, dir: &Path, ids: Ids, orders: &OwnedFd) -> Result<OwnedFd, Refused> {
    let namespaces = plan.isolation.namespaces;
    if namespaces.is_some_and(|namespaces| namespaces.user) {
        ids.keep()?;
    }
    tie_to_supervisor(namespaces, orders).refused(|| "tie the worker to its supervisor".into())?;
    if let Some(namespaces) = namespaces {
        view::enter(&view_of(plan, namespaces), dir)?;
        let name = hosts::host_name(&plan.worker);
        rustix::system::sethostname(name.as_bytes()).refused(|| "set the host name".into())?;
    }
    watch_children().refused(|| "watch for ended processes".into())
}

pub fn view_of(plan: &WorkerPlan, namespaces: Namespaces) -> View<'_> {
    let machine = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let mut workers = plan.hosts.clone();
    for name in [hosts::host_name(&plan.worker), &plan.worker] {
        if !workers.iter().any(|(known, _)| known == name) {
            workers.push((name.to_owned(), plan.address));
        }
    }
    let mut files = vec![(PathBuf::from("/etc/hosts"), hosts::render(&machine, &workers))];
    files.extend(
        plan.files
            .iter()
            .map(|file| (file.path.clone(), file.contents.clone())),
    );
    View {
        binds: &plan.binds,
        files,
        own_proc: namespaces.pid,
    }
}

/// `kill -9` of the supervisor must end the worker.
fn tie_to_supervisor(namespaces: Option<Namespaces>, orders: &OwnedFd) -> io::Result<()> {
    if namespaces.is_some_and(|namespaces| namespaces.pid) {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    } else {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    }
    // It may have died before the kernel was told. Its number cannot be asked for from inside a
    // process namespace, but its end of the pipe can.
    let mut fds = [PollFd::new(orders, PollFlags::IN)];
    poll(
        &mut fds,
        Some(&rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )?;
    if fds[0].revents().contains(PollFlags::HUP) {
        leave();
    }
    Ok(())
}

struct Init {
    exec: Exec,
    children: OwnedFd,
    notes: File,
    owns_pids: bool,
    main: Option<Pid>,
    ended: bool,
    terminating: bool,
}

impl Init {
    fn turn(&mut self) {
        let mut fds = [
            PollFd::new(&self.exec.ends.orders, PollFlags::IN),
            PollFd::new(&self.children, PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            return;
        }
        let [has_order, has_ended] = fds.map(|fd| !fd.revents().is_empty());
        if has_ended {
            self.reap();
        }
        if has_order {
            self.obey();
        }
    }

    fn obey(&mut self) {
        let mut byte = [0];
        match rustix::io::read(&self.exec.ends.orders, &mut byte) {
            Ok(1) if byte[0] == Order::Go as u8 => self.start(),
            Ok(1) if byte[0] == Order::Terminate as u8 => self.terminate(),
            Ok(1) => self.kill(),
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => self.end(),
        }
    }

    fn start(&mut self) {
        if self.main.is_some() || self.terminating {
            return;
        }
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => self.exec.run(&mut self.notes),
            pid if pid > 0 => {
                self.main = Pid::from_raw(pid);
                self.exec.close_worker_ends();
                self.say(&Note::Started);
            }
            _ => {
                let message = format!("cannot fork: {}", io::Error::last_os_error());
                self.say(&Note::Failed { code: None, message });
                leave();
            }
        }
    }

    /// Asks everybody to end. The rest of the tree keeps its grace period even when the program
    /// itself is gone: `sh` dies at once while what it started may still be saving its work.
    fn terminate(&mut self) {
        self.terminating = true;
        if self.main.is_none() {
            leave();
        }
        if self.owns_pids {
            signal_namespace(Signal::TERM);
            signal_namespace(Signal::CONT);
        } else {
            let tree = tree::freeze(rustix::process::getpid());
            tree::signal(&tree, Signal::TERM);
            tree::signal(&tree, Signal::CONT);
        }
    }

    fn kill(&mut self) {
        if self.main.is_none() {
            leave();
        }
        if !self.owns_pids {
            self.end();
        }
        signal_namespace(Signal::KILL);
    }

    fn reap(&mut self) {
        drain(&self.children);
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.on_end(pid, status),
                Err(rustix::io::Errno::CHILD) if self.ended => leave(),
                _ => break,
            }
        }
        if self.ended && !self.terminating {
            self.end();
        }
    }

    fn on_end(&mut self, pid: Pid, status: WaitStatus) {
        if self.main == Some(pid) {
            self.ended = true;
            let signal = status.terminating_signal().map(Ending::Signal);
            let ending = status.exit_status().map(Ending::Code).or(signal);
            self.say(&Note::Ended(
                ending.expect("a child that was waited for has exited or was killed"),
            ));
        }
    }

    /// Ends everybody who is left and leaves.
    fn end(&mut self) -> ! {
        if !self.owns_pids {
            tree::end_descendants(|pid, status| self.on_end(pid, status));
        }
        leave()
    }

    fn say(&mut self, note: &Note) {
        say(&mut self.notes, note);
    }
}

/// Every process of this namespace but the first, which is the caller; also one whose fork is just
/// under way.
fn signal_namespace(signal: Signal) {
    // SAFETY: sends a signal and touches no memory.
    unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Failing means that the supervisor is gone, which the orders' pipe tells too.
fn say(notes: &mut File, note: &Note) {
    let _ = notes.write_all(&encode(note));
}

/// The program, ready to be started: after the fork nothing is left but to hand it over.
struct Exec {
    ends: Ends,
    command: CString,
    environment: Vec<CString>,
    workdir: PathBuf,
    cores: Option<CpuSet>,
}

impl Exec {
    fn new(plan: &WorkerPlan, ends: Ends) -> Self {
        let marker = format!("{MARKER_VARIABLE}={}", plan.marker);
        let variables = plan.env.iter().filter(|(name, _)| name != MARKER_VARIABLE);
        let variables = variables
            .map(|(name, value)| format!("{name}={value}"))
            .chain([marker]);
        Self {
            ends,
            command: c_string(plan.command.as_bytes()),
            environment: variables.map(|variable| c_string(variable.as_bytes())).collect(),
            workdir: plan.workdir.clone(),
            cores: cores_of(plan),
        }
    }

    fn run(&self, notes: &mut File) -> ! {
        let Err((code, error)) = self.try_run();
        say(
            notes,
            &Note::Failed {
                code: Some(code),
                message: error.to_string(),
            },
        );
        // SAFETY: ends the process; nothing runs afterwards.
        unsafe { libc::_exit(code) }
    }

    fn try_run(&self) -> Result<std::convert::Infallible, (i32, Refused)> {
        self.settle().map_err(|error| (126, error))?;
        let shell_code = |error: Refused| (if is_missing(&error) { 127 } else { 126 }, error);
        rustix::process::chdir(&self.workdir)
            .refused(|| format!("enter the working folder `{}`", self.workdir.display()))
            .map_err(shell_code)?;
        let mut environment: Vec<_> = self
            .environment
            .iter()
            .map(|variable| variable.as_ptr())
            .collect();
        environment.push(std::ptr::null());
        let arguments = [
            c"sh".as_ptr(),
            c"-c".as_ptr(),
            self.command.as_ptr(),
            std::ptr::null(),
        ];
        // SAFETY: both arrays end with a null pointer and point to C strings that are still there.
        unsafe { libc::execve(c"/bin/sh".as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        Err(io::Error::last_os_error())
            .refused(|| "run `/bin/sh`".into())
            .map_err(shell_code)
    }

    /// Everything that lasts beyond the exec.
    fn settle(&self) -> Result<(), Refused> {
        rustix::process::setsid().refused(|| "begin a session".into())?;
        if let Some(cores) = &self.cores {
            rustix::thread::sched_setaffinity(None, cores).refused(|| "choose cores".into())?;
        }
        let null = File::open("/dev/null").refused(|| "open `/dev/null`".into())?;
        let connect = |from: &dyn AsRawDescriptor, to: RawFd| {
            // SAFETY: makes `to`, one of 0, 1 and 2, a copy of an open descriptor.
            let result = unsafe { libc::dup2(from.raw(), to) };
            if result < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(())
            }
        };
        connect(&null, 0)
            .and_then(|()| connect(&self.ends.stdout, 1))
            .and_then(|()| connect(&self.ends.stderr, 2))
            .refused(|| "connect the output".into())?;
        reset_signals();
        Ok(())
    }

    /// So that the supervisor sees the end of the output when the worker closes it.
    fn close_worker_ends(&mut self) {
        let null = || File::open("/dev/null").map(OwnedFd::from);
        if let (Ok(stdout), Ok(stderr)) = (null(), null()) {
            self.ends.stdout = stdout;
            self.ends.stderr = stderr;
        }
    }
}

trait AsRawDescriptor {
    fn raw(&self) -> RawFd;
}

impl<T: AsFd> AsRawDescriptor for T {
    fn raw(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

fn is_missing(error: &Refused) -> bool {
    matches!(
        error.source.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Nothing with a zero byte can be handed to a program; it is cut there, as a shell would.
fn c_string(bytes: &[u8]) -> CString {
    let visible = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    CString::new(visible).expect("cut before the first zero")
}

/// Where no control group limits the cpu: whole cores, neighbours of one job on different ones.
fn cores_of(plan: &WorkerPlan) -> Option<CpuSet> {
    let millis = plan.limits.cpu_millis.filter(|_| plan.isolation.cpu.is_none())?;
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let allowed: Vec<_> = (0..CpuSet::MAX_CPU)
        .filter(|core| allowed.is_set(*core))
        .collect();
    let wanted = usize::try_from(millis.div_ceil(1000))
        .ok()?
        .clamp(1, allowed.len());
    let first = plan.index as usize * wanted;
    let mut cores = CpuSet::new();
    (first..first + wanted).for_each(|at| cores.set(allowed[at % allowed.len()]));
    Some(cores)
}

/// Blocks SIGCHLD and makes it readable instead.
fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: the set is filled before use, and the descriptor returned is owned by nobody else.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn drain(fd: &OwnedFd) {
    let mut buffer = [0; 512];
    while matches!(rustix::io::read(fd, &mut buffer), Ok(len) if len > 0) {}
}

/// A program expects every signal at its default and none blocked; ours ignores SIGPIPE.
fn reset_signals() {
    // SAFETY: only dispositions and the mask of this process change, to their defaults.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// What the supervisor has open, its own end of our pipes above all, must not stay open in here.
fn close_all_except(ends: &Ends) {
    let mut kept: Vec<_> = [&ends.orders, &ends.notes, &ends.stdout, &ends.stderr]
        .into_iter()
        .map(|fd| fd.as_raw_fd().unsigned_abs())
        .chain([2])
        .collect();
    kept.sort_unstable();
    kept.push(u32::MAX);
    for pair in kept.windows(2) {
        if pair[0] + 1 < pair[1] {
            // SAFETY: these belong to the supervisor's half of the fork; nothing in this half
            // uses them, and it leaves without dropping their owners.
            unsafe { libc::syscall(libc::SYS_close_range, pair[0] + 1, pair[1] - 1, 0) };
        }
    }
}

/// Sets what `ps` shows.
pub fn set_name(name: &OsStr) {
    if let Ok(name) = CString::new(name.as_bytes()) {
        let _ = rustix::thread::set_name(&name);
    }
}
