//! One attempt in its own folder: started, controlled and cleaned up as the server does it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command as Process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use paddlecloud_supervisor::{Swept, connect, sweep};
use paddlecloud_worker::log::{LogReader, Piece};
use paddlecloud_worker::protocol::{
    Command, Exit, Isolation, MARKER_VARIABLE, Report, RunAs, State, WorkerPlan, decode, encode, files,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

const PROGRAM: &str = env!("CARGO_BIN_EXE_paddlecloud-supervise");
const NOBODY: u32 = 65534;
/// A user that no machine has, so that nothing belongs to it by chance.
const MAPPED: u32 = 31_337;
/// A test that waits this long has failed; an emulated machine is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// A way to run workers that this machine and user permit.
#[derive(Debug, Clone)]
pub struct Mode {
    pub name: &'static str,
    /// The supervisor's user, if not the test's own.
    pub uid: Option<u32>,
    /// The worker's user, if not the supervisor's.
    pub run_as: Option<RunAs>,
    pub isolation: Isolation,
}

impl Mode {
    fn new(name: &'static str, uid: Option<u32>, isolation: Isolation) -> Self {
        Self {
            name,
            uid,
            run_as: None,
            isolation,
        }
    }

    fn mapped(self, name: &'static str) -> Self {
        let user = RunAs {
            uid: MAPPED,
            gid: MAPPED,
            groups: vec![MAPPED],
        };
        Self {
            name,
            run_as: Some(user),
            ..self
        }
    }

    /// The number of the worker's user.
    pub fn user(&self) -> u32 {
        let supervisor = self.uid.unwrap_or(rustix::process::geteuid().as_raw());
        self.run_as.as_ref().map_or(supervisor, |user| user.uid)
    }

    /// Gives a file or folder to the worker's user.
    pub fn give(&self, path: &Path) {
        if self.uid.is_some() || self.run_as.is_some() {
            chown(path, Some(self.user()), Some(self.user())).unwrap();
        }
    }
}

/// As the current user with all features, as nobody with the remaining ones, both also without any, and with workers
/// that belong to another user than their supervisor.
pub fn modes() -> Vec<Mode> {
    let probed = Mode::new("probed", None, probe_as(None));
    let bare = Mode::new("bare", None, Isolation::default());
    if !is_root() {
        return vec![probed, bare];
    }
    let (mapped, bare_mapped) = (probed.clone(), bare.clone());
    vec![
        probed,
        bare,
        Mode::new("nobody", Some(NOBODY), probe_as(Some(NOBODY))),
        Mode::new("nobody, bare", Some(NOBODY), Isolation::default()),
        mapped.mapped("mapped"),
        bare_mapped.mapped("mapped, bare"),
    ]
}

/// Those in which the worker's user is not its supervisor's. Needs root.
pub fn mapped_modes() -> Vec<Mode> {
    let modes: Vec<_> = modes().into_iter().filter(|mode| mode.run_as.is_some()).collect();
    assert!(!modes.is_empty(), "only root can run workers as another user");
    modes
}

/// Those with a private view of the file system.
pub fn private_modes() -> Vec<Mode> {
    let modes: Vec<_> = modes()
        .into_iter()
        .filter(|mode| mode.isolation.namespaces.is_some())
        .collect();
    assert!(!modes.is_empty(), "these tests need namespaces");
    modes
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn probe_as(uid: Option<u32>) -> Isolation {
    let output = program(uid).arg("--probe").output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn program(uid: Option<u32>) -> Process {
    let mut process = Process::new(PROGRAM);
    process.current_dir("/");
    if let Some(uid) = uid {
        process.uid(uid).gid(uid);
    }
    process
}

pub struct Attempt {
    pub plan: WorkerPlan,
    pub mode: Mode,
    dir: tempfile::TempDir,
}

impl Attempt {
    pub fn new(mode: &Mode, command: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::tempdir().unwrap();
        if let Some(uid) = mode.uid {
            chown(dir.path(), Some(uid), Some(uid)).unwrap();
        }
        let [a, b] = (count as u16 + 1).to_be_bytes();
        let plan = serde_json::json!({
            "marker": format!("test-{}-{count}", std::process::id()),
            "worker": format!("job-trainer-{count}"),
            "role": "trainer",
            "index": 0,
            "command": command,
            "env": [["PATH", "/usr/bin:/bin"]],
            "workdir": "/",
            "address": std::net::Ipv4Addr::new(127, 77, a, b),
            "grace_ms": 60_000,
            "run_as": mode.run_as,
            "isolation": mode.isolation,
            "boot_id": "boot",
        });
        let plan = serde_json::from_value(plan).unwrap();
        Self {
            plan,
            mode: mode.clone(),
            dir,
        }
    }

    pub fn with(mut self, change: impl FnOnce(&mut WorkerPlan)) -> Self {
        change(&mut self.plan);
        self
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn start(&self) {
        let result = self.try_start();
        assert_eq!(result, Ok(()), "{self:?}");
    }

    pub fn try_start(&self) -> Result<(), String> {
        self.plan.store(self.dir()).unwrap();
        let output = program(self.mode.uid).arg(self.dir()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            Ok(())
        } else {
            Err(message)
        }
    }

    /// A connection whose first report, the state, is returned too.
    pub fn connect(&self) -> (Client, State) {
        let mut client = Client::new(connect(self.dir()).unwrap_or_else(|error| panic!("{self:?}: {error}")));
        match client.next() {
            Some(Report::State(state)) => (client, state),
            other => panic!("the state comes first, not {other:?}"),
        }
    }

    /// Waits until the supervisor is gone and returns the exit it recorded.
    pub fn exit(&self) -> Exit {
        if let Ok(stream) = connect(self.dir()) {
            let mut client = Client::new(stream);
            while client.next().is_some() {}
        }
        Exit::load(self.dir())
            .unwrap()
            .unwrap_or_else(|| panic!("no end was recorded: {self:?}"))
    }

    /// Runs to the end, which must leave nothing behind.
    pub fn run(&self) -> Exit {
        self.start();
        let exit = self.exit();
        self.assert_nothing_left();
        exit
    }

    pub fn log(&self) -> LogReader {
        LogReader::open(&self.dir().join(files::LOG))
    }

    pub fn text(&self) -> String {
        let pieces = self.log().read_at(0, usize::MAX).unwrap();
        let bytes = pieces.into_iter().flat_map(|piece| match piece {
            Piece::Chunk(chunk) => chunk.bytes,
            Piece::Gap(gap) => panic!("{gap:?}"),
        });
        String::from_utf8(bytes.collect()).unwrap()
    }

    pub fn troubles(&self) -> String {
        fs::read_to_string(self.dir().join(files::TROUBLES)).unwrap_or_default()
    }

    pub fn supervisor(&self) -> Pid {
        self.supervisor_if_any().unwrap()
    }

    /// `None` if it has ended, which also removes the file.
    fn supervisor_if_any(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.dir().join(files::PID)).ok()?;
        Pid::from_raw(text.split(' ').next()?.parse().ok()?)
    }

    /// Every process that carries the attempt's marker.
    pub fn processes(&self) -> Vec<Pid> {
        let marker = format!("{MARKER_VARIABLE}={}", self.plan.marker);
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| {
            let environment = environment_of(&entry.path())?;
            let carries = environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == marker.as_bytes());
            carries
                .then(|| entry.file_name().to_str()?.parse().ok())
                .flatten()
                .and_then(Pid::from_raw)
        })
        .collect()
    }

    /// The control groups that exist; on version 2 one group serves both limits.
    pub fn cgroups(&self) -> Vec<std::path::PathBuf> {
        let isolation = &self.plan.isolation;
        let parents = [&isolation.cpu, &isolation.memory, &isolation.pids];
        let dirs = parents
            .into_iter()
            .flatten()
            .map(|parent| parent.path.join(&self.plan.marker));
        let mut dirs: Vec<_> = dirs.filter(|dir| dir.exists()).collect();
        dirs.dedup();
        dirs
    }

    pub fn assert_nothing_left(&self) {
        assert_eq!(self.processes(), [], "{self:?}");
        assert_eq!(self.cgroups(), Vec::<std::path::PathBuf>::new(), "{self:?}");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.dir().to_str().unwrap()), "{mounts}");
        let mut names: Vec<_> = fs::read_dir(self.dir())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names
            .retain(|name| ![files::EXIT, files::LOG, files::PLAN, files::TROUBLES].contains(&name.as_str()));
        assert_eq!(names, Vec::<String>::new(), "{self:?}");
        assert_eq!(self.troubles(), "", "{self:?}");
    }
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{}: {:?} in {:?} ({})",
            self.mode.name,
            self.plan.command,
            self.dir(),
            self.troubles()
        )
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if paddlecloud_supervisor::is_alive(self.dir())
            && let Some(supervisor) = self.supervisor_if_any()
        {
            let handle = pidfd_open(supervisor, PidfdFlags::empty());
            let _ = kill_process(supervisor, Signal::KILL);
            handle.into_iter().for_each(|handle| wait_gone(&handle));
        }
        let swept = sweep(&self.plan.marker);
        if !std::thread::panicking() {
            assert_eq!(swept.unwrap(), Swept::default(), "{self:?}");
        }
    }
}

