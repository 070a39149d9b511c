//! A proxy between a server and the cluster's API server: records calls, refuses them, drops their replies, and kills
//! the server after one.
//!
//! `kubectl proxy` behind it handles TLS and credentials, so this proxy sees plain HTTP, one connection per call.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::cluster::Cluster;

/// What a call gets instead of the API server's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// 429: the API server is too busy and did nothing.
    TooMany,
    /// 409: another writer was faster, and nothing is done; quotas reply this under load. For calls that create.
    Conflict,
    /// The API server did what was asked; its reply is lost, once for each path. For calls that create.
    Lost,
    /// 500: a webhook did not answer in time, and nothing is done. For objects of this kind (`pods`) that are created. See
    /// [`ApiProxy::hang`].
    Webhook(&'static str),
    /// 403: the server has lost the right to this. For pods that are deleted.
    Forbidden,
    /// 410: the version from which a watch should continue is too old. Also ends existing watches.
    Expired,
}

#[derive(Default)]
struct State {
    /// The calls since the last [`ApiProxy::forget`], without watches.
    calls: Vec<String>,
    /// Watches since then.
    watches: Vec<String>,
    /// Every connection is closed without a reply.
    down: bool,
    /// What the next calls get, and how many of them.
    fault: Option<(Fault, usize)>,
    /// Calls whose answer was lost by this fault.
    lost: HashSet<String>,
    /// Calls that wait for a webhook, now and at most.
    hung: usize,
    most_hung: usize,
    /// Grows when all watches must end.
    watch_age: u64,
    /// After how many calls from now this runs, before the caller gets the last reply.
    hook: Option<(usize, Box<dyn FnOnce() + Send>)>,
}

impl State {
    /// Whether this call gets that fault now.
    fn strikes(&mut self, line: &str) -> Option<Fault> {
        let (fault, left) = self.fault.as_mut()?;
        let is_watch = line.contains("watch=true");
        let is_meant = match fault {
            Fault::TooMany => !is_watch,
            Fault::Conflict => line.starts_with("POST "),
            Fault::Webhook(kind) => line.starts_with("POST ") && line.contains(&format!("/{kind}")),
            Fault::Lost => line.starts_with("POST ") && self.lost.insert(line.to_owned()),
            Fault::Forbidden => line.starts_with("DELETE ") && line.contains("/pods/"),
            Fault::Expired => is_watch,
        };
        if !is_meant {
            return None;
        }
        let fault = *fault;
        *left -= 1;
        if *left == 0 {
            self.fault = None;
        }
        Some(fault)
    }
}

/// A proxy in front of the API server; ended when dropped.
pub struct ApiProxy {
    state: Arc<Mutex<State>>,
    /// Locked for writing while webhooks hang.
    webhook: Arc<RwLock<()>>,
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
        let webhook = Arc::new(RwLock::new(()));
        let shared = (Arc::clone(&state), Arc::clone(&webhook));
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (state, webhook) = shared.clone();
                thread::spawn(move || {
                    // A closed side is noticed by the other one.
                    let _ = pass(connection, upstream, &state, &webhook);
                });
            }
        });
        ApiProxy {
            state,
            webhook,
            port,
            kubectl,
        }
    }

    /// Writes a kubeconfig that points to this proxy.
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
        let mut state = self.state();
        state.calls.clear();
        state.watches.clear();
    }

    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// The watches that were started, counted separately from the calls.
    pub fn watches(&self) -> Vec<String> {
        self.state().watches.clone()
    }

    /// Whether the API server can be reached.
    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// Makes the next calls that this fault applies to fail with it.
    pub fn strike(&self, fault: Fault, calls: usize) {
        let mut state = self.state();
        state.lost.clear();
        state.fault = (calls > 0).then_some((fault, calls));
        if fault == Fault::Expired {
            state.watch_age += 1;
        }
    }

    /// How many calls are still to get a fault.
    pub fn faults_left(&self) -> usize {
        self.state().fault.map_or(0, |(_, left)| left)
    }

    /// Makes calls that get [`Fault::Webhook`] wait for their reply until the guard is dropped.
    pub fn hang(&self) -> RwLockWriteGuard<'_, ()> {
        self.webhook.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many calls wait for a webhook, now and at most.
    pub fn hung(&self) -> (usize, usize) {
        let state = self.state();
        (state.hung, state.most_hung)
    }

    /// Runs something when the n-th call from now is done, before its caller gets the reply.
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

