//! The worker's program: everything that happens between the fork and the exec.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Gid, Uid, fchown};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::CpuSet;

use super::identity::become_user;
use super::own_files::OwnFiles;
use super::{Refusal as _, Refused};
use paddlecloud_worker::protocol::{MARKER_VARIABLE, RunAs, WorkerPlan};

/// The exit codes of a shell that cannot find or cannot run a command.
const NOT_FOUND: i32 = 127;
const NOT_RUN: i32 = 126;

/// A program ready to be started: after the fork only the exec is left.
pub struct Program {
    command: CString,
    environment: Vec<CString>,
    workdir: PathBuf,
    cores: Option<CpuSet>,
    run_as: Option<RunAs>,
    /// For workers without a private view.
    own_files: Option<OwnFiles>,
    /// One pipe for standard output and standard error.
    output: Option<OwnedFd>,
}

impl Program {
    pub fn new(plan: &WorkerPlan, output: OwnedFd) -> Self {
        let marker = format!("{MARKER_VARIABLE}={}", plan.marker);
        let variables = plan.env.iter().filter(|(name, _)| name != MARKER_VARIABLE);
        let variables = variables
            .map(|(name, value)| format!("{name}={value}"))
            .chain([marker]);
        Self {
            command: c_string(plan.command.as_bytes()),
            environment: variables.map(|variable| c_string(variable.as_bytes())).collect(),
            workdir: plan.workdir.clone(),
            cores: cores_of(plan),
            run_as: plan.run_as.clone(),
            own_files: plan
                .isolation
                .namespaces
                .is_none()
                .then(|| OwnFiles::offer(&plan.files)),
            output: Some(output),
        }
    }

    /// Closes this copy of the pipe, so that the supervisor sees the end of the output when the worker closes its own.
    pub fn close_output(&mut self) {
        self.output = None;
    }

    /// Becomes the program; returns the exit code and the reason if that fails.
    pub fn exec(&self) -> (i32, Refused) {
        let Err(failure) = self.try_exec();
        failure
    }

    fn try_exec(&self) -> Result<Infallible, (i32, Refused)> {
        self.set_up_process().map_err(|error| (NOT_RUN, error))?;
        let with_code = |error: Refused| (if is_missing(&error) { NOT_FOUND } else { NOT_RUN }, error);
        rustix::process::chdir(&self.workdir)
            .refused(|| format!("enter the working folder `{}`", self.workdir.display()))
            .map_err(with_code)?;
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
        // SAFETY: both arrays end with a null pointer and point to C strings that outlive the call.
        unsafe { libc::execve(c"/bin/sh".as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        Err(without_shell(io::Error::last_os_error()))
            .refused(|| "run `/bin/sh`".into())
            .map_err(with_code)
    }

    /// Sets everything that survives the exec.
    fn set_up_process(&self) -> Result<(), Refused> {
        rustix::process::setsid().refused(|| "begin a session".into())?;
        if let Some(cores) = &self.cores {
            rustix::thread::sched_setaffinity(None, cores).refused(|| "choose cores".into())?;
        }
        let null = File::open("/dev/null").refused(|| "open `/dev/null`".into())?;
        dup2_stdin(&null).refused(|| "connect the input".into())?;
        if let Some(output) = &self.output {
            dup2_stdout(output)
                .and_then(|()| dup2_stderr(output))
                .refused(|| "connect the output".into())?;
        }
        self.own_files.as_ref().map_or(Ok(()), OwnFiles::hand_over)?;
        reset_signals();
        self.run_as.as_ref().map_or(Ok(()), |user| self.become_user(user))
    }

    /// The last step: from here on only the user's own privileges apply.
    fn become_user(&self, user: &RunAs) -> Result<(), Refused> {
        let what = || format!("run as system user number {}", user.uid);
        if let Some(output) = &self.output {
            // `/dev/stdout` and `/dev/stderr` open the pipe again, which only its owner may do.
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            fchown(output, Some(uid), Some(gid)).refused(what)?;
        }
        become_user(user).refused(what)
    }
}

/// Says what is missing if the shell is. Only images lack one; the kernel's words name no file.
fn without_shell(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::NotFound => {
            io::Error::new(kind, "the image has no shell: workers need `/bin/sh`")
        }
        _ => error,
    }
}

fn is_missing(error: &Refused) -> bool {
    matches!(
        error.source.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// A NUL byte cannot be passed to a program; the text is truncated there, as a shell does.
fn c_string(bytes: &[u8]) -> CString {
    let visible = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    CString::new(visible).expect("cut before the first zero")
}

/// The cores to bind to if no control group limits the CPU: whole cores, different ones for the workers of one job.
fn cores_of(plan: &WorkerPlan) -> Option<CpuSet> {
    let millis = plan.limits.cpu_millis.filter(|_| plan.isolation.cpu.is_none())?;
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let allowed: Vec<_> = (0..CpuSet::MAX_CPU)
        .filter(|core| allowed.is_set(*core))
        .collect();
    let count = usize::try_from(millis.div_ceil(1000))
        .ok()?
        .clamp(1, allowed.len());
    let first = plan.index as usize * count;
    let mut cores = CpuSet::new();
    (first..first + count).for_each(|at| cores.set(allowed[at % allowed.len()]));
    Some(cores)
}

/// A program expects all signals at their defaults and none blocked; ours ignores SIGPIPE.
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
