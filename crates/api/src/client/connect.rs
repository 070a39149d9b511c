//! Opens connections (TCP, TLS, Unix sockets), returns a request channel and keeps idle connections.

use std::time::{Duration, Instant};

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::call::{Attempt, RequestBody};
use super::unsent::{Unsent, Watched};
use super::{Client, ClientError, Endpoint};

/// Servers close idle connections; older ones than this are not worth the risk of a lost request.
const IDLE_LIMIT: Duration = Duration::from_secs(20);
/// As many idle connections are kept as transfers usually run at the same time.
const MOST_IDLE: usize = 16;

/// A connection that waits for its next request.
pub(super) struct Idle {
    channel: Channel,
    since: Instant,
}

/// A connection and whether it has already served a request.
pub(super) struct Channel {
    pub(super) sender: SendRequest<RequestBody>,
    /// Unconfirmed bytes of this connection.
    pub(super) unsent: Unsent,
    pub(super) reused: bool,
}

impl Client {
    /// The most recently used idle connection if it is still alive, otherwise a new one. A server that can be restarted
    /// is.
    pub(super) async fn channel(&self) -> Result<Channel, Attempt> {
        if let Some(channel) = self.idle() {
            return Ok(channel);
        }
        let made = match (self.connect_in_time().await, &self.reviver) {
            (Err(ClientError::Unreachable { .. }), Some(revive)) => {
                revive().await.map_err(|problem| {
                    Attempt::Final(self.broken(format!("has stopped and cannot be restarted: {problem}")))
                })?;
                self.connect_in_time().await
            }
            (made, _) => made,
        };
        made.map_err(Attempt::NotSent)
    }

    async fn connect_in_time(&self) -> Result<Channel, ClientError> {
        let made = tokio::time::timeout(self.limits.connect, self.connect()).await;
        made.unwrap_or_else(|_| {
            Err(self.unreachable(format!("no answer within {} s", self.limits.connect.as_secs())))
        })
    }

    fn idle(&self) -> Option<Channel> {
        let mut state = self.state();
        while let Some(Idle { channel, since }) = state.idle.pop() {
            if since.elapsed() < IDLE_LIMIT && channel.sender.is_ready() {
                return Some(Channel {
                    reused: true,
                    ..channel
                });
            }
        }
        None
    }

    /// Keeps a connection for the next call.
    pub(super) fn keep(&self, channel: Channel) {
        let mut state = self.state();
        if state.idle.len() == MOST_IDLE {
            state.idle.remove(0);
        }
        state.idle.push(Idle {
            channel,
            since: Instant::now(),
        });
    }

    async fn connect(&self) -> Result<Channel, ClientError> {
        match &self.endpoint {
            Endpoint::Tcp { tls, host, port, .. } => {
                let stream = TcpStream::connect((host.as_str(), *port))
                    .await
                    .map_err(|error| self.unreachable(error.to_string()))?;
                // Requests are small and wait for their reply; delaying them gains nothing.
                stream.set_nodelay(true).ok();
                let (stream, unsent) = Watched::new(stream);
                if *tls {
                    self.secure(stream, unsent, host).await
                } else {
                    self.handshake(stream, unsent).await
                }
            }
            #[cfg(unix)]
            Endpoint::Unix(path) => {
                let stream = connect_unix(path)
                    .await
                    .map_err(|error| self.unreachable(error.to_string()))?;
                let (stream, unsent) = Watched::new(stream);
                self.handshake(stream, unsent).await
            }
            #[cfg(not(unix))]
            Endpoint::Unix(_) => Err(self.unreachable("this system has no unix sockets".to_owned())),
        }
    }

    async fn secure(
        &self,
        stream: Watched<TcpStream>,
        unsent: Unsent,
        host: &str,
    ) -> Result<Channel, ClientError> {
        let known = self.state().tls_config.clone();
        let config = match known {
            Some(config) => config,
            None => {
                let config = self.tls.load()?;
                self.state().tls_config = Some(config.clone());
                config
            }
        };
        let name = rustls::pki_types::ServerName::try_from(host.to_owned())
            .map_err(|_| self.unreachable(format!("`{host}` is not a valid TLS server name")))?;
        let stream = tokio_rustls::TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map_err(|error| self.unreachable(tls_problem(&error.to_string())))?;
        self.handshake(stream, unsent).await
    }

    async fn handshake<S>(&self, stream: S, unsent: Unsent) -> Result<Channel, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unreachable(error.to_string()))?;
        // Ends by itself when the sender is dropped or the peer closes; the waiting call gets its error.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Channel {
            sender,
            unsent,
            reused: false,
        })
    }

    pub(super) fn unreachable(&self, reason: String) -> ClientError {
        ClientError::Unreachable {
            endpoint: self.endpoint.to_string(),
            reason,
        }
    }

    /// The error for callers: a server that has answered before was lost, whatever the last attempt found.
    pub(super) fn classify(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::Unreachable { reason, .. } if self.state().reached => {
                self.broken(format!("no longer answers: {reason}"))
            }
            error => error,
        }
    }

    /// The error of a server that violates the interface.
    pub fn broken(&self, problem: impl Into<String>) -> ClientError {
        ClientError::Broken {
            endpoint: self.endpoint.to_string(),
            problem: problem.into(),
        }
    }
}

/// A server rejects a client certificate with an alert whose name means little to people.
pub(super) fn tls_problem(text: &str) -> String {
    let is_about_certificate =
        text.contains("alert") && (text.contains("Cert") || text.contains("UnknownCA"));
    match is_about_certificate {
        true => format!("TLS failed: the server does not accept the client certificate ({text})"),
        false => format!("TLS failed: {text}"),
    }
}

/// The kernel accepts at most 107 bytes of path; longer paths are reached through their open folder.
#[cfg(unix)]
async fn connect_unix(path: &std::path::Path) -> std::io::Result<tokio::net::UnixStream> {
    #[cfg(target_os = "linux")]
    if path.as_os_str().len() > 107
        && let (Some(folder), Some(name)) = (path.parent(), path.file_name())
    {
        use std::os::fd::AsRawFd;
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, rustix::fs::Mode::empty())?;
        let short = std::path::PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        return tokio::net::UnixStream::connect(short).await;
    }
    tokio::net::UnixStream::connect(path).await
}
