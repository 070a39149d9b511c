//! One connection of one launcher.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use paddlecloud_core::ports::AttemptKey;
use paddlecloud_worker::link::{
    ALIVE_EVERY, Decoder, Frame, FrameError, FromLauncher, FromServer, Hello, LONGEST_HELLO, SILENT_AFTER,
    VERSION, encode,
};
use paddlecloud_worker::log::Chunk;
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{LauncherHandler, is_secret};

/// Time limit for TLS and the launcher's first message.
const FIRST_WORDS: Duration = Duration::from_secs(10);
/// The most bytes of a TLS record.
const READ_BYTES: usize = 16 << 10;
/// Pause before a link is closed because something could not be stored. The launcher connects again immediately.
const NEXT_TRY: Duration = Duration::from_secs(2);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("it sent no greeting in time")]
    Silent,
    #[error("its first message is not a greeting")]
    Rude,
}

/// A launcher that has proved which attempt it belongs to.
pub struct Introduced {
    wire: Wire,
    attempt: AttemptKey,
    hello: Hello,
}

/// Waits for a launcher to authenticate, for a short time.
pub async fn introduce(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    key: [u8; 32],
    handler: Arc<impl LauncherHandler>,
) -> Option<Introduced> {
    let introduced = async {
        let (wire, hello) = first_message(stream, acceptor).await?;
        match check(&*handler, &key, &hello) {
            Ok(attempt) => Ok(Some(Introduced { wire, attempt, hello })),
            Err(reason) => {
                tracing::warn!(attempt = hello.attempt, reason, "a launcher was rejected");
                wire.turn_away(reason).await;
                Ok(None)
            }
        }
    };
    let introduced = tokio::time::timeout(FIRST_WORDS, introduced).await;
    introduced
        .unwrap_or(Err(SessionError::Silent))
        .unwrap_or_else(|error| {
            tracing::debug!(%error, "a link was not opened");
            None
        })
}

/// Serves one launcher until one side closes the connection.
pub async fn serve<H: LauncherHandler>(introduced: Introduced, handler: Arc<H>) {
    let Introduced { wire, attempt, hello } = introduced;
    if let Err(error) = Session::run(wire, attempt.clone(), hello, handler).await {
        tracing::debug!(?attempt, %error, "a link ended");
    }
}

/// The two directions of a connection.
struct Wire {
    read: Incoming,
    write: WriteHalf<TlsStream<TcpStream>>,
}

struct Incoming {
    read: ReadHalf<TlsStream<TcpStream>>,
    decoder: Decoder,
    /// When the last bytes arrived.
    heard: Instant,
}

impl Wire {
    async fn turn_away(mut self, reason: &str) {
        let reason = reason.to_owned();
        let _ = self.write.write_all(&encode(&FromServer::Leave { reason })).await;
        let _ = self.write.shutdown().await;
    }
}

impl Incoming {
    /// All frames that have arrived, at least one. Cancel safe: the limit for silence counts from the last bytes, not from
    /// the call.
    async fn next(&mut self) -> Result<Vec<Frame<FromLauncher>>, SessionError> {
        loop {
            let mut frames = Vec::new();
            while let Some(frame) = self.decoder.next_frame()? {
                frames.push(frame);
            }
            if !frames.is_empty() {
                return Ok(frames);
            }
            let limit = self.heard + SILENT_AFTER;
            let read = tokio::time::timeout_at(limit, poll_fn(|cx| self.poll_read(cx))).await;
            read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            self.heard = Instant::now();
        }
    }

