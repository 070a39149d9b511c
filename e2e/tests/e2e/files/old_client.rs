//! The original client, rebuilt from its protocol: it still works, also after a restart of the server.

use std::fs;
use std::process::{Command, Output, Stdio};

use e2e::TestEnvironment;
use serde_json::Value;

use super::noise;
use super::site::Site;

const RANGE: usize = 1 << 20;
const FILE: &str = "/pfs/cloud/home/ada/model";
const BOUNDARY: &str = "8d7b0e5709d756e21e971ff4d9ac3b20";

/// One request as the original made it; the reply is always 200 with `err` and `results`.
fn call(site: &Site<'_>, words: &[&str], target: &str) -> Value {
    let output = ask(site, words, target);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("its envelope is JSON")
}

fn ask(site: &Site<'_>, words: &[&str], target: &str) -> Output {
    Command::new("curl")
        .args(["-sS", "-f", "-u", "ada:secret of ada"])
        .args(words)
        .arg(format!("http://{}/api/v1/pfs/{target}", site.endpoint()))
        .stdin(Stdio::null())
        .output()
        .expect("there is a curl")
}

fn announce(site: &Site<'_>, size: usize) -> Value {
    let body = format!(r#"{{"method":"touch","path":"{FILE}","filesize":{size}}}"#);
    call(site, &["-d", &body], "files")
}

/// Sends one range as a form of one part.
fn post(env: &TestEnvironment, site: &Site<'_>, offset: usize, range: &[u8]) -> Value {
    let name = FILE.replace('/', "%2F");
    let mut body = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"chunk\"; \
         filename=\"chunksize={}&offset={offset}&path={name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n",
        range.len()
    )
    .into_bytes();
    body.extend_from_slice(range);
    body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    let file = env.folder("old-client").join("body");
    fs::write(&file, body).expect("a file in the test's own folder");
    let kind = format!("content-type: multipart/form-data; boundary={BOUNDARY}");
    let data = format!("@{}", file.display());
    call(site, &["-H", &kind, "--data-binary", &data], "storage/chunks")
}

/// A file goes up in the old way, goes up again, and comes back; wherever the server keeps it.
pub fn an_old_client_sends_a_file_twice(env: &TestEnvironment, site: &Site<'_>) {
    let mut content = noise(63, 3 * RANGE + 7);
    upload(env, site, &content);
    assert!(fetched(site).as_ref() == Some(&content), "what came is what went");

    // For a file being sent the server returns no checksums: all of it is sent.
    content[RANGE + 5] ^= 1;
    assert_eq!(announce(site, content.len())["err"], "");
    let reply = sum(site, 0);
    assert_eq!(
        (&reply["err"], &reply["results"]["checksum"]),
        (&"".into(), &"".into())
    );
    upload(env, site, &content);
    assert!(fetched(site).as_ref() == Some(&content), "what came is what went");

    // Ranges in any order.
    let other = noise(64, 3 * RANGE + 7);
    assert_eq!(announce(site, other.len())["err"], "");
    for (index, range) in other.chunks(RANGE).enumerate().rev() {
        assert_eq!(post(env, site, index * RANGE, range)["err"], "");
    }
    assert!(fetched(site).as_ref() == Some(&other), "what came is what went");
    let listed = call(site, &[], &format!("files?method=ls&r=false&arg={FILE}"));
    let entry = &listed["results"][0];
    assert_eq!(
        (&entry["Path"], &entry["Size"]),
        (&FILE.into(), &other.len().into())
    );
    let nanos = entry["ModTime"].as_u64().expect("a number");
    let shown = site.run("ada", &["stat", "-o", "json", FILE]).ok().json();
    let shown = shown[0]["modified"].as_str().expect("a time");
    assert_eq!(nanos / 1_000_000_000, seconds(shown), "{listed} {shown}");
}

/// A time as people read it, in seconds since 1970.
fn seconds(time: &str) -> u64 {
    let printed = Command::new("date").args(["--date", time, "+%s"]).output();
    let printed = String::from_utf8(printed.expect("date is everywhere").stdout).expect("a number is text");
    printed.trim().parse().expect("a number")
}

/// What the server says of a range.
fn sum(site: &Site<'_>, offset: usize) -> Value {
    let target = format!("chunks?method=GetChunkMeta&path={FILE}&offset={offset}&chunksize={RANGE}");
    call(site, &[], &target)
}