fn pass(
    connection: TcpStream,
    upstream: u16,
    state: &Mutex<State>,
    webhook: &RwLock<()>,
) -> std::io::Result<()> {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let mut reader = BufReader::new(connection.try_clone()?);
    let request = read_request(&mut reader)?;
    let is_watch = request.line.contains("watch=true");
    let mut client = connection;
    let (fault, age) = {
        let mut state = lock();
        if state.down {
            return Ok(());
        }
        if is_watch {
            state.watches.push(request.line.trim().to_owned());
        }
        (state.strikes(&request.line), state.watch_age)
    };
    if let Some(Fault::Webhook(_)) = fault {
        {
            let mut state = lock();
            state.hung += 1;
            state.most_hung = state.most_hung.max(state.hung);
        }
        drop(webhook.read());
        lock().hung -= 1;
    }
    if let Some(answer) = fault.and_then(instead) {
        return client.write_all(answer.as_bytes());
    }
    let mut server = TcpStream::connect(("127.0.0.1", upstream))?;
    let Request { line, head, body } = request;
    let first = format!("{line}Host: 127.0.0.1:{upstream}\r\nConnection: close\r\n{head}\r\n");
    server.write_all(first.as_bytes())?;
    server.write_all(&body)?;
    if is_watch {
        return relay(&mut server, &mut client, state, age);
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
    match fault {
        Some(_) => Ok(()),
        None => client.write_all(&answer),
    }
}

/// The API server's reply; `None` if it does what is asked and the reply is lost.
fn instead(fault: Fault) -> Option<String> {
    let status = |code: u16, reason: &str, message: &str| {
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code})
    };
    let (line, body) = match fault {
        Fault::TooMany => {
            let words = "the server has received too many requests and has asked us to try again later";
            ("429 Too Many Requests", status(429, "TooManyRequests", words))
        }
        Fault::Conflict => {
            let words = "Operation cannot be fulfilled on resourcequotas \"paddlecloud\": the object has been modified; \
                         please apply your changes to the latest version and try again";
            ("409 Conflict", status(409, "Conflict", words))
        }
        Fault::Webhook(_) => {
            let words = "Internal error occurred: failed calling webhook \"policy.example.org\": context deadline exceeded";
            ("500 Internal Server Error", status(500, "InternalError", words))
        }
        Fault::Forbidden => {
            let words = "pods \"worker\" is forbidden: User \"paddlecloud\" cannot delete resource \"pods\" in API group \"\"";
            ("403 Forbidden", status(403, "Forbidden", words))
        }
        Fault::Expired => {
            let words = "too old resource version: 1 (2)";
            (
                "200 OK",
                json!({"type": "ERROR", "object": status(410, "Expired", words)}),
            )
        }
        Fault::Lost => return None,
    };
    let body = format!("{body}\n");
    Some(format!(
        "HTTP/1.1 {line}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    ))
}

/// How long a watch that must end may take to notice.
const GLANCE: Duration = Duration::from_millis(100);

/// Forwards bytes until one side closes, the API server is down, or all watches must end.
fn relay(
    server: &mut TcpStream,
    client: &mut TcpStream,
    state: &Mutex<State>,
    age: u64,
) -> std::io::Result<()> {
    server.set_read_timeout(Some(GLANCE))?;
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = server.read(&mut buffer);
        {
            let state = state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.down || state.watch_age != age {
                return Ok(());
            }
        }
        match read {
            Ok(0) => return Ok(()),
            Ok(length) => client.write_all(&buffer[..length])?,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
}
