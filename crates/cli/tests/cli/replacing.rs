//! An embedded server that is older than the client is stopped before a new one starts.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::shell::Shell;

/// An old server: a process that waits to be killed, and a socket that answers for it.
struct OldServer {
    process: Arc<Mutex<Child>>,
    targets: Arc<Mutex<Vec<String>>>,
}

impl OldServer {
    fn start(shell: &Shell) -> OldServer {
        let folder = shell.home().join(".paddle/local");
        std::fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join("server.sock")).unwrap();
        // Reads a pipe that nobody writes to: it waits until it is ended.
        let process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let server = OldServer {
            process: Arc::new(Mutex::new(process)),
            targets: Arc::default(),
        };
        let (process, targets) = (server.process.clone(), server.targets.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (process, targets) = (process.clone(), targets.clone());
                std::thread::spawn(move || answer(stream, &process, &targets));
            }
        });
        server
    }
}

impl Drop for OldServer {
    fn drop(&mut self) {
        let mut process = self.process.lock().unwrap();
        let _ = process.kill();
        let _ = process.wait();
    }
}

fn answer(stream: UnixStream, process: &Mutex<Child>, targets: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let mut header = String::new();
        while reader.read_line(&mut header).unwrap() > 2 {
            length = header
                .strip_prefix("content-length: ")
                .map_or(length, |text| text.trim().parse().unwrap());
            header.clear();
        }
        reader.consume(length);
        let target = first.split(' ').nth(1).unwrap().to_owned();
        let pid = process.lock().unwrap().id();
        let info = serde_json::json!({
            "version": "0.0.1", "pid": pid, "embedded": true, "datacenter": "local", "engine": "local", "listen": "",
            "storage": "", "data": "", "log": null, "database": "", "started": "", "cpu": "1", "memory": "1Gi",
            "gpus": 0, "jobs_pending": 0, "jobs_running": 0
        });
        let body = serde_json::json!({ "code": 200, "msg": info }).to_string();
        if target.ends_with("/stop") {
            process.lock().unwrap().kill().unwrap();
        }
        targets.lock().unwrap().push(target);
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\npaddlecloud-version: 0.0.1\r\ncontent-length: {length}\r\n\r\n");
        writer.write_all(format!("{head}{body}").as_bytes()).unwrap();
    }
}

#[test]
fn an_older_server_is_asked_to_stop_and_its_exit_is_awaited() {
    let shell = Shell::new();
    let old = OldServer::start(&shell);
    let outcome = shell.line("get jobs");
    assert!(
        outcome
            .err
            .starts_with("note: the embedded server is version 0.0.1, this program "),
        "{}",
        outcome.err
    );
    // The new server would be this test program, which cannot be one: it reports that, and the client shows it.
    assert_eq!(outcome.code, 3, "{}", outcome.err);
    assert!(
        outcome
            .err
            .contains("error: the embedded server ended before it was ready"),
        "{}",
        outcome.err
    );
    let targets = old.targets.lock().unwrap().clone();
    assert_eq!(
        targets,
        ["/healthz", "/healthz", "/api/v1/server", "/api/v1/server/stop"]
    );
    assert!(
        old.process.lock().unwrap().try_wait().unwrap().is_some(),
        "it had ended when the new one started"
    );
}
