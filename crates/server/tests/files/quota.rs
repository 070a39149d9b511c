//! Limits of bytes and files: reported exactly, and nothing half-written stays.

use std::time::Duration;

use paddlecloud_api::client::{Client, ClientError, Limits};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_pfs::Existing;
use paddlecloud_transfer::{FileService, RemoveOptions, TransferError, TransferOptions, Upload};

use crate::stage::{Stage, assert_tidy, entries, me, mine, noise};

const USERS: &str = "users:\n\
    - {name: me, password_file: word, admin: true, system_user: a, quota: {storage: 4Mi, files: 10}}\n\
    - {name: you, password_file: word, system_user: b}\n";

fn quota_error(error: &TransferError) -> &str {
    match error {
        TransferError::Server(ClientError::Refused(body)) => {
            assert_eq!(body.error, ErrorName::QuotaExceeded, "{body:?}");
            &body.msg
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn bytes_beyond_the_limit_are_refused_with_limit_and_use() {
    let stage = Stage::with(USERS).await;
    let files = stage.me.files();
    let local = tempfile::tempdir().unwrap();
    let send = async |name: &str, size: usize| {
        let path = local.path().join(name);
        std::fs::write(&path, noise(2, size)).unwrap();
        let upload = Upload::File {
            local: path,
            remote: mine(name),
        };
        files.upload(vec![upload], &TransferOptions::default(), &()).await
    };
    assert!(send("a", 3 << 20).await.failures.is_empty());
    let refused = send("b", 2 << 20).await;
    let message = quota_error(&refused.failures[0].error);
    assert!(message.contains("3 MiB of 4 MiB are used"), "{message}");
    assert!(!stage.home("me").join("b").exists());
    assert_tidy(&stage.home("me"));
    let small = send("c", 1 << 20).await;
    assert!(
        small.failures.is_empty(),
        "exactly the limit fits: {:?}",
        small.failures
    );
    assert_eq!(
        quota_error(&send("d", 10).await.failures[0].error)
            .matches("4 MiB")
            .count(),
        2
    );
    let view = files.quota().await.unwrap();
    assert_eq!((view.bytes_used, view.bytes_limit), (4 << 20, Some(4 << 20)));
    assert_eq!((view.files_used, view.files_limit), (2, Some(10)));
    files
        .remove(&[mine("a")], RemoveOptions::default())
        .await
        .unwrap();
    assert!(
        send("e", 2 << 20).await.failures.is_empty(),
        "what was removed makes room"
    );
    stage.finish().await;
}

#[tokio::test]
async fn a_pack_with_too_many_files_is_refused_entirely() {
    let stage = Stage::with(USERS).await;
    let files = stage.me.files();
    let local = tempfile::tempdir().unwrap();
    for index in 0..11 {
        std::fs::write(local.path().join(index.to_string()), "x").unwrap();
    }
    let upload = Upload::Tree {
        local: local.path().to_owned(),
        remote: mine("many"),
        entries: entries(local.path()),
    };
    let summary = files.upload(vec![upload], &TransferOptions::default(), &()).await;
    assert_eq!(summary.failures.len(), 11);
    assert!(quota_error(&summary.failures[0].error).contains("10 files"));
    assert!(!stage.home("me").join("many").exists());
    assert_tidy(&stage.home("me"));
    stage.finish().await;
}

#[tokio::test]
async fn files_written_by_a_job_count() {
    let stage = Stage::with(USERS).await;
    std::fs::create_dir_all(stage.home("me")).unwrap();
    std::fs::write(stage.home("me").join("output"), noise(1, 5 << 20)).unwrap();
    let refused = stage.app.file_check_room(&me()).await.unwrap_err();
    assert_eq!(ErrorBody::from(refused).error, ErrorName::QuotaExceeded);
    let local = tempfile::tempdir().unwrap();
    std::fs::write(local.path().join("a"), "x").unwrap();
    let upload = Upload::File {
        local: local.path().join("a"),
        remote: mine("a"),
    };
    let summary = stage
        .me
        .files()
        .upload(vec![upload], &TransferOptions::default(), &())
        .await;
    quota_error(&summary.failures[0].error);
    stage.finish().await;
}

#[tokio::test]
async fn a_copy_through_a_link_needs_room_for_the_target() {
    let stage = Stage::with(USERS).await;
    let files = stage.me.files();
    std::fs::create_dir_all(stage.home("me").join("d")).unwrap();
    std::fs::write(stage.home("me").join("d/big"), noise(1, 3 << 20)).unwrap();
    for (link, target) in [("to-file", "d/big"), ("to-folder", "d")] {
        std::os::unix::fs::symlink(target, stage.home("me").join(link)).unwrap();
        let copied = files.copy(&mine(link), &mine("copy"), Existing::Replace).await;
        let refused = copied.unwrap_err();
        assert_eq!(
            refused.refusal(),
            Some(ErrorName::QuotaExceeded),
            "{link}: {refused}"
        );
        assert!(!stage.home("me").join("copy").exists());
    }
    files
        .copy_link(&mine("to-file"), &mine("copy"), Existing::Replace)
        .await
        .unwrap();
    let copied = std::fs::read_link(stage.home("me").join("copy")).unwrap();
    assert_eq!(copied, std::path::Path::new("d/big"));
    stage.finish().await;
}

#[tokio::test]
async fn moving_a_file_onto_itself_makes_no_room() {
    let stage = Stage::with(USERS).await;
    let files = stage.me.files();
    std::fs::create_dir_all(stage.home("me")).unwrap();
    std::fs::write(stage.home("me").join("f"), noise(1, 3 << 20)).unwrap();
    std::fs::create_dir(stage.home("me").join("d")).unwrap();
    std::os::unix::fs::symlink("..", stage.home("me").join("d/up")).unwrap();
    // Counts what is there.
    let local = tempfile::tempdir().unwrap();
    let send = async |name: &str, size: usize| {
        let path = local.path().join(name);
        std::fs::write(&path, noise(2, size)).unwrap();
        let upload = Upload::File {
            local: path,
            remote: mine(name),
        };
        files.upload(vec![upload], &TransferOptions::default(), &()).await
    };
    assert!(send("small", 1000).await.failures.is_empty());
    for to in ["f", "d/up/f"] {
        for _ in 0..3 {
            files
                .rename(&mine("f"), &mine(to), Existing::Replace)
                .await
                .unwrap();
        }
    }
    quota_error(&send("large", 2 << 20).await.failures[0].error);
    stage.finish().await;
}

/// By a clock that advances as soon as every task waits.
#[tokio::test(start_paused = true)]
async fn quota_and_du_requests_have_a_longer_timeout() {
    // Takes the request and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let client = Client::new(endpoint.parse().unwrap()).with_limits(Limits {
        give_up: Duration::ZERO,
        ..Limits::default()
    });
    let files = client.files();
    let home = "/pfs/dc/home/me".parse().unwrap();
    let began = tokio::time::Instant::now();
    files.stat(&home).await.unwrap_err();
    let usual = began.elapsed();
    files.quota().await.unwrap_err();
    let quota = began.elapsed() - usual;
    files.du(&home).await.unwrap_err();
    let du = began.elapsed() - usual - quota;
    assert!(usual < Duration::from_secs(120), "{usual:?}");
    let for_a_tree = Duration::from_secs(1800);
    assert!(quota > for_a_tree && du > for_a_tree, "{quota:?} {du:?}");
}
