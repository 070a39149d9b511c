//! The first process of a worker: prepares its view, starts its program, reaps all children, and makes sure that
//! nothing outlives the program or the supervisor.
//!
//! With a process namespace it is pid 1, and the kernel kills the others when it exits. Without one it is the subreaper
//! of all its descendants and kills them itself.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use serde::{Deserialize, Serialize};

use super::namespaces::Ids;
use super::program::Program;
use super::view::{self, View};
use super::{Refusal as _, Refused, hosts, tree};
use paddlecloud_worker::protocol::{Ending, Namespaces, WorkerPlan, encode};

/// Bounds the time, not the rounds: among thousands of busy processes, each round waits for its turn.
const SHELL_LIMIT: Duration = Duration::from_millis(100);
const SHELL_PAUSE: Duration = Duration::from_millis(1);

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
    Started,
    /// Nothing runs. The code is a shell's for a command that it cannot run; absent if the failure is ours.
    Failed {
        code: Option<i32>,
        message: String,
    },
    /// The program exited; other processes of its tree may still exist.
    Ended(Ending),
}

/// Init's ends of the pipes.
pub struct Ends {
    pub orders: OwnedFd,
    pub notes: OwnedFd,
    /// Where the program writes its output.
    pub output: OwnedFd,
}

/// Runs in the child of a fork and never returns.
pub fn run(plan: &WorkerPlan, dir: &Path, ids: Ids, ends: Ends) -> ! {
    close_all_except(&ends);
    let Ends {
        orders,
        notes,
        output,
    } = ends;
    let mut notes = File::from(notes);
    let children = match prepare(plan, dir, ids, &orders) {
        Ok(children) => children,
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
    let mut init = Init {
        program: Program::new(plan, output),
        orders,
        notes,
        children,
        owns_pids: plan.isolation.namespaces.is_some_and(|namespaces| namespaces.pid),
        main: None,
        heir: None,
        ended: false,
        terminating: false,
    };
    loop {
        init.turn();
    }
}

/// Exits without running any code of the supervisor that this process was forked from.
fn leave() -> ! {
    // SAFETY: ends the process; nothing runs afterwards.
    unsafe { libc::_exit(0) }
}

/// Returns a descriptor that is readable when a child has exited.
fn prepare(plan: &WorkerPlan, dir: &Path, ids: Ids, orders: &OwnedFd) -> Result<OwnedFd, Refused> {
    let namespaces = plan.isolation.namespaces;
    if namespaces.is_some_and(|namespaces| namespaces.user) {
        ids.keep()?;
    }
    let tie = || "tie the worker to its supervisor".to_owned();
    tie_to_supervisor(namespaces, orders).refused(tie)?;
    if let Some(namespaces) = namespaces {
        view::enter(&view_of(plan, namespaces), dir)?;
        if plan.run_as.is_some() {
            // Acting as the worker's user cleared the parent-death signal.
            tie_to_supervisor(Some(namespaces), orders).refused(tie)?;
        }
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
        hidden: &plan.hidden,
        files,
        own_proc: namespaces.pid,
        shared_memory: plan.limits.memory_bytes,
        owner: plan.run_as.as_ref(),
    }
}

/// `kill -9` of the supervisor must kill the worker too.
fn tie_to_supervisor(namespaces: Option<Namespaces>, orders: &OwnedFd) -> io::Result<()> {
    if namespaces.is_some_and(|namespaces| namespaces.pid) {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    } else {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    }
    // The supervisor may have died before the signal was armed. Its pid cannot be read from inside a process namespace,
    // but the end of its pipe can be detected.
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
    program: Program,
    orders: OwnedFd,
    notes: File,
    children: OwnedFd,
    owns_pids: bool,
    main: Option<Pid>,
    /// The program that the shell was running when it was asked to stop. The shell dies of the signal, so this
    /// program's exit is reported.
    heir: Option<Pid>,
    ended: bool,
    terminating: bool,
}

impl Init {
    fn turn(&mut self) {
        let mut fds = [
            PollFd::new(&self.orders, PollFlags::IN),
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
        match rustix::io::read(&self.orders, &mut byte) {
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
            0 => self.become_program(),
            pid if pid > 0 => {
                self.main = Pid::from_raw(pid);
                self.program.close_output();
                self.say(&Note::Started);
            }
            _ => {
                let message = format!("cannot fork: {}", io::Error::last_os_error());
                self.say(&Note::Failed { code: None, message });
                leave();
            }
        }
    }

    fn become_program(&mut self) -> ! {
        let (code, error) = self.program.exec();
        self.say(&Note::Failed {
            code: Some(code),
            message: error.to_string(),
        });
        // SAFETY: ends the process; nothing runs afterwards.
        unsafe { libc::_exit(code) }
    }

    /// Sends SIGTERM to every process. The rest of the tree keeps its grace period even if the program itself is gone:
    /// `sh` dies immediately while its child may still be saving its work.
    fn terminate(&mut self) {
        self.terminating = true;
        let Some(main) = self.main else { leave() };
        if let ([only], true) = (tree::children(main).as_slice(), tree::is_shell(main)) {
            self.heir = Some(*only);
            self.end_shell(main);
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

    /// Ends the shell before its program gets the signal: a shell that is slower than its program would take the program's
    /// exit code along. A shell with a trap waits for its program, so this does not wait for long.
    fn end_shell(&mut self, shell: Pid) {
        let _ = kill_process(shell, Signal::TERM);
        let until = Instant::now() + SHELL_LIMIT;
        while Instant::now() < until {
            self.reap();
            if self.ended {
                break;
            }
            std::thread::sleep(SHELL_PAUSE);
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
        let is_main = self.main == Some(pid);
        let signal = status.terminating_signal().map(Ending::Signal);
        let ending = status.exit_status().map(Ending::Code).or(signal);
        let ending = ending.expect("a child that was waited for has exited or was killed");
        if is_main && ending != Ending::Signal(libc::SIGTERM) {
            self.heir = None;
        }
        self.ended |= is_main;
        // An orphan is reparented to us only after its shell is gone.
        if is_main || self.heir == Some(pid) {
            self.say(&Note::Ended(ending));
        }
    }

    /// Kills all remaining processes and exits.
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

/// Signals every process of this namespace except the caller, including one that is being forked.
fn signal_namespace(signal: Signal) {
    // SAFETY: sends a signal and touches no memory.
    unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Ignores a failure: it means that the supervisor is gone, and the order pipe shows that too.
fn say(notes: &mut File, note: &Note) {
    let _ = notes.write_all(&encode(note));
}

/// Blocks SIGCHLD and returns a descriptor that is readable when it is pending.
fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: the set is filled before use, and the returned descriptor has no other owner.
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

/// The supervisor's open files, especially its own ends of our pipes, must not stay open here.
fn close_all_except(ends: &Ends) {
    let mut kept: Vec<_> = [&ends.orders, &ends.notes, &ends.output]
        .into_iter()
        .map(|fd| fd.as_raw_fd().unsigned_abs())
        .chain([2])
        .collect();
    kept.sort_unstable();
    kept.push(u32::MAX);
    for pair in kept.windows(2) {
        if pair[0] + 1 < pair[1] {
            // SAFETY: these descriptors belong to the supervisor. This process does not use them and exits without
            // dropping their owners.
            unsafe { libc::syscall(libc::SYS_close_range, pair[0] + 1, pair[1] - 1, 0) };
        }
    }
}

/// Sets the name that `ps` shows.
pub fn set_name(name: &OsStr) {
    if let Ok(name) = CString::new(name.as_bytes()) {
        let _ = rustix::thread::set_name(&name);
    }
}
