//! A minimal HTTP client: one request, one connection, the whole reply.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// A reply, whole.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// A request on its way.
#[derive(Debug, Clone)]
pub struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    pub fn new(method: &'static str, path: &str) -> Request {
        Request {
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    pub fn json(self, value: serde_json::Value) -> Request {
        self.body(value.to_string())
    }

    /// Sends it to `127.0.0.1:port` or `unix:/path`.
    pub async fn send(&self, address: &str) -> Reply {
        match address.strip_prefix("unix:") {
            Some(path) => self.exchange(UnixStream::connect(path).await.unwrap()).await,
            None => self.exchange(TcpStream::connect(address).await.unwrap()).await,
        }
    }

    /// Sends it and reads the head of the reply; the rest is still to come.
    pub async fn begin(&self, address: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        self.write(&mut stream).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream
    }

    pub async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) -> Reply {
        self.write(&mut stream).await;
        let mut bytes = Vec::new();
        // TLS peers may close without the polite word.
        let _ = stream.read_to_end(&mut bytes).await;
        parse(&bytes)
    }

    async fn write<S: AsyncWrite + Unpin>(&self, stream: &mut S) {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n",
            self.method, self.path
        );
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", self.body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses early need not read all of a large body.
        let _ = stream.write_all(&self.body).await;
    }
}

fn parse(bytes: &[u8]) -> Reply {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("a reply has a head");
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let chunked = headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let rest = &bytes[end + 4..];
    let body = if chunked { dechunk(rest) } else { rest.to_vec() };
    Reply {
        status,
        headers,
        body,
    }
}

fn dechunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = rest
            .windows(2)
            .position(|window| window == b"\r\n")
            .expect("a chunk has a size");
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 4 + size..];
    }
}
