//! Launchers without a worker: each links one running pod to its server as `paddle launch` does, and reports a program
//! that starts when it may and ends when all have started.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _};
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use paddlecloud_k8s::names;
use paddlecloud_worker::link::{
    ALIVE_EVERY, Decoder, Frame, FromLauncher, FromServer, Hello, SERVER_NAME, Standing, VERSION, encode,
};
use paddlecloud_worker::protocol::{Command, Ending, Exit, Phase, Report, State, UnixNanos};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, mpsc, watch};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const NEXT_TRY: Duration = Duration::from_millis(50);

/// The secrets of a run, read once.
type RunSecret = Arc<OnceCell<Secret>>;

pub async fn launch(
    client: Client,
    namespace: &str,
    running: impl Stream<Item = PartialObjectMeta<Pod>>,
    pods: usize,
) {
    let link = std::env::var("PADDLECLOUD_LINK").expect("the address of the server's link");
    let (end, ended) = watch::channel(false);
    let (started, mut starts) = mpsc::unbounded_channel();
    let mut secrets: HashMap<String, RunSecret> = HashMap::new();
    let mut seen = HashSet::new();
    let mut tasks = tokio::task::JoinSet::new();
    let mut running = pin!(running);
    while seen.len() < pods {
        let pod = running.next().await.expect("the watch lasts");
        if !seen.insert(pod.name_any()) {
            continue;
        }
        let owner = pod
            .owner_references()
            .first()
            .expect("pods of a run have an owner");
        let secret = Arc::clone(secrets.entry(owner.name.clone()).or_default());
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let (owner, link) = (owner.name.clone(), link.clone());
        let (started, ended) = (started.clone(), ended.clone());
        let address = Ipv4Addr::from(0x0a00_0000 + u32::try_from(seen.len()).unwrap_or(0));
        tasks.spawn(async move {
            let get = || async { api.get(&owner).await.expect("the owner can be read") };
            let secret = secret.get_or_init(get).await;
            let identity = Identity::of(&pod, secret, address);
            drop(pod);
            // The server closes connections that wait for their turn too long, and launchers connect again.
            while linked(&link, &identity, &started, ended.clone()).await.is_err() {
                tokio::time::sleep(NEXT_TRY).await;
            }
        });
    }
    for _ in 0..pods {
        starts.recv().await;
    }
    println!("started");
    let closed = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = closed.await;
    let _ = end.send(true);
    tasks.join_all().await;
}

/// One connection, to the end of its worker.
async fn linked(
    link: &str,
    identity: &Identity,
    started: &mpsc::UnboundedSender<()>,
    ended: watch::Receiver<bool>,
) -> io::Result<()> {
    Launcher::connect(link, identity).await?.run(started, ended).await
}

/// What a launcher reads in its pod.
struct Identity {
    attempt: String,
    secret: String,
    certificate: Vec<u8>,
    address: Ipv4Addr,
}

impl Identity {
    fn of(pod: &PartialObjectMeta<Pod>, secret: &Secret, address: Ipv4Addr) -> Identity {
        let attempt = names::attempt_of(pod.labels()).expect("the pod is of a run");
        let key = format!("{}-{}", attempt.worker.role, attempt.worker.index);
        let value = |key: &str| {
            let data = secret.data.as_ref().expect("the secret has data");
            data[key].0.clone()
        };
        Identity {
            attempt: attempt.to_string(),
            secret: String::from_utf8(value(&key)).expect("a secret is text"),
            certificate: value("ca.crt"),
            address,
        }
    }
}

struct Launcher {
    stream: TlsStream<TcpStream>,
    attempt: String,
}

impl Launcher {
    async fn connect(link: &str, identity: &Identity) -> io::Result<Launcher> {
        let mut roots = rustls::RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(&identity.certificate).expect("a certificate");
        roots.add(authority).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the usual versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(link).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER_NAME).expect("a name");
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await?;
        let mut launcher = Launcher {
            stream,
            attempt: identity.attempt.clone(),
        };
        let hello = Hello {
            version: VERSION,
            attempt: identity.attempt.clone(),
            secret: identity.secret.clone(),
            address: identity.address,
            standing: Standing::New,
        };
        launcher.send(&FromLauncher::Hello(hello)).await?;
        Ok(launcher)
    }

    async fn send(&mut self, message: &FromLauncher) -> io::Result<()> {
        self.stream.write_all(&encode(message)).await?;
        self.stream.flush().await
    }

    async fn report(&mut self, report: Report) -> io::Result<()> {
        self.send(&FromLauncher::Report(report)).await
    }

    async fn run(
        mut self,
        started: &mpsc::UnboundedSender<()>,
        mut ended: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; 4 << 10];
        let mut is_trainer = false;
        // Nothing may follow the first message before its reply.
        let mut alive = tokio::time::interval_at(Instant::now() + ALIVE_EVERY, ALIVE_EVERY);
        loop {
            while let Some(frame) = decoder.next_frame().expect("the server sends frames") {
                match frame {
                    Frame::Message(FromServer::Welcome { plan, .. }) => {
                        is_trainer = plan.expect("a new attempt gets a plan").wait_for_go;
                        let state = self.state(is_trainer);
                        self.report(Report::State(state)).await?;
                        if !is_trainer {
                            self.report(Report::Ready).await?;
                            let _ = started.send(());
                        }
                    }
                    Frame::Message(FromServer::Command(Command::Go { .. })) => {
                        self.report(Report::Started { at: UnixNanos::now() }).await?;
                        let _ = started.send(());
                    }
                    Frame::Message(FromServer::Command(Command::Stop { .. })) => {
                        self.report(Report::Exited(exit(Ending::Signal(15)))).await?;
                    }
                    Frame::Message(FromServer::Recorded | FromServer::Leave { .. }) => return Ok(()),
                    Frame::Message(_) | Frame::Log(_) => {}
                }
            }
            tokio::select! {
                read = self.stream.read(&mut buffer) => match read? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    length => decoder.push(&buffer[..length]),
                },
                Ok(()) = ended.changed(), if is_trainer => {
                    self.report(Report::Exited(exit(Ending::Code(0)))).await?;
                }
                _ = alive.tick() => self.send(&FromLauncher::Alive).await?,
            }
        }
    }

    fn state(&self, waits: bool) -> State {
        State {
            marker: self.attempt.clone(),
            phase: if waits { Phase::Waiting } else { Phase::Running },
            pid: None,
            started_at: (!waits).then(UnixNanos::now),
            ready: false,
            log_offset: 0,
            dropped_bytes: 0,
        }
    }
}

fn exit(ending: Ending) -> Exit {
    Exit {
        ending,
        oom: false,
        started_at: None,
        finished_at: UnixNanos::now(),
        duration_ms: 0,
        final_log_offset: 0,
        dropped_bytes: 0,
        clash: None,
        message: None,
        stopped: Some(ending != Ending::Code(0)),
    }
}
