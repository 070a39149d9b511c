//! This machine's own server: found by its socket, started if it does not answer, replaced if it is older.
//!
//! Two commands that start it at the same time start only one: the start is protected by a lock. Readiness is reported
//! through a pipe, so nothing polls. The server is the client's own program under another name.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use paddlecloud_api::client::{Client, ClientError, Endpoint};
use rustix::event::Timespec;
use serde::Deserialize;

use crate::environment::Environment;
use crate::error::{ConnectError, chain};
use crate::holder::{Holder, pid_handle, wait_readable};
use crate::private_file::create_private_folder;
use crate::program::Program;
use crate::session::Host;

/// The version of this code, and of the program it is part of.
const OURS: &str = env!("CARGO_PKG_VERSION");
/// How long a start may take, including migrations of a large history.
const START_LIMIT: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};
/// A server that exits silently while it starts was probably killed; try once more.
const START_TRIES: usize = 2;
/// How long a stop may take: replies are finished, the store is closed.
const STOP_LIMIT: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};
/// The variables that a long-running server inherits from its caller; the others may contain secrets.
const PASSED_ON: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "RUST_LOG",
    "RUST_BACKTRACE",
];

/// The data folder of the embedded server.
#[derive(Debug, Clone)]
pub struct EmbeddedFolder {
    pub data: PathBuf,
}

impl EmbeddedFolder {
    pub fn of(environment: &Environment) -> Result<EmbeddedFolder, ConnectError> {
        let home = environment.paddle_home().ok_or_else(|| ConnectError::NoServer {
            message: "no server is configured, and the embedded server needs `HOME`".to_owned(),
            hints: vec!["set `PADDLECLOUD_HOME` to a folder you own".to_owned()],
        })?;
        Ok(EmbeddedFolder {
            data: home.join(crate::config::EMBEDDED),
        })
    }

    pub fn socket(&self) -> PathBuf {
        self.data.join("server.sock")
    }

    pub fn log(&self) -> PathBuf {
        self.data.join("server.log")
    }

    pub fn client(&self) -> Client {
        Client::new(Endpoint::unix(self.socket()))
    }
}

/// A client for a server that runs, is ready and is not older than this program.
pub async fn open<N: FnMut(&str)>(
    environment: &Environment,
    mut host: Host<'_, N>,
) -> Result<Client, ConnectError> {
    let place = EmbeddedFolder::of(environment)?;
    let client = place.client();
    match client.ping().await {
        Ok(()) => {}
        Err(ClientError::Unreachable { .. }) => {
            start(&place, environment, needed(host.program)?).await?;
            client.ping().await?;
        }
        Err(error) => return Err(error.into()),
    }
    match (older(&client), host.program) {
        (Some(theirs), Some(program)) if program.replaces_older() => {
            (host.note)(&format!(
                "the embedded server is version {theirs}, this program {OURS}: restarting it; running jobs are not affected"
            ));
            replace(&place, environment, program).await?;
            Ok(reviving(place.client(), environment, program))
        }
        (_, Some(program)) => Ok(reviving(client, environment, program)),
        (_, None) => Ok(client),
    }
}

/// A client that restarts the server when it is gone, and continues with it.
fn reviving(client: Client, environment: &Environment, program: &Program) -> Client {
    let (environment, program) = (environment.clone(), program.clone());
    client.with_reviver(Box::new(move || {
        let (environment, program) = (environment.clone(), program.clone());
        Box::pin(async move {
            let revived = revive(&environment, &program).await;
            revived.map_err(|error| chain(&error))
        })
    }))
}

/// The server must be started, so there must be a program to start.
fn needed(program: Option<&Program>) -> Result<&Program, ConnectError> {
    program.ok_or_else(|| ConnectError::NoServer {
        message: "no server is configured, and there is no program `paddlectl` to start the embedded one"
            .to_owned(),
        hints: vec![
            "add `paddlectl` to the `PATH`, or set `PADDLECLOUD_PROGRAM` to its path".to_owned(),
            "or describe a server in `~/.paddle/config`: name, username, password and endpoint".to_owned(),
        ],
    })
}

/// The server's version, if it is older than this program's.
fn older(client: &Client) -> Option<String> {
    client.server_version().filter(|theirs| is_older(theirs, OURS))
}

