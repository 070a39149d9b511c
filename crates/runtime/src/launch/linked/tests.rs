//! The end of a worker: what the server gets, and when.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, Sender, channel};

use paddlecloud_worker::link::Decoder;
use paddlecloud_worker::log::{LogWriter, Stream};
use paddlecloud_worker::protocol::{Ending, LogLimits, Phase, State, UnixNanos, encode, files};
use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
use tokio_rustls::TlsConnector;

use super::*;

/// Longer than any wait of these tests.
const LIMIT: Duration = Duration::from_secs(60);

const OUTPUT: &[u8] = b"last words\n";

/// A stdout that accepts nothing before the sender is dropped.
struct Blocked(Receiver<()>);

impl io::Write for Blocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A launcher whose worker has printed something, and the server's end of its link.
async fn launcher(folder: &Path, stdout: Blocked) -> (Launcher, DuplexStream) {
    let log = folder.join("spool/log");
    std::fs::create_dir(folder.join("spool")).unwrap();
    let mut writer = LogWriter::create(&log, LogLimits::default()).unwrap();
    writer.append(Stream::Output, OUTPUT, UnixNanos(1));
    let (events, _) = mpsc::unbounded_channel();
    let (ours, theirs) = duplex(1 << 20);
    let mut launcher = Launcher::new(identity(), folders(folder), events.clone());
    launcher.greet(Link::over(ours, events.clone()));
    launcher.on_welcome(None, 0).await;
    launcher.worker = WorkerState::Running(Running {
        supervisor: supervisor(folder, log.clone(), events).await,
        log: Log {
            stdout: StdoutCopy::start(&log, stdout),
            ..Log::open(&log)
        },
        started: true,
    });
    (launcher, theirs)
}

fn identity() -> Identity {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Identity {
        server: "127.0.0.1:9".into(),
        attempt: "j_1.trainer-0.1".into(),
        secret: "secret".into(),
        address: [127, 0, 0, 1].into(),
        tls: TlsConnector::from(Arc::new(tls)),
    }
}

fn folders(folder: &Path) -> PodFolders {
    PodFolders {
        attempt: folder.to_owned(),
        programs: folder.to_owned(),
        hosts: folder.join("hosts"),
    }
}

/// A supervisor that says nothing more than its greeting.
async fn supervisor(
    folder: &Path,
    log: PathBuf,
    events: mpsc::UnboundedSender<LaunchEvent>,
) -> SupervisorLink {
    let listener = UnixListener::bind(folder.join(files::SOCKET)).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let state = State {
            marker: "j_1.trainer-0.1".into(),
            phase: Phase::Running,
            pid: None,
            started_at: None,
            ready: false,
            log_offset: 0,
            dropped_bytes: 0,
        };
        io::Write::write_all(&mut stream, &encode(&Report::State(state))).unwrap();
        // Until the launcher hangs up.
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    SupervisorLink::connect(folder, log, events).await.unwrap()
}

fn exit() -> Exit {
    Exit {
        ending: Ending::Code(0),
        oom: false,
        started_at: None,
        finished_at: UnixNanos(2),
        duration_ms: 1,
        final_log_offset: OUTPUT.len() as u64,
        dropped_bytes: 0,
        clash: None,
        message: None,
        stopped: Some(false),
    }
}

/// What the server hears: the whole output, then the exit.
async fn wait_until_exit(mut server: DuplexStream) -> Vec<u8> {
    let (mut decoder, mut output, mut buffer) = (Decoder::default(), Vec::new(), [0; 1 << 10]);
    loop {
        match decoder.next_frame::<FromLauncher>().unwrap() {
            Some(Frame::Log(chunk)) => output.extend(chunk.bytes),
            Some(Frame::Message(FromLauncher::Report(Report::Exited(_)))) => return output,
            Some(Frame::Message(_)) => {}
            None => {
                let length = server.read(&mut buffer).await.unwrap();
                assert!(length > 0, "the launcher keeps its link");
                decoder.push(&buffer[..length]);
            }
        }
    }
}

#[test]
fn the_exit_does_not_wait_for_stdout() {
    let (heard, hear): (Sender<Vec<u8>>, _) = channel();
    let (unblock, blocked) = channel();
    // A launcher that waits blocks its thread.
    let thread = std::thread::spawn(move || {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let (mut launcher, server) = launcher(folder.path(), Blocked(blocked)).await;
            launcher.on(LaunchEvent::Report(Report::Exited(exit()))).await;
            launcher.ship();
            heard.send(wait_until_exit(server).await).unwrap();
            let recorded = Frame::Message(FromServer::Recorded);
            launcher.on_frame(recorded).await;
            assert!(launcher.done.is_some());
            assert!(!folder.path().join("spool").exists());
        });
    });
    let output = hear
        .recv_timeout(LIMIT)
        .expect("the exit is sent although stdout is blocked");
    assert_eq!(output, OUTPUT);
    drop(unblock);
    thread.join().unwrap();
}
