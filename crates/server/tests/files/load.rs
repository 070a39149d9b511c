//! A server that is busy with long work still answers short requests, and no waiting request occupies a thread.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::{CommitRequest, RemoveRequest, ReuseRequest};
use paddlecloud_core::names::UserName;
use paddlecloud_files::Files;
use paddlecloud_files::locks::Key;
use paddlecloud_files::queue::{Class, Turn};
use paddlecloud_pfs::Digest;
use paddlecloud_pfs::content::Op;
use paddlecloud_pfs::pack::{PackTotals, PackWriter};
use paddlecloud_transfer::{FileService, ListOptions};
use tokio::io::AsyncReadExt;

use crate::breaking::SmallDisk;
use crate::stage::{Stage, begin, me, mine, raw, send};

const AT_ONCE: usize = Class::Long.limit().at_once;
const ENDS_AT_ONCE: usize = Class::End.limit().at_once;

/// Far longer than anything here takes, also beside other tests.
const LIMIT: Duration = Duration::from_secs(180);
/// Between two looks at a condition. A loop without a pause would take a processor from what it waits for.
const PAUSE: Duration = Duration::from_millis(2);

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LIMIT, work).await;
    done.unwrap_or_else(|_| panic!("{what} does not come"))
}

async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = async {
        while !condition() {
            tokio::time::sleep(PAUSE).await;
        }
    };
    soon(what, waited).await;
}

async fn wait_until_all_turns_are_taken(stage: &Stage) {
    wait_until("the last turn", || stage.app.queue.free(Class::Long) == 0).await;
}

/// A file of a terabyte that takes no room. All who read it end when it is dropped, also by a test that fails.
struct Endless(std::fs::File);

impl Endless {
    fn create(path: &std::path::Path) -> Endless {
        let file = std::fs::File::create(path).unwrap();
        file.set_len(1 << 40).unwrap();
        Endless(file)
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.set_len(0);
    }
}

#[test]
fn long_reads_leave_threads_for_short_requests() {
    // With the threads of a real server: a test's own are many more.
    let runtime = paddlecloud_server::start::runtime().unwrap();
    runtime.block_on(async {
        let stage = Stage::new().await;
        // A terabyte of nothing, which takes long to hash and no room.
        let endless = Endless::create(&stage.public().join("endless"));
        // After these, passwords are remembered: only a few may wait to be checked, and a busy machine checks slowly.
        for user in ["me", "you"] {
            let (status, reply) = raw(&stage, user, "GET", "/api/v1/pfs/stat?path=/pfs/public", b"").await;
            assert_eq!(status, 200, "{reply}");
        }
        let readers = |user: &'static str| {
            let target = "/api/v1/pfs/stat?path=/pfs/public/endless&digest=true";
            (0..20).map(move |_| (user, target))
        };
        let reading = join_all(readers("me").chain(readers("you")).map(async |(user, target)| {
            let (status, reply) = raw(&stage, user, "GET", target, b"").await;
            assert_eq!(status, 200, "{reply}");
        }));
        let looking = async {
            wait_until_all_turns_are_taken(&stage).await;
            let (files, home) = (stage.me.files(), "/pfs/dc/home/me".parse().unwrap());
            files.mkdir(&mine("d"), true).await.unwrap();
            let listed = files.list(&home, ListOptions::default()).await.unwrap();
            assert_eq!(listed.collect().await.unwrap().len(), 1);
            assert_eq!(stage.app.queue.free(Class::Long), 0, "they still read");
            drop(endless);
        };
        soon("an answer", async { tokio::join!(reading, looking) }).await;
        wait_until("the end of all", || stage.app.queue.free(Class::Long) == AT_ONCE).await;
        stage.finish().await;
    });
}