/// Replaces an old server by a new one, unless another command has done so meanwhile.
async fn replace(
    place: &EmbeddedFolder,
    environment: &Environment,
    program: &Program,
) -> Result<(), ConnectError> {
    let _lock = lock(place).await?;
    let client = place.client();
    match client.ping().await {
        Ok(()) if older(&client).is_some() => {
            stop(&client).await?;
            spawn(place, environment, program).await
        }
        Ok(()) => Ok(()),
        Err(ClientError::Unreachable { .. }) => spawn(place, environment, program).await,
        Err(error) => Err(error.into()),
    }
}

/// Starts the server unless another command was faster; returns whether it was this one.
pub async fn start(
    place: &EmbeddedFolder,
    environment: &Environment,
    program: &Program,
) -> Result<bool, ConnectError> {
    create_private_folder(&place.data).map_err(|error| cannot_use(place, &error))?;
    let _lock = lock(place).await?;
    if is_served(place).await? {
        return Ok(false);
    }
    spawn(place, environment, program).await.map(|()| true)
}

/// Whether a server answers. One that is still stopping or starting is waited for.
async fn is_served(place: &EmbeddedFolder) -> Result<bool, ConnectError> {
    let limit = Duration::from_secs(STOP_LIMIT.tv_sec.unsigned_abs());
    let started = Instant::now();
    loop {
        if place.client().ping().await.is_ok() {
            return Ok(true);
        }
        let Some(holder) = Holder::of(place) else {
            return Ok(false);
        };
        if started.elapsed() > limit {
            return Err(holder.wedged(place));
        }
        blocking(move || holder.watch()).await?;
    }
}

/// Runs blocking work beside the runtime, so that Ctrl-C is still handled.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ConnectError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ConnectError::refused("starting the embedded server was interrupted"))
}

/// Asks the server to stop and waits until its process is gone.
pub async fn stop(client: &Client) -> Result<(), ConnectError> {
    let info = client.server_get().await?;
    let process = pid_handle(info.pid);
    client.server_stop().await?;
    let Some(process) = process else {
        return Ok(());
    };
    // The process handle becomes readable when the process has exited.
    if wait_readable(&process, STOP_LIMIT) {
        return Ok(());
    }
    Err(ConnectError::refused(format!(
        "the embedded server (process {}) did not stop within {} s",
        info.pid, STOP_LIMIT.tv_sec
    )))
}

/// Held while a server is being started or replaced. Freed by the kernel even if this process dies.
async fn lock(place: &EmbeddedFolder) -> Result<File, ConnectError> {
    let path = place.data.join("start.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| cannot_use(place, &error))?;
    let locked =
        blocking(move || rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).map(|()| file));
    locked.await?.map_err(|error| cannot_use(place, &error.into()))
}

fn cannot_use(place: &EmbeddedFolder, error: &std::io::Error) -> ConnectError {
    ConnectError::NoServer {
        message: format!(
            "the embedded server cannot use `{}`: {error}",
            place.data.display()
        ),
        hints: vec!["set `PADDLECLOUD_HOME` to a folder that you can write to".to_owned()],
    }
}

/// Starts the detached process and waits for its report.
async fn spawn(
    place: &EmbeddedFolder,
    environment: &Environment,
    program: &Program,
) -> Result<(), ConnectError> {
    let (place, environment, program) = (place.clone(), environment.clone(), program.clone());
    blocking(move || {
        let log_begins = std::fs::metadata(place.log()).map_or(0, |file| file.len());
        for _ in 0..START_TRIES {
            if spawn_and_wait(&place, &environment, &program, log_begins)? == StartReport::Ready {
                return Ok(());
            }
        }
        Err(not_ready(&place, log_begins, "ended before it was ready"))
    })
    .await?
}

fn spawn_and_wait(
    place: &EmbeddedFolder,
    environment: &Environment,
    program: &Program,
    log_begins: u64,
) -> Result<StartReport, ConnectError> {
    let failed = |error: &std::io::Error| ConnectError::NoServer {
        message: format!("cannot start the embedded server: {error}"),
        hints: Vec::new(),
    };
    let (ready, theirs) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| failed(&error.into()))?;
    let log = File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(place.log())
        .map_err(|error| cannot_use(place, &error))?;
    let log_again = log.try_clone().map_err(|error| failed(&error))?;
    let mut command = Command::new(program.path());
    command
        .arg0("paddlecloud-server")
        .args(["--embedded", "--data"])
        .arg(&place.data)
        .args(["--ready-fd", &theirs.as_raw_fd().to_string()])
        .current_dir("/")
        .env_clear()
        .envs(passed_on(environment))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_again);
    let pipe = theirs.as_raw_fd();
    // SAFETY: between fork and exec only async-signal-safe calls are made: setsid, umask, fcntl, fork, _exit.
    unsafe {
        command.pre_exec(move || detach(pipe));
    }
    let mut middle = command.spawn().map_err(|error| failed(&error))?;
    middle.wait().map_err(|error| failed(&error))?;
    drop(theirs);
    wait_ready(place, log_begins, ready)
}

