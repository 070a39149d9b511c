//! A small server that answers every route of the API with fixed data, over a real socket.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use paddlecloud_api::jobs::JobStatus;
use paddlecloud_api::logs::{Frame, LogEnd, LogWorker, Stream};

/// A request as it arrived: `METHOD target`, then the body.
#[derive(Debug, Clone)]
pub struct Seen {
    pub line: String,
    pub body: Vec<u8>,
}

/// The server; it ends with the test.
pub struct Server {
    pub endpoint: String,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// The requests whose line begins like this.
    pub fn bodies(&self, start: &str) -> Vec<Vec<u8>> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|seen| seen.line.starts_with(start))
            .map(|seen| seen.body.clone())
            .collect()
    }

    pub fn lines(&self) -> Vec<String> {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .map(|seen| seen.line.clone())
            .collect()
    }
}

/// Starts a server with the replies of [`usual`].
pub fn server() -> Server {
    server_with(|_| None)
}

/// Starts a server whose replies `special` may change.
pub fn server_with(special: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, special) = (seen.clone(), Arc::new(special));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (log, special) = (log.clone(), special.clone());
            std::thread::spawn(move || serve(stream, &log, special.as_ref()));
        }
    });
    Server { endpoint, seen }
}

/// Starts a server where the embedded one of this home would be.
pub fn embedded_server(
    home: &Path,
    special: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static,
) -> Server {
    let data = home.join(".paddle/local");
    std::fs::create_dir_all(&data).unwrap();
    let listener = UnixListener::bind(data.join("server.sock")).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, special) = (seen.clone(), Arc::new(special));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (log, special) = (log.clone(), special.clone());
            std::thread::spawn(move || serve(stream, &log, special.as_ref()));
        }
    });
    Server {
        endpoint: String::new(),
        seen,
    }
}

/// A connection that is read and written by two ends.
trait Duplex: std::io::Read + Write + Sized {
    fn second(&self) -> Self;
}

impl Duplex for TcpStream {
    fn second(&self) -> Self {
        self.try_clone().unwrap()
    }
}

impl Duplex for UnixStream {
    fn second(&self) -> Self {
        self.try_clone().unwrap()
    }
}

fn serve(stream: impl Duplex, log: &Mutex<Vec<Seen>>, special: &dyn Fn(&str) -> Option<(u16, String)>) {
    let mut reader = BufReader::new(stream.second());
    let mut writer = stream;
    while let Some(seen) = read_request(&mut reader) {
        let line = seen.line.clone();
        log.lock().unwrap().push(seen);
        let (status, body) = match special(&line) {
            Some((status, text)) => (status, text.into_bytes()),
            None => usual(&line),
        };
        let length = if line.starts_with("HEAD") { 0 } else { body.len() };
        let head =
            format!("HTTP/1.1 {status} X\r\npaddlecloud-version: 0.1.0\r\ncontent-length: {length}\r\n\r\n");
        if writer.write_all(head.as_bytes()).is_err() || writer.write_all(&body[..length]).is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Seen> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let (mut length, mut chunked) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        length = header
            .strip_prefix("content-length: ")
            .map_or(length, |text| text.parse().unwrap());
        chunked |= header == "transfer-encoding: chunked";
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    while chunked {
        let mut size = String::new();
        reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).ok()?;
        body.extend_from_slice(&chunk[..size]);
        chunked = size > 0;
    }
    Some(Seen {
        line: line.trim_end().trim_end_matches(" HTTP/1.1").to_owned(),
        body,
    })
}

/// A job of the documents, running.
pub fn job(name: &str, status: &str) -> serde_json::Value {
    serde_json::json!({
        "name": name, "job_package": "/pfs/dc1/home/me/pkg", "parallelism": 2, "cpu": 1, "gpu": 0, "memory": "1Gi",
        "pservers": 1, "pscpu": 1, "psmemory": "1Gi", "topology": null, "entry": "python train.py",
        "psentry": "paddle pserver", "passes": 1, "image": null, "registry": null, "datacenter": "dc1",
        "envs": {"LR": "0.1"}, "priority": 0, "retries": 0, "max_runtime": null, "start_limit": "10m",
        "grace": "30s", "id": "j_01jd2m3n4p5q6r", "user": "me", "namespace": "me", "status": status,
        "message": if status == "Pending" { Some("waits for 2 cores") } else { None },
        "output": "/pfs/dc1/home/me/pkg/output", "submitted": "2026-01-01T11:59:45Z",
        "started": "2026-01-01T11:59:50Z", "completed": null, "succeeded": 0, "failed": 1, "active": 1
    })
}

