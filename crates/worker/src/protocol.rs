//! The messages between the server and a supervisor, and the files they share.
//!
//! Values only: one JSON object per line over the socket `sock` in the attempt's folder, the plan in `plan.json`, the
//! exit in `exit.json`. Nothing here opens a socket or starts a process.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

pub use paddlecloud_core::plan::Role;
use serde::{Deserialize, Serialize};

/// If set, the supervisor reads its worker's secret variables from stdin, as a JSON object.
pub const SECRETS_VARIABLE: &str = "PADDLECLOUD_SECRETS";

/// The environment variable that identifies every process of an attempt.
pub const MARKER_VARIABLE: &str = "PADDLECLOUD_ATTEMPT";

/// The exit code of a supervisor that could not get a process or file descriptor (`EX_TEMPFAIL`): retry later.
pub const NO_ROOM: u8 = 75;

/// The beginning of the sentence of [`Isolation::degraded`] which says that workers have no view of the file system of their own.
pub const NO_OWN_VIEW: &str = "workers see the machine's files and host name";

/// Names of the files in an attempt's folder.
pub mod files {
    /// What to run: written by the server before it starts the supervisor.
    pub const PLAN: &str = "plan.json";
    /// How the attempt exited: written once, durable before it is reported.
    pub const EXIT: &str = "exit.json";
    /// Space reserved for `exit.json`, in case the disk is full by then.
    pub const EXIT_DRAFT: &str = "exit.json.new";
    /// Where the supervisor listens while it runs.
    pub const SOCKET: &str = "sock";
    /// `<pid> <start time>` of the supervisor while it runs.
    pub const PID: &str = "pid";
    /// The folder of the worker's output, see [`crate::log`].
    pub const LOG: &str = "log";
    /// The supervisor's own errors.
    pub const TROUBLES: &str = "supervisor.log";
}

/// Everything a supervisor needs to know about its worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerPlan {
    /// The attempt's id, never reused on this machine; a plain file name.
    pub marker: String,
    /// The worker's name, which is also its host name.
    pub worker: String,
    pub role: Role,
    pub index: u32,
    /// Passed to `sh -c`.
    pub command: String,
    /// The whole environment; nothing is inherited. [`MARKER_VARIABLE`] is added.
    pub env: Vec<(String, String)>,
    /// Where the command starts, as the worker sees it.
    pub workdir: PathBuf,
    /// The worker's own loopback address.
    pub address: std::net::Ipv4Addr,
    /// Names of all workers for the private `/etc/hosts`.
    #[serde(default)]
    pub hosts: Vec<(String, std::net::Ipv4Addr)>,
    #[serde(default)]
    pub binds: Vec<Bind>,
    /// Folders that the worker sees empty and read-only; other binds may show parts of them elsewhere.
    #[serde(default)]
    pub hidden: Vec<PathBuf>,
    #[serde(default)]
    pub files: Vec<PrivateFile>,
    #[serde(default)]
    pub limits: Limits,
    /// True: the program starts only after [`Command::Go`].
    #[serde(default)]
    pub wait_for_go: bool,
    /// The lines that the server sends with [`Command::Go`], stored for a server that reconnects.
    #[serde(default)]
    pub preamble: Vec<String>,
    /// The worker counts as ready when it listens on all of these.
    #[serde(default)]
    pub ready_ports: Vec<u16>,
    /// Time between SIGTERM and SIGKILL of a stop that does not set its own.
    #[serde(default = "default_grace_ms")]
    pub grace_ms: u64,
    #[serde(default)]
    pub log: LogLimits,
    /// Where the output is kept; absent: [`files::LOG`] in the attempt's folder.
    #[serde(default)]
    pub log_folder: Option<PathBuf>,
    /// A plain copy of the output, for people; moved to `<name>.1` at `log.keep_bytes`.
    #[serde(default)]
    pub plain_log: Option<PathBuf>,
    /// The user the program runs as; absent: the supervisor's. Another user needs a supervisor that runs as root.
    #[serde(default)]
    pub run_as: Option<RunAs>,
    pub isolation: Isolation,
    /// The boot in which the attempt was planned; the server compares it after a restart.
    pub boot_id: String,
}

fn default_grace_ms() -> u64 {
    30_000
}

/// A system user with all its groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAs {
    pub uid: u32,
    pub gid: u32,
    #[serde(default)]
    pub groups: Vec<u32>,
}