/// Leaves the caller's session permanently: the server survives logout and belongs to no terminal.
fn detach(pipe: i32) -> std::io::Result<()> {
    // SAFETY: plain system calls on numbers; the pipe's descriptor is open in this process.
    unsafe {
        if libc::setsid() < 0 || libc::fcntl(pipe, libc::F_SETFD, 0) < 0 {
            return Err(std::io::Error::last_os_error());
        }
        libc::umask(0o077);
        match libc::fork() {
            -1 => Err(std::io::Error::last_os_error()),
            0 => Ok(()),
            _ => libc::_exit(0),
        }
    }
}

fn passed_on(environment: &Environment) -> impl Iterator<Item = (&String, &String)> {
    environment.iter().filter(|(name, _)| {
        PASSED_ON.contains(&name.as_str()) || name.starts_with("LC_") || name.starts_with("PADDLECLOUD_")
    })
}

/// The one line a server writes when it is ready, or when it fails.
#[derive(Deserialize)]
struct Word {
    #[serde(default)]
    ready: bool,
    error: Option<String>,
    #[serde(default)]
    hints: Vec<String>,
}

/// What a starting server reported.
#[derive(Debug, PartialEq, Eq)]
enum StartReport {
    Ready,
    /// It exited silently.
    Nothing,
}

/// `log_begins` is the start of this server's part of the log: earlier lines are from others.
fn wait_ready(place: &EmbeddedFolder, log_begins: u64, ready: OwnedFd) -> Result<StartReport, ConnectError> {
    let not_ready = |problem: String| not_ready(place, log_begins, &problem);
    let mut line = Vec::new();
    let mut pipe = File::from(ready);
    let mut piece = [0; 4096];
    while !line.contains(&b'\n') {
        if !wait_readable(&pipe, START_LIMIT) {
            return Err(not_ready(format!(
                "was not ready within {} s",
                START_LIMIT.tv_sec
            )));
        }
        match pipe.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => line.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(not_ready(format!("closed its startup pipe: {error}"))),
        }
    }
    match serde_json::from_slice::<Word>(line.trim_ascii()) {
        Ok(word) if word.ready => Ok(StartReport::Ready),
        Ok(word) => Err(ConnectError::NoServer {
            message: format!(
                "the embedded server cannot start: {}",
                word.error.unwrap_or_else(|| "it did not say why".to_owned())
            ),
            hints: word.hints,
        }),
        Err(_) => Ok(StartReport::Nothing),
    }
}

fn not_ready(place: &EmbeddedFolder, log_begins: u64, problem: &str) -> ConnectError {
    let mut hints = vec![format!("its log is `{}`", place.log().display())];
    let line = last_line(&place.log(), log_begins);
    hints.extend(line.map(|line| format!("its last line: {line}")));
    ConnectError::NoServer {
        message: format!("the embedded server {problem}"),
        hints,
    }
}

fn last_line(path: &Path, from: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.trim().chars().take(300).collect())
}

/// Whether version `theirs` is older than `ours`. Anything that is not a version counts as current.
fn is_older(theirs: &str, ours: &str) -> bool {
    let parts = |text: &str| -> Option<Vec<u64>> {
        let plain = text.split(['-', '+']).next()?;
        plain.split('.').map(|part| part.parse().ok()).collect()
    };
    match (parts(theirs), parts(ours)) {
        (Some(theirs), Some(ours)) => theirs < ours,
        _ => false,
    }
}

