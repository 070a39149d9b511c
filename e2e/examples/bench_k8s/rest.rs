//! A minimal HTTP client for the benchmark: requests to the server with a user's token.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

/// A connection that is used again and again.
pub struct Connection {
    stream: BufReader<TcpStream>,
    token: String,
}

impl Connection {
    pub fn open(endpoint: &str, token: &str) -> Connection {
        let stream = TcpStream::connect(endpoint).expect("the server listens");
        stream.set_nodelay(true).expect("a connection");
        Connection {
            stream: BufReader::new(stream),
            token: token.to_owned(),
        }
    }

    /// Sends one request and reads its reply, which must be a success.
    pub fn ask(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let token = match self.token.as_str() {
            "" => String::new(),
            token => format!("authorization: Token {token}\r\n"),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{token}\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let request = [head.as_bytes(), body.as_bytes()].concat();
        let stream = self.stream.get_mut();
        stream.write_all(&request).expect("the server reads");
        let (status, reply) = self.reply();
        assert_eq!(
            status,
            200,
            "{method} {path}: {}",
            String::from_utf8_lossy(&reply)
        );
        serde_json::from_slice(&reply).unwrap_or(Value::Null)
    }

    fn reply(&mut self) -> (u16, Vec<u8>) {
        let status = self.line();
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
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
        (status.expect("a status line"), body)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the server replies");
        line.trim_end().to_owned()
    }
}

/// A token of a user.
pub fn token(endpoint: &str, user: &str, password: &str) -> String {
    let body = json!({"username": user, "password": password});
    let reply = Connection::open(endpoint, "").ask("POST", "/api-token-auth", &body);
    reply["token"].as_str().expect("a token").to_owned()
}