/// Handles that show when these processes are gone.
pub fn handles(pids: &[Pid]) -> Vec<OwnedFd> {
    pids.iter()
        .filter_map(|pid| pidfd_open(*pid, PidfdFlags::empty()).ok())
        .collect()
}

pub fn wait_gone(process: &OwnedFd) {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let patience = rustix::event::Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut fds, Some(&patience)), Ok(1), "a process is still there");
}

pub struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            reader: BufReader::new(stream),
        }
    }

    /// `None` if the supervisor is gone.
    pub fn next(&mut self) -> Option<Report> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(decode(line.as_bytes()).unwrap()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("the supervisor is silent: {error}"),
        }
    }

    pub fn send(&mut self, command: &Command) {
        self.reader.get_mut().write_all(&encode(command)).unwrap();
    }

    /// Reads until this report.
    pub fn until<T>(&mut self, select: impl Fn(Report) -> Option<T>) -> T {
        loop {
            let report = self.next().expect("the supervisor is still there");
            if let Some(found) = select(report) {
                return found;
            }
        }
    }

    /// Waits until the log contains a text.
    pub fn until_logged(&mut self, attempt: &Attempt, text: &str) {
        let mut offset = 0;
        while !attempt.text().contains(text) {
            self.send(&Command::Watch { offset });
            offset = self.until(|report| match report {
                Report::Grown { offset } => Some(offset),
                Report::Exited(exit) => panic!("{exit:?} before {text:?}: {:?}", attempt.text()),
                _ => None,
            });
        }
    }
}

/// The environment of a process. It is empty for a moment while a program takes the place of another.
fn environment_of(process: &Path) -> Option<Vec<u8>> {
    for _ in 0..1000 {
        let environment = fs::read(process.join("environ")).ok()?;
        if !environment.is_empty() || fs::read_link(process.join("exe")).is_err() {
            return Some(environment);
        }
        std::thread::yield_now();
    }
    None
}
