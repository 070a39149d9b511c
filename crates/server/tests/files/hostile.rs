//! Whatever the text of a path, and whatever links exist: no request reads or changes anything outside the caller's home.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use paddlecloud_pfs::Root;
use paddlecloud_pfs::pack::write_pack;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::stage::{Stage, entries, raw, raw_with};

const BOUNDARY: &str = "8d7b0e5709d756e21e971ff4d9ac3b20";
/// Nobody here may write to the public folder.
const USERS: &str = "users:\n\
    - {name: me, password_file: word, system_user: a}\n\
    - {name: you, password_file: word, system_user: b}\n";

/// Parts of paths that somebody might hope to get out with.
fn hostile_part() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("..".to_owned()),
        Just("%2e%2e".to_owned()),
        Just("%252e%252e".to_owned()),
        Just("..%2f..".to_owned()),
        Just("%2F".to_owned()),
        Just(".".to_owned()),
        Just(String::new()),
        Just("%00".to_owned()),
        Just("\\x2e\\x2e".to_owned()),
        Just("%5Cx2e%5Cx2e".to_owned()),
        Just("trap".to_owned()),
        Just("loop".to_owned()),
        Just("file-trap".to_owned()),
        Just("root".to_owned()),
        Just("d".to_owned()),
        Just("you".to_owned()),
        Just("secret".to_owned()),
        Just(".pfs-staging".to_owned()),
        "[a-z\u{ff0e}\u{2024}%.]{1,4}".prop_map(|text| text.replace('%', "%25")),
    ]
}

fn hostile_path() -> impl Strategy<Value = String> {
    let prefixes: Vec<&str> = vec![
        "/pfs/dc/home/me",
        "/pfs/dc/user/me",
        "/pfs/dc/home/you",
        "/pfs/public",
        "/pfs/dc",
        "/pfs",
        "",
    ];
    let parts = prop::collection::vec(hostile_part(), 0..6);
    (prop::sample::select(prefixes), parts)
        .prop_map(|(prefix, parts)| format!("{prefix}/{}", parts.join("/")))
}

/// As a query has it; what is encoded already stays so.
fn encoded(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'%' => "%".to_owned(),
            byte if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// As JSON has it: bytes that are no text are spelt out.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Two homes; mine has links to the outside, and a loop.
fn plant(stage: &Stage) {
    let (me, you) = (stage.home("me"), stage.home("you"));
    for folder in [me.join("d"), you.join("d")] {
        std::fs::create_dir_all(folder).unwrap();
    }
    for file in [you.join("secret"), you.join("d/secret")] {
        std::fs::write(file, "top secret").unwrap();
    }
    std::fs::write(stage.public().join("secret"), "known").unwrap();
    restore(&me);
}

/// Some of these requests rightly remove or replace what is mine.
fn restore(me: &Path) {
    std::fs::create_dir_all(me).unwrap();
    for (link, target) in [
        ("trap", "../../home/you"),
        ("d/trap", "../../you"),
        ("loop", "loop"),
        ("file-trap", "../you/secret"),
        ("d/root", "/"),
    ] {
        let path = me.join(link);
        if path.parent().is_some_and(|parent| !parent.is_dir()) {
            let parent = path.parent().unwrap();
            let _ = std::fs::remove_file(parent);
            std::fs::create_dir_all(parent).unwrap();
        }
        if std::fs::read_link(&path).is_err() {
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_dir_all(&path);
            symlink(target, &path).unwrap();
        }
    }
    if !me.join("own").is_file() {
        let _ = std::fs::remove_dir_all(me.join("own"));
        std::fs::write(me.join("own"), "mine").unwrap();
    }
}

/// Everything in a folder except one subfolder: names, links and bytes.
fn snapshot(folder: &Path, except: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            if path == except {
                continue;
            }
            let content = if meta.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                target.into_os_string().into_encoded_bytes()
            } else if meta.is_dir() {
                folders.push(path.clone());
                Vec::new()
            } else {
                std::fs::read(&path).unwrap()
            };
            found.insert(path, content);
        }
    }
    found
}