    /// Passes on what has arrived. The buffer is on the stack, because thousands of links that are idle need none.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut self.read).poll_read(cx, &mut buffer))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.decoder.push(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

/// Takes the first message. Until it is checked, little memory is spent on a connection.
async fn first_message(stream: TcpStream, acceptor: TlsAcceptor) -> Result<(Wire, Hello), SessionError> {
    let (read, write) = tokio::io::split(acceptor.accept(stream).await?);
    let mut read = Incoming {
        read,
        decoder: Decoder::with_longest(LONGEST_HELLO),
        heard: Instant::now(),
    };
    // A launcher sends nothing more before it gets a reply.
    match read.next().await?.pop() {
        Some(Frame::Message(FromLauncher::Hello(hello))) => Ok((Wire { read, write }, hello)),
        _ => Err(SessionError::Rude),
    }
}

fn check(handler: &impl LauncherHandler, key: &[u8; 32], hello: &Hello) -> Result<AttemptKey, &'static str> {
    if !is_secret(key, &hello.attempt, &hello.secret) {
        return Err("its secret is wrong");
    }
    if hello.version != VERSION {
        return Err("its version differs from the server's");
    }
    let attempt = hello.attempt.parse().ok();
    attempt
        .filter(|attempt| handler.knows(attempt))
        .ok_or("the job has ended, or another attempt replaced this one")
}

struct Session<H: LauncherHandler> {
    attempt: AttemptKey,
    number: u64,
    handler: Arc<H>,
    write: WriteHalf<TlsStream<TcpStream>>,
}

impl<H: LauncherHandler> Session<H> {
    async fn run(wire: Wire, attempt: AttemptKey, hello: Hello, handler: Arc<H>) -> Result<(), SessionError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let Wire { mut read, write } = wire;
        read.decoder.trust();
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (outgoing, mut orders) = mpsc::unbounded_channel();
        let mut session = Session {
            attempt,
            number,
            handler: Arc::clone(&handler),
            write,
        };
        // Thousands of links are idle, so what they do when they are not is in boxes.
        let welcome = Box::pin(handler.greet(&session.attempt, number, &hello, outgoing)).await?;
        drop(hello);
        for message in welcome {
            session.send(&message).await?;
        }
        let mut alive = tokio::time::interval(ALIVE_EVERY);
        loop {
            tokio::select! {
                frames = read.next() => Box::pin(session.heard(frames?)).await?,
                order = orders.recv() => match order {
                    Some(order) => session.send(&order).await?,
                    // Another connection of the same attempt replaced this one.
                    None => return Ok(()),
                },
                _ = alive.tick() => session.send(&FromServer::Alive).await?,
            }
        }
    }

    async fn send(&mut self, message: &FromServer) -> io::Result<()> {
        let frame = encode(message);
        let sent = async {
            self.write.write_all(&frame).await?;
            self.write.flush().await
        };
        tokio::time::timeout(SILENT_AFTER, sent)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn heard(&mut self, frames: Vec<Frame<FromLauncher>>) -> Result<(), SessionError> {
        let mut log = Vec::new();
        for frame in frames {
            match frame {
                Frame::Log(chunk) => log.push(chunk),
                // The next chunk, or the exit, has an offset after the gap.
                Frame::Message(FromLauncher::Gap { .. }) => {}
                Frame::Message(message) => {
                    self.store(std::mem::take(&mut log)).await?;
                    let answer = self.handler.heard(&self.attempt, message).await;
                    if let Some(answer) = self.or_pause("an end", answer).await? {
                        self.send(&answer).await?;
                    }
                }
            }
        }
        self.store(log).await
    }

    async fn store(&mut self, chunks: Vec<Chunk>) -> Result<(), SessionError> {
        if chunks.is_empty() {
            return Ok(());
        }
        let stored = self.handler.store_log(&self.attempt, chunks).await;
        let offset = self.or_pause("output", stored).await?;
        // Followers first.
        tokio::task::yield_now().await;
        Ok(self.send(&FromServer::Stored { offset }).await?)
    }

    /// After a failure, waits a moment before the session ends, and the launcher connects and sends everything again.
    async fn or_pause<T>(&self, what: &str, stored: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &stored {
            tracing::warn!(attempt = ?self.attempt, %error, "{what} could not be stored; the launcher will send it again");
            tokio::time::sleep(NEXT_TRY).await;
        }
        stored
    }
}

impl<H: LauncherHandler> Drop for Session<H> {
    fn drop(&mut self) {
        self.handler.link_closed(&self.attempt, self.number);
    }
}
