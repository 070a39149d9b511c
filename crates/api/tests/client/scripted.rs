//! A server whose every reply is scripted: real sockets, no HTTP library, and it can disconnect anywhere.

use std::sync::{Arc, Mutex};

use paddlecloud_api::ALIVE_HEADER;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// A request as it arrived.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub line: String,
    pub head: String,
    pub body: Vec<u8>,
}

impl Seen {
    /// The value of a header, if it was sent.
    pub fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(prefix.as_str()))
    }

    /// The value of a pair in the query.
    pub fn query(&self, key: &str) -> Option<&str> {
        let target = self.line.split(' ').nth(1)?;
        let pairs = target.split_once('?')?.1.split('&');
        pairs
            .filter_map(|pair| pair.split_once('='))
            .find_map(|(name, value)| (name == key).then_some(value))
    }
}

/// What the server does with a request.
pub enum Reply {
    /// These bytes, and the connection stays open.
    Keep(Vec<u8>),
    /// These bytes, and the connection is cut.
    Cut(Vec<u8>),
}

/// A whole JSON reply.
pub fn json(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\npaddlecloud-version: 9.9.9\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Every request so far.
pub type Log = Arc<Mutex<Vec<Seen>>>;

/// Serves on its own port until the test ends; returns the endpoint and the requests it saw.
pub async fn serve<F>(script: F) -> (String, Log)
where
    F: Fn(usize, &Seen) -> Reply + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let log = Log::default();
    let (script, seen) = (Arc::new(script), log.clone());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(connection(socket, script.clone(), seen.clone()));
        }
    });
    (format!("http://{address}"), log)
}

/// Answers the requests of one connection.
pub async fn connection<S, F>(mut socket: S, script: Arc<F>, log: Log)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Fn(usize, &Seen) -> Reply,
{
    while let Some(seen) = read_request(&mut socket).await {
        let number = {
            let mut log = log.lock().unwrap();
            log.push(seen.clone());
            log.len() - 1
        };
        let (bytes, stays) = match script(number, &seen) {
            Reply::Keep(bytes) => (bytes, true),
            Reply::Cut(bytes) => (bytes, false),
        };
        if socket.write_all(&bytes).await.is_err() || socket.flush().await.is_err() || !stays {
            let _ = socket.shutdown().await;
            return;
        }
    }
}

async fn read_request(socket: &mut (impl AsyncRead + Unpin)) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut seen = Seen {
        line: head.lines().next().unwrap_or_default().to_owned(),
        head,
        body: bytes[end + 4..].to_vec(),
    };
    let length: usize = seen
        .header("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let chunked = seen.header("transfer-encoding") == Some("chunked");
    while seen.body.len() < length || (chunked && !seen.body.ends_with(b"0\r\n\r\n")) {
        if socket.read_buf(&mut seen.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(seen)
}

/// A reply that began before the work was done.
pub fn early_reply(end: &str) -> Reply {
    let text = format!("      {end}");
    let head = format!(
        "HTTP/1.1 200 X\r\npaddlecloud-version: 9.9.9\r\n{ALIVE_HEADER}: 1\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    Reply::Keep([head, text].concat().into_bytes())
}
