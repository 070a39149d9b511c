//! A client of the original's protocol: announces, compares and sends range by range.

use base64::Engine as _;
use md5::{Digest, Md5};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{Stage, assert_tidy, noise, raw, raw_with};

const BOUNDARY: &str = "8d7b0e5709d756e21e971ff4d9ac3b20";
const RANGE: usize = 64 << 10;
const FILE: &str = "%2Fpfs%2Fdc%2Fhome%2Fme%2Fdata";

async fn call(stage: &Stage, method: &str, target: &str, body: Value) -> Value {
    call_as(stage, "me", method, target, body).await
}

async fn call_as(stage: &Stage, user: &str, method: &str, target: &str, body: Value) -> Value {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let (status, reply) = raw(stage, user, method, target, body.as_bytes()).await;
    assert_eq!(status, 200, "{reply}");
    serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

/// Sends a file as the original did; returns how many ranges went over the wire.
async fn upload(stage: &Stage, content: &[u8]) -> usize {
    let touch = json!({"method": "touch", "path": "/pfs/dc/home/me/data", "filesize": content.len()});
    assert_eq!(call(stage, "POST", "/api/v1/pfs/files", touch).await["err"], "");
    let mut sent = 0;
    for (index, range) in content.chunks(RANGE).enumerate() {
        let checksum = ask(stage, "me", FILE, index).await;
        let own: String = Md5::digest(range)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        if checksum == own {
            continue;
        }
        post(stage, FILE, index * RANGE, range).await;
        sent += 1;
    }
    sent
}

/// Sends one range.
async fn post(stage: &Stage, file: &str, offset: usize, range: &[u8]) {
    let reply = post_announcing(stage, file, offset, range, range.len()).await;
    assert!(reply.contains("\"err\":\"\""), "{reply}");
}

/// Sends one range that says it has this size; returns the reply.
async fn post_announcing(stage: &Stage, file: &str, offset: usize, range: &[u8], announced: usize) -> String {
    let mut body = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"chunk\"; \
         filename=\"chunksize={announced}&offset={offset}&path={file}\"\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(range);
    body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    let kind = format!("content-type: multipart/form-data; boundary={BOUNDARY}\r\n");
    let (status, reply) = raw_with(stage, "me", "POST", "/api/v1/pfs/storage/chunks", &kind, &body).await;
    assert_eq!(status, 200, "{reply}");
    reply
}

/// The sum of one range.
async fn ask(stage: &Stage, user: &str, file: &str, index: usize) -> Value {
    let query = format!("path={file}&offset={}&chunksize={RANGE}", index * RANGE);
    let target = format!("/api/v1/pfs/chunks?method=GetChunkMeta&{query}");
    let meta = call_as(stage, user, "GET", &target, Value::Null).await;
    assert_eq!(meta["err"], "", "{meta}");
    meta["results"]["checksum"].clone()
}

/// The reply to a request for a range, without its head: of HTTP/1.0, so that the bytes come as they are.
async fn fetch(stage: &Stage, offset: usize) -> Vec<u8> {
    let target = format!("/api/v1/pfs/storage/chunks?path={FILE}&offset={offset}&chunksize={RANGE}");
    let login = base64::engine::general_purpose::STANDARD.encode("me:secret");
    let request = format!("GET {target} HTTP/1.0\r\nhost: x\r\nauthorization: Basic {login}\r\n\r\n");
    let mut stream = tokio::net::TcpStream::connect(&stage.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    let head = reply.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let text = String::from_utf8_lossy(&reply[..head]).to_lowercase();
    assert!(text.contains(" 200 "), "{text}");
    let kind = format!("content-type: multipart/form-data; boundary={BOUNDARY}");
    assert!(text.contains(&kind), "{text}");
    reply.split_off(head + 4)
}

/// The form of one part in which a range travels.
fn part(offset: usize, range: &[u8]) -> Vec<u8> {
    let mut part = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"chunk\"; \
         filename=\"path={FILE}&offset={offset}&chunksize={}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n",
        range.len()
    )
    .into_bytes();
    part.extend_from_slice(range);
    part.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    part
}

/// Asks about every range, as a client does that fetches the file.
async fn ask_all(stage: &Stage, user: &str, file: &str, ranges: usize) -> Vec<Value> {
    let mut checksums = Vec::new();
    for index in 0..ranges {
        checksums.push(ask(stage, user, file, index).await);
    }
    checksums
}

#[tokio::test]
async fn reading_a_public_file_neither_completes_nor_blocks_its_upload() {
    let stage = Stage::new().await;
    let file = stage.public().join("data");
    let old = noise(1, 3 * RANGE);
    std::fs::write(&file, &old).unwrap();
    let mut new = noise(2, 2 * RANGE);
    new.extend_from_slice(&old[2 * RANGE..]);
    let name = "%2Fpfs%2Fdc%2Fpublic%2Fdata";
    let touch = json!({"method": "touch", "path": "/pfs/dc/public/data", "filesize": new.len()});
    assert_eq!(call(&stage, "POST", "/api/v1/pfs/files", touch).await["err"], "");
    let checksums = ask_all(&stage, "you", name, 3).await;
    for (index, range) in new.chunks(RANGE).enumerate() {
        assert!(std::fs::read(&file).unwrap() == old, "nobody sees a part");
        assert_eq!(ask(&stage, "me", name, index).await, "", "it sends all");
        post(&stage, name, index * RANGE, range).await;
        if index < 2 {
            assert_eq!(ask_all(&stage, "you", name, 3).await, checksums);
        }
    }
    assert!(std::fs::read(&file).unwrap() == new);
    stage.finish().await;
}

#[tokio::test]
async fn an_old_client_sends_a_file_twice_and_it_appears_only_complete() {
    let stage = Stage::new().await;
    let file = stage.home("me").join("data");
    let mut content = noise(1, 3 * RANGE + 100);
    std::fs::create_dir_all(stage.home("me")).unwrap();
    let touch = json!({"method": "touch", "path": "/pfs/dc/home/me/data", "filesize": content.len()});
    call(&stage, "POST", "/api/v1/pfs/files", touch).await;
    assert!(!file.exists(), "an announced file is not there yet");
    assert_eq!(upload(&stage, &content).await, 4);
    assert_eq!(std::fs::read(&file).unwrap(), content);
    assert_tidy(&stage.home("me"));

    content[3 * RANGE + 5] ^= 1;
    assert_eq!(upload(&stage, &content).await, 4, "it gets no sums");
    assert_eq!(std::fs::read(&file).unwrap(), content);
    assert_tidy(&stage.home("me"));

    // Both ends of it, and one in the middle; the last is shorter than asked for and says so.
    for (index, range) in content.chunks(RANGE).enumerate() {
        assert!(
            fetch(&stage, index * RANGE).await == part(index * RANGE, range),
            "range {index}"
        );
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_chunk_of_another_size_than_announced_is_refused_and_not_published() {
    let stage = Stage::new().await;
    let file = stage.home("me").join("data");
    std::fs::create_dir_all(stage.home("me")).unwrap();
    let content = noise(1, RANGE);
    let touch = json!({"method": "touch", "path": "/pfs/dc/home/me/data", "filesize": RANGE});
    assert_eq!(call(&stage, "POST", "/api/v1/pfs/files", touch).await["err"], "");
    // The boundary after the bytes makes up for what is missing.
    for missing in [1, 20, 200] {
        let reply = post_announcing(&stage, FILE, 0, &content[missing..], RANGE).await;
        assert!(reply.contains("chunksize error"), "{reply}");
        assert!(!file.exists(), "a chunk {missing} bytes short was published");
    }
    let longer = post_announcing(&stage, FILE, 0, &content, RANGE - 1).await;
    assert!(longer.contains("chunksize error"), "{longer}");
    post(&stage, FILE, 0, &content).await;
    assert_eq!(std::fs::read(&file).unwrap(), content);
    stage.finish().await;
}

#[tokio::test]
async fn an_old_client_lists_makes_and_removes() {
    let stage = Stage::new().await;
    let files = "/api/v1/pfs/files";
    let mkdir = json!({"method": "mkdir", "path": ["/pfs/dc/home/me/a/b"]});
    assert_eq!(
        call(&stage, "POST", files, mkdir).await["results"][0]["path"],
        "/pfs/dc/home/me/a/b"
    );
    let file = stage.home("me").join("a/b/c");
    std::fs::write(&file, "123").unwrap();
    let changed = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_500_000_000_123_456_789);
    let opened = std::fs::File::options().write(true).open(&file).unwrap();
    opened.set_modified(changed).unwrap();
    let listed = call(
        &stage,
        "GET",
        &format!("{files}?method=ls&r=true&arg=%2Fpfs%2Fdc%2Fhome%2Fme%2Fa"),
        Value::Null,
    )
    .await;
    let paths: Vec<&str> = listed["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["Path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/pfs/dc/home/me/a/b", "/pfs/dc/home/me/a/b/c"]);
    assert_eq!(listed["results"][1]["Size"], 3);
    assert_eq!(
        listed["results"][1]["ModTime"], 1_500_000_000_123_456_789_u64,
        "nanoseconds"
    );
    assert_eq!(listed["results"][1]["IsDir"], false);
    let stat = call(
        &stage,
        "GET",
        &format!("{files}?method=stat&path=%2Fpfs%2Fdc%2Fhome%2Fme%2Fa"),
        Value::Null,
    )
    .await;
    assert_eq!(stat["results"]["IsDir"], true);
    let theirs = call(
        &stage,
        "GET",
        &format!("{files}?method=stat&path=%2Fpfs%2Fdc%2Fhome%2Fyou"),
        Value::Null,
    )
    .await;
    assert_eq!(theirs["err"], "no such file or directory");
    let rm = json!({"method": "rm", "r": true, "path": ["/pfs/dc/home/me/a*"]});
    assert_eq!(call(&stage, "DELETE", files, rm).await["err"], "");
    assert!(!stage.home("me").join("a").exists());
    stage.finish().await;
}
