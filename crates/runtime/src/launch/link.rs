//! Connections to the server: TLS that trusts only the pod's given certificate, reconnecting whenever one breaks.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paddlecloud_worker::link::{Decoder, FromLauncher, SERVER_NAME, SILENT_AFTER, encode};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

use super::LaunchError;
use super::events::LaunchEvent;

/// `host:port` of the server's link.
pub const ADDRESS_VARIABLE: &str = "PADDLECLOUD_LINK";
const ATTEMPT_VARIABLE: &str = "PADDLECLOUD_LINK_ATTEMPT";
const POD_ADDRESS_VARIABLE: &str = "POD_IP";

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// How this pod reaches its server and authenticates.
pub struct Identity {
    pub server: String,
    pub attempt: String,
    pub secret: String,
    pub address: Ipv4Addr,
    pub tls: TlsConnector,
}

impl Identity {
    /// Reads the environment and the files of the pod.
    pub fn read(folder: &Path) -> Result<Identity, LaunchError> {
        let variable =
            |name: &str| std::env::var(name).map_err(|_| LaunchError::new(format!("`{name}` is not set")));
        let address = variable(POD_ADDRESS_VARIABLE)?;
        let address = address
            .parse()
            .map_err(|_| LaunchError::new(format!("`{address}` in `POD_IP` is not an IPv4 address")))?;
        let (certificate, secret) = (folder.join("ca.crt"), folder.join("secret"));
        let unreadable = |path: &Path, error: &dyn std::fmt::Display| {
            LaunchError::new(format!("cannot read `{}`: {error}", path.display()))
        };
        let pem =
            CertificateDer::from_pem_file(&certificate).map_err(|error| unreadable(&certificate, &error))?;
        let secret = std::fs::read_to_string(&secret).map_err(|error| unreadable(&secret, &error))?;
        Ok(Identity {
            server: variable(ADDRESS_VARIABLE)?,
            attempt: variable(ATTEMPT_VARIABLE)?,
            secret: secret.trim().to_owned(),
            address,
            tls: connector(pem)?,
        })
    }

    /// Retries until it is connected, then sends the connection as an event.
    pub async fn connect(self: Arc<Self>, events: mpsc::UnboundedSender<LaunchEvent>) {
        let mut pause = FIRST_PAUSE;
        let mut complained = false;
        loop {
            match tokio::time::timeout(CONNECT_LIMIT, self.open()).await {
                Ok(Ok(stream)) => {
                    let link = Link::over(stream, events.clone());
                    let _ = events.send(LaunchEvent::Connected(link));
                    return;
                }
                Ok(Err(error)) if !complained => eprintln!("paddle launch: {}: {error}", self.server),
                Err(_) if !complained => eprintln!("paddle launch: {} does not answer", self.server),
                _ => {}
            }
            complained = true;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn open(&self) -> io::Result<impl AsyncRead + AsyncWrite + use<>> {
        let stream = TcpStream::connect(&self.server).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
        self.tls.connect(name, stream).await
    }
}

/// Trusts only the server's own CA.
fn connector(authority: CertificateDer<'static>) -> Result<TlsConnector, LaunchError> {
    let bad = |error: rustls::Error| LaunchError::new(format!("`ca.crt` cannot be used: {error}"));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority).map_err(bad)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(bad)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// One connection. Dropping it closes it.
pub struct Link {
    pub number: u64,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    tasks: [tokio::task::AbortHandle; 2],
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl Link {
    pub fn over(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        events: mpsc::UnboundedSender<LaunchEvent>,
    ) -> Link {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (read, write) = tokio::io::split(stream);
        let (outgoing, frames) = mpsc::unbounded_channel();
        let cut = events.clone();
        let reading = tokio::spawn(async move {
            let error = hear(read, number, &events).await.err();
            let words = error.map_or("the server closed the link".to_owned(), |error| error.to_string());
            let _ = events.send(LaunchEvent::Cut(number, words));
        });
        let writing = tokio::spawn(async move {
            if let Err(error) = say(write, frames).await {
                let _ = cut.send(LaunchEvent::Cut(number, error.to_string()));
            }
        });
        Link {
            number,
            outgoing,
            tasks: [reading.abort_handle(), writing.abort_handle()],
        }
    }

    pub fn send(&self, message: &FromLauncher) {
        self.send_frame(encode(message));
    }

    /// Frames that cannot be sent are sent again on the next connection.
    pub fn send_frame(&self, frame: Vec<u8>) {
        let _ = self.outgoing.send(frame);
    }
}

async fn hear(
    mut read: impl AsyncRead + Unpin,
    number: u64,
    events: &mpsc::UnboundedSender<LaunchEvent>,
) -> io::Result<()> {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let received = tokio::time::timeout(SILENT_AFTER, read.read(&mut buffer)).await;
        let length = received.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if length == 0 {
            return Ok(());
        }
        decoder.push(&buffer[..length]);
        while let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
            if events.send(LaunchEvent::Received(number, frame)).is_err() {
                return Ok(());
            }
        }
    }
}

async fn say(
    mut write: impl AsyncWrite + Unpin,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        write.write_all(&frame).await?;
        if frames.is_empty() {
            write.flush().await?;
        }
    }
    write.shutdown().await
}
