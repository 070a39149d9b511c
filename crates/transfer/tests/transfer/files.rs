//! Transfers against a scripted server.

use std::path::Path;
use std::time::Duration;

use paddlecloud_api::ALIVE_HEADER;
use paddlecloud_api::client::{Client, ClientError, Limits};
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::SIZE_HEADER;
use paddlecloud_pfs::content::{CHUNK, Layout};
use paddlecloud_pfs::pack::PackWriter;
use paddlecloud_pfs::{Digest, Entry, Mtime, Node, PfsPath};
use paddlecloud_transfer::{
    Download, FileService, ListOptions, RemoveOptions, TransferError, TransferOptions,
};
use tokio::net::TcpListener;

use crate::scripted::{Log, Reply, Seen, begun_early, connection, json, serve};

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

/// What a server answers where a file of `looked_at` bytes was replaced by one of these right after it was looked at.
pub fn replaced_meanwhile(seen: &Seen, looked_at: u64, bytes: &[u8]) -> Reply {
    if seen.line.contains("/pfs/stat?") {
        let meta = format!(r#"{{"kind":"file","size":{looked_at},"mtime":1,"version":"v"}}"#);
        return Reply::Keep(json(200, &format!(r#"{{"code":200,"msg":{meta}}}"#)));
    }
    let number = |key| seen.query(key).unwrap().parse::<u64>().unwrap();
    let layout = Layout::of(bytes.len() as u64);
    let end = number("first") + number("count");
    if end > layout.count() {
        return Reply::Keep(json(
            400,
            r#"{"code":400,"msg":"no such chunks","error":"bad-request"}"#,
        ));
    }
    let mut parts = Vec::new();
    for index in number("first")..end {
        let (offset, len) = layout.range(index).unwrap();
        let chunk = &bytes[offset as usize..(offset + len) as usize];
        let mut hasher = layout.hasher(index);
        hasher.update(chunk);
        parts.extend_from_slice(chunk);
        parts.extend_from_slice(hasher.finish().as_bytes());
    }
    let (size, length) = (bytes.len(), parts.len());
    let head = format!(
        "HTTP/1.1 200 X\r\npaddlecloud-version: 9.9.9\r\netag: \"new\"\r\n{SIZE_HEADER}: {size}\r\n\
         content-length: {length}\r\n\r\n"
    );
    Reply::Keep([head.into_bytes(), parts].concat())
}

async fn cat_all(client: &Client, range: Option<std::ops::Range<u64>>) -> Vec<u8> {
    let mut content = client.files().cat(&remote("f"), range).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = content.next().await.unwrap() {
        bytes.extend_from_slice(&piece);
    }
    bytes
}

#[tokio::test]
async fn a_file_that_is_replaced_before_its_first_byte_came_is_read_whole() {
    let large: Vec<u8> = (0..CHUNK + 1000).map(|number| (number % 251) as u8).collect();
    for looked_at in [0, 10] {
        let there = large.clone();
        let (endpoint, log) = serve(move |_, seen| replaced_meanwhile(seen, looked_at, &there)).await;
        let client = client(&endpoint);
        assert!(cat_all(&client, None).await == large, "it grew from {looked_at}");
        let asked = log.lock().unwrap().pop().unwrap();
        assert_eq!(asked.header("if-match"), Some("\"new\""), "{}", asked.head);
        assert_eq!(
            cat_all(&client, Some(CHUNK + 1..CHUNK + 4)).await,
            large[CHUNK as usize + 1..][..3]
        );
    }
    let (endpoint, _) = serve(|number, seen| {
        let looked_at = if number == 0 { 3 * CHUNK } else { 5 };
        replaced_meanwhile(seen, looked_at, b"small")
    })
    .await;
    assert_eq!(cat_all(&client(&endpoint), None).await, b"small");
}

#[tokio::test]
async fn chunks_that_a_file_should_have_and_has_not_are_no_reason_to_ask_for_ever() {
    let (endpoint, log) = serve(|_, seen| replaced_meanwhile(seen, 3 * CHUNK, b"small")).await;
    let client = client(&endpoint);
    let refused = client
        .files()
        .cat(&remote("f"), None)
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(refused.refusal(), Some(ErrorName::BadRequest), "{refused}");
    assert_eq!(lines(&log).len(), 3);
}

#[tokio::test]
async fn findings_of_a_check_are_told_also_when_the_server_cannot_be_told_that_they_were() {
    let (endpoint, log) = serve(|_, seen| {
        if seen.line.contains("/told ") {
            let error = r#"{"code":404,"msg":"there is no such check","error":"not-found"}"#;
            return Reply::Keep(json(404, error));
        }
        let found = r#"{"found":{"path":"/pfs/dc/home/me/f","verdict":"damaged"}}"#;
        let end = r#"{"end":{"checked":7,"id":"one"}}"#;
        Reply::Keep(json(200, &format!("{found}\n\n{end}\n")))
    })
    .await;
    let checked = client(&endpoint).files().fsck().await.unwrap();
    assert_eq!((checked.checked, checked.findings.len()), (7, 1));
    assert_eq!(lines(&log).len(), 2);
}

/// What a server answers that cuts its replies about a file of these bytes after `most` of them.
fn cut_after(seen: &Seen, bytes: &[u8], most: usize) -> Reply {
    if seen.line.contains("/pfs/stat?") {
        let meta = format!(r#"{{"kind":"file","size":{},"mtime":1}}"#, bytes.len());
        return Reply::Keep(json(200, &format!(r#"{{"code":200,"msg":{meta}}}"#)));
    }
    let range = seen.header("range").unwrap().strip_prefix("bytes=").unwrap();
    let (start, end) = range.split_once('-').unwrap();
    let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
    let wanted = &bytes[start..bytes.len().min(end + 1)];
    let head = format!(
        "HTTP/1.1 206 X\r\npaddlecloud-version: 9.9.9\r\netag: \"one\"\r\ncontent-length: {}\r\n\r\n",
        wanted.len()
    );
    Reply::Cut([head.as_bytes(), &wanted[..wanted.len().min(most)]].concat())
}

#[tokio::test]
async fn a_stretch_that_is_cut_goes_on_where_it_was_in_the_same_version() {
    let bytes: Vec<u8> = (0..100_u8).collect();
    let there = bytes.clone();
    let (endpoint, log) = serve(move |_, seen| cut_after(seen, &there, 30)).await;
    let client = client(&endpoint);
    let mut stretch = client.files().stretch(&remote("f"), 10..500).await.unwrap();
    let mut read = Vec::new();
    while let Some(piece) = stretch.next().await.unwrap() {
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
async fn a_stretch_of_a_file_that_changed_meanwhile_ends_with_that() {
    let (endpoint, _) = serve(|_, seen| match seen.header("if-match") {
        Some(_) => Reply::Keep(json(409, CHANGED)),
        None => cut_after(seen, &[7; 100], 30),
    })
    .await;
    let client = client(&endpoint);
    let mut stretch = client.files().stretch(&remote("f"), 0..100).await.unwrap();
    let mut read = 0;
    let error = loop {
        match stretch.next().await {
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

const DAMAGED: &str = r#"{"code":400,"msg":"`f` cannot be had: the disk is damaged","error":"damaged"}"#;

#[tokio::test]
async fn a_stretch_of_a_file_that_the_disk_has_damaged_is_asked_for_once() {
    let (endpoint, log) = serve(|_, seen| match seen.line.contains("/pfs/content?") {
        true => Reply::Keep(json(400, DAMAGED)),
        false => cut_after(seen, &[7; 100], 30),
    })
    .await;
    let client = client(&endpoint);
    let error = client.files().stretch(&remote("f"), 0..100).await.err().unwrap();
    assert_eq!(error.refusal(), Some(ErrorName::Damaged), "{error}");
    assert_eq!(lines(&log).len(), 2, "{:?}", lines(&log));
}

#[tokio::test]
async fn a_small_file_that_the_disk_has_damaged_is_told_and_what_is_here_stays() {
    let (endpoint, log) = serve(|_, seen| {
        Reply::Keep(match &seen.line {
            line if line.contains("/pfs/parts?") => json(400, DAMAGED),
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
    assert_eq!(lines(&log).len(), 3, "{:?}", lines(&log));
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
async fn a_removal_among_much_other_work_is_asked_for_again_and_what_is_gone_then_is_removed() {
    let (still_there, asked) = removed_in_two_tries(true).await;
    assert_eq!((still_there.unwrap(), asked), (1, 2));
    let (told, asked) = removed_in_two_tries(false).await;
    assert!(matches!(told, Err(ClientError::Broken { .. })), "{told:?}");
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn a_reply_that_began_before_the_work_was_done_says_how_it_ended() {
    let (endpoint, log) = serve(|number, _| match number {
        0 => begun_early(r#"{"code":200,"msg":{"bytes":7,"files":1,"folders":0}}"#),
        _ => begun_early(r#"{"code":404,"msg":"there is no such folder","error":"not-found"}"#),
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
async fn the_end_of_a_package_is_waited_for_and_told_as_it_was() {
    let (endpoint, log) = serve(|number, _| match number {
        0 => {
            begun_early(r#"{"code":200,"msg":{"id":"abc","folder":"/pfs/dc/x","missing":[],"stored":true}}"#)
        }
        _ => begun_early(r#"{"code":400,"msg":"it is damaged","error":"damaged"}"#),
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
async fn a_server_that_does_not_say_whether_it_is_still_at_work_is_not_called_idle() {
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

/// What a server answers about a file of these bytes whose digest it knows. Plain bytes of the whole file arrive with a
/// flipped bit in the second chunk; `stored` is what the server should have.
fn flipped_on_the_way(seen: &Seen, bytes: &[u8], stored: Digest) -> Reply {
    if seen.line.contains("/pfs/stat?") {
        let meta = serde_json::json!({
            "kind": "file", "size": bytes.len(), "mtime": 1, "version": "new", "digest": stored.to_string(),
        });
        let body = serde_json::json!({"code": 200, "msg": meta});
        return Reply::Keep(json(200, &body.to_string()));
    }
    if seen.line.contains("/pfs/content?") {
        let mut sent = bytes.to_vec();
        sent[CHUNK as usize + 5] ^= 1;
        let head = format!(
            "HTTP/1.1 206 X\r\npaddlecloud-version: 9.9.9\r\ncontent-length: {}\r\n\r\n",
            sent.len()
        );
        return Reply::Keep([head.into_bytes(), sent].concat());
    }
    let Reply::Keep(mut whole) = replaced_meanwhile(seen, 0, bytes) else {
        unreachable!("it only keeps connections");
    };
    let skip: usize = seen.query("skip").map_or(0, |skip| skip.parse().unwrap());
    let head = whole.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = whole.split_off(head + skip);
    let head = format!(
        "HTTP/1.1 200 X\r\npaddlecloud-version: 9.9.9\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Reply::Keep([head.into_bytes(), body].concat())
}

/// Fetches a file of three chunks of which one bit flips on the way; what was asked for besides its plain bytes.
async fn fetch_flipped(stored: Option<Digest>) -> (Result<bool, TransferError>, Vec<(u64, u64)>, u64) {
    let bytes: Vec<u8> = (0..2 * CHUNK + 1000).map(|number| (number % 253) as u8).collect();
    let (there, stored) = (bytes.clone(), stored.unwrap_or(Digest::of(&bytes)));
    let (endpoint, log) = serve(move |_, seen| flipped_on_the_way(seen, &there, stored)).await;
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("large");
    let download = Download::File {
        remote: remote("large"),
        local: local.clone(),
    };
    let client = client(&endpoint);
    let options = TransferOptions::default();
    let mut summary = client.files().download(vec![download], &options, &()).await;
    let fetched = match summary.failures.pop() {
        Some(failure) => Err(failure.error),
        None => Ok(std::fs::read(&local).unwrap() == bytes),
    };
    let number = |seen: &Seen, key| seen.query(key).map_or(0, |text| text.parse().unwrap());
    let log = log.lock().unwrap();
    let parts = log.iter().filter(|seen| seen.line.contains("/pfs/parts?"));
    let mut asked: Vec<_> = parts
        .map(|seen| (number(seen, "first"), number(seen, "skip")))
        .collect();
    asked.sort_unstable();
    (fetched, asked, summary.again)
}

#[tokio::test]
async fn a_flipped_bit_costs_its_chunk_and_not_the_whole_file() {
    let (fetched, asked, again) = fetch_flipped(None).await;
    assert!(fetched.unwrap(), "it is not what the server has");
    let last = CHUNK - 1;
    assert_eq!(
        asked,
        [(0, last), (1, 0), (1, last), (2, 999)],
        "the names of all, and the one that is another"
    );
    assert_eq!(again, CHUNK);
    let other = Digest::of(b"something else was stored");
    let (fetched, _, _) = fetch_flipped(Some(other)).await;
    assert!(matches!(fetched, Err(TransferError::Damaged)), "{fetched:?}");
}

/// It took the request, died before it replied, and nobody listens while it is restarted.
#[tokio::test]
async fn a_server_that_is_restarted_during_the_first_request_is_waited_for() {
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
