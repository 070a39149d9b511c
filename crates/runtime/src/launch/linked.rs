//! The launcher's loop: forwards the server's commands to the supervisor, and reports and the log to the server.
//!
//! The worker does not depend on the link. Without one, output waits in the run's folder, and commands wait at the
//! server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paddlecloud_worker::link::{
    ALIVE_EVERY, Frame, FromLauncher, FromServer, Hello, LOG_BLOCK, LOG_WINDOW, Standing, VERSION, encode_log,
};
use paddlecloud_worker::log::{LogReader, Piece, remove_before};
use paddlecloud_worker::protocol::{Command, Exit, Report, WorkerPlan};
use tokio::sync::mpsc;

use super::LaunchError;
use super::events::{self, LaunchEvent};
use super::leaving::{self, MemoryKills};
use super::link::{Identity, Link};
use super::output::StdoutCopy;
use super::pod_files;
use super::worker::{PodFolders, SupervisorLink};

/// Where the pod's own files are mounted.
const OWN: &str = "/paddlecloud/own";
/// Where the secret and the server's certificate are mounted.
const LINK: &str = "/paddlecloud/link";
const HOSTS: &str = "/etc/hosts";

/// About the size of a segment of the spool.
const REMOVED_AT_ONCE: u64 = 1 << 20;

/// How long an ended worker waits for the server to store its exit. Later the server finds it in the run's folder.
const LAST_WORDS: Duration = Duration::from_secs(60);
/// How long after the exit the copy on stdout may take.
const STDOUT_LAG: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 5 });
/// The part of its grace period that an evicted pod gives its program; the rest is for the report.
const EVICTION_GRACE: Duration = Duration::from_secs(20);