/// All of the storage that is not mine.
fn outside(stage: &Stage) -> BTreeMap<PathBuf, Vec<u8>> {
    snapshot(stage.public().parent().unwrap(), &stage.home("me"))
}

/// Whether something of another's came into my home.
fn has_foreign_files(stage: &Stage) -> bool {
    let mine = snapshot(&stage.home("me"), Path::new(""));
    mine.values().any(|content| content == b"top secret")
}

/// A request as it goes over the wire.
struct Ask {
    method: &'static str,
    target: String,
    headers: String,
    body: Vec<u8>,
}

impl Ask {
    fn get(target: String) -> Ask {
        Ask {
            method: "GET",
            target: format!("/api/v1/pfs/{target}"),
            headers: String::new(),
            body: Vec::new(),
        }
    }

    fn post(target: &str, body: &Value) -> Ask {
        Ask {
            method: "POST",
            body: body.to_string().into_bytes(),
            ..Ask::get(target.to_owned())
        }
    }

    async fn send(&self, stage: &Stage) -> (u16, String) {
        raw_with(stage, "me", self.method, &self.target, &self.headers, &self.body).await
    }
}

/// Every request that names a place to read from.
fn reading(path: &str) -> Vec<Ask> {
    let (query, text) = (encoded(path), decoded(path));
    let mut asks: Vec<Ask> = ["content", "stat", "list", "usage", "signature"]
        .iter()
        .map(|route| Ask::get(format!("{route}?path={query}")))
        .collect();
    asks.push(Ask::get(format!("parts?path={query}&first=0&count=1")));
    asks.push(Ask::get(format!("glob?pattern={query}")));
    asks.push(Ask::get(format!("glob?pattern={query}/*")));
    for method in ["method=ls&r=true&arg", "method=stat&path"] {
        asks.push(Ask::get(format!("files?{method}={query}")));
    }
    for route in ["chunks", "storage/chunks"] {
        asks.push(Ask::get(format!("{route}?path={query}&offset=0&chunksize=4096")));
    }
    for files in [json!([]), json!(["secret"]), json!(["d/secret"])] {
        asks.push(Ask::post(
            "stats",
            &json!({"path": text, "files": files, "digest": true}),
        ));
        asks.push(Ask::post("pack", &json!({"path": text, "files": files})));
    }
    asks.push(Ask::post("shares", &json!({"path": text, "seconds": 60})));
    asks
}

/// Every request that changes something at a place, or takes it away from there.
fn writing(path: &str, pack: &[u8]) -> Vec<Ask> {
    let (query, text) = (encoded(path), decoded(path));
    let own = "/pfs/dc/home/me/own";
    let mut asks = vec![
        Ask::post("mkdir", &json!({"path": text, "parents": true})),
        Ask::post("copy", &json!({"from": own, "to": text})),
        Ask::post("copy", &json!({"from": "/pfs/dc/home/me/d", "to": text})),
        Ask::post("copy", &json!({"from": text, "to": "/pfs/dc/home/me/copied"})),
        Ask::post("rename", &json!({"from": own, "to": text})),
        Ask::post("rename", &json!({"from": text, "to": "/pfs/dc/home/me/moved"})),
        Ask::post("uploads", &json!({"path": text, "size": 4, "key": path})),
        Ask::post("files", &json!({"method": "mkdir", "path": [text]})),
        Ask::post("files", &json!({"method": "touch", "path": text, "filesize": 0})),
        Ask::post("files", &json!({"method": "touch", "path": text, "filesize": 4})),
        old_post(&query),
    ];
    asks.push(Ask {
        method: "PUT",
        target: format!("/api/v1/pfs/pack?path={query}&bytes=100&entries=10"),
        headers: String::new(),
        body: pack.to_vec(),
    });
    asks.push(Ask {
        method: "DELETE",
        ..Ask::post("files", &json!({"method": "rm", "r": true, "path": [text]}))
    });
    asks.push(Ask::post("remove", &json!({"paths": [text], "recursive": true})));
    asks
}

