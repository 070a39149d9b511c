//! Launchers at the port of the links: a real listener, TLS and the launchers' protocol, and an engine that remembers.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use paddlecloud_core::job::WorkerKey;
use paddlecloud_core::names::JobId;
use paddlecloud_worker::link::{
    ALIVE_EVERY, Decoder, Frame, SERVER_NAME, SILENT_AFTER, Standing, VERSION, encode, encode_log,
};
use paddlecloud_worker::log::Stream;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

const KEY: [u8; 32] = [7; 32];
/// Longer than any wait of these tests, in virtual time too.
const LIMIT: Duration = Duration::from_secs(120);
/// Shorter than a connection on which nothing is said stays open.
const SOON: Duration = Duration::from_secs(5);

/// An engine with one attempt. A message that a test does not expect makes it fail.
#[derive(Default)]
struct OneAttempt {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<(u64, mpsc::UnboundedSender<FromServer>)>,
    log: Vec<u8>,
    /// Nothing can be stored.
    is_broken: bool,
}

fn attempt() -> AttemptKey {
    AttemptKey {
        job: JobId::new(1, 2),
        worker: WorkerKey::trainer(0),
        attempt: 1,
    }
}

fn broken() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

impl OneAttempt {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn is_linked(&self) -> bool {
        self.state().link.is_some()
    }

    fn set_broken(&self, is_broken: bool) {
        self.state().is_broken = is_broken;
    }
}

impl LauncherHandler for OneAttempt {
    fn knows(&self, attempt: &AttemptKey) -> bool {
        *attempt == self::attempt()
    }

    async fn greet(
        self: &Arc<Self>,
        attempt: &AttemptKey,
        link: u64,
        hello: &Hello,
        orders: mpsc::UnboundedSender<FromServer>,
    ) -> io::Result<Vec<FromServer>> {
        assert_eq!((attempt, &hello.standing), (&self::attempt(), &Standing::New));
        let mut state = self.state();
        state.link = Some((link, orders));
        let log_end = state.log.len() as u64;
        Ok(vec![FromServer::Welcome { plan: None, log_end }])
    }

    async fn heard(
        self: &Arc<Self>,
        _attempt: &AttemptKey,
        message: FromLauncher,
    ) -> io::Result<Option<FromServer>> {
        match message {
            FromLauncher::Alive => Ok(None),
            FromLauncher::Unable { .. } if self.state().is_broken => Err(broken()),
            FromLauncher::Unable { .. } => Ok(Some(FromServer::Recorded)),
            other => panic!("{other:?}"),
        }
    }

    async fn store_log(self: &Arc<Self>, _attempt: &AttemptKey, chunks: Vec<Chunk>) -> io::Result<u64> {
        let mut state = self.state();
        if state.is_broken {
            return Err(broken());
        }
        for chunk in chunks {
            assert_eq!(chunk.offset, state.log.len() as u64, "nothing is missing");
            state.log.extend(chunk.bytes);
        }
        Ok(state.log.len() as u64)
    }

    fn link_closed(self: &Arc<Self>, attempt: &AttemptKey, link: u64) {
        assert_eq!(*attempt, self::attempt());
        let mut state = self.state();
        if state.link.as_ref().is_some_and(|(number, _)| *number == link) {
            state.link = None;
        }
    }
}

/// The part of a server that launchers reach.
struct Server {
    engine: Arc<OneAttempt>,
    address: SocketAddr,
    tls: TlsConnector,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (certificate, tls) = certificate();
        let engine = Arc::new(OneAttempt::default());
        Server {
            task: tokio::spawn(listen(listener, tls, KEY, Arc::clone(&engine))),
            engine,
            address,
            tls: connector(certificate),
        }
    }

    /// A connection on which nothing was said yet.
    async fn connect(&self) -> Launcher {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        Launcher {
            stream: self.tls.connect(name, stream).await.unwrap(),
            decoder: Decoder::default(),
        }
    }

    /// A launcher after its first message.
    async fn greeted(&self, hello: Hello) -> Launcher {
        let mut launcher = self.connect().await;
        launcher.send(&FromLauncher::Hello(hello)).await;
        launcher
    }

    /// The launcher of the attempt, welcome to send its log from this offset.
    async fn launcher(&self, log_end: u64) -> Launcher {
        let mut launcher = self.greeted(hello(&attempt())).await;
        let plan = None;
        assert_eq!(launcher.next().await, Some(FromServer::Welcome { plan, log_end }));
        launcher
    }
}

