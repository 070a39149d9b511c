//! The server's end of the links: launchers connect, authenticate as an attempt, and send its log and its exit.
//!
//! What a message means for an attempt is the engine's: it implements [`LauncherHandler`].

mod session;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use paddlecloud_core::ports::AttemptKey;
use paddlecloud_worker::link::{FromLauncher, FromServer, Hello};
use paddlecloud_worker::log::Chunk;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use session::Introduced;

/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(200);

/// The maximum number of connections that have not authenticated yet. Each takes a file descriptor and, at most, about 64 KiB.
const MOST_STRANGERS: usize = 256;
/// How long such a connection is kept at least.
const CHANCE: Duration = Duration::from_secs(1);

/// How pods reach this server, and how both sides authenticate.
pub struct LinkSettings {
    pub listener: TcpListener,
    pub tls: Arc<rustls::ServerConfig>,
    /// The certificate for pods, as PEM.
    pub certificate: String,
    /// Attempts' secrets are derived from this.
    pub key: [u8; 32],
}

/// What an engine does with its launchers.
///
/// If a method fails, the link is closed after a moment. The launcher connects again and repeats everything that was not
/// acknowledged, so every message may come twice.
pub trait LauncherHandler: Send + Sync + 'static {
    /// Whether this attempt was launched and not cleaned. A launcher of any other is turned away.
    fn knows(&self, attempt: &AttemptKey) -> bool;

    /// A launcher has authenticated. Returns the messages for it, in the order in which they are sent. Everything sent to
    /// `orders` follows; when it is dropped, because a newer link of the attempt has replaced this one, the link is closed.
    /// `link` is the number of this connection; none has the same.
    fn greet(
        self: &Arc<Self>,
        attempt: &AttemptKey,
        link: u64,
        hello: &Hello,
        orders: mpsc::UnboundedSender<FromServer>,
    ) -> impl Future<Output = io::Result<Vec<FromServer>>> + Send;

    /// Handles one message and returns the reply, if any.
    fn heard(
        self: &Arc<Self>,
        attempt: &AttemptKey,
        message: FromLauncher,
    ) -> impl Future<Output = io::Result<Option<FromServer>>> + Send;

    /// Stores output and returns the new end of the log: nothing before it is sent again.
    fn store_log(
        self: &Arc<Self>,
        attempt: &AttemptKey,
        chunks: Vec<Chunk>,
    ) -> impl Future<Output = io::Result<u64>> + Send;

    /// A link was closed, perhaps one that a newer link has replaced. The attempt continues.
    fn link_closed(self: &Arc<Self>, attempt: &AttemptKey, link: u64);
}

/// The secret of one attempt.
pub fn secret(key: &[u8; 32], marker: &str) -> String {
    blake3::keyed_hash(key, marker.as_bytes()).to_hex().to_string()
}

/// Compares in constant time.
fn is_secret(key: &[u8; 32], marker: &str, sent: &str) -> bool {
    blake3::Hash::from_hex(sent).is_ok_and(|sent| sent == blake3::keyed_hash(key, marker.as_bytes()))
}

/// Accepts connections. Dropping the future closes them. `key` is that of [`LinkSettings`].
pub async fn listen(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    key: [u8; 32],
    handler: Arc<impl LauncherHandler>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut strangers = Strangers::default();
    let mut sessions = JoinSet::new();
    loop {
        let is_full = strangers.tasks.len() >= MOST_STRANGERS;
        let oldest_leaves = strangers.oldest_until().filter(|_| is_full);
        tokio::select! {
            accepted = listener.accept(), if !is_full => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    strangers.spawn(session::introduce(stream, acceptor.clone(), key, Arc::clone(&handler)));
                }
                // For example out of descriptors: some may be free a moment later.
                Err(error) => {
                    tracing::warn!(%error, "a link cannot be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            () = reach(oldest_leaves) => strangers.drop_oldest(),
            Some(introduced) = strangers.tasks.join_next() => {
                if let Ok(Some(introduced)) = introduced {
                    sessions.spawn(session::serve(introduced, Arc::clone(&handler)));
                }
            }
            Some(_) = sessions.join_next() => {}
        }
    }
}

/// Waits for this moment, or forever.
async fn reach(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Connections that have not authenticated yet. When there is no room, the oldest one is closed, so that silent
/// connections keep no launcher out; but many launchers that connect at once, after a restart of the server, wait for
/// each other.
#[derive(Default)]
struct Strangers {
    tasks: JoinSet<Option<Introduced>>,
    /// The oldest first. Some have ended.
    by_age: VecDeque<(Instant, AbortHandle)>,
}

impl Strangers {
    fn spawn(&mut self, introduce: impl Future<Output = Option<Introduced>> + Send + 'static) {
        if self.by_age.len() >= 2 * MOST_STRANGERS {
            self.by_age.retain(|(_, task)| !task.is_finished());
        }
        let task = self.tasks.spawn(introduce);
        self.by_age.push_back((Instant::now(), task));
    }

    /// How long the oldest one is kept at least.
    fn oldest_until(&mut self) -> Option<Instant> {
        while self.by_age.front().is_some_and(|(_, task)| task.is_finished()) {
            self.by_age.pop_front();
        }
        self.by_age.front().map(|(since, _)| *since + CHANCE)
    }

    fn drop_oldest(&mut self) {
        if let Some((_, oldest)) = self.by_age.pop_front() {
            oldest.abort();
        }
    }
}

#[cfg(test)]
mod tests;
