//! Launchers at the port of the links: a real listener, TLS and the launchers' protocol, without a cluster.

use std::net::{Ipv4Addr, SocketAddr};

use paddlecloud_core::plan::Role;
use paddlecloud_core::ports::{Chunk, Piece, Stream};
use paddlecloud_core::testing::MemoryLogs;
use paddlecloud_link::MOST_STRANGERS;
use paddlecloud_worker::link::{
    ALIVE_EVERY, Decoder, Frame, FromLauncher, FromServer, Hello, SERVER_NAME, SILENT_AFTER, Standing,
    VERSION, encode, encode_log,
};
use paddlecloud_worker::protocol::{self, Ending, UnixNanos};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::sweeping::tests::entry;
use super::table::Stage;
use super::*;
use crate::settings::{Namespaces, Placement, PodIdentity, PodSettings, Volume};

/// Longer than any wait of these tests, in virtual time too.
const LIMIT: Duration = Duration::from_secs(120);
/// Shorter than a connection on which nothing is said stays open.
const SOON: Duration = Duration::from_secs(5);

struct NoAccounts;

impl Accounts for NoAccounts {
    fn tenancy(&self, user: &UserName) -> Tenancy {
        Tenancy {
            namespace: user.namespace(),
            quota: Quota::default(),
        }
    }