/// Runs this pod's worker until it exits.
pub fn run() -> Result<ExitCode, LaunchError> {
    let identity = Identity::read(Path::new(LINK))?;
    let folders = PodFolders {
        attempt: PathBuf::from(OWN).join("attempt"),
        programs: PathBuf::from(OWN).join("bin"),
        hosts: HOSTS.into(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LaunchError::new(format!("cannot start: {error}")))?;
    let code = runtime.block_on(async move {
        let (sender, incoming) = mpsc::unbounded_channel();
        events::watch(&sender)?;
        Ok(Launcher::new(identity, folders, sender).run(incoming).await)
    });
    // Do not wait for a thread that still writes to stdout.
    runtime.shutdown_background();
    code
}

struct Launcher {
    identity: Arc<Identity>,
    folders: PodFolders,
    events: mpsc::UnboundedSender<LaunchEvent>,
    link: Option<Linked>,
    worker: WorkerState,
    kills: MemoryKills,
    /// The kubelet is ending this pod.
    evicted: bool,
    /// The server rejected this attempt.
    rejected: bool,
    done: Option<ExitCode>,
}

/// A connection and its progress.
struct Linked {
    link: Link,
    welcomed: bool,
    last_sent: Instant,
    /// Log bytes that were sent on this connection or were already stored.
    sent: u64,
    stored: u64,
    end_sent: bool,
}

enum WorkerState {
    /// There is no plan yet.
    New,
    /// Nothing could be started, for this reason.
    Unable(String),
    Running(Running),
    Ended(Ended),
}

struct Running {
    supervisor: SupervisorLink,
    log: Log,
    started: bool,
}

struct Ended {
    exit: Exit,
    log: Log,
    since: Instant,
}

/// The worker's output and its current end.
struct Log {
    folder: PathBuf,
    reader: LogReader,
    end: u64,
    /// Whole segments before this offset were removed.
    removed: u64,
    /// It was said that the output cannot be read.
    complained: bool,
    stdout: StdoutCopy,
}

impl Launcher {
    fn new(identity: Identity, folders: PodFolders, events: mpsc::UnboundedSender<LaunchEvent>) -> Launcher {
        Launcher {
            identity: Arc::new(identity),
            folders,
            events,
            link: None,
            worker: WorkerState::New,
            kills: MemoryKills::now(),
            evicted: false,
            rejected: false,
            done: None,
        }
    }

    async fn run(mut self, mut incoming: mpsc::UnboundedReceiver<LaunchEvent>) -> ExitCode {
        self.connect();
        while let Some(event) = incoming.recv().await {
            self.on(event).await;
            self.ship();
            if let Some(code) = self.done {
                return code;
            }
        }
        ExitCode::FAILURE
    }

    fn connect(&self) {
        tokio::spawn(Arc::clone(&self.identity).connect(self.events.clone()));
    }

    async fn on(&mut self, event: LaunchEvent) {
        match event {
            LaunchEvent::Connected(link) => self.greet(link),
            LaunchEvent::Received(number, frame) if self.is_current(number) => self.on_frame(frame).await,
            LaunchEvent::Cut(number, words) if self.is_current(number) => {
                eprintln!("paddle launch: the link to the server broke: {words}");
                self.link = None;
                self.connect();
            }
            LaunchEvent::Received(..) | LaunchEvent::Cut(..) => {}
            LaunchEvent::Report(report) => self.on_report(report).await,
            LaunchEvent::SupervisorGone => self.on_supervisor_gone(),
            LaunchEvent::Terminate => self.on_terminate().await,
            LaunchEvent::ChildEnded => leaving::reap(),
            LaunchEvent::Tick => self.on_tick(),
        }
    }

    fn is_current(&self, number: u64) -> bool {
        self.link
            .as_ref()
            .is_some_and(|linked| linked.link.number == number)
    }

    fn greet(&mut self, link: Link) {
        let standing = match &self.worker {
            WorkerState::New | WorkerState::Unable(_) => Standing::New,
            WorkerState::Running(running) => Standing::Running(running.supervisor.state.clone()),
            WorkerState::Ended(ended) => Standing::Ended(ended.exit.clone()),
        };
        link.send(&FromLauncher::Hello(Hello {
            version: VERSION,
            attempt: self.identity.attempt.clone(),
            secret: self.identity.secret.clone(),
            address: self.identity.address,
            standing,
        }));
        self.link = Some(Linked {
            link,
            welcomed: false,
            last_sent: Instant::now(),
            sent: 0,
            stored: 0,
            end_sent: false,
        });
    }

    fn send(&mut self, message: &FromLauncher) {
        if let Some(linked) = self.link.as_mut().filter(|linked| linked.welcomed) {
            linked.last_sent = Instant::now();
            linked.link.send(message);
        }
    }

    async fn on_frame(&mut self, frame: Frame<FromServer>) {
        match frame {
            Frame::Message(FromServer::Welcome { plan, log_end }) => self.on_welcome(plan, log_end).await,
            Frame::Message(FromServer::Leave { reason }) => self.on_leave(&reason).await,
            Frame::Message(FromServer::Peers { hosts }) => {
                if let Err(problem) = pod_files::write_hosts(&self.folders.hosts, &hosts) {
                    eprintln!("paddle launch: {problem}");
                }
            }
            Frame::Message(FromServer::Command(command)) => self.tell(&command).await,
            Frame::Message(FromServer::Stored { offset }) => self.on_stored(offset),
            Frame::Message(FromServer::Recorded) => self.on_recorded(),
            Frame::Message(FromServer::Alive) | Frame::Log(_) => {}
        }
    }

    async fn on_welcome(&mut self, plan: Option<Box<WorkerPlan>>, log_end: u64) {
        let Some(linked) = &mut self.link else { return };
        linked.welcomed = true;
        linked.sent = log_end;
        linked.stored = log_end;
        if let (WorkerState::New, Some(plan)) = (&self.worker, plan) {
            self.start(&plan).await;
        }
        match &self.worker {
            WorkerState::Unable(reason) => {
                let reason = reason.clone();
                self.send(&FromLauncher::Unable { reason });
            }
            WorkerState::Running(running) => {
                let state = Report::State(running.supervisor.state.clone());
                self.send(&FromLauncher::Report(state));
            }
            WorkerState::New | WorkerState::Ended(_) => {}
        }
        if self.evicted {
            self.send(&FromLauncher::Evicted);
        }
    }

    async fn start(&mut self, plan: &WorkerPlan) {
        match SupervisorLink::start(&self.folders, plan, self.events.clone()).await {
            Ok(supervisor) => {
                let log = Log::open(&supervisor.log);
                let mut running = Running {
                    supervisor,
                    log,
                    started: false,
                };
                running.watch().await;
                self.worker = WorkerState::Running(running);
            }
            Err(reason) => self.worker = WorkerState::Unable(reason),
        }
    }

    /// A stale attempt kills its worker and exits without a report.
    async fn on_leave(&mut self, reason: &str) {
        eprintln!("paddle launch: the server rejected this attempt: {reason}");
        self.rejected = true;
        match &mut self.worker {
            WorkerState::Running(running) => {
                running
                    .supervisor
                    .tell(&Command::Stop { grace_ms: Some(0) })
                    .await;
            }
            _ => self.leave(),
        }
    }

    async fn tell(&mut self, command: &Command) {
        match &mut self.worker {
            WorkerState::Running(running) => running.supervisor.tell(command).await,
            WorkerState::New | WorkerState::Unable(_) | WorkerState::Ended(_) => {}
        }
    }

    fn on_stored(&mut self, offset: u64) {
        let Some(linked) = &mut self.link else { return };
        linked.stored = linked.stored.max(offset);
        let stored = linked.stored;
        if let Some(log) = self.worker.log_mut() {
            log.remove_before(stored);
        }
    }

    /// The server has stored everything, so the spool in the run's folder can be removed.
    fn on_recorded(&mut self) {
        if let WorkerState::Ended(ended) = &self.worker {
            ended.wait_for_stdout();
            leaving::remove_spool(&ended.log.folder);
        }
        self.leave();
    }

    async fn on_report(&mut self, report: Report) {
        let WorkerState::Running(running) = &mut self.worker else {
            return;
        };
        match report {
            Report::Grown { offset } => {
                running.log.end = running.log.end.max(offset);
                self.show().await;
            }
            Report::Exited(exit) => self.on_end(exit),
            report => {
                running.note(&report);
                self.send(&FromLauncher::Report(report));
            }
        }
    }

    /// Sends new output to the server, whose followers wait for it, and only then copies it to stdout.
    async fn show(&mut self) {
        self.ship();
        tokio::task::yield_now().await;
        if let WorkerState::Running(running) = &mut self.worker {
            running.log.grown(running.log.end);
            running.watch().await;
        }
    }

    /// The exit may still be recorded in the folder: the last report of a supervisor can be cut off.
    fn on_supervisor_gone(&mut self) {
        let WorkerState::Running(running) = &self.worker else {
            return;
        };
        let recorded = Exit::load(&self.folders.attempt).ok().flatten();
        let exit = recorded.unwrap_or_else(|| {
            leaving::end_everything();
            leaving::exit_of_lost(&running.log.reader, running.started)
        });
        self.on_end(exit);
    }

    fn on_end(&mut self, mut exit: Exit) {
        let WorkerState::Running(running) = std::mem::replace(&mut self.worker, WorkerState::New) else {
            return;
        };
        exit.oom |= self.kills.happened_since();
        if exit.oom {
            exit.message = None;
        }
        let mut log = running.log;
        log.grown(exit.final_log_offset);
        log.stdout.complete(log.end);
        leaving::keep_end(&log.folder, &exit);
        self.worker = WorkerState::Ended(Ended {
            exit,
            log,
            since: Instant::now(),
        });
        if self.rejected {
            self.leave();
        }
    }

    async fn on_terminate(&mut self) {
        self.evicted = true;
        self.send(&FromLauncher::Evicted);
        match &mut self.worker {
            WorkerState::Running(running) => {
                let grace_ms = u64::try_from(EVICTION_GRACE.as_millis()).ok();
                running.supervisor.tell(&Command::Stop { grace_ms }).await;
            }
            _ => self.leave(),
        }
    }

    fn on_tick(&mut self) {
        if let Some(linked) = &self.link
            && linked.last_sent.elapsed() >= ALIVE_EVERY
        {
            self.send(&FromLauncher::Alive);
        }
        let waited = match &self.worker {
            WorkerState::Ended(ended) => ended.since.elapsed(),
            _ => return,
        };
        if waited >= LAST_WORDS {
            self.leave();
        }
    }

    /// Sends the part of the log that the server lacks and, after its last byte, the exit.
    fn ship(&mut self) {
        let Some(linked) = self.link.as_mut().filter(|linked| linked.welcomed) else {
            return;
        };
        if let Some(log) = self.worker.log_mut() {
            linked.ship(log);
        }
        if let WorkerState::Ended(ended) = &self.worker
            && linked.sent >= ended.log.end
            && !linked.end_sent
        {
            linked.end_sent = true;
            linked
                .link
                .send(&FromLauncher::Report(Report::Exited(ended.exit.clone())));
        }
    }

    fn leave(&mut self) {
        let code = match &self.worker {
            WorkerState::Ended(ended) => {
                ended.wait_for_stdout();
                leaving::explain(&ended.exit)
            }
            WorkerState::Unable(reason) => leaving::complain(reason),
            WorkerState::New | WorkerState::Running(_) => leaving::STOPPED,
        };
        self.done = Some(code.into());
    }
}

impl Linked {
    fn ship(&mut self, log: &mut Log) {
        while self.sent < log.end && self.sent - self.stored < LOG_WINDOW {
            // The reader does not look for more than there is.
            let most = usize::try_from(log.end - self.sent).map_or(LOG_BLOCK, |rest| rest.min(LOG_BLOCK));
            let pieces = match log.reader.read_at(self.sent, most) {
                Ok(pieces) => pieces,
                Err(error) => return log.complain(&error),
            };
            if pieces.is_empty() {
                return;
            }
            for piece in pieces {
                self.sent = piece.end();
                self.last_sent = Instant::now();
                match piece {
                    Piece::Chunk(chunk) => self.link.send_frame(encode_log(&chunk)),
                    Piece::Gap(gap) => self.link.send(&FromLauncher::Gap {
                        from: gap.from,
                        to: gap.to,
                    }),
                }
            }
        }
    }
}

impl WorkerState {
    fn log_mut(&mut self) -> Option<&mut Log> {
        match self {
            WorkerState::Running(running) => Some(&mut running.log),
            WorkerState::Ended(ended) => Some(&mut ended.log),
            WorkerState::New | WorkerState::Unable(_) => None,
        }
    }
}

impl Running {
    async fn watch(&mut self) {
        let offset = self.log.end;
        self.supervisor.tell(&Command::Watch { offset }).await;
    }

    /// Stores the state for a server that connects later.
    fn note(&mut self, report: &Report) {
        use paddlecloud_worker::protocol::Phase;
        let state = &mut self.supervisor.state;
        match report {
            Report::Started { at } => {
                self.started = true;
                state.phase = Phase::Running;
                state.started_at = Some(*at);
            }
            Report::Ready => state.ready = true,
            Report::Dropped { bytes } => state.dropped_bytes = *bytes,
            Report::State(_) | Report::Grown { .. } | Report::Exited(_) => {}
        }
    }
}

impl Ended {
    /// Blocks the whole launcher: everything else that it had to do is done.
    fn wait_for_stdout(&self) {
        let limit = STDOUT_LAG.saturating_sub(self.since.elapsed());
        self.log.stdout.wait(limit);
    }
}

impl Log {
    fn open(folder: &Path) -> Log {
        Log {
            folder: folder.to_owned(),
            reader: LogReader::open(folder),
            end: 0,
            removed: 0,
            complained: false,
            stdout: StdoutCopy::start(folder, std::io::stdout()),
        }
    }

    fn grown(&mut self, end: u64) {
        self.end = self.end.max(end);
        self.stdout.grown(self.end);
    }

    /// Says once why no more output is sent.
    fn complain(&mut self, error: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.complained, true) {
            eprintln!("paddle launch: the output cannot be read: {error}");
        }
    }

    /// Removes what is stored and printed. Does not look into the folder for every line.
    fn remove_before(&mut self, stored: u64) {
        let offset = stored.min(self.stdout.copied());
        if offset >= self.removed + REMOVED_AT_ONCE {
            remove_before(&self.folder, offset);
            self.removed = offset;
        }
    }
}

#[cfg(test)]
mod tests;