/// A folder or file of this machine that the worker sees at another path.
///
/// A missing target inside another bind's target is created in that bind's source. A source inside another bind's
/// source is resolved below it, and no link on the way leads out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    pub source: PathBuf,
    pub target: PathBuf,
    #[serde(default)]
    pub read_only: bool,
}

/// A small file that only this worker sees, such as `/trainer_id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateFile {
    pub path: PathBuf,
    pub contents: String,
}

/// The worker's resource limits; absent means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Thousandths of a core.
    pub cpu_millis: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Processes and threads at the same time.
    pub processes: Option<u64>,
}

/// How much output is kept, and the size of the segments in which it is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogLimits {
    pub segment_bytes: u64,
    pub keep_bytes: u64,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            segment_bytes: 8 << 20,
            keep_bytes: 256 << 20,
        }
    }
}

/// The kernel mechanisms that isolate a worker; found by `probe`, used by the plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Isolation {
    /// A private view of the file system and its own host name; absent: neither.
    pub namespaces: Option<Namespaces>,
    /// Where cpu limits are set; absent: by cpu affinity.
    pub cpu: Option<CgroupParent>,
    /// Where memory limits are set; absent: by watching resident memory.
    pub memory: Option<CgroupParent>,
    /// Where the number of processes is limited; absent: it is not.
    pub pids: Option<CgroupParent>,
    /// One sentence for each thing this machine does not permit.
    pub degraded: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Through a user namespace, because the server is not root.
    pub user: bool,
    /// With its own process ids, so that the kernel kills the whole tree.
    pub pid: bool,
}

/// The folder in which an attempt's control group is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupParent {
    pub version: CgroupVersion,
    pub path: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    V1,
    V2,
}

/// Server → supervisor. All are idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Write these lines to the log, then start the program. Ignored once started.
    Go { lines: Vec<String> },
    /// SIGTERM to every process of the worker now, SIGKILL after the grace period. A second stop can only bring the
    /// SIGKILL forward.
    Stop { grace_ms: Option<u64> },
    /// Answer with [`Report::Grown`] on this connection when the log is longer than `offset`. A later watch on the same
    /// connection replaces an earlier one.
    Watch { offset: u64 },
}

/// Supervisor → server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// First on every connection, so that a client that reconnects has missed nothing.
    State(State),
    /// The program is running (or could not be started: a command that is not found exits with 127).
    Started { at: UnixNanos },
    /// The worker listens on all its ports. Sent once.
    Ready,
    /// The log now ends here: the answer to one watch.
    Grown { offset: u64 },
    /// Output could not be stored (a full disk) and is lost; the total so far.
    Dropped { bytes: u64 },
    /// The exit, already durable in `exit.json`. The supervisor exits after this line.
    Exited(Exit),
}

/// Nanoseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixNanos(pub u64);

