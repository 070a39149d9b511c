//! Listens on TCP and Unix sockets, with TLS if configured, until the server is asked to stop.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use paddlecloud_accounts::auth::Peer;
use paddlecloud_accounts::connections::{Connection, Connections};
use paddlecloud_accounts::refusals::{Limit, Refusals};
use paddlecloud_accounts::tls::Tls;
use paddlecloud_files::lane::{self, Lane, Wire};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{Layer, ServiceExt};
use tower_http::normalize_path::NormalizePathLayer;

use super::silence::Limited;
use crate::config::{Listen, TrustedProxies, machine_memory};

/// How long a client may take for the TLS handshake, and to send a request's head.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the next piece of a request's body may take.
const SILENCE: Duration = Duration::from_secs(120);
/// How long a client may leave its reply unread.
const SEND_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a connection may be idle before its client is probed.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);
/// The most bytes a connection buffers in each direction. Many connections have many of these.
const BUFFER: usize = 128 << 10;
/// The most bytes of a request's head. Anyone can send one and leave it unfinished.
const MOST_HEAD: usize = 32 << 10;
/// How long replies in flight may take when the server stops.
const LAST_REPLIES: Duration = Duration::from_secs(10);
/// How long to wait before accepting again when the system has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The reply to a connection above the limit.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nconnection: close\r\n\
retry-after: 5\r\n\r\n{\"code\":429,\"error\":\"too-many-requests\",\"msg\":\"too many connections\"}";
/// How often such refusals are logged.
const LOG_REFUSALS_EVERY: Duration = Duration::from_secs(10);
/// Longest path the kernel accepts for a Unix socket, without the final zero.
const LONGEST_SOCKET_PATH: usize = 107;

/// Why the server cannot listen on an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on `{place}`")]
pub struct ListenError {
    place: String,
    #[source]
    source: io::Error,
}

/// An open socket. Clients can connect from now on.
pub struct Bound {
    socket: Socket,
    /// Its address, with the real port.
    pub address: String,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Bound {
    /// Whether other machines can connect.
    pub fn is_reachable_from_outside(&self) -> bool {
        let address = self.address.parse::<std::net::SocketAddr>();
        address.is_ok_and(|address| !address.ip().is_loopback())
    }
}

/// Opens a socket.
pub async fn bind(listen: &Listen) -> Result<Bound, ListenError> {
    let fail = |source| ListenError {
        place: listen.to_string(),
        source,
    };
    match listen {
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address).await.map_err(fail)?;
            let address = listener.local_addr().map_err(fail)?.to_string();
            Ok(Bound {
                socket: Socket::Tcp(listener),
                address,
            })
        }
        Listen::Unix(path) => {
            let listener = bind_unix(path).map_err(fail)?;
            Ok(Bound {
                socket: Socket::Unix(listener, path.clone()),
                address: listen.to_string(),
            })
        }
    }
}

/// Binds a Unix socket that only its owner can use. One that a dead server left behind is replaced.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path names no file",
        ));
    };
    // A path that is too long for the kernel is reached through its open folder.
    let opened = std::fs::File::open(folder)?;
    let short = match path.as_os_str().len() {
        0..=LONGEST_SOCKET_PATH => path.to_owned(),
        _ => Path::new("/proc/self/fd")
            .join(opened.as_raw_fd().to_string())
            .join(name),
    };
    if std::os::unix::net::UnixStream::connect(&short).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another server answers there",
        ));
    }
    match std::fs::symlink_metadata(path) {
        Ok(meta) if std::os::unix::fs::FileTypeExt::is_socket(&meta.file_type()) => {
            std::fs::remove_file(path)?
        }
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "something else is there",
            ));
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(&short)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves all sockets until `stop`, then finishes replies in flight. No connection is left when this returns, even if
/// its client does not read.
pub async fn serve(
    sockets: Vec<Bound>,
    tls: Option<Tls>,
    trusted: TrustedProxies,
    router: Router,
    refusals: Arc<Refusals>,
    stop: CancellationToken,
) {
    serve_with_limit(sockets, tls, trusted, router, refusals, stop, LAST_REPLIES).await;
}

async fn serve_with_limit(
    sockets: Vec<Bound>,
    tls: Option<Tls>,
    trusted: TrustedProxies,
    router: Router,
    refusals: Arc<Refusals>,
    stop: CancellationToken,
    last_replies: Duration,
) {
    let open = Arc::new(GracefulShutdown::new());
    let (connections, cut) = (TaskTracker::new(), CancellationToken::new());
    let counted = Connections::of_this_process(machine_memory());
    let trusted = Arc::new(trusted);
    let loops = sockets.into_iter().map(|bound| {
        let front = Front {
            router: router.clone(),
            tls: tls.clone(),
            open: Arc::clone(&open),
            connections: connections.clone(),
            cut: cut.clone(),
            stop: stop.clone(),
            counted: Arc::clone(&counted),
            refusals: Arc::clone(&refusals),
            trusted: Arc::clone(&trusted),
            last_logged: Mutex::default(),
        };
        tokio::spawn(front.accept_all(bound.socket))
    });
    for task in loops.collect::<Vec<_>>() {
        if let Err(error) = task.await {
            tracing::error!(%error, "a listener ended");
        }
    }
    drop(router);
    connections.close();
    let finished = async {
        if let Some(open) = Arc::into_inner(open) {
            open.shutdown().await;
        }
        connections.wait().await;
    };
    if tokio::time::timeout(last_replies, finished).await.is_err() {
        tracing::warn!(connections = connections.len(), "some replies were cut off");
        cut.cancel();
        connections.wait().await;
    }
}

