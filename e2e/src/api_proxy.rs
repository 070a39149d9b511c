//! Stands between a server and the cluster's API server: counts calls, refuses them, and ends the server after one.
//!
//! `kubectl proxy` behind it does the TLS and the credentials, so what passes here is plain HTTP, a connection a call.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::json;

use crate::cluster::Cluster;

#[derive(Default)]
struct State {
    /// What was called since the last [`ApiProxy::forget`], watches left out.
    calls: Vec<String>,
    /// Every connection is closed unanswered.
    down: bool,
    /// Calls that are still to be answered with "too many requests".
    too_many: usize,
    /// After how many calls from now this runs, before the caller hears of the last one.
    hook: Option<(usize, Box<dyn FnOnce() + Send>)>,
}

/// A proxy in front of the API server; ended when dropped.
pub struct ApiProxy {
    state: Arc<Mutex<State>>,
    port: u16,
    kubectl: Child,
}

impl ApiProxy {
    pub fn start(cluster: &Cluster) -> ApiProxy {
        let mut kubectl = Command::new("kubectl")
            .args(["proxy", "--port=0"])
            .env("KUBECONFIG", cluster.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`kubectl` is in PATH where there is a cluster");
        let mut line = String::new();
        let stdout = kubectl.stdout.take().expect("it is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("kubectl says where it listens");
        let upstream: u16 = line
            .trim()
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("kubectl says where it listens");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // A side that has left is the other's affair.
                    let _ = pass(connection, upstream, &shared);
                });
            }
        });
        ApiProxy { state, port, kubectl }
    }

    /// Writes a kubeconfig that leads here.
    pub fn kubeconfig(&self, file: &Path) -> PathBuf {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": format!("http://127.0.0.1:{}", self.port)}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        });
        fs::write(file, config.to_string()).expect("a file in the server's folder");
        file.to_owned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the counters.
    pub fn forget(&self) {
        self.state().calls.clear();
    }

    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// Whether the API server can be reached.
    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// Answers the next calls with 429.
    pub fn refuse(&self, calls: usize) {
        self.state().too_many = calls;
    }

    /// Runs something when the n-th call from now is done, before its caller hears of it.
    pub fn after_calls(&self, n: usize, hook: impl FnOnce() + Send + 'static) {
        self.state().hook = Some((n, Box::new(hook)));
    }

    /// Whether what [`ApiProxy::after_calls`] was given has run.
    pub fn has_struck(&self) -> bool {
        self.state().hook.is_none()
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

struct Request {
    line: String,
    head: String,
    body: Vec<u8>,
}

fn read_request(connection: &mut BufReader<TcpStream>) -> std::io::Result<Request> {
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut header = String::new();
        if connection.read_line(&mut header)? == 0 || header == "\r\n" {
            break;
        }
        let lower = header.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if !lower.starts_with("connection:") && !lower.starts_with("host:") {
            head.push_str(&header);
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    Ok(Request { line, head, body })
}

fn pass(connection: TcpStream, upstream: u16, state: &Mutex<State>) -> std::io::Result<()> {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let mut reader = BufReader::new(connection.try_clone()?);
    let request = read_request(&mut reader)?;
    let is_watch = request.line.contains("watch=true");
    let mut client = connection;
    {
        let mut state = lock();
        if state.down {
            return Ok(());
        }
        if state.too_many > 0 && !is_watch {
            state.too_many -= 1;
            drop(state);
            let busy = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return client.write_all(busy.as_bytes());
        }
    }
    let mut server = TcpStream::connect(("127.0.0.1", upstream))?;
    let Request { line, head, body } = request;
    let first = format!("{line}Host: 127.0.0.1:{upstream}\r\nConnection: close\r\n{head}\r\n");
    server.write_all(first.as_bytes())?;
    server.write_all(&body)?;
    if is_watch {
        return relay(&mut server, &mut client, state);
    }
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    let hook = {
        let mut state = lock();
        state.calls.push(line.trim().to_owned());
        match &mut state.hook {
            Some((left, _)) if *left > 1 => {
                *left -= 1;
                None
            }
            Some(_) => state.hook.take(),
            None => None,
        }
    };
    if let Some((_, hook)) = hook {
        hook();
    }
    client.write_all(&answer)
}

/// Passes on what comes, until one side leaves or the API server is down.
fn relay(server: &mut TcpStream, client: &mut TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let length = server.read(&mut buffer)?;
        let down = state.lock().unwrap_or_else(PoisonError::into_inner).down;
        if length == 0 || down {
            return Ok(());
        }
        client.write_all(&buffer[..length])?;
    }
}
