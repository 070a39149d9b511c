//! The body of `paddlecloud-supervise <folder>`: detaches, locks the attempt, supervises it and records its exit.
//!
//! Afterwards, the folder contains only `plan.json`, `exit.json`, `log/` and the supervisor's own errors. An attempt
//! with neither `exit.json` nor a live supervisor was lost.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::pipe::{PipeFlags, pipe_with};

use super::clients::Clients;
use super::home::{Home, Recorded, words};
use super::plain::PlainCopy;
use super::supervise::{Output, supervise};
use super::{Refusal as _, Refused, init, is_shortage, tree};
use paddlecloud_worker::log::LogWriter;
use paddlecloud_worker::protocol::{Exit, FileError, NO_ROOM, Report, SECRETS_VARIABLE, WorkerPlan, files};

/// How often to try the lock of an attempt: [`is_alive`] holds it for a moment.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{0}")]
    Refused(#[from] Refused),
    #[error("{0}")]
    File(#[from] FileError),
    #[error("this attempt has already ended")]
    Ended,
    #[error("this attempt already has a supervisor")]
    Taken,
    #[error("this attempt was lost; a new attempt needs its own folder")]
    Lost,
    #[error("this attempt was cancelled before it started")]
    GivenUp,
    #[error("`{marker}` is not a valid marker: use letters, digits, `-`, `_` and `.`")]
    Marker { marker: String },
}

/// Starts the supervisor of the attempt in `dir` and returns as soon as it accepts connections.
///
/// Forks: the parent returns (an error is one line on stderr), the child continues detached and exits by itself. The
/// calling process must have one thread and nothing else to do.
pub fn run(dir: &Path) -> ExitCode {
    close_inherited();
    match start(dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            crate::trouble!("error: {message}");
            ExitCode::from(code)
        }
    }
}

/// Why the supervisor did not start, and its exit code.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    fn of(what: &str, error: &io::Error) -> Failure {
        Failure {
            message: format!("cannot {what}: {error}"),
            code: if is_shortage(error) { NO_ROOM } else { 1 },
        }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure { message, code: 1 }
    }
}

/// Connects to the supervisor of an attempt. The folder's path may have any length.
pub fn connect(dir: &Path) -> io::Result<UnixStream> {
    let dir = File::open(dir)?;
    UnixStream::connect(socket_path(&dir))
}

/// Whether an attempt has a live supervisor. A supervisor locks `pid` before its first message and keeps it locked.
///
/// If a resource has run out and the check fails, the supervisor counts as alive.
pub fn is_alive(dir: &Path) -> bool {
    match File::open(dir.join(files::PID)) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        Err(error) => is_shortage(&error),
    }
}

/// Takes the lock of an attempt's supervisor: none can start while the returned file is open. `None` if it is held.
///
/// If the caller removes the plan under this lock, a supervisor that starts later finds no plan and exits.
pub fn take_place(dir: &Path) -> io::Result<Option<File>> {
    let file = open_pid_file(dir)?;
    let taken = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok(taken.then_some(file))
}

fn start(dir: &Path) -> Result<(), Failure> {
    let (mut answer, mut report) = pipe_with(PipeFlags::CLOEXEC)
        .map(|(read, write)| (File::from(read), File::from(write)))
        .map_err(|error| Failure::of("create a pipe", &error.into()))?;
    // SAFETY: the caller promised a single thread.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::of("fork", &io::Error::last_os_error())),
        0 => {
            drop(answer);
            match StartedSupervisor::take(dir) {
                Ok(place) => {
                    let _ = report.write_all(b"\n");
                    drop(report);
                    place.supervise();
                }
                Err(error) => {
                    let message = match &error {
                        StartError::File(error) => words(error),
                        error => error.to_string(),
                    };
                    let _ = report.write_all(message.as_bytes());
                }
            }
            std::process::exit(0)
        }
        _ => {
            drop(report);
            let mut message = String::new();
            match answer.read_to_string(&mut message) {
                Ok(_) if message == "\n" => Ok(()),
                Ok(0) | Err(_) => Err("the supervisor ended before it could be reached"
                    .to_owned()
                    .into()),
                Ok(_) => Err(message.into()),
            }
        }
    }
}

/// A supervisor that accepts connections, before its worker exists.
struct StartedSupervisor {
    home: Home,
    plan: WorkerPlan,
    clients: Clients,
    log: LogWriter,
    /// Locked while this supervisor runs.
    pid_file: File,
}