pub fn worker(name: &str, role: &str, index: u32) -> serde_json::Value {
    serde_json::json!({
        "name": name, "job": "paddle-cluster-job", "job_id": "j_01jd2m3n4p5q6r", "role": role, "index": index,
        "status": "Running", "attempt": 1, "address": "127.1.0.1", "started": "2026-01-01T11:59:51Z", "ended": null,
        "exit_code": null, "message": null
    })
}

fn workers() -> serde_json::Value {
    serde_json::json!([
        worker("paddle-cluster-job-pserver-9k2xq", "pserver", 0),
        worker("paddle-cluster-job-trainer-3s4nz", "trainer", 0),
    ])
}

fn envelope(msg: serde_json::Value) -> (u16, Vec<u8>) {
    (
        200,
        serde_json::json!({ "code": 200, "msg": msg })
            .to_string()
            .into_bytes(),
    )
}

/// The reply to a request line.
pub fn usual(line: &str) -> (u16, Vec<u8>) {
    let (method, target) = line.split_once(' ').unwrap();
    let path = target.split('?').next().unwrap();
    let words: Vec<&str> = path
        .trim_start_matches("/api/v1")
        .trim_matches('/')
        .split('/')
        .collect();
    let running = job("paddle-cluster-job", "Running");
    match (method, words.as_slice()) {
        ("GET", ["jobs"]) => envelope(serde_json::json!([running])),
        ("POST", ["jobs"]) | ("POST", ["jobs", _, "rerun"]) => submitted(),
        ("GET", ["jobs", _]) => envelope(detail("Running")),
        ("GET", ["jobs", _, "wait"]) => envelope(detail("Failed")),
        ("GET", ["jobs", _, "why"]) => envelope(why()),
        ("GET", ["jobs", _, "logs"]) => (200, log_frames(target.contains("follow=true"))),
        ("DELETE", ["jobs", _]) => {
            let reply = r#"{"code":200,"msg":"OK","id":"j_01jd2m3n4p5q6r","name":"paddle-cluster-job","ending":3,"removed":false}"#;
            (200, reply.into())
        }
        ("GET", ["workers"]) => envelope(workers()),
        ("GET", ["quota"]) => envelope(serde_json::json!([
            {"resource": "cpu", "limit": "8", "used": "3"}, {"resource": "gpu", "limit": null, "used": "0"},
            {"resource": "memory", "limit": "24684100Ki", "used": "1536Mi", "reserved": "0"}
        ])),
        ("GET", ["healthz"]) => (200, b"ok".to_vec()),
        ("GET", ["server"]) => envelope(serde_json::json!({
            "version": "0.1.0", "pid": 7, "embedded": true, "datacenter": "local", "engine": "local",
            "listen": "s", "storage": "s", "data": "d", "log": null, "database": "b",
            "started": "2026-01-01T11:00:00Z", "cpu": "2", "memory": "1Gi", "gpus": 0,
            "degraded": ["memory is watched, not limited, because of cgroups"],
            "jobs_pending": 0, "jobs_running": 0
        })),
        ("GET", ["whoami"]) => envelope(serde_json::json!({
            "user": "me", "namespace": "me", "datacenter": "dc1", "home": "/pfs/dc1/home/me", "admin": false
        })),
        ("POST", ["prune"]) => envelope(serde_json::json!({
            "removed": ["j_01jd2m3n4p5q6r"], "bytes": 1_200_000,
            "jobs": [{"id": "j_01jd2m3n4p5q6r", "name": "word-emb", "ended": "2026-01-01T11:00:00Z"}]
        })),
        ("GET", ["registry"]) => envelope(serde_json::json!([
            {"name": "mine", "server": "registry.example.org", "username": "u"}
        ])),
        ("POST", ["registry"]) | ("PUT", ["secrets", _]) | ("DELETE", ["tokens", _]) => {
            envelope(serde_json::json!("OK"))
        }
        ("DELETE", ["registry"]) => envelope(serde_json::json!("mine")),
        ("GET", ["secrets"]) => envelope(serde_json::json!([
            {"name": "api-key", "created": "2026-01-01T11:00:00Z"}
        ])),
        ("POST", ["tokens"]) => envelope(serde_json::json!({
            "token": "pct_1234", "id": "5b0a", "name": "ci", "user": "me", "scopes": "read",
            "created": "2026-01-01T11:00:00Z", "expires": "2026-02-01T11:00:00Z"
        })),
        ("GET" | "POST", ["admin", "users"]) => match method {
            "GET" => envelope(serde_json::json!([user()])),
            _ => envelope(user()),
        },
        ("PATCH", ["admin", "users", _]) => envelope(user()),
        ("DELETE", ["admin", "users", _]) => envelope(serde_json::json!({
            "name": "ann", "stopped": 1, "jobs": "ann~7", "home": "/storage/home/ann~7"
        })),
        ("GET", ["admin", "audit", "verify"]) => envelope(serde_json::json!({
            "sound": false, "rows": 3, "problem": "the row is missing"
        })),
        ("GET", ["admin", "users", _]) => envelope(user()),
        ("GET", ["admin", "groups"]) => envelope(serde_json::json!([
            {"name": "vision", "members": ["ann"], "limits": {"cpu": "4"}, "total": {}}
        ])),
        ("GET", ["admin", "audit"]) => envelope(serde_json::json!([{
            "seq": 1, "time": "2026-01-01T11:00:00Z", "actor": "root", "action": "user.create", "subject": "ann",
            "detail": "group vision", "request": "7f"
        }])),
        ("GET", ["tokens"]) => envelope(serde_json::json!([{
            "id": "5b0a", "name": "ci", "user": "me", "scopes": "read",
            "created": "2026-01-01T11:00:00Z", "expires": "2026-02-01T11:00:00Z"
        }])),
        ("GET", ["pfs", "stat"]) => envelope(serde_json::json!({
            "path": "/pfs/dc1/home/me/x", "kind": "file", "size": 1, "mtime": 0
        })),
        ("POST", ["packages"]) => envelope(serde_json::json!({
            "id": "x", "folder": "/pfs/dc1/home/me/.paddlecloud/packages/x", "missing": [], "stored": true
        })),
        ("PUT", ["pfs", "pack"]) => envelope(serde_json::json!({ "stored": 1 })),
        _ => (
            404,
            br#"{"code":404,"msg":"no such path","error":"not-found"}"#.to_vec(),
        ),
    }
}

