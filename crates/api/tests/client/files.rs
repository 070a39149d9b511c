//! Transfers against a server that answers as a test wants it.

use std::path::Path;
use std::time::Duration;

use paddlecloud_api::client::files::{Download, TransferError, TransferOptions};
use paddlecloud_api::client::{Client, ClientError, Limits};
use paddlecloud_pfs::{Digest, Entry, Mtime, Node, PfsPath};
use tokio::net::TcpListener;

use crate::scripted::{Log, Reply, Seen, connection, json, serve};

const CHANGED: &str = r#"{"code":409,"msg":"it is another file now","error":"conflict"}"#;
const FOLDER: &str = r#"{"code":200,"msg":{"kind":"folder","mtime":1}}"#;

fn client(endpoint: &str) -> Client {
    Client::new(endpoint.parse().unwrap()).with_limits(Limits {
        give_up: Duration::from_secs(20),
        pause: Duration::from_millis(1),
        ..Limits::default()
    })
}

fn remote(path: &str) -> PfsPath {
    format!("/pfs/dc/home/me/{path}").parse().unwrap()
}

/// A file of one byte, changed at another time than the one here.
fn listed(path: &str) -> Entry {
    Entry {
        path: path.parse().unwrap(),
        node: Node::File {
            size: 1,
            executable: false,
            digest: None,
        },
        mtime: Mtime::from_nanos(1),
    }
}

/// What the server says when it is asked about files: each holds `1`.
fn all_hold_one(seen: &Seen) -> Reply {
    let request: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    let digest = Digest::of(b"1").to_string();
    let metas: Vec<serde_json::Value> = request["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|_| serde_json::json!({"kind": "file", "size": 1, "mtime": 1, "digest": digest}))
        .collect();
    let body = serde_json::json!({"code": 200, "msg": metas});
    Reply::Keep(json(200, &body.to_string()))
}

fn lines(log: &Log) -> Vec<String> {
    let log = log.lock().unwrap();
    log.iter().map(|seen| seen.line.clone()).collect()
}

#[tokio::test]
async fn contents_of_a_tree_are_compared_with_one_request_not_one_for_each_file() {
    let (endpoint, log) = serve(|_, seen| all_hold_one(seen)).await;
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..2500).map(|number| format!("{number:04}")).collect();
    for name in &names {
        let content = if name == "0007" { "2" } else { "1" };
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let options = TransferOptions {
        checksum: true,
        dry_run: true,
        ..TransferOptions::default()
    };
    let download = Download::Tree {
        remote: remote("t"),
        local: folder.path().to_owned(),
        entries: names.iter().map(|name| listed(name)).collect(),
    };
    let client = client(&endpoint);
    let summary = client.files().download(vec![download], &options, &()).await;
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    assert_eq!((summary.unchanged, summary.transferred), (2499, 1));
    assert_eq!(
        lines(&log),
        ["POST /api/v1/pfs/stats HTTP/1.1"; 2],
        "2000 at a time"
    );
}

#[tokio::test]
async fn nothing_stays_here_of_a_file_that_keeps_changing_there() {
    let (endpoint, _) = serve(|number, seen| {
        if seen.line.contains("/pfs/stat?") {
            let meta = format!(r#"{{"kind":"file","size":5000000,"mtime":{number},"version":"v{number}"}}"#);
            return Reply::Keep(json(200, &format!(r#"{{"code":200,"msg":{meta}}}"#)));
        }
        Reply::Keep(json(409, CHANGED))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let download = Download::File {
        remote: remote("large"),
        local: folder.path().join("large"),
    };
    let client = client(&endpoint);
    let options = TransferOptions::default();
    let summary = client.files().download(vec![download], &options, &()).await;
    let error = &summary.failures[0].error;
    assert!(matches!(error, TransferError::ChangedThere), "{error:?}");
    assert_eq!(names_in(folder.path()), Vec::<String>::new());
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[tokio::test]
async fn work_of_many_calls_waits_for_a_server_that_vanished_between_two_of_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = client(&format!("http://{address}"));
    let script = std::sync::Arc::new(|_: usize, _: &Seen| Reply::Cut(json(200, FOLDER)));
    let answer_one = async |listener: TcpListener| {
        let (socket, _) = listener.accept().await.unwrap();
        connection(socket, script.clone(), Log::default()).await;
    };
    let path = remote("d");
    let files = client.files();
    let (first, ()) = tokio::join!(files.stat(&path), answer_one(listener));
    assert!(first.unwrap().is_folder());

    let told = files.stat(&path).await.unwrap_err();
    assert!(matches!(told, ClientError::Broken { .. }), "{told}");
    let patient = files.patient();
    let mut waiting = std::pin::pin!(patient.stat(&path));
    let early = tokio::time::timeout(Duration::from_millis(50), waiting.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    let listener = TcpListener::bind(address).await.unwrap();
    let (second, ()) = tokio::join!(waiting, answer_one(listener));
    assert!(second.unwrap().is_folder());
}