impl UnixNanos {
    pub fn now() -> Self {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub marker: String,
    pub phase: Phase,
    /// The root of the worker's process tree; present until the end.
    pub pid: Option<u32>,
    pub started_at: Option<UnixNanos>,
    pub ready: bool,
    pub log_offset: u64,
    pub dropped_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Prepared, and waiting for [`Command::Go`].
    Waiting,
    Running,
    /// Asked to stop; processes may still exist.
    Stopping,
    /// Every process is gone, the last output is being stored.
    Ending,
}

/// How an attempt exited. Written when its last process is gone and its last byte is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub ending: Ending,
    /// The kernel (or our own check) killed a process of this worker because memory ran out.
    pub oom: bool,
    pub started_at: Option<UnixNanos>,
    pub finished_at: UnixNanos,
    /// By the monotonic clock, so correct even if the clock was changed.
    pub duration_ms: u64,
    /// The end of the log: what [`crate::log::LogReader::len`] returns from now on.
    pub final_log_offset: u64,
    /// Output lost because the disk was full.
    pub dropped_bytes: u64,
    /// Another process held one of the worker's ports when it failed.
    pub clash: Option<Clash>,
    /// Why the worker could not start, or why we killed it.
    pub message: Option<String>,
    /// Whether the worker had been asked to stop when it exited; unknown in records of older supervisors.
    #[serde(default)]
    pub stopped: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Code(i32),
    Signal(i32),
    /// Stopped before it was started, or the machine refused to set it up: see the message.
    NeverStarted,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clash {
    pub port: u16,
    pub holder_pid: Option<u32>,
    /// The attempt of the holder, if it is one of ours.
    pub holder_marker: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{path}`")]
    Write { path: PathBuf, source: io::Error },
    #[error("`{path}` is not valid")]
    Invalid {
        path: PathBuf,
        source: serde_json::Error,
    },
}

impl WorkerPlan {
    /// The folder of the worker's output, for an attempt in `dir`.
    pub fn log_folder(&self, dir: &Path) -> PathBuf {
        self.log_folder.clone().unwrap_or_else(|| dir.join(files::LOG))
    }

    /// Writes `plan.json` into the attempt's folder, durably.
    pub fn store(&self, dir: &Path) -> Result<(), FileError> {
        store(&dir.join(files::PLAN), self)
    }

    /// Writes `plan.json` into a folder that does not outlive the machine's next start.
    pub fn write(&self, dir: &Path) -> Result<(), FileError> {
        let path = dir.join(files::PLAN);
        fs::write(&path, encode(self)).map_err(|source| FileError::Write { path, source })
    }

    pub fn load(dir: &Path) -> Result<Self, FileError> {
        let path = dir.join(files::PLAN);
        let text = fs::read(&path).map_err(|source| FileError::Read {
            path: path.clone(),
            source,
        })?;
        parse(path, &text)
    }
}

impl Exit {
    /// Reserves space for `exit.json`: more than it needs, but negligible.
    pub fn reserve(dir: &Path) -> io::Result<()> {
        fs::write(dir.join(files::EXIT_DRAFT), [0; 4096])
    }

    /// Writes `exit.json` into the attempt's folder, durably.
    pub fn store(&self, dir: &Path) -> Result<(), FileError> {
        store(&dir.join(files::EXIT), self)
    }

    /// The recorded exit, or `None` if there is none yet.
    pub fn load(dir: &Path) -> Result<Option<Self>, FileError> {
        let path = dir.join(files::EXIT);
        match fs::read(&path) {
            Ok(text) => parse(path, &text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FileError::Read { path, source }),
        }
    }
}

/// One message as it is sent over the socket, including the newline.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages hold only strings, numbers and options");
    line.push(b'\n');
    line
}

pub fn decode<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(line)
}

fn parse<T: for<'a> Deserialize<'a>>(path: PathBuf, text: &[u8]) -> Result<T, FileError> {
    serde_json::from_slice(text).map_err(|source| FileError::Invalid { path, source })
}

fn store<T: Serialize>(path: &Path, value: &T) -> Result<(), FileError> {
    let text = serde_json::to_vec_pretty(value).map_err(|source| FileError::Invalid {
        path: path.to_owned(),
        source,
    })?;
    replace(path, &text).map_err(|source| FileError::Write {
        path: path.to_owned(),
        source,
    })
}

/// Replaces a file atomically: after a power failure it has the old contents or the new, never a mix.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("json.new");
    // Overwrites a draft and truncates it afterwards: its space is available even on a full disk.
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&draft)?;
    file.write_all(text)?;
    file.set_len(text.len() as u64)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

#[cfg(unix)]
fn sync_folder(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_dir: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_that_reads_back() {
        let go = Command::Go {
            lines: vec!["a\nb".into(), "ü".into()],
        };
        let line = encode(&go);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(decode::<Command>(&line).unwrap(), go);
        assert_eq!(
            String::from_utf8(encode(&Report::Ready)).unwrap(),
            "{\"report\":\"ready\"}\n"
        );
    }

    #[test]
    fn an_end_is_absent_until_it_is_stored_whole() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Exit::load(dir.path()).unwrap(), None);
        let exit = Exit {
            ending: Ending::Signal(9),
            oom: true,
            started_at: Some(UnixNanos(1)),
            finished_at: UnixNanos(2),
            duration_ms: 3,
            final_log_offset: 4,
            dropped_bytes: 0,
            clash: Some(Clash {
                port: 7164,
                holder_pid: Some(1),
                holder_marker: None,
            }),
            message: None,
            stopped: Some(false),
        };
        exit.store(dir.path()).unwrap();
        assert_eq!(Exit::load(dir.path()).unwrap(), Some(exit));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_torn_file_is_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(files::EXIT), "{").unwrap();
        let error = Exit::load(dir.path()).unwrap_err();
        assert!(error.to_string().contains("exit.json"), "{error}");
    }
}
