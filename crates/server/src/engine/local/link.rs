//! The connection to one supervisor: orders go out, reports come in.
//!
//! There is one task per attempt. When the connection ends, the attempt's folder shows whether the worker exited. If it did not
//! and the supervisor is alive, the task reconnects; if the supervisor is dead, the attempt is lost.

use std::future::Future;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use paddlecloud_core::job::News;
use paddlecloud_core::ports::{AttemptKey, LogMark};
use paddlecloud_worker::news;
use paddlecloud_worker::protocol::{self, Command, Report, State, files};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};

use super::Inner;
use crate::logs::Tail;

/// Longest line a supervisor sends.
const LONGEST_LINE: usize = 1 << 20;

/// Time limit for a supervisor's first message. A supervisor that is stopped, or waits for a full disk, sends nothing.
const INTRODUCTION_LIMIT: Duration = Duration::from_secs(3);

/// Pause before retrying a live supervisor that refuses connections.
const NEXT_TRY: Duration = Duration::from_millis(500);

/// How long after the grace period a supervisor may still be busy with the exit of its worker.
const STOP_MARGIN: Duration = Duration::from_secs(2);

/// A connected supervisor.
pub struct SupervisorLink {
    /// When a worker that was asked to stop must have exited.
    stop_due: Option<Instant>,
    orders: mpsc::UnboundedSender<Command>,
    /// The latest report, for a server loop that restarts. Its sender is dropped with the link's task.
    news: watch::Receiver<News>,
}

impl SupervisorLink {
    pub fn send_command(&self, command: Command) {
        // A link whose task has ended belongs to an attempt that has ended.
        let _ = self.orders.send(command);
    }

    /// Asks the supervisor to stop its worker. Returns whether the time limit of an earlier stop has passed.
    pub fn stop(&mut self, grace: Duration) -> bool {
        let now = Instant::now();
        let overdue = self.stop_due.is_some_and(|due| due <= now);
        let due = now.checked_add(grace.saturating_add(STOP_MARGIN));
        self.stop_due = [self.stop_due, due].into_iter().flatten().min();
        self.send_command(Command::Stop {
            grace_ms: u64::try_from(grace.as_millis()).ok(),
        });
        overdue
    }

    /// The latest report.
    pub fn news(&self) -> News {
        self.news.borrow().clone()
    }

