//! A minimal HTTP client for the benchmark: requests over the embedded server's socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use e2e::TestEnvironment;

/// Where the embedded server listens.
pub fn socket(env: &TestEnvironment) -> PathBuf {
    env.home().join(".paddle/local/server.sock")
}

/// A connection that is used again and again.
pub struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub fn open(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the server listens");
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends one request and reads its reply; returns the status and the body.
    pub fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let request = [head.as_bytes(), body.as_bytes()].concat();
        self.stream
            .get_mut()
            .write_all(&request)
            .expect("the server reads");
        self.reply()
    }

    fn reply(&mut self) -> (u16, Vec<u8>) {
        let status = self
            .line()
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .expect("a status line");
        let mut length = 0;
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("the whole body");
        (status, body)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the server replies");
        line.trim_end().to_owned()
    }
}

/// Asks once in HTTP/1.0, whose reply simply lasts until the server closes it; returns a reader of the body.
pub fn stream(socket: &Path, path: &str) -> impl Read + use<> {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").expect("the server reads");
    let mut stream = BufReader::with_capacity(16 << 10, stream);
    let mut line = String::new();
    stream.read_line(&mut line).expect("the server replies");
    assert!(line.contains(" 200 "), "{line}");
    while line.len() > 2 {
        line.clear();
        stream.read_line(&mut line).expect("the server replies");
    }
    stream
}