#[tokio::test]
async fn a_repeated_commit_waits_without_a_thread() {
    let stage = Stage::new().await;
    let started = stage.app.upload_begin(&me(), begin("f", 3)).await.unwrap();
    let id = started.id;
    let name = id.to_string();
    let mut taking = stage.app.upload_range(&me(), &name, 0, 3).await.unwrap();
    taking
        .feed(vec![bytes::Bytes::from_static(b"abc")])
        .await
        .unwrap();
    taking.finish().await.unwrap();
    let request = CommitRequest {
        digest: Digest::of(b"abc"),
        no_overwrite: false,
    };
    let caller = me();
    // As if the first of them took long.
    let first = stage.app.locks.lock(Key::Upload(id.clone())).await;
    let mut again: Vec<_> = (0..ENDS_AT_ONCE + 1)
        .map(|_| Box::pin(stage.app.upload_commit(&caller, &name, request.clone())))
        .collect();
    for repeated in &mut again {
        assert!(repeated.now_or_never().is_none(), "it waits for the first");
    }
    assert_eq!(
        stage.app.queue.free(Class::End),
        ENDS_AT_ONCE,
        "and takes nobody's turn"
    );
    drop(first);
    let ended = soon("the end", join_all(again)).await;
    assert_eq!(ended.iter().filter(|one| one.is_ok()).count(), 1);
    for error in ended.into_iter().filter_map(Result::err) {
        let error = ErrorBody::from(error);
        assert_eq!(error.error, ErrorName::NotFound, "{error:?}");
    }
    assert_eq!(std::fs::read(stage.home("me").join("f")).unwrap(), b"abc");
    stage.finish().await;
}

/// All turns of a class, each of a user of its own.
async fn turns(stage: &Stage, class: Class) -> Vec<Turn> {
    let users = (0..class.limit().at_once).map(|index| format!("user{index}").parse().unwrap());
    let turns = users.map(async |user: UserName| stage.app.queue.turn(class, &user).await);
    join_all(turns).await
}

#[tokio::test]
async fn uploads_and_removals_do_not_wait_for_copies() {
    let stage = Stage::new().await;
    let (app, caller, home) = (&stage.app, me(), stage.home("me"));
    let path = |name: &str| mine(name).to_string();
    std::fs::create_dir_all(home.join("d")).unwrap();
    std::fs::write(home.join("f"), "old").unwrap();
    std::fs::write(home.join("same"), vec![1; 8 << 10]).unwrap();
    let copies = turns(&stage, Class::Long).await;

    soon("a signature", app.file_signature(&caller, &path("f")))
        .await
        .unwrap();
    let started = app.upload_begin(&caller, begin("f", 3)).await.unwrap();
    let id = started.id.to_string();
    let ranges = ReuseRequest {
        ops: vec![Op::Copy {
            to: 0,
            from: 0,
            len: 3,
        }],
    };
    drop(
        soon("a range", app.upload_reuse(&caller, &id, ranges))
            .await
            .unwrap(),
    );
    let folder = RemoveRequest {
        paths: vec![mine("d").into()],
        recursive: true,
        dry_run: false,
        empty_folders: false,
    };
    let ends = turns(&stage, Class::End).await;
    let removed = soon("room", app.file_remove(&caller, folder)).await.unwrap();
    assert!(removed[0].removed.is_ok(), "{removed:?}");
    drop(ends);

    app.old_touch(&caller, &path("same"), 4 << 10).await.unwrap();
    let same = path("same");
    let post = app.old_post(&caller, &same, 0, vec![1; 4 << 10]);
    soon("the old client's file", post).await.unwrap();
    assert_eq!(std::fs::metadata(home.join("same")).unwrap().len(), 4 << 10);
    assert_eq!(app.queue.free(Class::Long), 0, "the copies go on");
    drop(copies);
    stage.finish().await;
}

fn empty_pack() -> Vec<u8> {
    let (pack, _) = PackWriter::new(Vec::new()).unwrap().finish().unwrap();
    pack
}

