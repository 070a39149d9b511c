//! Packages that take a while: their sender gets signs of life, and concurrent clients wait for the result.

use std::time::Duration;

use futures_util::FutureExt;
use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::ALIVE_HEADER;
use paddlecloud_files::queue::Class;
use paddlecloud_pfs::pack::write_pack;
use paddlecloud_pfs::package::{Manifest, ScanOptions, scan};
use paddlecloud_pfs::{Digest, Entry, Mtime, Node, Root};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::Request;
use crate::engine::wait_until;
use crate::packages::{announce, pack_path, package};
use crate::stage::{Stage, basic, home};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

fn me() -> Caller {
    Caller {
        user: "me".parse().unwrap(),
        scopes: paddlecloud_core::access::Scopes::user(),
    }
}

/// A request of `me` of whose body the rest is still to come.
async fn half_sent(stage: &Stage, method: &str, path: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(&stage.address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: {}\r\n{ALIVE_HEADER}: 1\r\n\
         content-length: {}\r\n\r\n",
        basic("me"),
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body[..body.len() / 2]).await.unwrap();
    stream
}

async fn wait_until_taken_in(stage: &Stage, manifest: &Manifest) {
    let staging = home(stage.folder.path(), "me").join(".pfs-staging");
    let folder = staging.join(format!("package-{}", manifest.id())).join("modules");
    wait_until("something of it comes", || folder.exists()).await;
}

/// All that comes from now on.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let read = timeout(LIMIT, stream.read_to_string(&mut text)).await;
    read.expect("it comes to an end").unwrap();
    text
}

#[tokio::test]
async fn a_package_waiting_to_be_stored_sends_keep_alive_bytes() {
    let stage = Stage::new().await;
    let (manifest, pack) = package();
    announce(&stage, &manifest).await;
    let path = pack_path(&manifest, pack.len());
    assert_eq!(
        stage.send(Request::new("PUT", &path).body(pack)).await.status,
        200
    );
    let turns: Vec<_> =
        std::iter::from_fn(|| stage.app.queue.turn(Class::End, &me().user).now_or_never()).collect();
    let list = manifest.to_json();
    let mut last = half_sent(&stage, "POST", "/api/v1/packages", &list).await;
    last.write_all(&list[list.len() / 2..]).await.unwrap();
    let first = timeout(LIMIT, last.read_u8()).await;
    assert_eq!(first.expect("it is said before it is stored").unwrap(), b'H');
    let packages = home(stage.folder.path(), "me").join(".paddlecloud/packages");
    assert_eq!(std::fs::read_dir(packages).unwrap().count(), 0);
    drop(turns);
    let reply = rest(&mut last).await;
    assert!(reply.contains(r#""stored":true"#), "{reply}");
    stage.finish().await;
}

#[tokio::test]
async fn an_announcement_during_an_upload_is_asked_to_retry() {
    let stage = Stage::new().await;
    let (manifest, pack) = package();
    announce(&stage, &manifest).await;
    let mut put = half_sent(&stage, "PUT", &pack_path(&manifest, pack.len()), &pack).await;
    wait_until_taken_in(&stage, &manifest).await;
    let early = announce(&stage, &manifest).await;
    assert_eq!(early["error"], "unavailable", "{early}");
    put.write_all(&pack[pack.len() / 2..]).await.unwrap();
    let reply = rest(&mut put).await;
    assert!(reply.contains("200 OK"), "{reply}");
    assert_eq!(announce(&stage, &manifest).await["msg"]["stored"], true);
    let late = Request::new("PUT", &pack_path(&manifest, pack.len())).body(pack);
    assert_eq!(
        stage.send(late).await.status,
        404,
        "a stored package is not changed"
    );
    stage.finish().await;
}

#[tokio::test]
async fn received_files_of_a_package_count_once() {
    let users = "users:\n- {name: me, password_file: word, system_user: a, quota: {storage: 5Ki}}\n\
                 - {name: you, password_file: word, system_user: b}\n";
    let stage = Stage::with(users).await;
    let (manifest, pack) = files(3);
    announce(&stage, &manifest).await;
    let cut = Request::new("PUT", &pack_path(&manifest, 3 << 10)).body(&pack[..pack.len() - 500]);
    assert_eq!(stage.send(cut).await.json()["error"], "damaged");
    let other = announce(&stage, &files(4).0).await;
    assert_eq!(other["error"], "quota-exceeded", "two of three came: {other}");
    let whole = Request::new("PUT", &pack_path(&manifest, 3 << 10)).body(pack);
    assert_eq!(
        announce(&stage, &manifest).await["msg"]["missing"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let whole = stage.send(whole).await;
    assert_eq!(
        whole.status,
        200,
        "there is room for what it replaces as well: {}",
        whole.text()
    );
    assert_eq!(announce(&stage, &manifest).await["msg"]["stored"], true);
    stage.finish().await;
}

/// A package of this many files of 1 KiB, and all of them as a pack.
fn files(count: usize) -> (Manifest, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..count {
        std::fs::write(
            folder.path().join(format!("{count}-{number}")),
            vec![number as u8; 1024],
        )
        .unwrap();
    }
    let found = scan(folder.path(), &ScanOptions::default()).unwrap();
    let root = Root::open(folder.path()).unwrap();
    let (stream, _) = write_pack(&root, &found.entries, Vec::new()).unwrap();
    (Manifest::new(found.entries).unwrap(), stream)
}

/// An empty file with a name as cameras give it.
pub fn photo(folder: &str, number: usize) -> Entry {
    Entry {
        path: format!("{folder}a-name-as-cameras-give-it-{number:08}.jpg")
            .parse()
            .unwrap(),
        node: Node::File {
            size: 0,
            executable: false,
            digest: Some(Digest::of(b"")),
        },
        mtime: Mtime::default(),
    }
}
