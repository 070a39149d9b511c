//! Uploads to a server that forgets them.

use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use paddlecloud_api::client::{Client, ClientError, Credentials, Limits};
use paddlecloud_api::error::ErrorName;
use paddlecloud_pfs::{Entry, Mtime, Node};
use paddlecloud_transfer::{FileService, TransferError, TransferOptions, Upload};

use crate::scripted::{Log, Reply, Seen, json, serve};

const GONE: &str = r#"{"code":404,"msg":"there is no such upload","error":"not-found"}"#;
const OTHER: &str = r#"{"code":200,"msg":{"kind":"file","size":9,"mtime":1}}"#;

fn client(endpoint: &str) -> Client {
    Client::new(endpoint.parse().unwrap()).with_limits(Limits {
        give_up: Duration::from_secs(20),
        pause: Duration::from_millis(1),
        ..Limits::default()
    })
}

/// Every upload gets another id, by how often one was begun; `is_gone` says which requests come too late.
fn forgetful(uploads: usize, seen: &Seen, is_gone: impl Fn(usize, &str) -> bool) -> Reply {
    let target = seen.line.split(' ').nth(1).unwrap();
    let id = format!("{uploads:032x}");
    let body = if target.contains("/pfs/stat?") {
        OTHER.to_owned()
    } else if target.ends_with("/uploads") || target.ends_with(&id) {
        format!(r#"{{"code":200,"msg":{{"id":"{id}","missing":[[0,3]]}}}}"#)
    } else if !target.contains(&id) || is_gone(uploads, target) {
        return Reply::Keep(json(404, GONE));
    } else {
        OTHER.to_owned()
    };
    Reply::Keep(json(200, &body))
}

fn uploads(log: &Log) -> usize {
    let log = log.lock().unwrap();
    let begins = log.iter().filter(|seen| seen.line.contains("/uploads HTTP"));
    begins.count()
}

/// What became of three bytes from a pipe, and how often they were begun.
async fn pipe_to(is_gone: fn(usize, &str) -> bool) -> (Result<u64, TransferError>, usize) {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let (endpoint, log) = serve(move |_, seen| {
        let is_begin = usize::from(seen.line.contains("/uploads HTTP"));
        let before = count.fetch_add(is_begin, std::sync::atomic::Ordering::SeqCst);
        forgetful(before + is_begin, seen, is_gone)
    })
    .await;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"abc").unwrap();
    let remote = "/pfs/dc/home/me/f".parse().unwrap();
    let client = client(&endpoint);
    let options = TransferOptions::default();
    let mut summary = client
        .files()
        .upload_open(file, "-", &remote, &options, &())
        .await;
    let result = match summary.failures.pop() {
        Some(failure) => Err(failure.error),
        None => Ok(summary.transferred),
    };
    (result, uploads(&log))
}

#[tokio::test]
async fn a_lost_upload_is_restarted() {
    for late in [
        |uploads: usize, target: &str| uploads == 1 && target.contains("/chunks/"),
        |uploads: usize, target: &str| uploads == 1 && target.ends_with("/commit"),
    ] {
        let (sent, uploads) = pipe_to(late).await;
        assert!(matches!(sent, Ok(1)), "{sent:?}");
        assert_eq!(uploads, 2);
    }
}

#[tokio::test]
async fn an_upload_lost_three_times_fails() {
    let (sent, uploads) = pipe_to(|_, target| target.ends_with("/commit")).await;
    assert!(matches!(sent, Err(TransferError::UploadGone)), "{sent:?}");
    assert_eq!(uploads, 3);
}