/// A connection that was admitted, and how to end it.
struct NewConnection {
    connection: Arc<Connection>,
    cut: CancellationToken,
}

/// What every connection needs.
struct Front {
    router: Router,
    tls: Option<Tls>,
    open: Arc<GracefulShutdown>,
    connections: TaskTracker,
    /// Ends connections that do not end by themselves.
    cut: CancellationToken,
    stop: CancellationToken,
    counted: Arc<Connections>,
    refusals: Arc<Refusals>,
    trusted: Arc<TrustedProxies>,
    /// When a refusal was last logged.
    last_logged: Mutex<Option<Instant>>,
}

impl Front {
    async fn accept_all(self, socket: Socket) {
        while !self.stop.is_cancelled() {
            let accepted = tokio::select! {
                accepted = self.accept(&socket) => accepted,
                () = self.stop.cancelled() => break,
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        if let Socket::Unix(listener, path) = socket {
            drop(listener);
            let _ = std::fs::remove_file(path);
        }
    }

    async fn accept(&self, socket: &Socket) -> io::Result<()> {
        match socket {
            Socket::Tcp(listener) => self.accept_tcp(listener.accept().await?.0),
            Socket::Unix(listener, _) => self.accept_unix(listener.accept().await?.0),
        }
    }

    /// Counts a connection. One above the limit gets an error reply, if it reads it, and is closed.
    fn admit(&self, address: Option<IpAddr>, refuse: impl FnOnce(&[u8])) -> Option<NewConnection> {
        let cut = self.cut.child_token();
        let admitted = self.counted.begin(address, cut.clone());
        if admitted.is_none() {
            refuse(TOO_MANY);
        }
        if admitted.as_ref().is_none_or(|admitted| admitted.replaced) {
            self.refusals.count(Limit::Connections);
            let mut last_logged = self.last_logged.lock().unwrap_or_else(PoisonError::into_inner);
            if last_logged.is_none_or(|at| at.elapsed() >= LOG_REFUSALS_EVERY) {
                *last_logged = Some(Instant::now());
                tracing::warn!(?address, "connections are refused: too many are open");
            }
        }
        let connection = admitted?.connection;
        Some(NewConnection { connection, cut })
    }

    fn accept_unix(&self, stream: UnixStream) -> io::Result<()> {
        let refuse = |words: &[u8]| drop(stream.try_write(words));
        let Some(NewConnection { connection, cut }) = self.admit(None, refuse) else {
            return Ok(());
        };
        let peer = Peer {
            uid: stream.peer_cred().ok().map(|credentials| credentials.uid()),
            connection: Some(connection),
            ..Peer::default()
        };
        let wire = Wire::new(stream.into_std()?);
        let lane = wire.lane();
        self.spawn(cut, self.conversation(peer).run(wire, lane));
        Ok(())
    }

    fn spawn(&self, cut: CancellationToken, connection: impl Future<Output = ()> + Send + 'static) {
        let until_cut = cut.run_until_cancelled_owned(connection);
        drop(self.connections.spawn(until_cut));
    }

    fn accept_tcp(&self, stream: TcpStream) -> io::Result<()> {
        // Replies are small and complete: waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let address = stream.peer_addr().ok().map(|address| address.ip());
        let has_tls = self.tls.is_some();
        let refuse = |words: &[u8]| {
            if !has_tls {
                drop(stream.try_write(words));
            }
        };
        // A trusted proxy's connections count for its clients, see `client_address`.
        let counted = address.filter(|address| !self.trusted.contains(Some(*address)));
        let Some(NewConnection { connection, cut }) = self.admit(counted, refuse) else {
            return Ok(());
        };
        keep_alive(&stream);
        let wire = Wire::new(stream.into_std()?);
        let lane = wire.lane();
        let peer = Peer {
            address,
            connection: Some(connection),
            ..Peer::default()
        };
        let mut conversation = self.conversation(peer);
        match self.tls.clone() {
            None => self.spawn(cut, conversation.run(wire, lane)),
            Some(tls) => self.spawn(cut, async move {
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(wire)).await {
                    Ok(Ok(stream)) => {
                        conversation.peer.certificate = tls.certificate(stream.get_ref().1);
                        conversation.run(stream, lane).await;
                    }
                    Ok(Err(_)) => {}
                    Err(_) => conversation.refusals.count(Limit::SlowHandshake),
                }
            }),
        }
        Ok(())
    }

    fn conversation(&self, peer: Peer) -> Conversation {
        Conversation {
            peer,
            router: self.router.clone(),
            watcher: self.open.watcher(),
            refusals: Arc::clone(&self.refusals),
        }
    }
}

/// A client whose machine vanished is noticed even while it is only waited for, and one that does not read its reply is
/// disconnected by the kernel.
fn keep_alive(stream: &TcpStream) {
    use rustix::net::sockopt;
    let unread = u32::try_from(SEND_TIMEOUT.as_millis()).expect("minutes fit");
    let set = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_IDLE))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_IDLE / 4))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, 4))
        .and_then(|()| sockopt::set_tcp_user_timeout(stream, unread));
    if let Err(error) = set {
        tracing::debug!(%error, "a connection cannot be kept alive");
    }
}