/// A range of an old client.
fn old_post(query: &str) -> Ask {
    let body = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"chunk\"; \
         filename=\"chunksize=4&offset=0&path={query}\"\r\nContent-Type: application/octet-stream\r\n\r\n\
         evil\r\n--{BOUNDARY}--\r\n"
    );
    Ask {
        method: "POST",
        headers: format!("content-type: multipart/form-data; boundary={BOUNDARY}\r\n"),
        body: body.into_bytes(),
        ..Ask::get("storage/chunks".to_owned())
    }
}

/// A pack of two files, one of which has the name of what must not change.
fn pack() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    for name in ["secret", "small"] {
        std::fs::write(folder.path().join(name), "evil").unwrap();
    }
    let root = Root::open(folder.path()).unwrap();
    write_pack(&root, &entries(folder.path()), Vec::new()).unwrap().0
}

/// Begins uploads where they are let in, sends them and ends them.
async fn complete(stage: &Stage, reply: &str) {
    let body = reply.split("\r\n\r\n").nth(1).unwrap_or_default();
    let Ok(started) = serde_json::from_str::<Value>(body) else {
        return;
    };
    let Some(id) = started["msg"]["id"].as_str() else {
        return;
    };
    let at = format!("/api/v1/pfs/uploads/{id}");
    raw(
        stage,
        "me",
        "PUT",
        &format!("{at}/ranges?offset=0&len=4"),
        b"evil",
    )
    .await;
    let digest = paddlecloud_pfs::Digest::of(b"evil").to_string();
    let commit = json!({"digest": digest}).to_string();
    raw(stage, "me", "POST", &format!("{at}/commit"), commit.as_bytes()).await;
    raw(stage, "me", "DELETE", &at, b"").await;
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    })
}

#[test]
fn no_path_reads_files_outside_a_home() {
    let runtime = Runtime::new().unwrap();
    let stage = runtime.block_on(Stage::with(USERS));
    plant(&stage);
    let outcome = runner(150).run(&hostile_path(), |path| {
        for ask in reading(&path) {
            let (status, reply) = runtime.block_on(ask.send(&stage));
            prop_assert!(!reply.contains("top secret"), "{} {path}: {reply}", ask.target);
            prop_assert!(
                matches!(status, 200 | 206 | 400 | 403 | 404 | 416),
                "{} {path}: {reply}",
                ask.target
            );
        }
        Ok(())
    });
    outcome.unwrap();
    runtime.block_on(stage.finish());
}

#[test]
fn no_path_changes_files_outside_a_home() {
    let runtime = Runtime::new().unwrap();
    let stage = runtime.block_on(Stage::with(USERS));
    plant(&stage);
    let (pack, before) = (pack(), outside(&stage));
    let outcome = runner(100).run(&hostile_path(), |path| {
        for ask in writing(&path, &pack) {
            restore(&stage.home("me"));
            let (status, reply) = runtime.block_on(ask.send(&stage));
            if ask.target.ends_with("/uploads") {
                runtime.block_on(complete(&stage, &reply));
            }
            prop_assert!(status < 500 && status > 0, "{} {path}: {reply}", ask.target);
            prop_assert!(
                outside(&stage) == before,
                "{} {path} changed what is not mine: {reply}",
                ask.target
            );
            prop_assert!(
                !has_foreign_files(&stage),
                "{} {path} took what is not mine",
                ask.target
            );
        }
        Ok(())
    });
    outcome.unwrap();
    runtime.block_on(stage.finish());
    // They do work where they may, in a home without what the texts above have left.
    let stage = runtime.block_on(Stage::with(USERS));
    plant(&stage);
    let asks = writing("/pfs/dc/home/me/fresh/secret", &pack);
    let mut refused = Vec::new();
    for ask in &asks {
        restore(&stage.home("me"));
        let (status, reply) = runtime.block_on(ask.send(&stage));
        if status != 200 {
            refused.push(reply);
        }
    }
    assert!(
        refused.len() <= 4,
        "{} of {}: {refused:#?}",
        refused.len(),
        asks.len()
    );
    runtime.block_on(stage.finish());
}