/// Restarts a server that was lost while it was in use.
pub async fn revive(environment: &Environment, program: &Program) -> Result<(), ConnectError> {
    let place = EmbeddedFolder::of(environment)?;
    if place.client().ping().await.is_ok() {
        return Ok(());
    }
    start(&place, environment, program).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, EmbeddedFolder) {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().to_owned();
        (folder, EmbeddedFolder { data })
    }

    /// How a server that writes `words` and exits is classified.
    fn report_of(words: &str) -> Result<StartReport, ConnectError> {
        let (_folder, place) = place();
        let (ready, theirs) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&theirs, words.as_bytes()).unwrap();
        drop(theirs);
        wait_ready(&place, 0, ready)
    }

    #[test]
    fn a_server_reports_that_it_is_ready_or_why_it_is_not() {
        assert_eq!(report_of("{\"ready\":true}\n").unwrap(), StartReport::Ready);
        assert_eq!(report_of("").unwrap(), StartReport::Nothing);
        let refused = report_of("{\"error\":\"the port is taken\",\"hints\":[\"stop the other\"]}\n");
        assert_eq!(
            refused.unwrap_err().to_string(),
            "the embedded server cannot start: the port is taken"
        );
    }

    /// The message a user gets about a server that runs this script; also its folder.
    async fn failure_of(script: &str) -> (ConnectError, tempfile::TempDir) {
        let (folder, place) = place();
        std::fs::write(place.log(), "an earlier server is ready\n").unwrap();
        let (source, path) = (folder.path().join("source"), folder.path().join("program"));
        std::fs::write(&source, format!("#!/bin/sh\n{script}\n")).unwrap();
        // Written by another process: a program that a fork of this one still holds open would be busy.
        let mut install = Command::new("install");
        let installed = install.args(["-m", "700"]).args([&source, &path]).status();
        assert!(installed.unwrap().success());
        let variables = [
            ("PADDLECLOUD_PROGRAM", path.to_str().unwrap()),
            ("PATH", "/usr/bin:/bin"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Environment::from(std::collections::BTreeMap::from(variables));
        let program = Program::found(&environment, None).unwrap();
        let started = start(&place, &environment, &program).await;
        (started.unwrap_err(), folder)
    }

    #[tokio::test]
    async fn a_server_that_ends_while_it_starts_is_started_once_more() {
        let (error, folder) = failure_of("echo x >>${0%/*}/starts; echo last words").await;
        assert_eq!(error.to_string(), "the embedded server ended before it was ready");
        let hints = error.hints("paddlectl");
        assert_eq!(hints.last().unwrap(), "its last line: last words");
        let starts = std::fs::read_to_string(folder.path().join("starts")).unwrap();
        assert_eq!(starts.lines().count(), START_TRIES);
    }

    #[tokio::test]
    async fn the_log_of_an_earlier_server_is_not_quoted() {
        let (error, _folder) = failure_of("exit 1").await;
        let hints = error.hints("paddlectl");
        assert_eq!(hints.len(), 1, "{hints:?}");
        assert!(hints[0].starts_with("its log is "), "{hints:?}");
    }

    #[tokio::test]
    async fn an_exiting_server_is_waited_for() {
        let (_folder, place) = place();
        assert!(!is_served(&place).await.unwrap(), "nobody was ever there");
        let mut server = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        std::fs::write(place.data.join("lock"), server.id().to_string()).unwrap();
        let held = File::open(place.data.join("lock")).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let gone = std::cell::Cell::new(false);
        let looking = async {
            let served = is_served(&place).await.unwrap();
            (served, gone.get())
        };
        let leaving = async {
            gone.set(true);
            drop(held);
            server.kill().unwrap();
            server.wait().unwrap();
        };
        let (found, ()) = tokio::join!(biased; looking, leaving);
        assert_eq!(found, (false, true), "not before it was gone");
    }

    #[test]
    fn secrets_of_the_shell_are_not_passed_on() {
        let env = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("AWS_SECRET", "x"),
            ("PADDLECLOUD_HOME", "/p"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Environment::from(std::collections::BTreeMap::from(env));
        let names: Vec<&str> = passed_on(&environment).map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["LC_ALL", "PADDLECLOUD_HOME", "PATH"]);
    }

    #[test]
    fn only_a_readable_lower_version_is_older() {
        assert!(is_older("0.1.9", "0.2.0"));
        assert!(is_older("0.9.0", "0.10.0"));
        assert!(!is_older("0.2.0", "0.2.0"));
        assert!(!is_older("0.2.0-dev", "0.2.0"));
        assert!(!is_older("1.0.0", "0.2.0"));
        assert!(!is_older("unknown", "0.2.0"));
    }
}