/// One connection.
struct Conversation {
    peer: Peer,
    router: Router,
    watcher: Watcher,
    refusals: Arc<Refusals>,
}

impl Conversation {
    /// Answers the connection's requests, one after the other.
    async fn run<S>(self, stream: S, lane: Arc<Lane>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = NormalizePathLayer::trim_trailing_slash().layer(self.router);
        let (serving, peer, refusals) = (lane.clone(), self.peer, Arc::clone(&self.refusals));
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let mut request =
                request.map(|body| Body::new(Limited::new(body, SILENCE, Arc::clone(&refusals))));
            request.extensions_mut().insert(peer.clone());
            let (serving, answer) = (serving.serve(), service.clone().oneshot(request));
            async move {
                let answer = answer.await;
                drop(serving);
                answer
            }
        });
        let mut settings = http1::Builder::new();
        settings
            .timer(TokioTimer::new())
            .header_read_timeout(HANDSHAKE_TIMEOUT)
            .max_header_size(MOST_HEAD)
            .max_buf_size(BUFFER);
        let connection = settings.serve_connection(TokioIo::new(stream), service);
        let connection = self.watcher.watch(connection);
        let refusals = self.refusals;
        let answered = async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
                if let Some(limit) = limit_behind(&error) {
                    refusals.count(limit);
                }
            }
        };
        lane::run(lane, answered).await;
    }
}

/// The limit that ended a connection, if one did.
fn limit_behind(error: &hyper::Error) -> Option<Limit> {
    if error.is_parse_too_large() {
        return Some(Limit::HeadSize);
    }
    if error.is_timeout() {
        return Some(Limit::SlowHead);
    }
    let source = std::error::Error::source(error)?.downcast_ref::<io::Error>()?;
    (source.kind() == io::ErrorKind::TimedOut).then_some(Limit::SlowReader)
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use bytes::Bytes;
    use futures_util::stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Held by every connection, as a server's parts are.
    #[derive(Clone)]
    struct Held(#[expect(dead_code, reason = "what counts is who has one")] Arc<()>);

    async fn endless(axum::extract::State(held): axum::extract::State<Held>) -> Body {
        let pieces = stream::repeat_with(move || {
            let _ = &held;
            Ok::<_, io::Error>(Bytes::from_static(&[b'x'; 4096]))
        });
        Body::from_stream(pieces)
    }

    #[tokio::test]
    async fn connections_have_tcp_keep_alive_and_a_send_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (accepted, _client) = tokio::join!(listener.accept(), client);
        let (stream, _) = accepted.unwrap();
        keep_alive(&stream);
        let is_set = rustix::net::sockopt::socket_keepalive(&stream).unwrap();
        let idle = rustix::net::sockopt::tcp_keepidle(&stream).unwrap();
        assert_eq!((is_set, idle), (true, KEEP_ALIVE_IDLE));
        let unread = rustix::net::sockopt::tcp_user_timeout(&stream).unwrap();
        assert_eq!(u128::from(unread), SEND_TIMEOUT.as_millis());
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_cannot_delay_shutdown() {
        let listen: Listen = "127.0.0.1:0".parse().unwrap();
        let bound = bind(&listen).await.unwrap();
        let address = bound.address.clone();
        let parts = Arc::new(());
        let router = Router::new()
            .route("/", get(endless))
            .with_state(Held(Arc::clone(&parts)));
        let stop = CancellationToken::new();
        let last_replies = Duration::from_millis(50);
        let served = tokio::spawn(serve_with_limit(
            vec![bound],
            None,
            TrustedProxies::default(),
            router,
            Arc::default(),
            stop.clone(),
            last_replies,
        ));
        let mut client = TcpStream::connect(&address).await.unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        // The reply has begun; the rest is never read.
        client.read_u8().await.unwrap();
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(60), served).await;
        ended.expect("a stop comes to its end").unwrap();
        assert_eq!(Arc::strong_count(&parts), 1, "nobody holds the server's parts");
    }
}