fn hello(attempt: &AttemptKey) -> Hello {
    let marker = attempt.to_string();
    Hello {
        version: VERSION,
        secret: secret(&KEY, &marker),
        attempt: marker,
        address: [10, 0, 0, 1].into(),
        standing: Standing::New,
    }
}

/// A certificate for the link, and a configuration that presents it.
fn certificate() -> (CertificateDer<'static>, Arc<rustls::ServerConfig>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new([SERVER_NAME.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let private = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], private)
        .unwrap();
    (certificate, Arc::new(config))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn connector(certificate: CertificateDer<'static>) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

struct Launcher {
    stream: TlsStream<TcpStream>,
    decoder: Decoder,
}

impl Launcher {
    async fn send(&mut self, message: &FromLauncher) {
        self.send_bytes(&encode(message)).await;
    }

    async fn print(&mut self, offset: u64, text: &str) {
        let chunk = Chunk {
            offset,
            stamp: 1,
            stream: Stream::Output,
            bytes: text.into(),
        };
        self.send_bytes(&encode_log(&chunk)).await;
    }

    async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next message, except signs of life. `None`: the server closed the link.
    async fn next(&mut self) -> Option<FromServer> {
        let next = tokio::time::timeout(LIMIT, self.read());
        next.await.expect("the server must answer, or close the link")
    }

    async fn read(&mut self) -> Option<FromServer> {
        let mut buffer = [0; 4 << 10];
        loop {
            match self.decoder.next_frame().unwrap() {
                Some(Frame::Message(FromServer::Alive)) => {}
                Some(Frame::Message(message)) => return Some(message),
                Some(Frame::Log(_)) => panic!("the server sends no log"),
                None => match self.stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return None,
                    Ok(length) => self.decoder.push(&buffer[..length]),
                },
            }
        }
    }
}

#[test]
fn a_secret_opens_one_attempt_only() {
    let secret = secret(&KEY, "j_1.trainer-0.1");
    assert!(is_secret(&KEY, "j_1.trainer-0.1", &secret));
    assert!(!is_secret(&KEY, "j_1.trainer-0.2", &secret));
    assert!(!is_secret(&[8; 32], "j_1.trainer-0.1", &secret));
    assert!(!is_secret(&KEY, "j_1.trainer-0.1", "nonsense"));
}

#[test]
fn an_idle_link_needs_little_memory() {
    fn size<F>(_: fn(Introduced, Arc<OneAttempt>) -> F) -> usize {
        size_of::<F>()
    }
    let size = size(session::serve::<OneAttempt>);
    assert!(size < 2048, "{size} bytes, for each of thousands");
}

#[tokio::test]
async fn a_launcher_that_is_not_of_a_known_attempt_is_turned_away() {
    let server = Server::start().await;
    let later = AttemptKey {
        attempt: 2,
        ..attempt()
    };
    let of_other = Hello {
        attempt: later.to_string(),
        ..hello(&attempt())
    };
    let of_future = Hello {
        version: VERSION + 1,
        ..hello(&attempt())
    };
    let misspelled = format!("{}.trainer-00.1", attempt().job);
    let twice_named = Hello {
        secret: secret(&KEY, &misspelled),
        attempt: misspelled,
        ..hello(&attempt())
    };
    let ended = "the job has ended, or another attempt replaced this one";
    for (hello, reason) in [
        (of_other, "its secret is wrong"),
        (of_future, "its version differs from the server's"),
        (hello(&later), ended),
        (twice_named, ended),
    ] {
        let mut launcher = server.greeted(hello).await;
        let reason = reason.to_owned();
        assert_eq!(launcher.next().await, Some(FromServer::Leave { reason }));
        assert_eq!(launcher.next().await, None);
    }
    assert!(!server.engine.is_linked());
}

#[tokio::test]
async fn a_launcher_that_falls_silent_is_noticed() {
    let server = Server::start().await;
    let mut launcher = server.launcher(0).await;
    tokio::time::pause();
    let began = Instant::now();
    assert_eq!(launcher.next().await, None);
    // It last spoke before the clock was paused, on a busy machine some seconds before.
    let earliest = SILENT_AFTER - Duration::from_secs(10);
    let latest = SILENT_AFTER + Duration::from_secs(1);
    let elapsed = began.elapsed();
    assert!((earliest..=latest).contains(&elapsed), "{elapsed:?}");
    assert!(!server.engine.is_linked());
}

#[tokio::test]
async fn a_launcher_that_is_only_idle_stays_linked() {
    let server = Server::start().await;
    let mut launcher = server.launcher(0).await;
    tokio::time::pause();
    for _ in 0..2 * SILENT_AFTER.as_secs() / ALIVE_EVERY.as_secs() {
        tokio::time::sleep(ALIVE_EVERY).await;
        launcher.send(&FromLauncher::Alive).await;
    }
    assert!(server.engine.is_linked());
}

#[tokio::test]
async fn a_newer_link_of_an_attempt_replaces_the_older_one() {
    let server = Server::start().await;
    let mut older = server.launcher(0).await;
    let mut newer = server.launcher(0).await;
    assert_eq!(older.next().await, None);
    newer.print(0, "one").await;
    assert_eq!(newer.next().await, Some(FromServer::Stored { offset: 3 }));
    let (_, orders) = server.engine.state().link.clone().unwrap();
    orders.send(FromServer::Recorded).unwrap();
    assert_eq!(newer.next().await, Some(FromServer::Recorded), "an order");
}

#[tokio::test]
async fn what_cannot_be_stored_is_not_acknowledged_and_the_link_closes() {
    let server = Server::start().await;
    let mut launcher = server.launcher(0).await;
    launcher.print(0, "one,").await;
    assert_eq!(launcher.next().await, Some(FromServer::Stored { offset: 4 }));
    server.engine.set_broken(true);
    launcher.print(4, "two,").await;
    tokio::time::pause();
    assert_eq!(launcher.next().await, None, "its output");
    tokio::time::resume();
    let end = FromLauncher::Unable { reason: "no".into() };
    let mut launcher = server.launcher(4).await;
    launcher.send(&end).await;
    tokio::time::pause();
    assert_eq!(launcher.next().await, None, "its end");
    tokio::time::resume();
    server.engine.set_broken(false);
    let mut launcher = server.launcher(4).await;
    launcher.print(4, "two,").await;
    launcher.print(8, "three").await;
    while launcher.next().await != Some(FromServer::Stored { offset: 13 }) {}
    launcher.send(&end).await;
    assert_eq!(launcher.next().await, Some(FromServer::Recorded));
    assert_eq!(server.engine.state().log, b"one,two,three");
}

#[tokio::test]
async fn a_giant_first_message_is_refused_before_it_is_read() {
    let server = Server::start().await;
    let mut stranger = server.connect().await;
    let megabyte = 1u32 << 20;
    stranger.send_bytes(&megabyte.to_be_bytes()).await;
    stranger.send_bytes(&[0; 100]).await;
    tokio::time::pause();
    let began = Instant::now();
    assert_eq!(stranger.next().await, None);
    assert!(began.elapsed() < SOON, "the server does not wait for the rest");
}

#[tokio::test]
async fn many_silent_connections_are_bounded_and_keep_no_launcher_out() {
    let server = Server::start().await;
    let mut strangers = Vec::new();
    let surplus = 20;
    for _ in 0..MOST_STRANGERS + surplus {
        strangers.push(TcpStream::connect(server.address).await.unwrap());
    }
    tokio::time::pause();
    let began = Instant::now();
    server.launcher(0).await;
    for stranger in &mut strangers[..=surplus] {
        let closed = tokio::time::timeout(LIMIT, stranger.read(&mut [0])).await;
        assert!(matches!(closed, Ok(Ok(0) | Err(_))), "the oldest make way");
    }
    assert!(began.elapsed() < SOON, "before their own time is over");
}