#[tokio::test]
async fn a_pack_waiting_to_be_stored_sends_keep_alive_bytes() {
    let stage = Stage::new().await;
    let ends = turns(&stage, Class::End).await;
    let target = "/api/v1/pfs/pack?path=/pfs/dc/home/me&bytes=0&entries=0";
    let mut stream = send(
        &stage,
        "me",
        "PUT",
        target,
        "paddlecloud-alive: 1\r\n",
        &empty_pack(),
    )
    .await;
    let mut reply = vec![0; 4096];
    let len = soon("the beginning of a reply", stream.read(&mut reply)).await;
    reply.truncate(len.unwrap());
    assert!(reply.starts_with(b"HTTP/1.1 200"), "{:?}", reply.escape_ascii());
    assert_eq!(stage.app.queue.free(Class::End), 0, "it still waits");
    drop(ends);
    soon("its end", stream.read_to_end(&mut reply)).await.unwrap();
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.contains("\"stored\":0"), "{reply}");
    stage.finish().await;
}

#[tokio::test]
async fn finishing_a_pack_waits_for_a_turn() {
    let stage = Stage::new().await;
    let (app, caller) = (&stage.app, me());
    let announced = PackTotals { entries: 0, bytes: 0 };
    let home = "/pfs/dc/home/me";
    let mut taking = app.pack_in(&caller, home, announced, false).await.unwrap();
    taking.feed(vec![empty_pack().into()]).await.unwrap();
    let ends = turns(&stage, Class::End).await;
    let mut ending = Box::pin(taking.finish());
    assert!((&mut ending).now_or_never().is_none(), "others have all turns");
    drop(ends);
    let ended = soon("the end", ending).await.unwrap();
    assert_eq!(ended.stored, 0);
    stage.finish().await;
}

#[tokio::test]
async fn measuring_a_home_waits_for_a_turn() {
    let stage =
        Stage::with("users:\n- {name: me, password_file: word, system_user: a, quota: {files: 9}}\n").await;
    let (app, caller) = (&stage.app, me());
    let ends = turns(&stage, Class::End).await;
    let names: Vec<String> = (0..8).map(|index| format!("f{index}")).collect();
    let begins = join_all(names.iter().map(|name| app.upload_begin(&caller, begin(name, 1))));
    let home = Files::home_of(&caller).unwrap();
    let waiting = async {
        let is_locked = || app.locks.lock(Key::Space(home.clone())).now_or_never().is_none();
        wait_until("the lock of the home", is_locked).await;
        assert_eq!(app.queue.free(Class::End), 0);
        drop(ends);
    };
    let (started, ()) = soon("room", async { tokio::join!(begins, waiting) }).await;
    assert!(started.iter().all(Result::is_ok), "{started:?}");
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs permission to mount"]
async fn one_run_that_cannot_be_removed_does_not_keep_others() {
    let users = "users:\n- {name: me, password_file: word, system_user: a}\n";
    let folder = Stage::with(users).await.finish().await;
    let runs = folder.path().join("data/storage/home/me/.paddlecloud/runs");
    let (stuck, other) = (runs.join("j_00000000000001"), runs.join("j_00000000000002"));
    for run in [&stuck, &other] {
        std::fs::create_dir_all(run).unwrap();
        std::fs::write(run.join("train.py"), "12345").unwrap();
    }
    // Nobody removes what something is mounted on.
    let mounted = SmallDisk::on(tempfile::tempdir_in(&stuck).unwrap(), "1m");
    let stage = Stage::on(folder, users).await;
    // A server that starts clears what nobody knows any more.
    wait_until("the end of the other run", || !other.exists()).await;
    let caller = me();
    let prune = || {
        stage
            .app
            .job_prune(&caller, jiff::SignedDuration::ZERO, Default::default())
    };
    drop(prune().await.unwrap());
    assert!(stuck.exists(), "it could be cleared: this tests nothing");
    drop(mounted);
    drop(prune().await.unwrap());
    assert!(!stuck.exists());
    stage.finish().await;
}
