//! A server that is busy for long still answers what is short, and nobody waits on a thread for somebody else's work.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use paddlecloud_api::client::files::ListOptions;
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{CommitRequest, UploadRequest};
use paddlecloud_pfs::Digest;
use paddlecloud_server::auth::Caller;
use paddlecloud_server::long::AT_ONCE;

use crate::breaking::SmallDisk;
use crate::stage::{Stage, mine, raw};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

fn me() -> Caller {
    Caller {
        user: "me".parse().unwrap(),
        admin: false,
    }
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LIMIT, work).await;
    done.unwrap_or_else(|_| panic!("{what} does not come"))
}

async fn wait_until_all_turns_are_taken(stage: &Stage) {
    let taken = async {
        while stage.app.long.free() > 0 {
            tokio::task::yield_now().await;
        }
    };
    soon("the last turn", taken).await;
}

#[test]
fn who_reads_for_long_leaves_threads_to_who_looks() {
    // With the threads of a real server: a test's own are many more.
    let runtime = paddlecloud_server::start::runtime().unwrap();
    runtime.block_on(async {
        let stage = Stage::new().await;
        // A terabyte of nothing, which takes long to hash and no room.
        let endless = std::fs::File::create(stage.public().join("endless")).unwrap();
        endless.set_len(1 << 40).unwrap();
        let readers = |user: &'static str| {
            let target = "/api/v1/pfs/stat?path=/pfs/public/endless&digest=true";
            (0..20).map(move |_| (user, target))
        };
        let reading = join_all(
            readers("me")
                .chain(readers("you"))
                .map(|(user, target)| raw(&stage, user, "GET", target, b"")),
        );
        let looking = async {
            wait_until_all_turns_are_taken(&stage).await;
            let (files, home) = (stage.me.files(), "/pfs/dc/home/me".parse().unwrap());
            files.mkdir(&mine("d"), true).await.unwrap();
            let listed = files.list(&home, ListOptions::default()).await.unwrap();
            assert_eq!(listed.collect().await.unwrap().len(), 1);
            assert_eq!(stage.app.long.free(), 0, "they still read");
            // Now there is nothing to read any more, and all end.
            endless.set_len(0).unwrap();
        };
        let (read, ()) = soon("an answer", async { tokio::join!(reading, looking) }).await;
        assert_eq!(read.len(), 40);
        soon("the end of all", async {
            while stage.app.long.free() < AT_ONCE {
                tokio::task::yield_now().await;
            }
        })
        .await;
        stage.finish().await;
    });
}

fn asked(name: &str, size: u64) -> UploadRequest {
    UploadRequest {
        path: mine(name).into(),
        size,
        executable: false,
        mtime: None,
        key: name.to_owned(),
        digest: None,
        no_overwrite: false,
    }
}

#[tokio::test]
async fn a_commit_that_is_asked_for_again_waits_without_a_thread() {
    let stage = Stage::new().await;
    let begun = stage.app.upload_begin(&me(), asked("f", 3)).await.unwrap();
    let id = begun.id.unwrap();
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
    let first = stage.app.long.ending(&id).await;
    let mut again: Vec<_> = (0..AT_ONCE + 1)
        .map(|_| Box::pin(stage.app.upload_commit(&caller, &name, request.clone())))
        .collect();
    for repeated in &mut again {
        assert!(repeated.now_or_never().is_none(), "it waits for the first");
    }
    assert_eq!(stage.app.long.free(), AT_ONCE, "and takes nobody's turn");
    drop(first);
    let ended = soon("the end", join_all(again)).await;
    assert_eq!(ended.iter().filter(|one| one.is_ok()).count(), 1);
    for error in ended.into_iter().filter_map(Result::err) {
        assert_eq!(error.error, ErrorName::NotFound, "{error:?}");
    }
    assert_eq!(std::fs::read(stage.home("me").join("f")).unwrap(), b"abc");
    stage.finish().await;
}

#[tokio::test]
async fn what_an_upload_still_misses_of_the_disk_is_not_promised_to_another() {
    let Some(disk) = SmallDisk::new("8m") else {
        eprintln!("skipped: mounting is not permitted here");
        return;
    };
    let users = format!(
        "storage: {}\nusers:\n- {{name: me, password_file: word, system_user: a}}\n",
        disk.path().display()
    );
    let stage = Stage::with(&users).await;
    let caller = me();
    let first = stage
        .app
        .upload_begin(&caller, asked("first", 5 << 20))
        .await
        .unwrap();
    let refused = stage.app.upload_begin(&caller, asked("second", 5 << 20)).await;
    assert_eq!(refused.unwrap_err().error, ErrorName::StorageFull);
    let small = stage.app.upload_begin(&caller, asked("small", 1 << 20)).await;
    drop(small.unwrap());
    let id = first.id.unwrap().to_string();
    stage.app.upload_discard(&caller, &id).await.unwrap();
    let second = stage.app.upload_begin(&caller, asked("second", 5 << 20)).await;
    drop(second.unwrap());
    stage.finish().await;
}

#[tokio::test]
async fn one_run_that_cannot_be_cleared_keeps_no_other() {
    let users = "users:\n- {name: me, password_file: word, system_user: a}\n";
    let folder = Stage::with(users).await.finish().await;
    let runs = folder.path().join("data/storage/home/me/.paddlecloud/runs");
    let (stuck, other) = (runs.join("j_00000000000001"), runs.join("j_00000000000002"));
    for run in [&stuck, &other] {
        std::fs::create_dir_all(run).unwrap();
        std::fs::write(run.join("train.py"), "12345").unwrap();
    }
    // Nobody removes what something is mounted on.
    let Some(mounted) = SmallDisk::on(tempfile::tempdir_in(&stuck).unwrap(), "1m") else {
        eprintln!("skipped: mounting is not permitted here");
        return;
    };
    let stage = Stage::on(folder, users).await;
    // A server that starts clears what nobody knows any more.
    let cleared = async {
        while other.exists() {
            tokio::task::yield_now().await;
        }
    };
    soon("the end of the other run", cleared).await;
    let caller = me();
    let prune = || stage.app.job_prune(&caller, jiff::SignedDuration::ZERO, false);
    drop(prune().await.unwrap());
    assert!(stuck.exists(), "it could be cleared: this tests nothing");
    drop(mounted);
    drop(prune().await.unwrap());
    assert!(!stuck.exists());
    stage.finish().await;
}