    /// Resolves when the supervisor is gone and its exit has been reported.
    pub fn ended(&self) -> impl Future<Output = ()> + use<> {
        let mut news = self.news.clone();
        async move { while news.changed().await.is_ok() {} }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The supervisor exists but does not answer now.
    #[error("it does not answer")]
    Silent,
    #[error(transparent)]
    Broken(#[from] io::Error),
}

/// Connects to the supervisor in `folder` and stays connected until the worker exits. Returns its first message.
pub async fn connect(
    inner: &Arc<Inner>,
    attempt: &AttemptKey,
    folder: PathBuf,
) -> Result<State, ConnectError> {
    let (state, wire) = introduce(&folder).await?;
    let (task, orders) = Task::new(inner, attempt, folder, state_mark(&state), news::of_state(&state));
    tokio::spawn(task.run(Some(wire), orders));
    Ok(state)
}

/// Keeps a link to a live supervisor that cannot be reached now. Orders wait until it can be reached; then it reports its state,
/// or its folder shows how it exited meanwhile.
pub fn connect_later(inner: &Arc<Inner>, attempt: &AttemptKey, folder: PathBuf, error: &ConnectError) {
    tracing::warn!(?attempt, %error, "a supervisor does not answer; continuing without it");
    let unknown = LogMark {
        length: 0,
        complete: false,
    };
    let (task, orders) = Task::new(inner, attempt, folder, unknown, News::Launched);
    tokio::spawn(task.run(None, orders));
}

fn state_mark(state: &State) -> LogMark {
    LogMark {
        length: state.log_offset,
        complete: false,
    }
}

/// Both ends of a connection.
struct Wire {
    lines: Lines,
    write: OwnedWriteHalf,
}

async fn introduce(folder: &Path) -> Result<(State, Wire), ConnectError> {
    let introduced = tokio::time::timeout(INTRODUCTION_LIMIT, read_introduction(folder)).await;
    Ok(introduced.map_err(|_| ConnectError::Silent)??)
}

async fn read_introduction(folder: &Path) -> io::Result<(State, Wire)> {
    let (read, write) = open(folder).await?.into_split();
    let mut lines = Lines {
        stream: BufReader::new(read),
        line: Vec::new(),
    };
    match lines.next_report().await? {
        Some(Report::State(state)) => Ok((state, Wire { lines, write })),
        _ => Err(io::Error::other("the supervisor did not introduce itself")),
    }
}

async fn open(folder: &Path) -> io::Result<UnixStream> {
    let folder = folder.to_owned();
    let stream: StdStream =
        tokio::task::spawn_blocking(move || paddlecloud_supervisor::connect(&folder)).await??;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Reads reports as they arrive. A partial line stays buffered for the next call, so `next_report` is cancel-safe.
struct Lines {
    stream: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
}

impl Lines {
    async fn next_report(&mut self) -> io::Result<Option<Report>> {
        let room = LONGEST_LINE.saturating_sub(self.line.len()) as u64;
        let mut limited = AsyncReadExt::take(&mut self.stream, room);
        limited.read_until(b'\n', &mut self.line).await?;
        if self.line.last() != Some(&b'\n') {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.line);
        protocol::decode(&line).map(Some).map_err(io::Error::other)
    }
}

/// How a connection ended.
enum Ended {
    /// The connection is closed.
    Cut,
    /// The engine was dropped; the worker keeps running.
    EngineDropped,
}

struct Task {
    inner: Arc<Inner>,
    attempt: AttemptKey,
    folder: PathBuf,
    log: Tail,
    news: watch::Sender<News>,
    /// Whether a watch request is pending.
    watching: bool,
}

impl Task {
    /// Creates a task and registers its link.
    fn new(
        inner: &Arc<Inner>,
        attempt: &AttemptKey,
        folder: PathBuf,
        mark: LogMark,
        news: News,
    ) -> (Task, mpsc::UnboundedReceiver<Command>) {
        let (news_sender, news) = watch::channel(news);
        let (orders, incoming) = mpsc::unbounded_channel();
        inner.links().insert(
            attempt.clone(),
            SupervisorLink {
                stop_due: None,
                orders,
                news,
            },
        );
        let task = Task {
            inner: Arc::clone(inner),
            attempt: attempt.clone(),
            folder,
            log: inner.logs.attach(attempt, mark),
            news: news_sender,
            watching: false,
        };
        (task, incoming)
    }

    /// Talks to the supervisor, reconnecting as needed, until it is gone.
    async fn run(mut self, mut wire: Option<Wire>, mut orders: mpsc::UnboundedReceiver<Command>) {
        loop {
            let Some(connected) = (match wire.take() {
                Some(wire) => Some(wire),
                None => self.reconnect().await,
            }) else {
                return self.ended().await;
            };
            if let Ended::EngineDropped = self.converse(connected, &mut orders).await {
                return;
            }
            if !is_alive(&self.folder).await {
                return self.ended().await;
            }
        }
    }

    /// Waits for a silent supervisor on one connection. Returns `None` if the supervisor no longer exists.
    async fn reconnect(&mut self) -> Option<Wire> {
        loop {
            match read_introduction(&self.folder).await {
                Ok((state, wire)) => {
                    self.watching = false;
                    self.log.grown(state.log_offset);
                    self.report(news::of_state(&state));
                    return Some(wire);
                }
                Err(_) if is_alive(&self.folder).await => tokio::time::sleep(NEXT_TRY).await,
                Err(_) => return None,
            }
        }
    }

    async fn converse(&mut self, wire: Wire, orders: &mut mpsc::UnboundedReceiver<Command>) -> Ended {
        let Wire { mut lines, mut write } = wire;
        self.watch(&mut write).await;
        loop {
            tokio::select! {
                report = lines.next_report() => match report {
                    Ok(Some(report)) => self.handle_report(report, &mut write).await,
                    Ok(None) => return Ended::Cut,
                    // The supervisor exited with an unread order of ours, as in every exit with followers.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ended::Cut,
                    Err(error) => {
                        tracing::warn!(attempt = ?self.attempt, %error, "the connection to a supervisor broke");
                        return Ended::Cut;
                    }
                },
                order = orders.recv() => match order {
                    Some(command) => self.send(&command, &mut write).await,
                    None => return Ended::EngineDropped,
                },
                () = self.log.followed() => self.watch(&mut write).await,
            }
        }
    }

    async fn handle_report(&mut self, report: Report, write: &mut OwnedWriteHalf) {
        match report {
            Report::State(_) => {}
            Report::Started { .. } => self.report(News::Started),
            Report::Ready => self.report(News::Ready),
            Report::Grown { offset } => {
                self.watching = false;
                self.log.grown(offset);
                self.watch(write).await;
            }
            Report::Dropped { bytes } => {
                tracing::warn!(attempt = ?self.attempt, bytes, "output was lost because it could not be stored");
            }
            // The exit is read from the folder, where it is durable, when the connection closes.
            Report::Exited(_) => {}
        }
    }

    fn report(&self, news: News) {
        self.news.send_replace(news.clone());
        self.inner.report(&self.attempt, news);
    }

    /// Asks for growth only while the log is followed: a chatty worker without followers costs nothing.
    async fn watch(&mut self, write: &mut OwnedWriteHalf) {
        if self.watching || !self.log.is_followed() {
            return;
        }
        self.watching = true;
        let offset = self.log.length();
        self.send(&Command::Watch { offset }, write).await;
    }

    async fn send(&self, command: &Command, write: &mut OwnedWriteHalf) {
        if let Err(error) = write.write_all(&protocol::encode(command)).await {
            tracing::debug!(attempt = ?self.attempt, %error, "an order came after the end");
        }
    }

    async fn ended(self) {
        let news = super::state::end_of(&self.inner, &self.attempt, &self.folder).await;
        let length = match &news {
            News::Exited(exit) => exit.log_end,
            _ => u64::MAX,
        };
        self.log.complete(length);
        self.inner.links().remove(&self.attempt);
        self.inner.report(&self.attempt, news);
    }
}

/// Whether the attempt has a live supervisor and no recorded exit.
async fn is_alive(folder: &Path) -> bool {
    let folder = folder.to_owned();
    let look = move || !folder.join(files::EXIT).exists() && paddlecloud_supervisor::is_alive(&folder);
    tokio::task::spawn_blocking(look).await.unwrap_or(false)
}
