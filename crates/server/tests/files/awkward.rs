//! Trees that jobs made too deep for a path, and folders that they locked: everything else stays accessible.

use std::path::Path;

use paddlecloud_transfer::{FileService, ListOptions, RemoveOptions, TransferOptions, Upload};
use rustix::fs::{CWD, Mode, OFlags};

use crate::stage::{Stage, assert_tidy, entries, mine};

/// Makes folders in each other, further down than any path can tell.
fn make_deep(folder: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    std::fs::create_dir_all(folder).unwrap();
    let mut here = rustix::fs::openat(CWD, folder, flags, Mode::empty()).unwrap();
    for _ in 0..30 {
        let name = "n".repeat(200);
        rustix::fs::mkdirat(&here, name.as_str(), Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, name.as_str(), flags, Mode::empty()).unwrap();
    }
    let file = rustix::fs::openat(&here, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
    rustix::io::write(file, b"12345").unwrap();
}

#[tokio::test]
async fn a_path_that_is_too_long_does_not_hide_the_rest_of_a_tree() {
    let stage = Stage::with(
        "users:\n\
         - {name: me, password_file: word, system_user: a, quota: {storage: 4Mi, files: 10}}\n\
         - {name: you, password_file: word, system_user: b}\n",
    )
    .await;
    let files = stage.me.files();
    make_deep(&stage.home("me").join("t/deep"));
    std::fs::write(stage.home("me").join("t/z"), "z").unwrap();

    assert_eq!(files.quota().await.unwrap().bytes_used, 6, "all of it is counted");
    let options = ListOptions {
        recursive: true,
        digests: false,
    };
    let mut listing = files.list(&mine("t"), options).await.unwrap();
    let mut last = None;
    while let Some(entry) = listing.next_readable().await.unwrap() {
        last = Some(entry.path.to_string());
    }
    assert_eq!(last.as_deref(), Some("z"), "the rest is listed");
    let unread = listing.take_unread();
    assert_eq!(unread.len(), 1);
    assert!(
        unread[0]
            .path
            .0
            .to_string()
            .starts_with("/pfs/dc/home/me/t/deep/nn")
    );
    assert!(
        unread[0].error.msg.contains("is too long"),
        "{}",
        unread[0].error.msg
    );
    let collected = files.list(&mine("t"), options).await.unwrap().collect().await;
    assert!(
        collected.is_err(),
        "a client that does not ask for it learns it at the end"
    );

    let options = RemoveOptions {
        recursive: true,
        dry_run: false,
    };
    let removed = files.remove(&[mine("t")], options).await.unwrap();
    assert!(removed[0].error.is_none(), "{:?}", removed[0].error);
    assert!(!stage.home("me").join("t").exists());
    assert_tidy(&stage.home("me"));
    assert_eq!(files.quota().await.unwrap().bytes_used, 0);
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn an_upload_leaves_out_only_files_in_a_locked_folder() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::with("users:\n- {name: me, password_file: word, system_user: daemon}\n").await;
    let local = tempfile::tempdir().unwrap();
    for name in ["a/1", "locked/2", "locked/deep/3", "z/4"] {
        let path = local.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, name).unwrap();
    }
    let files = stage.me.files();
    let send = async |checksum: bool| {
        let upload = Upload::Tree {
            local: local.path().to_owned(),
            remote: mine("d"),
            entries: entries(local.path()),
        };
        let options = TransferOptions {
            checksum,
            ..TransferOptions::default()
        };
        files.upload(vec![upload], &options, &()).await
    };
    assert!(send(false).await.failures.is_empty());
    let there = stage.home("me").join("d");
    let closed = || std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(there.join("locked"), closed()).unwrap();
    std::fs::set_permissions(there.join("z/4"), closed()).unwrap();
    for (round, checksum) in [(1, false), (2, true)] {
        for name in ["a/1", "locked/2", "locked/deep/3", "z/4"] {
            std::fs::write(local.path().join(name), format!("{name} in round {round}")).unwrap();
        }
        let sent = send(checksum).await;
        let mut lost: Vec<String> = sent.failures.iter().map(|one| one.path.clone()).collect();
        lost.sort();
        let expected = ["locked/2", "locked/deep", "locked/deep/3"]
            .map(|name| local.path().join(name).display().to_string());
        assert_eq!(lost, expected, "{:?}", sent.failures);
        for failure in &sent.failures {
            let message = failure.error.to_string();
            assert!(message.contains("/pfs/dc/home/me/d/locked"), "{message}");
        }
        for name in ["a/1", "z/4"] {
            let found = std::fs::read_to_string(there.join(name)).unwrap();
            assert_eq!(found, format!("{name} in round {round}"));
        }
    }
    assert_tidy(&stage.home("me"));
    stage.finish().await;
}