/// The whole file, range by range, as the original fetched it; `None` when it was replaced meanwhile.
fn fetched(site: &Site<'_>) -> Option<Vec<u8>> {
    let size = call(site, &[], &format!("files?method=stat&path={FILE}"))["results"]["Size"].as_u64();
    let size = usize::try_from(size.expect("a size")).expect("a file of a test");
    let ranges = (0..size.div_ceil(RANGE)).map(|index| fetch(site, index * RANGE));
    ranges.collect::<Option<Vec<_>>>().map(|ranges| ranges.concat())
}

/// The bytes of one range, out of the part in which they travel.
fn fetch(site: &Site<'_>, offset: usize) -> Option<Vec<u8>> {
    let target = format!("storage/chunks?path={FILE}&offset={offset}&chunksize={RANGE}");
    let output = ask(site, &[], &target);
    let mut bytes = output.status.success().then_some(output.stdout)?;
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let bytes = bytes.split_off(head? + 4);
    let end = format!("\r\n--{BOUNDARY}--\r\n");
    bytes.strip_suffix(end.as_bytes()).map(<[u8]>::to_vec)
}

/// As the original uploads: announces, then for each range asks and sends what differs.
fn upload(env: &TestEnvironment, site: &Site<'_>, content: &[u8]) {
    assert_eq!(announce(site, content.len())["err"], "");
    for (index, range) in content.chunks(RANGE).enumerate() {
        let offset = index * RANGE;
        assert_eq!(sum(site, offset)["err"], "");
        assert_eq!(post(env, site, offset, range)["err"], "");
    }
}

#[test]
fn an_old_client_can_repeat_its_upload_after_the_server_was_killed() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let (old, new) = (noise(60, 3 * RANGE + 7), noise(61, 3 * RANGE + 7));
    upload(&env, &site, &old);
    let file = site.home("ada").join("model");
    assert!(fs::read(&file).unwrap() == old);

    // Half of the new version, then the server dies: the old one stays as it was.
    assert_eq!(announce(&site, new.len())["err"], "");
    assert_eq!(post(&env, &site, 0, &new[..RANGE])["err"], "");
    site.server().killer()();
    site.start_again();
    assert!(fs::read(&file).unwrap() == old, "nobody sees a part");
    // The upload is still there.
    assert_eq!(post(&env, &site, RANGE, &new[RANGE..2 * RANGE])["err"], "");
    assert!(fs::read(&file).unwrap() == old);

    // Nonsense is refused in its own envelope, too.
    for (offset, why) in [
        ("-1", "parse json error"),
        ("18446744073709551615", "chunksize error"),
    ] {
        let target = format!("chunks?method=GetChunkMeta&path={FILE}&offset={offset}&chunksize=4096");
        assert_eq!(call(&site, &[], &target)["err"], why, "{offset}");
    }

    // Its users repeat the command.
    upload(&env, &site, &new);
    assert!(fs::read(&file).unwrap() == new);
    assert!(super::staged(site.storage()).is_empty());
}

#[test]
fn an_upload_of_an_old_client_is_listed_until_it_is_dropped() {
    let env = TestEnvironment::new();
    let site = Site::of_ada(&env, "");
    let content = noise(62, 3 * RANGE);
    assert_eq!(announce(&site, content.len())["err"], "");
    assert_eq!(post(&env, &site, 0, &content[..RANGE])["err"], "");

    let shown = site.run("ada", &["pfs", "uploads", "-o", "json"]).ok().json();
    let uploads = shown.as_array().expect("a list of uploads");
    assert_eq!(uploads.len(), 1, "{shown}");
    assert_eq!(uploads[0]["path"], FILE, "{shown}");
    assert_eq!(
        (uploads[0]["size"].as_u64(), uploads[0]["arrived"].as_u64()),
        (Some(3 << 20), Some(1 << 20)),
        "{shown}"
    );

    site.run("ada", &["pfs", "uploads", "--drop", FILE])
        .ok()
        .says("1 upload dropped");
    let left = site.run("ada", &["pfs", "uploads", "-o", "json"]).ok().json();
    assert_eq!(left.as_array().map(Vec::len), Some(0), "{left}");
    let refused = post(&env, &site, RANGE, &content[RANGE..2 * RANGE]);
    assert_eq!(refused["err"], "no such file or directory");
    assert!(super::staged(site.storage()).is_empty());
    assert!(!site.home("ada").join("model").exists());
}