    fn all(&self) -> Vec<Tenancy> {
        Vec::new()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

pub fn settings() -> Settings {
    Settings {
        server: "test".into(),
        link: "127.0.0.1:7171".into(),
        launcher_image: "launcher".into(),
        default_image: None,
        volume: Volume::Claim("pfs".into()),
        identity: PodIdentity { uid: 1000, gid: 1000 },
        pods: PodSettings::default(),
        sub_path: String::new(),
        namespaces: Namespaces::PerUser,
        namespace_role: None,
        placement: Placement::Pinned,
    }
}

fn plan(worker: String, hosts: Vec<(String, Ipv4Addr)>) -> WorkerPlan {
    WorkerPlan {
        marker: "j_1.trainer-0.1".into(),
        worker,
        role: Role::Trainer,
        index: 0,
        command: "true".into(),
        env: Vec::new(),
        workdir: "/".into(),
        address: Ipv4Addr::LOCALHOST,
        hosts,
        binds: Vec::new(),
        hidden: Vec::new(),
        files: Vec::new(),
        limits: protocol::Limits::default(),
        wait_for_go: true,
        preamble: vec!["'a-trainer-0', 'a-trainer-1'".into()],
        ready_ports: Vec::new(),
        grace_ms: 0,
        log: LogLimits::default(),
        log_folder: None,
        plain_log: None,
        run_as: None,
        isolation: protocol::Isolation::default(),
        boot_id: String::new(),
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

/// The part of a server that launchers reach.
pub(super) struct Server {
    folder: tempfile::TempDir,
    pub(super) inner: Arc<Inner>,
    logs: MemoryLogs,
    address: SocketAddr,
    tls: TlsConnector,
    _tasks: Tasks,
}

impl Server {
    pub(super) async fn start() -> Server {
        let folder = tempfile::tempdir().unwrap();
        let logs = MemoryLogs::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (certificate, tls) = certificate();
        let options = Options {
            settings: settings(),
            kubeconfig: None,
            data: folder.path().join("data"),
            storage: folder.path().join("storage"),
            datacenter: "cloud".parse().unwrap(),
            log_limits: LogLimits::default(),
            log_copy: false,
            logs: Arc::new(logs.clone()),
            link: LinkSettings {
                listener,
                tls,
                certificate: String::new(),
                key: [7; 32],
            },
            limits: Limits::usual(&Placement::Pinned),
            accounts: Arc::new(NoAccounts),
        };
        // Nothing listens there: these tests need no API server.
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = kube::Client::try_from(nowhere).unwrap();
        let inner = Arc::new(Inner::open(&options, client, None).unwrap());
        let tasks = Tasks::default();
        let LinkSettings {
            listener, tls, key, ..
        } = options.link;
        tasks.spawn(link::listen(listener, tls, key, Arc::clone(&inner)));
        Server {
            folder,
            inner,
            logs,
            address,
            tls: connector(certificate),
            _tasks: tasks,
        }
    }

    /// Launches a job of this many trainers, up to the moment when their pods run.
    pub(super) fn launch(&self, trainers: u32) -> Vec<AttemptKey> {
        let name = |index: u32| format!("a-trainer-{index}");
        let attempts = (0..trainers).map(|index| {
            let attempt = AttemptKey {
                job: JobId::new(1, 2),
                worker: WorkerKey::trainer(index),
                attempt: 1,
            };
            let hosts = (0..trainers).map(|peer| (name(peer), Ipv4Addr::UNSPECIFIED));
            let plan = plan(name(index), hosts.collect());
            let mut entry = entry(Stage::Running);
            entry.worker.clone_from(&plan.worker);
            entry.gang = plan.hosts.len();
            let records = &self.inner.records;
            records.begin(&attempt, &plan, &entry.pod).unwrap();
            self.inner.table().insert(attempt.clone(), entry);
            attempt
        });
        attempts.collect()
    }

    /// Launches a job of one trainer, whose launcher then connects.
    async fn launch_one(&self) -> (AttemptKey, Launcher) {
        let attempt = self.launch(1).remove(0);
        let launcher = self.launcher(&attempt, Standing::New).await;
        (attempt, launcher)
    }

    fn is_linked(&self, attempt: &AttemptKey) -> bool {
        self.inner.table().get(attempt).unwrap().link.is_some()
    }

    fn has_ended(&self, attempt: &AttemptKey) -> bool {
        self.inner.table().get(attempt).unwrap().news.is_end()
    }

    /// Moves all records away, so that none can be written, or back.
    fn move_records(&self, is_away: bool) {
        let (mut from, mut to) = (self.folder.path().join("data"), self.folder.path().join("away"));
        if !is_away {
            std::mem::swap(&mut from, &mut to);
        }
        std::fs::rename(from, to).unwrap();
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

    fn hello(&self, attempt: &AttemptKey, standing: Standing) -> FromLauncher {
        let marker = attempt.to_string();
        FromLauncher::Hello(Hello {
            version: VERSION,
            secret: link::secret(&self.inner.link_key, &marker),
            attempt: marker,
            address: [10, 0, 0, u8::try_from(attempt.worker.index).unwrap()].into(),
            standing,
        })
    }

    /// The launcher of an attempt, after its welcome.
    async fn launcher(&self, attempt: &AttemptKey, standing: Standing) -> Launcher {
        let mut launcher = self.connect().await;
        launcher.send(&self.hello(attempt, standing)).await;
        let welcome = launcher.next().await;
        assert!(matches!(welcome, Some(FromServer::Welcome { .. })), "{welcome:?}");
        launcher
    }
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

    async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next message, except signs of life. `None`: the server closed the link.
    async fn next(&mut self) -> Option<FromServer> {
        let next = tokio::time::timeout(LIMIT, self.read());
        next.await.expect("the server must answer, or close the link")
    }

    /// The next message that is not about peers.
    async fn reply(&mut self) -> Option<FromServer> {
        loop {
            match self.next().await {
                Some(FromServer::Peers { .. }) => {}
                other => return other,
            }
        }
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

#[tokio::test]
async fn a_launcher_that_falls_silent_is_noticed() {
    let server = Server::start().await;
    let (attempt, mut launcher) = server.launch_one().await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    assert_eq!(launcher.reply().await, None);
    // It last spoke before the clock was paused, on a busy machine some seconds before.
    let earliest = SILENT_AFTER - Duration::from_secs(10);
    let latest = SILENT_AFTER + Duration::from_secs(1);
    assert!(
        (earliest..=latest).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
    let silent_since = server.inner.table().get(&attempt).unwrap().silent_since;
    assert!(silent_since.is_some());
}

#[tokio::test]
async fn a_launcher_that_is_only_idle_stays_linked() {
    let server = Server::start().await;
    let (attempt, mut launcher) = server.launch_one().await;
    tokio::time::pause();
    for _ in 0..2 * SILENT_AFTER.as_secs() / ALIVE_EVERY.as_secs() {
        tokio::time::sleep(ALIVE_EVERY).await;
        launcher.send(&FromLauncher::Alive).await;
    }
    assert!(server.is_linked(&attempt));
}

#[tokio::test]
async fn logs_can_be_followed_after_a_restart_before_their_launchers_are_back() {
    let server = Server::start().await;
    let attempts = server.launch(2);
    let end = News::Lost("its node is gone".into());
    server.inner.records.store_end(&attempts[1], &end).unwrap();
    *server.inner.table() = Table::default();
    server.inner.take_up_records().await.unwrap();
    assert!(server.logs.follow(&attempts[0]).is_some());
    assert!(server.logs.follow(&attempts[1]).is_none(), "it has ended");
}

#[tokio::test]
async fn after_a_restart_a_worker_is_unlinked_until_its_launcher_is_back() {
    let server = Server::start().await;
    let attempts = server.launch(2);
    server.inner.records.note_news(&attempts[0], &News::Started);
    *server.inner.table() = Table::default();
    server.inner.take_up_records().await.unwrap();
    let unlinked = || server.inner.table().unlinked(&attempts[0].job);
    // The launcher of the other one has never connected: it has no log.
    assert_eq!(unlinked(), attempts[..1]);
    let _launcher = server.launcher(&attempts[0], Standing::New).await;
    assert_eq!(unlinked(), []);
}

fn output(offset: u64, text: &str) -> Vec<u8> {
    encode_log(&Chunk {
        offset,
        stamp: 1,
        stream: Stream::Output,
        bytes: text.into(),
    })
}

#[tokio::test]
async fn output_that_cannot_be_stored_is_sent_again() {
    let server = Server::start().await;
    let (attempt, mut launcher) = server.launch_one().await;
    launcher.send_bytes(&output(0, "one,")).await;
    assert_eq!(launcher.reply().await, Some(FromServer::Stored { offset: 4 }));
    server.logs.set_broken(true);
    launcher.send_bytes(&output(4, "two,")).await;
    tokio::time::pause();
    assert_eq!(launcher.reply().await, None, "the link is closed");
    tokio::time::resume();
    server.logs.set_broken(false);
    let mut launcher = server.connect().await;
    launcher.send(&server.hello(&attempt, Standing::New)).await;
    let welcome = launcher.reply().await;
    assert!(matches!(welcome, Some(FromServer::Welcome { log_end: 4, .. })));
    launcher.send_bytes(&output(4, "two,")).await;
    launcher.send_bytes(&output(8, "three")).await;
    while launcher.reply().await != Some(FromServer::Stored { offset: 13 }) {}
    let pieces = server.logs.reader(&attempt).read(0, 100).unwrap();
    assert!(
        pieces.iter().all(|piece| matches!(piece, Piece::Chunk(_))),
        "{pieces:?}"
    );
}

pub fn exit() -> protocol::Exit {
    protocol::Exit {
        ending: Ending::Code(0),
        oom: false,
        started_at: None,
        finished_at: UnixNanos(1),
        duration_ms: 0,
        final_log_offset: 0,
        dropped_bytes: 0,
        clash: None,
        message: None,
        stopped: Some(false),
    }
}

#[tokio::test]
async fn an_end_that_is_not_recorded_is_not_acknowledged() {
    let reported = FromLauncher::Report(protocol::Report::Exited(exit()));
    let unable = FromLauncher::Unable { reason: "no".into() };
    for end in [reported, unable] {
        let server = Server::start().await;
        let (attempt, mut launcher) = server.launch_one().await;
        server.move_records(true);
        launcher.send(&end).await;
        tokio::time::pause();
        assert_eq!(launcher.reply().await, None, "the link is closed");
        tokio::time::resume();
        assert!(!server.has_ended(&attempt), "the launcher reports it again");
        server.move_records(false);
        server.logs.set_broken(true);
        let mut launcher = server.launcher(&attempt, Standing::Ended(exit())).await;
        launcher.send(&end).await;
        tokio::time::pause();
        assert_eq!(launcher.reply().await, None, "its log is not durable");
        tokio::time::resume();
        server.logs.set_broken(false);
        let mut launcher = server.launcher(&attempt, Standing::Ended(exit())).await;
        launcher.send(&end).await;
        assert_eq!(launcher.reply().await, Some(FromServer::Recorded));
        assert!(server.has_ended(&attempt));
    }
}

#[tokio::test]
async fn an_end_for_which_the_kubelet_has_a_reason_is_not_a_disruption() {
    let server = Server::start().await;
    let (attempt, mut launcher) = server.launch_one().await;
    launcher.send(&FromLauncher::Evicted).await;
    let exit = protocol::Exit {
        stopped: Some(true),
        ..exit()
    };
    let reported = protocol::Report::Exited(exit);
    launcher.send(&FromLauncher::Report(reported)).await;
    launcher.send_bytes(&output(0, "x")).await;
    assert_eq!(launcher.reply().await, Some(FromServer::Stored { offset: 1 }));
    assert!(!server.has_ended(&attempt), "the kubelet has not said why yet");
    let end = pods::PodEnd {
        used_too_much: true,
        message: Some("Evicted: it wrote too much".into()),
        ..pods::PodEnd::default()
    };
    tokio::time::pause();
    settle::settle(
        Arc::clone(&server.inner),
        attempt.clone(),
        settle::PodFate::Ended(end),
    )
    .await;
    let news = server.inner.table().get(&attempt).unwrap().news.clone();
    let News::Exited(exit) = news else {
        panic!("{news:?}");
    };
    assert_eq!(exit.message.as_deref(), Some("Evicted: it wrote too much"));
}

#[tokio::test]
async fn a_giant_first_message_is_refused_before_it_is_read() {
    let server = Server::start().await;
    let mut stranger = server.connect().await;
    let megabyte = 1u32 << 20;
    stranger.send_bytes(&megabyte.to_be_bytes()).await;
    stranger.send_bytes(&[0; 100]).await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    assert_eq!(stranger.reply().await, None);
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
    let began = tokio::time::Instant::now();
    server.launch_one().await;
    for stranger in &mut strangers[..=surplus] {
        let closed = tokio::time::timeout(LIMIT, stranger.read(&mut [0])).await;
        assert!(matches!(closed, Ok(Ok(0) | Err(_))), "the oldest make way");
    }
    assert!(began.elapsed() < SOON, "before their own time is over");
}

#[tokio::test]
async fn peers_are_notified_of_a_launcher_only_if_its_address_changed() {
    let server = Server::start().await;
    let attempts = server.launch(2);
    let mut first = server.launcher(&attempts[0], Standing::New).await;
    let mut second = server.launcher(&attempts[1], Standing::New).await;
    let peers = FromServer::Peers {
        hosts: vec![
            ("a-trainer-0".into(), [10, 0, 0, 0].into()),
            ("a-trainer-1".into(), [10, 0, 0, 1].into()),
        ],
    };
    assert_eq!(second.next().await.as_ref(), Some(&peers));
    assert_eq!(first.next().await.as_ref(), Some(&peers));
    let mut again = server.launcher(&attempts[1], Standing::New).await;
    assert_eq!(again.next().await, Some(peers), "it may have missed a change");
    first.send_bytes(&output(0, "x")).await;
    assert_eq!(first.next().await, Some(FromServer::Stored { offset: 1 }));
}

#[tokio::test]
async fn a_program_starts_with_the_addresses_of_its_peers() {
    let server = Server::start().await;
    let attempts = server.launch(2);
    let mut first = server.launcher(&attempts[0], Standing::New).await;
    let _second = server.launcher(&attempts[1], Standing::New).await;
    orders::go(&server.inner, &attempts[0]).await;
    let lines = vec!["'10.0.0.0', '10.0.0.1'".into()];
    let go = FromServer::Command(protocol::Command::Go { lines });
    assert_eq!(first.reply().await.as_ref(), Some(&go));
    let mut again = server.launcher(&attempts[0], Standing::New).await;
    assert_eq!(again.reply().await, Some(go), "it may have missed the order");
}