#[tokio::test]
async fn a_lost_commit_reply_queries_the_known_digest_before_a_computed_one() {
    let digest = paddlecloud_pfs::Digest::of(b"abc");
    let known = format!(r#"{{"code":200,"msg":{{"kind":"file","size":3,"mtime":1,"digest":"{digest}"}}}}"#);
    for (answers, asked) in [("known=", &["known"][..]), ("digest=", &["known", "digest"])] {
        let known = known.clone();
        let (endpoint, log) = serve(move |_, seen| match seen.line.contains("/pfs/stat?") {
            true if seen.line.contains(answers) => Reply::Keep(json(200, &known)),
            _ => forgetful(1, seen, |_, target| target.ends_with("/commit")),
        })
        .await;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let remote = "/pfs/dc/home/me/f".parse().unwrap();
        let (client, options) = (client(&endpoint), TransferOptions::default());
        let files = client.files();
        let summary = files.upload_open(file, "-", &remote, &options, &()).await;
        assert_eq!((summary.transferred, summary.failures.len()), (1, 0));
        let log = log.lock().unwrap();
        let at = log
            .iter()
            .position(|seen| seen.line.contains("/commit "))
            .unwrap();
        let after: Vec<&str> = log[at..]
            .iter()
            .flat_map(|seen| {
                ["known", "digest"]
                    .into_iter()
                    .filter(|key| seen.query(key).is_some())
            })
            .collect();
        assert_eq!(after, asked);
    }
}

#[tokio::test]
async fn one_request_makes_the_server_read_a_bounded_amount() {
    let (endpoint, log) = serve(|_, seen| {
        let request: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        let nothing = vec![serde_json::Value::Null; request["files"].as_array().unwrap().len()];
        let body = serde_json::json!({"code": 200, "msg": nothing});
        Reply::Keep(json(200, &body.to_string()))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let listed = |(number, gib): (usize, u64)| Entry {
        path: number.to_string().parse().unwrap(),
        node: Node::file(gib << 30, false),
        mtime: Mtime::from_nanos(1),
    };
    let client = client(&endpoint);
    let send = async |checksum| {
        log.lock().unwrap().clear();
        let upload = Upload::Tree {
            local: folder.path().to_owned(),
            remote: "/pfs/dc/home/me/t".parse().unwrap(),
            entries: [10, 6, 1, 40, 2].into_iter().enumerate().map(listed).collect(),
        };
        let options = TransferOptions {
            checksum,
            dry_run: true,
            ..TransferOptions::default()
        };
        let summary = client.files().upload(vec![upload], &options, &()).await;
        assert_eq!((summary.transferred, summary.failures.len()), (5, 0));
        let log = log.lock().unwrap();
        let bodies = log.iter().map(|seen| serde_json::from_slice(&seen.body).unwrap());
        let asked = bodies.map(|body: serde_json::Value| body["files"].as_array().unwrap().len());
        asked.collect::<Vec<_>>()
    };
    assert_eq!(send(true).await, [2, 1, 1, 1]);
    assert_eq!(send(false).await, [5], "nothing is read for it");
}

#[tokio::test]
async fn only_folders_that_may_have_files_are_asked_about() {
    let (endpoint, log) = serve(|_, seen| match seen.query("entries") {
        Some(entries) => {
            let body = format!(r#"{{"code":200,"msg":{{"stored":{entries},"kept":[],"failed":[]}}}}"#);
            Reply::Keep(json(200, &body))
        }
        None => Reply::Keep(json(200, r#"{"code":200,"msg":[null]}"#)),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "x").unwrap();
    let upload = |remote: &str| Upload::Tree {
        local: folder.path().to_owned(),
        remote: remote.parse().unwrap(),
        entries: vec![Entry {
            path: "a".parse().unwrap(),
            node: Node::file(1, false),
            mtime: Mtime::from_nanos(1),
        }],
    };
    let options = TransferOptions {
        new_folders: ["/pfs/dc/home/me/new".parse().unwrap()].into(),
        ..TransferOptions::default()
    };
    let uploads = ["new", "old", "new/old"].map(|name| upload(&format!("/pfs/dc/home/me/{name}")));
    let summary = client(&endpoint)
        .files()
        .upload(uploads.into(), &options, &())
        .await;
    assert_eq!((summary.transferred, summary.failures.len()), (3, 0));
    let log = log.lock().unwrap();
    let asked = log.iter().filter(|seen| seen.query("entries").is_none());
    let asked: Vec<serde_json::Value> = asked
        .map(|seen| serde_json::from_slice::<serde_json::Value>(&seen.body).unwrap()["path"].take())
        .collect();
    assert_eq!(asked, ["/pfs/dc/home/me/old", "/pfs/dc/home/me/new/old"]);
}

#[tokio::test]
async fn after_a_broken_pack_all_packs_are_as_small_as_the_connection_bears() {
    let (endpoint, log) = serve(|_, seen| {
        let Some(entries) = seen.query("entries") else {
            let body = serde_json::json!({"code": 200, "msg": vec![serde_json::Value::Null; 32]});
            return Reply::Keep(json(200, &body.to_string()));
        };
        if entries.parse::<u64>().unwrap() > 4 {
            return Reply::Cut(Vec::new());
        }
        Reply::Keep(json(
            200,
            r#"{"code":200,"msg":{"stored":4,"kept":[],"failed":[]}}"#,
        ))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let entry = |number: usize| {
        let name = format!("{number:02}");
        std::fs::write(folder.path().join(&name), "x").unwrap();
        Entry {
            path: name.parse().unwrap(),
            node: Node::file(1, false),
            mtime: Mtime::from_nanos(1),
        }
    };
    let upload = Upload::Tree {
        local: folder.path().to_owned(),
        remote: "/pfs/dc/home/me/t".parse().unwrap(),
        entries: (0..32).map(entry).collect(),
    };
    let (client, options) = (client(&endpoint), TransferOptions::default());
    let summary = client.files().upload(vec![upload], &options, &()).await;
    assert_eq!((summary.transferred, summary.failures.len()), (32, 0));
    let log = log.lock().unwrap();
    let packs: Vec<&str> = log.iter().filter_map(|seen| seen.query("entries")).collect();
    assert_eq!(packs[..3], ["32", "16", "8"]);
    assert_eq!(packs[3..], ["4"; 8]);
}

#[tokio::test]
async fn packs_grow_again_once_enough_of_them_have_arrived() {
    let is_first = AtomicBool::new(true);
    let (endpoint, log) = serve(move |_, seen| {
        let Some(entries) = seen.query("entries") else {
            let body = serde_json::json!({"code": 200, "msg": vec![serde_json::Value::Null; 2]});
            return Reply::Keep(json(200, &body.to_string()));
        };
        if is_first.swap(false, Ordering::Relaxed) {
            return Reply::Cut(Vec::new());
        }
        let body = format!(r#"{{"code":200,"msg":{{"stored":{entries},"kept":[],"failed":[]}}}}"#);
        Reply::Keep(json(200, &body))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let entry = |name: &str| {
        std::fs::write(folder.path().join(name), "x").unwrap();
        Entry {
            path: name.parse().unwrap(),
            node: Node::file(1, false),
            mtime: Mtime::from_nanos(1),
        }
    };
    let upload = |number: usize| Upload::Tree {
        local: folder.path().to_owned(),
        remote: format!("/pfs/dc/home/me/{number}").parse().unwrap(),
        entries: vec![entry("a"), entry("b")],
    };
    let options = TransferOptions {
        transfers: NonZeroUsize::MIN,
        ..TransferOptions::default()
    };
    let uploads = (0..10).map(upload).collect();
    let summary = client(&endpoint).files().upload(uploads, &options, &()).await;
    assert_eq!((summary.transferred, summary.failures.len()), (20, 0));
    let log = log.lock().unwrap();
    let packs: Vec<&str> = log.iter().filter_map(|seen| seen.query("entries")).collect();
    assert_eq!(packs[..17], [["2"].as_slice(), &["1"; 16]].concat());
    assert_eq!(packs[17..], ["2"; 2]);
}

#[tokio::test]
async fn a_token_that_is_refused_while_a_file_is_sent_is_renewed() {
    let (endpoint, log) = serve(|_, seen| {
        if seen.line.contains("/api-token-auth") {
            return Reply::Keep(json(200, r#"{"token":"fresh"}"#));
        }
        // It expired just when the first byte came.
        let is_stale = seen.header("authorization") == Some("Token stale");
        if is_stale && seen.line.starts_with("PUT ") {
            let refused = r#"{"code":401,"msg":"no","error":"unauthorized"}"#;
            return Reply::Keep(json(401, refused));
        }
        forgetful(1, seen, |_, _| false)
    })
    .await;
    let client = client(&endpoint).with_credentials(Credentials {
        login: Some(("me".into(), "secret".into())),
        token: Some("stale".into()),
    });
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"abc").unwrap();
    let remote = "/pfs/dc/home/me/f".parse().unwrap();
    let options = TransferOptions::default();
    let summary = client
        .files()
        .upload_open(file, "-", &remote, &options, &())
        .await;
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    let log = log.lock().unwrap();
    let tokens = log.iter().filter(|seen| seen.line.contains("/api-token-auth"));
    assert_eq!(tokens.count(), 1);
    let last = log.last().unwrap();
    assert_eq!(last.header("authorization"), Some("Token fresh"), "{}", last.line);
}

#[tokio::test]
async fn a_file_that_could_not_be_published_is_not_reported_as_kept() {
    for (refused, name) in [
        (
            r#"{"code":409,"msg":"it changed","error":"changing"}"#,
            Some(ErrorName::Changing),
        ),
        (r#"{"code":409,"msg":"it is there","error":"conflict"}"#, None),
    ] {
        let (endpoint, _) = serve(move |_, seen| match seen.line.contains("/commit ") {
            true => Reply::Keep(json(409, refused)),
            false => forgetful(1, seen, |_, _| false),
        })
        .await;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let options = TransferOptions {
            no_overwrite: true,
            ..TransferOptions::default()
        };
        let remote = "/pfs/dc/home/me/f".parse().unwrap();
        let client = client(&endpoint);
        let files = client.files();
        let summary = files.upload_open(file, "-", &remote, &options, &()).await;
        let error = summary.failures.first().map(|failure| match &failure.error {
            TransferError::Server(ClientError::Refused(body)) => body.error,
            other => panic!("{other}"),
        });
        assert_eq!((summary.kept, error), (u64::from(name.is_none()), name));
    }
}