impl StartedSupervisor {
    fn take(dir: &Path) -> Result<Self, StartError> {
        let dir = dir
            .canonicalize()
            .refused(|| format!("open `{}`", dir.display()))?;
        let mut plan = WorkerPlan::load(&dir)?;
        let secrets = secrets().refused(|| "read the worker's secrets".into())?;
        plan.env.retain(|(name, _)| !secrets.contains_key(name));
        plan.env.extend(secrets);
        if Exit::load(&dir)?.is_some() {
            return Err(StartError::Ended);
        }
        check_marker(&plan.marker)?;
        let home = Home::open(&dir).refused(|| format!("open `{}`", dir.display()))?;
        detach(&dir).refused(|| "detach from the server".into())?;
        let pid_file = lock_pid_file(&dir)?;
        let log = create_log(&dir, &plan)?;
        let listener = listen(&dir).refused(|| format!("listen on `{}`", files::SOCKET))?;
        let clients = Clients::new(listener).refused(|| "prepare the socket".into())?;
        let text = tree::describe_self().refused(|| "read own start time".into())?;
        fs::write(dir.join(files::PID), text).refused(|| format!("write `{}`", files::PID))?;
        Ok(Self {
            home,
            plan,
            clients,
            log,
            pid_file,
        })
    }

    fn supervise(self) {
        let Self {
            home,
            plan,
            mut clients,
            log,
            pid_file,
        } = self;
        init::set_name(OsStr::new("paddle-supervise"));
        if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            crate::trouble!("cannot become the reaper of the worker's processes: {error}");
        }
        let plain = PlainCopy::of(&plan);
        if let Err(error) = Exit::reserve(&home.path) {
            crate::trouble!("cannot reserve space for the exit record: {error}");
        }
        // SAFETY: this program never starts a thread.
        let exit = unsafe { supervise(&plan, &home, &mut clients, Output { log, plain }) };
        if home.record(&exit) == Recorded::Durable {
            clients.broadcast(&Report::Exited(exit));
            for file in [files::SOCKET, files::PID] {
                let _ = fs::remove_file(home.path.join(file));
            }
        }
        drop((clients, pid_file));
    }
}

fn create_log(dir: &Path, plan: &WorkerPlan) -> Result<LogWriter, StartError> {
    match LogWriter::create(&plan.log_folder(dir), plan.log) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(StartError::Lost),
        result => Ok(result.refused(|| "create the log".into())?),
    }
}

/// The marker names control groups, so it must not be a path.
fn check_marker(marker: &str) -> Result<(), StartError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if marker.is_empty() || marker.starts_with('.') || !marker.bytes().all(is_plain) {
        return Err(StartError::Marker {
            marker: marker.into(),
        });
    }
    Ok(())
}

/// The worker's secret variables. They are read from stdin and never written to a file.
fn secrets() -> io::Result<BTreeMap<String, String>> {
    match std::env::var_os(SECRETS_VARIABLE) {
        Some(_) => Ok(serde_json::from_reader(io::stdin().lock())?),
        None => Ok(BTreeMap::new()),
    }
}

/// Starts a session without a terminal, leaves the current folder, and redirects errors to a file.
fn detach(dir: &Path) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let troubles = File::options()
        .append(true)
        .create(true)
        .open(dir.join(files::TROUBLES))?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    rustix::stdio::dup2_stderr(troubles.as_fd())?;
    Ok(())
}

fn lock_pid_file(dir: &Path) -> Result<File, StartError> {
    let file = open_pid_file(dir).refused(|| format!("open `{}`", files::PID))?;
    let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    let taken = (0..LOCK_TRIES).any(|tried| {
        if tried > 0 {
            std::thread::sleep(LOCK_PAUSE);
        }
        lock()
    });
    if !taken {
        return Err(StartError::Taken);
    }
    // A server that cancelled the attempt held this lock and removed the plan.
    match dir.join(files::PLAN).exists() && is_still(&file, &dir.join(files::PID)) {
        true => Ok(file),
        false => Err(StartError::GivenUp),
    }
}

fn open_pid_file(dir: &Path) -> io::Result<File> {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(dir.join(files::PID))
}

/// Whether the path still refers to the open file.
fn is_still(file: &File, path: &Path) -> bool {
    let number = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let (opened, named) = (file.metadata().map(number), fs::metadata(path).map(number));
    matches!((opened, named), (Ok(opened), Ok(named)) if opened == named)
}

/// Accepts only the same user. The socket path given to the kernel is short, however long the folder's path is.
fn listen(dir: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(dir.join(files::SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let dir = File::open(dir)?;
    let usual = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let listener = UnixListener::bind(socket_path(&dir));
    rustix::process::umask(usual);
    listener
}

fn socket_path(dir: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), files::SOCKET))
}

/// A supervisor runs for days: it must not keep its parent's files open.
fn close_inherited() {
    // SAFETY: called first thing in the program, which has opened nothing yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}
