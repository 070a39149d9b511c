//! Packages that take a while: their sender gets signs of life, and concurrent clients wait for the result.

use std::time::Duration;

use futures_util::FutureExt;
use paddlecloud_api::ALIVE_HEADER;
use paddlecloud_pfs::pack::write_pack;
use paddlecloud_pfs::package::{Manifest, ScanOptions, scan};
use paddlecloud_pfs::{Digest, Entry, Mtime, Node, Root};
use paddlecloud_server::auth::Caller;
use paddlecloud_server::queue::Class;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::Request;
use crate::engine::wait_until;
use crate::packages::package;
use crate::stage::{Stage, basic, home};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

fn me() -> Caller {
    Caller {
        user: "me".parse().unwrap(),
        scopes: paddlecloud_core::access::Scopes::user(),
    }
}

fn path_of(manifest: &Manifest) -> String {
    format!("/api/v1/packages/{}", manifest.id())
}

async fn announce(stage: &Stage, manifest: &Manifest) -> serde_json::Value {
    let request = Request::new("POST", "/api/v1/packages").body(manifest.to_json());
    stage.send(request).await.json()
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
async fn who_has_sent_a_package_hears_that_its_end_lasts_and_then_how_it_was() {
    let stage = Stage::new().await;
    let (manifest, stream) = package();
    announce(&stage, &manifest).await;
    let mut put = half_sent(&stage, "PUT", &path_of(&manifest), &stream).await;
    wait_until_taken_in(&stage, &manifest).await;
    let turns: Vec<_> =
        std::iter::from_fn(|| stage.app.queue.turn(Class::End, &me().user).now_or_never()).collect();
    put.write_all(&stream[stream.len() / 2..]).await.unwrap();
    let first = timeout(LIMIT, put.read_u8()).await;
    assert_eq!(first.expect("it is said before it is stored").unwrap(), b'H');
    let has = Request::new("HEAD", &path_of(&manifest));
    assert_eq!(stage.send(has).await.status, 404);
    drop(turns);
    let told = rest(&mut put).await;
    assert!(told.contains(r#""stored":true"#), "{told}");
    stage.finish().await;
}

#[tokio::test]
async fn who_comes_while_a_package_is_being_sent_waits_for_it() {
    let stage = Stage::new().await;
    let (manifest, stream) = package();
    announce(&stage, &manifest).await;
    let mut put = half_sent(&stage, "PUT", &path_of(&manifest), &stream).await;
    wait_until_taken_in(&stage, &manifest).await;
    let caller = me();
    let mut again = Box::pin(
        stage
            .app
            .package_announce(&caller, manifest.to_json().into(), None),
    );
    let waits = timeout(Duration::from_secs(3), &mut again).await.is_err();
    assert!(waits, "it would have to be sent twice");
    put.write_all(&stream[stream.len() / 2..]).await.unwrap();
    let told = rest(&mut put).await;
    assert!(told.contains(r#""stored":true"#), "{told}");
    assert!(again.await.unwrap().stored, "it is here by now");
    stage.finish().await;
}

#[tokio::test]
async fn who_sends_what_another_has_brought_meanwhile_is_told_to_ask_again() {
    let stage = Stage::new().await;
    let (manifest, stream) = package();
    announce(&stage, &manifest).await;
    let put = || Request::new("PUT", &path_of(&manifest)).body(stream.clone());
    assert_eq!(stage.send(put()).await.json()["msg"]["stored"], true);
    let late = stage.send(put()).await;
    assert_eq!(
        (late.status, late.json()["error"].as_str()),
        (503, Some("unavailable"))
    );
    assert_eq!(announce(&stage, &manifest).await["msg"]["stored"], true);
    stage.finish().await;
}

/// A package of so many files of 1 KiB, and its stream.
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

/// Sends the beginning of a package, which lies unfinished then.
async fn send_a_part(stage: &Stage) {
    let (manifest, stream) = files(4);
    announce(stage, &manifest).await;
    let cut = Request::new("PUT", &path_of(&manifest)).body(&stream[..3000]);
    assert_eq!(stage.send(cut).await.json()["error"], "damaged");
}

#[tokio::test]
async fn what_came_of_a_package_gives_way_only_to_one_that_fits_without_it() {
    let users = "users:\n- {name: me, password_file: word, system_user: a, quota: {storage: 1Mi, files: 10}}\n\
                 - {name: you, password_file: word, system_user: b}\n";
    let stage = Stage::with(users).await;
    send_a_part(&stage).await;
    let staging = home(stage.folder.path(), "me").join(".pfs-staging");
    assert!(staging.exists());
    let refused = announce(&stage, &files(20).0).await;
    assert_eq!(refused["error"], "quota-exceeded", "{refused}");
    assert!(staging.exists(), "nothing is given up in vain");
    let fits = announce(&stage, &files(8).0).await;
    assert_eq!(fits["msg"]["stored"], false, "{fits}");
    assert!(!staging.exists(), "it fits without what lay there");
    stage.finish().await;
}

#[tokio::test]
async fn nothing_is_given_up_for_a_package_in_a_home_that_is_too_full_without_it() {
    let users = "users:\n- {name: me, password_file: word, system_user: a, quota: {storage: 1Mi}}\n\
                 - {name: you, password_file: word, system_user: b}\n";
    let stage = Stage::with(users).await;
    send_a_part(&stage).await;
    let home = home(stage.folder.path(), "me");
    std::fs::write(home.join("output"), vec![0; 2 << 20]).unwrap();
    // Less than what came of the other one.
    let refused = announce(&stage, &files(1).0).await;
    assert_eq!(refused["error"], "quota-exceeded", "{refused}");
    assert!(home.join(".pfs-staging").exists(), "nothing is given up in vain");
    stage.finish().await;
}

/// A package of so many empty files that its list is long.
fn very_many() -> Manifest {
    Manifest::new((0..30_000).map(|number| photo("", number)).collect()).unwrap()
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

#[tokio::test]
async fn two_packages_of_a_users_with_long_lists_are_sent_at_a_time() {
    let stage = Stage::new().await;
    let (manifest, (short, _), caller) = (very_many(), package(), me());
    assert!(manifest.to_json().len() > 4 << 20);
    for list in [&manifest, &short] {
        assert_eq!(announce(&stage, list).await["msg"]["stored"], false);
    }
    let begin = async |manifest: &Manifest| {
        let id = manifest.id().to_string();
        let begun = timeout(LIMIT, stage.app.package_receive(&caller, &id)).await;
        begun.expect("it waits for nobody").unwrap()
    };
    let right = || stage.app.queue.turn(Class::List, &caller.user);
    let short = begin(&short).await;
    assert!(right().now_or_never().is_some(), "a short one takes no turn");
    let other = right().await;
    let long = begin(&manifest).await;
    assert!(right().now_or_never().is_none(), "a third one would wait");
    drop((long, other));
    let free = timeout(LIMIT, right()).await;
    assert!(free.is_ok(), "it goes with the upload");
    drop((free, short));
    stage.finish().await;
}