fn user() -> serde_json::Value {
    serde_json::json!({
        "name": "ann", "id": 7, "admin": false, "service": false, "disabled": true, "configured": false,
        "groups": ["vision"], "limits": {"cpu": "4"}, "effective": {"cpu": "4", "gpu": "1"}
    })
}

fn submitted() -> (u16, Vec<u8>) {
    let reply = serde_json::json!({
        "code": 200, "msg": "OK", "id": "j_01jd2m3n4p5q6r", "engine": "local",
        "job": job("paddle-cluster-job", "Pending"), "notes": ["10 cores requested, 2 in total"]
    });
    (200, reply.to_string().into_bytes())
}

fn detail(status: &str) -> serde_json::Value {
    serde_json::json!({
        "job": job("paddle-cluster-job", status),
        "workers": workers(),
        "events": [{"at": "2026-01-01T11:59:45Z", "text": "submitted"}]
    })
}

fn why() -> serde_json::Value {
    let mut failed = worker("paddle-cluster-job-trainer-3s4nz", "trainer", 0);
    failed["status"] = "Failed".into();
    serde_json::json!({
        "job": job("paddle-cluster-job", "Pending"), "reason": "waits for 2 cores", "ahead": ["big (j_0)"],
        "ahead_total": 3, "estimate": "2026-01-01T12:12:00Z", "change": "would start now with `-parallelism 1`",
        "first_failure": {"worker": failed, "exit": "exit 1", "last_lines": ["Traceback", "ValueError"], "others": 2}
    })
}

fn log_frames(follow: bool) -> Vec<u8> {
    let worker = |role: &str, index| LogWorker {
        name: format!("paddle-cluster-job-{role}-{index}"),
        role: role.to_owned(),
        index,
        attempt: 1,
        from: None,
        is_behind: false,
    };
    let data = |worker, offset, bytes: &[u8]| Frame::Data {
        worker,
        stream: Stream::Output,
        offset,
        unix_nanos: 1_767_268_800_000_000_000,
        bytes: bytes.to_vec(),
    };
    let end = LogEnd {
        id: "j_01jd2m3n4p5q6r".to_owned(),
        status: JobStatus::Failed,
        message: Some("trainer 0 ended with 1".to_owned()),
    };
    let frames = [
        Frame::Workers(vec![worker("pserver", 0), worker("trainer", 0)]),
        data(1, 0, b"pass 0, cost"),
        data(0, 0, b"listening\n"),
        data(1, 12, b" 1.5\n\xff\xfe\n"),
        Frame::End(follow.then_some(end)),
    ];
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    bytes
}
