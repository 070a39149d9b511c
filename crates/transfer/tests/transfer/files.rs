//! Transfers against a scripted server.

use std::path::Path;
use std::time::Duration;

use paddlecloud_api::ALIVE_HEADER;
use paddlecloud_api::client::{Client, ClientError, Limits};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::DIGEST_HEADER;
use paddlecloud_pfs::content::{AssemblyError, CHUNK};
use paddlecloud_pfs::pack::PackWriter;
use paddlecloud_pfs::{Digest, Entry, Mtime, Node, PfsPath};
use paddlecloud_transfer::{
    Download, FileService, ListOptions, RemoveOptions, TransferError, TransferOptions,
};
use tokio::net::TcpListener;

use crate::scripted::{Log, Reply, Seen, connection, early_reply, json, serve};

const CHANGED: &str = r#"{"code":409,"msg":"it is another file now","error":"conflict"}"#;
const FOLDER: &str = r#"{"code":200,"msg":{"kind":"folder","mtime":1}}"#;

pub fn client(endpoint: &str) -> Client {
    Client::new(endpoint.parse().unwrap()).with_limits(Limits {
        give_up: Duration::from_secs(20),
        pause: Duration::from_millis(1),
        ..Limits::default()
    })
}

pub fn remote(path: &str) -> PfsPath {
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

pub fn lines(log: &Log) -> Vec<String> {
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
async fn a_file_that_keeps_changing_leaves_nothing_behind() {
    let (endpoint, _) = serve(|number, seen| {
        if seen.line.contains("/pfs/stat?") {
            let meta = format!(r#"{{"kind":"file","size":5000000,"mtime":{number},"version":"v{number}"}}"#);
            return Reply::Keep(json(200, &format!(r#"{{"code":200,"msg":{meta}}}"#)));
        }
        Reply::Keep(json(409, CHANGED))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let client = client(&endpoint);
    let download = Download::File {
        remote: remote("large"),
        local: folder.path().join("large"),
        meta: client.files().stat(&remote("large")).await.unwrap(),
    };
    let options = TransferOptions::default();
    let summary = client.files().download(vec![download], &options, &()).await;
    let error = &summary.failures[0].error;
    assert!(matches!(error, TransferError::ChangedOnServer), "{error:?}");
    assert_eq!(names_in(folder.path()), Vec::<String>::new());
}

pub fn names_in(folder: &Path) -> Vec<String> {
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

    let error = files.stat(&path).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
    let patient = files.patient();
    let mut waiting = std::pin::pin!(patient.stat(&path));
    let early = tokio::time::timeout(Duration::from_millis(50), waiting.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    let listener = TcpListener::bind(address).await.unwrap();
    let (second, ()) = tokio::join!(waiting, answer_one(listener));
    assert!(second.unwrap().is_folder());
}

/// The reply of a server that sends these bytes, or the requested range of them, of one version.
pub fn bytes_of(seen: &Seen, bytes: &[u8], version: &str, stored: Option<Digest>) -> Vec<u8> {
    let range = seen
        .header("range")
        .and_then(|range| range.strip_prefix("bytes="));
    let ends = range.and_then(|range| range.split_once('-'));
    let (start, end) = ends.map_or((0, bytes.len()), |(start, end)| {
        let end: usize = end.parse().unwrap();
        (start.parse().unwrap(), bytes.len().min(end + 1))
    });
    let digest = stored.map(|digest| format!("{DIGEST_HEADER}: {digest}\r\n"));
    let (last, size) = (end.saturating_sub(1), bytes.len());
    let part = range.map(|_| format!("content-range: bytes {start}-{last}/{size}\r\n"));
    let head = format!(
        "HTTP/1.1 {} X\r\npaddlecloud-version: 9.9.9\r\netag: \"{version}\"\r\n{}{}content-length: {}\r\n\r\n",
        if range.is_some() { 206 } else { 200 },
        digest.unwrap_or_default(),
        part.unwrap_or_default(),
        end - start
    );
    [head.as_bytes(), &bytes[start..end]].concat()
}

/// The reply to a `stat` of a file.
pub fn stat_of(bytes: &[u8], version: &str, digest: Option<Digest>) -> Reply {
    let meta = serde_json::json!({
        "kind": "file", "size": bytes.len(), "mtime": 1, "version": version,
        "digest": digest.map(|digest| digest.to_string()),
    });
    Reply::Keep(json(
        200,
        &serde_json::json!({"code": 200, "msg": meta}).to_string(),
    ))
}

async fn cat_all(client: &Client) -> Result<Vec<u8>, ClientError> {
    let mut content = client.files().cat(&remote("f")).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = content.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

#[tokio::test]
async fn a_complete_file_is_verified_at_its_end() {
    let (right, wrong) = (Digest::of(b"content"), Digest::of(b"another"));
    for (stored, version, expected) in [
        (None, "one", None),
        (Some(right), "one", None),
        (Some(wrong), "one", Some(ErrorName::Damaged)),
        // A job wrote to it meanwhile.
        (Some(wrong), "two", None),
    ] {
        let (endpoint, log) = serve(move |_, seen| match seen.line.contains("/pfs/stat?") {
            true => stat_of(b"content", version, Some(right)),
            false => Reply::Keep(bytes_of(seen, b"content", "one", stored)),
        })
        .await;
        let read = cat_all(&client(&endpoint)).await;
        match expected {
            None => assert_eq!(read.unwrap(), b"content"),
            name => assert_eq!(read.unwrap_err().refusal(), name),
        }
        let is_looked_at = stored == Some(wrong);
        assert_eq!(lines(&log).len(), 1 + usize::from(is_looked_at));
    }
}

/// What a server answers that cuts its replies about a file of these bytes after `most` of them.
fn cut_after(seen: &Seen, bytes: &[u8], most: usize) -> Reply {
    if seen.line.contains("/pfs/stat?") {
        return stat_of(bytes, "one", None);
    }
    let mut reply = bytes_of(seen, bytes, "one", None);
    let head = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    reply.truncate(head + most);
    Reply::Cut(reply)
}

#[tokio::test]
async fn an_interrupted_range_resumes_in_the_same_version() {
    let bytes: Vec<u8> = (0..100_u8).collect();
    let there = bytes.clone();
    let (endpoint, log) = serve(move |_, seen| cut_after(seen, &there, 30)).await;
    let client = client(&endpoint);
    let mut reader = client.files().read_range(&remote("f"), 10..500).await.unwrap();
    let mut read = Vec::new();
    while let Some(piece) = reader.next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    assert_eq!(read, bytes[10..]);
    let log = log.lock().unwrap();
    let asked: Vec<_> = log
        .iter()
        .skip(1)
        .map(|seen| (seen.header("range").unwrap(), seen.header("if-match")))
        .collect();
    let same = Some("\"one\"");
    assert_eq!(
        asked,
        [
            ("bytes=10-499", None),
            ("bytes=40-99", same),
            ("bytes=70-99", same)
        ]
    );
}

#[tokio::test]
async fn a_reply_with_the_wrong_range_is_requested_again() {
    let bytes: Vec<u8> = (0..100_u8).collect();
    let there = bytes.clone();
    let (endpoint, log) = serve(move |index, seen| match index {
        // A proxy forgets what was asked for.
        2 => Reply::Cut(bytes_of(&Seen::default(), &there, "one", None)),
        _ => cut_after(seen, &there, 60),
    })
    .await;
    let client = client(&endpoint);
    let mut reader = client.files().read_range(&remote("f"), 10..100).await.unwrap();
    let mut read = Vec::new();
    while let Some(piece) = reader.next().await.unwrap() {
        read.extend_from_slice(&piece);
    }
    assert_eq!(read, bytes[10..]);
    assert_eq!(lines(&log).len(), 4, "{:?}", lines(&log));
}

#[tokio::test]
async fn a_range_of_a_changed_file_fails() {
    let (endpoint, _) = serve(|_, seen| match seen.header("if-match") {
        Some(_) => Reply::Keep(json(409, CHANGED)),
        None => cut_after(seen, &[7; 100], 30),
    })
    .await;
    let client = client(&endpoint);
    let mut reader = client.files().read_range(&remote("f"), 0..100).await.unwrap();
    let mut read = 0;
    let error = loop {
        match reader.next().await {
            Ok(piece) => read += piece.unwrap().len(),
            Err(error) => break error,
        }
    };
    assert_eq!(
        (read, error.refusal()),
        (30, Some(ErrorName::Conflict)),
        "{error}"
    );
}

const DAMAGED: &str = r#"{"code":400,"msg":"cannot read `f`: the disk is damaged","error":"damaged"}"#;

#[tokio::test]
async fn a_range_of_a_damaged_file_is_requested_once() {
    let (endpoint, log) = serve(|_, seen| match seen.line.contains("/pfs/content?") {
        true => Reply::Keep(json(400, DAMAGED)),
        false => cut_after(seen, &[7; 100], 30),
    })
    .await;
    let client = client(&endpoint);
    let error = client
        .files()
        .read_range(&remote("f"), 0..100)
        .await
        .err()
        .unwrap();
    assert_eq!(error.refusal(), Some(ErrorName::Damaged), "{error}");
    assert_eq!(lines(&log).len(), 2, "{:?}", lines(&log));
}

#[tokio::test]
async fn a_damaged_small_file_is_reported_and_the_local_file_is_kept() {
    let (endpoint, log) = serve(|_, seen| {
        Reply::Keep(match &seen.line {
            line if line.contains("/pfs/content?") => json(400, DAMAGED),
            line if line.contains("/pfs/stat?") => json(
                200,
                r#"{"code":200,"msg":{"kind":"file","size":1,"mtime":1,"version":"one"}}"#,
            ),
            _ => {
                let (pack, _) = PackWriter::new(Vec::new()).unwrap().finish().unwrap();
                let head = format!(
                    "HTTP/1.1 200 X\r\npaddlecloud-version: 9.9.9\r\ncontent-length: {}\r\n\r\n",
                    pack.len()
                );
                [head.into_bytes(), pack].concat()
            }
        })
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "an earlier one").unwrap();
    let download = Download::Tree {
        remote: remote("t"),
        local: folder.path().to_owned(),
        entries: vec![listed("f")],
    };
    let client = client(&endpoint);
    let options = TransferOptions::default();
    let summary = client.files().download(vec![download], &options, &()).await;
    let [failure] = summary.failures.as_slice() else {
        panic!("{:?}", summary.failures);
    };
    assert!(
        matches!(failure.error, TransferError::Damaged),
        "{:?}",
        failure.error
    );
    let asked = lines(&log);
    let asked = asked.iter().filter(|line| line.contains("/pfs/content?")).count();
    assert_eq!(asked, 1, "a damaged file stays damaged");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(std::fs::read(folder.path().join("f")).unwrap(), b"an earlier one");
}

#[tokio::test]
async fn a_listing_that_a_busy_server_cannot_begin_is_asked_for_again() {
    let (endpoint, log) = serve(|number, _| match number {
        0 => Reply::Keep(json(
            503,
            r#"{"code":503,"msg":"starting","error":"unavailable"}"#,
        )),
        _ => Reply::Keep(json(200, "  \n{\"end\":0}\n")),
    })
    .await;
    let client = client(&endpoint);
    let listing = client.files().list(&remote("d"), ListOptions::default()).await;
    assert_eq!(listing.unwrap().collect().await.unwrap().len(), 0);
    assert_eq!(lines(&log).len(), 2);
}

/// What becomes of two files when the reply to their removal is lost, and how often it was asked for.
async fn removed_in_two_tries(is_patient: bool) -> (Result<usize, ClientError>, usize) {
    let (endpoint, log) = serve(|number, seen| {
        if !seen.line.contains("/remove ") {
            return Reply::Keep(json(200, FOLDER));
        }
        let usage = r#"{"bytes":0,"files":0,"folders":0}"#;
        let gone = r#"{"code":404,"msg":"gone","error":"not-found"}"#;
        let kept = r#"{"code":403,"msg":"no","error":"forbidden"}"#;
        let one = |name: &str, error: &str| {
            format!(r#"{{"path":"/pfs/dc/home/me/{name}","usage":{usage},"error":{error}}}"#)
        };
        let body = format!(r#"{{"code":200,"msg":[{},{}]}}"#, one("a", gone), one("b", kept));
        match number {
            1 => Reply::Cut(Vec::new()),
            _ => Reply::Keep(json(200, &body)),
        }
    })
    .await;
    let client = client(&endpoint);
    client.files().stat(&remote("d")).await.unwrap();
    let files = match is_patient {
        true => client.files().patient(),
        false => client.files(),
    };
    let both = [remote("a"), remote("b")];
    let removed = files.remove(&both, RemoveOptions::default());
    let still_there = removed
        .await
        .map(|removed| removed.iter().filter(|one| one.error.is_some()).count());
    (still_there, lines(&log).len() - 1)
}

#[tokio::test]
async fn a_patient_removal_is_retried_and_missing_paths_count_as_removed() {
    let (still_there, asked) = removed_in_two_tries(true).await;
    assert_eq!((still_there.unwrap(), asked), (1, 2));
    let (removed, asked) = removed_in_two_tries(false).await;
    assert!(matches!(removed, Err(ClientError::Broken { .. })), "{removed:?}");
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn a_reply_that_began_before_the_work_was_done_says_how_it_ended() {
    let (endpoint, log) = serve(|number, _| match number {
        0 => early_reply(r#"{"code":200,"msg":{"bytes":7,"files":1,"folders":0}}"#),
        _ => early_reply(r#"{"code":404,"msg":"there is no such folder","error":"not-found"}"#),
    })
    .await;
    let client = client(&endpoint);
    assert_eq!(client.files().du(&remote("d")).await.unwrap().bytes, 7);
    let refused = client.files().du(&remote("d")).await.unwrap_err();
    assert_eq!(refused.refusal(), Some(ErrorName::NotFound), "{refused}");
    let asked = log.lock().unwrap();
    assert!(asked.iter().all(|seen| seen.header(ALIVE_HEADER).is_some()));
}

#[tokio::test]
async fn the_result_of_a_package_is_awaited_and_reported() {
    let (endpoint, log) = serve(|number, _| match number {
        0 => {
            early_reply(r#"{"code":200,"msg":{"id":"abc","folder":"/pfs/dc/x","missing":[],"stored":true}}"#)
        }
        _ => early_reply(r#"{"code":400,"msg":"it is damaged","error":"damaged"}"#),
    })
    .await;
    let client = client(&endpoint);
    let send = async || client.package_announce(&serde_json::json!({})).await;
    send().await.unwrap();
    let refused = send().await.unwrap_err();
    assert_eq!(refused.refusal(), Some(ErrorName::Damaged), "{refused}");
    let asked = log.lock().unwrap();
    assert!(asked.iter().all(|seen| seen.header(ALIVE_HEADER).is_some()));
}

#[tokio::test]
async fn a_server_that_does_not_report_its_state_is_not_called_idle() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        std::future::pending::<()>().await;
        drop(socket);
    });
    tokio::time::pause();
    let client = Client::new(format!("http://{address}").parse().unwrap());
    let lost = client.files().du(&remote("d")).await.unwrap_err();
    assert!(
        lost.to_string().contains("may still be working on the request"),
        "{lost}"
    );
    silent.abort();
}

/// Fetches a file of three chunks whose plain bytes arrive with a flipped bit the first `flips` times. Gives whether it is right
/// then, how often it was fetched, and the wasted bytes. The server knows its digest, or its disk is damaged.
async fn fetch_flipped(flips: usize, disk_is_damaged: bool) -> (Result<bool, TransferError>, usize, u64) {
    let bytes: Vec<u8> = (0..2 * CHUNK + 1000).map(|number| (number % 253) as u8).collect();
    let there = bytes.clone();
    let fetched = std::sync::atomic::AtomicUsize::new(0);
    let (endpoint, log) = serve(move |_, seen| {
        if seen.line.contains("digest=true") && disk_is_damaged {
            return Reply::Keep(json(400, DAMAGED));
        }
        if seen.line.contains("/pfs/stat?") {
            return stat_of(&there, "new", Some(Digest::of(&there)));
        }
        let mut sent = there.clone();
        if fetched.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < flips {
            sent[CHUNK as usize + 5] ^= 1;
        }
        Reply::Keep(bytes_of(seen, &sent, "new", None))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("large");
    let client = client(&endpoint);
    let download = Download::File {
        remote: remote("large"),
        local: local.clone(),
        meta: client.files().stat(&remote("large")).await.unwrap(),
    };
    let options = TransferOptions::default();
    let mut summary = client.files().download(vec![download], &options, &()).await;
    let fetched = match summary.failures.pop() {
        Some(failure) => {
            assert_eq!(names_in(folder.path()), Vec::<String>::new());
            Err(failure.error)
        }
        None => Ok(std::fs::read(&local).unwrap() == bytes),
    };
    let lines = lines(&log);
    let times = lines.iter().filter(|line| line.contains("/pfs/content?")).count();
    (fetched, times, summary.again)
}

#[tokio::test]
async fn a_file_that_arrives_damaged_is_fetched_again_and_a_damaged_disk_is_named() {
    let size = 2 * CHUNK + 1000;
    let (fetched, times, again) = fetch_flipped(1, false).await;
    assert!(fetched.unwrap(), "it is not what the server has");
    assert_eq!((times, again), (2, size));
    let (fetched, times, _) = fetch_flipped(9, false).await;
    let wrong = matches!(
        fetched,
        Err(TransferError::Assembly(AssemblyError::WrongDigest { .. }))
    );
    assert!(wrong, "{fetched:?}");
    assert_eq!(times, 3);
    let (fetched, times, _) = fetch_flipped(9, true).await;
    assert!(matches!(fetched, Err(TransferError::Damaged)), "{fetched:?}");
    assert_eq!(times, 1);
}

/// It took the request, died before it replied, and nobody listens while it is restarted.
#[tokio::test]
async fn a_server_restart_during_the_first_request_is_waited_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let died = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap();
    });
    let client = Client::new(endpoint.parse().unwrap()).with_limits(Limits {
        give_up: Duration::from_millis(200),
        pause: Duration::from_millis(1),
        ..Limits::default()
    });
    let (files, folder) = (client.files().patient(), remote("folder"));
    let Err(error) = files.list(&folder, ListOptions::default()).await else {
        panic!("nobody answered");
    };
    died.await.unwrap();
    // One that was never reached is given up at once, as unreachable.
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
}
