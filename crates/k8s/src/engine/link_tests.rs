//! What the engine does with the messages of launchers, without links and without a cluster.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use paddlecloud_core::ports::{Chunk, Piece, Stream};
use paddlecloud_core::testing::MemoryLogs;
use paddlecloud_link::LauncherHandler as _;
use paddlecloud_worker::link::{FromLauncher, FromServer, Hello, Standing, VERSION};
use paddlecloud_worker::protocol::{self, Ending, UnixNanos};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::sweeping::tests::entry;
use super::table::Stage;
use super::*;
use crate::settings::{Namespaces, Placement, PodIdentity, PodSettings, Volume};

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
    let preamble = "'a-trainer-0', 'a-trainer-1'";
    let plan = json!({
        "marker": "j_1.trainer-0.1", "worker": worker, "role": "trainer", "index": 0, "command": "true", "env": [],
        "workdir": "/", "address": "127.0.0.1", "hosts": hosts, "wait_for_go": true, "preamble": [preamble],
        "isolation": {}, "boot_id": "",
    });
    serde_json::from_value(plan).unwrap()
}

/// Nobody listens there.
async fn unused_link() -> LinkSettings {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
    LinkSettings {
        listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        tls: Arc::new(tls),
        certificate: String::new(),
        key: [7; 32],
    }
}

/// The part of a server that launchers reach.
pub(super) struct Server {
    folder: tempfile::TempDir,
    pub(super) inner: Arc<Inner>,
    logs: MemoryLogs,
}

impl Server {
    pub(super) async fn start() -> Server {
        Server::with(settings()).await
    }

    pub(super) async fn with(settings: Settings) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let logs = MemoryLogs::default();
        let options = Options {
            settings,
            kubeconfig: None,
            data: folder.path().join("data"),
            storage: folder.path().join("storage"),
            datacenter: "cloud".parse().unwrap(),
            log_limits: LogLimits::default(),
            log_copy: false,
            logs: Arc::new(logs.clone()),
            link: unused_link().await,
            limits: Limits::usual(&Placement::Pinned),
            accounts: Arc::new(NoAccounts),
        };
        // Nothing listens there: these tests need no API server.
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = kube::Client::try_from(nowhere).unwrap();
        let inner = Arc::new(Inner::open(&options, client, None).unwrap());
        Server { folder, inner, logs }
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

    /// The launcher of an attempt, after its greeting. A new one takes the place of an older one.
    async fn launcher(&self, attempt: &AttemptKey, standing: Standing) -> Launcher {
        static LINKS: AtomicU64 = AtomicU64::new(1);
        let hello = Hello {
            version: VERSION,
            attempt: attempt.to_string(),
            secret: String::new(),
            address: [10, 0, 0, u8::try_from(attempt.worker.index).unwrap()].into(),
            standing,
        };
        let link = LINKS.fetch_add(1, Ordering::Relaxed);
        let (outgoing, orders) = mpsc::unbounded_channel();
        let greeting = self.inner.greet(attempt, link, &hello, outgoing).await;
        let mut greeting = VecDeque::from(greeting.unwrap());
        let Some(FromServer::Welcome { log_end, .. }) = greeting.pop_front() else {
            panic!("it is not welcome");
        };
        Launcher {
            inner: Arc::clone(&self.inner),
            attempt: attempt.clone(),
            log_end,
            greeting,
            orders,
        }
    }
}

/// A launcher as the engine sees it.
struct Launcher {
    inner: Arc<Inner>,
    attempt: AttemptKey,
    /// Where the engine wants its log to continue.
    log_end: u64,
    greeting: VecDeque<FromServer>,
    orders: mpsc::UnboundedReceiver<FromServer>,
}

impl Launcher {
    async fn send(&self, message: &FromLauncher) -> std::io::Result<Option<FromServer>> {
        self.inner.heard(&self.attempt, message.clone()).await
    }

    async fn print(&self, offset: u64, text: &str) -> std::io::Result<u64> {
        let chunk = Chunk {
            offset,
            stamp: 1,
            stream: Stream::Output,
            bytes: text.into(),
        };
        self.inner.store_log(&self.attempt, vec![chunk]).await
    }

    /// The next message for it, if there is one now.
    fn next(&mut self) -> Option<FromServer> {
        let greeting = self.greeting.pop_front();
        greeting.or_else(|| self.orders.try_recv().ok())
    }

    /// The next message that is not about peers.
    fn order(&mut self) -> Option<FromServer> {
        loop {
            match self.next() {
                Some(FromServer::Peers { .. }) => {}
                other => return other,
            }
        }
    }
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

#[tokio::test]
async fn output_that_cannot_be_stored_is_sent_again() {
    let server = Server::start().await;
    let (attempt, launcher) = server.launch_one().await;
    assert_eq!(launcher.print(0, "one,").await.unwrap(), 4);
    server.logs.set_broken(true);
    launcher.print(4, "two,").await.unwrap_err();
    server.logs.set_broken(false);
    let launcher = server.launcher(&attempt, Standing::New).await;
    assert_eq!(launcher.log_end, 4);
    assert_eq!(launcher.print(4, "two,").await.unwrap(), 8);
    assert_eq!(launcher.print(8, "three").await.unwrap(), 13);
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
        let (attempt, launcher) = server.launch_one().await;
        server.move_records(true);
        launcher.send(&end).await.unwrap_err();
        assert!(!server.has_ended(&attempt), "the launcher reports it again");
        server.move_records(false);
        server.logs.set_broken(true);
        launcher.send(&end).await.expect_err("its log is not durable");
        assert!(!server.has_ended(&attempt));
        server.logs.set_broken(false);
        let recorded = launcher.send(&end).await.unwrap();
        assert_eq!(recorded, Some(FromServer::Recorded));
        assert!(server.has_ended(&attempt));
    }
}

#[tokio::test]
async fn an_end_for_which_the_kubelet_has_a_reason_is_not_a_disruption() {
    let server = Server::start().await;
    let (attempt, launcher) = server.launch_one().await;
    launcher.send(&FromLauncher::Evicted).await.unwrap();
    let exit = protocol::Exit {
        stopped: Some(true),
        ..exit()
    };
    let reported = protocol::Report::Exited(exit);
    let reported = FromLauncher::Report(reported);
    assert_eq!(launcher.send(&reported).await.unwrap(), None);
    assert!(!server.has_ended(&attempt), "the kubelet has not said why yet");
    let end = pods::PodEnd {
        used_too_much: true,
        message: Some("Evicted: it wrote too much".into()),
        ..pods::PodEnd::default()
    };
    tokio::time::pause();
    settle::report_end(
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
    assert_eq!(second.next().as_ref(), Some(&peers));
    assert_eq!(first.next().as_ref(), Some(&peers));
    let mut again = server.launcher(&attempts[1], Standing::New).await;
    assert_eq!(again.next(), Some(peers), "it may have missed a change");
    assert_eq!(first.next(), None);
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
    assert_eq!(first.order().as_ref(), Some(&go));
    let mut again = server.launcher(&attempts[0], Standing::New).await;
    assert_eq!(again.order(), Some(go), "it may have missed the order");
}
