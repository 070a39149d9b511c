//! Single calls: what they do and what they refuse.

use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{FileKind, FsckVerdict};
use paddlecloud_pfs::{Existing, Made};
use paddlecloud_transfer::{FileService, ListOptions, RemoveOptions};

use crate::stage::{Stage, mine};

fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> ErrorName {
    result.unwrap_err().refusal().unwrap()
}

#[tokio::test]
async fn folders_are_made_listed_renamed_copied_and_removed() {
    let stage = Stage::new().await;
    let files = stage.me.files();
    assert_eq!(files.mkdir(&mine("a/b"), true).await.unwrap(), Made::New);
    assert_eq!(files.mkdir(&mine("a/b"), true).await.unwrap(), Made::Existed);
    assert_eq!(refusal(files.mkdir(&mine("a"), false).await), ErrorName::Conflict);
    assert_eq!(
        refusal(files.mkdir(&mine("x/y"), false).await),
        ErrorName::NotFound
    );
    std::fs::write(stage.home("me").join("a/b/file"), "hello").unwrap();
    std::os::unix::fs::symlink("b/file", stage.home("me").join("a/link")).unwrap();

    let options = ListOptions {
        recursive: true,
        digests: true,
    };
    let listed = files
        .list(&mine("a"), options)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    let shown: Vec<String> = listed
        .iter()
        .map(|entry| format!("{} {:?}", entry.path, entry.meta.kind))
        .collect();
    assert_eq!(shown, ["b Folder", "b/file File", "link Link"]);
    assert_eq!(listed[1].meta.digest, Some(paddlecloud_pfs::Digest::of(b"hello")));

    let copied = files
        .copy(&mine("a"), &mine("c"), Existing::Replace)
        .await
        .unwrap();
    assert_eq!((copied.files, copied.bytes), (2, 5));
    files
        .rename(&mine("c/b/file"), &mine("c/moved"), Existing::Keep)
        .await
        .unwrap();
    assert_eq!(
        refusal(
            files
                .rename(&mine("c/moved"), &mine("a/b/file"), Existing::Keep)
                .await
        ),
        ErrorName::Conflict
    );
    let meta = files.stat(&mine("c/moved")).await.unwrap();
    assert_eq!((meta.kind, meta.size), (FileKind::File, 5));
    assert_eq!(
        files.stat_link(&mine("a/link")).await.unwrap().kind,
        FileKind::Link
    );
    assert_eq!(files.stat(&mine("a/link")).await.unwrap().kind, FileKind::File);

    let usage = files.du(&mine("a")).await.unwrap();
    assert_eq!((usage.bytes, usage.files, usage.folders), (5, 2, 1));
    let found = files.glob("/pfs/dc/home/me/*/mo*").await.unwrap();
    assert_eq!(
        found.iter().map(|view| view.path.to_string()).collect::<Vec<_>>(),
        ["/pfs/dc/home/me/c/moved"]
    );

    let paths = [mine("a"), mine("nothing"), mine("c/moved")];
    let dry = RemoveOptions {
        recursive: true,
        dry_run: true,
    };
    let would = files.remove(&paths, dry).await.unwrap();
    assert_eq!(
        would.iter().map(|one| one.usage.files).collect::<Vec<_>>(),
        [2, 0, 1]
    );
    assert!(
        files.stat(&mine("a/b/file")).await.is_ok(),
        "a dry run removes nothing"
    );
    let plain = files.remove(&paths, RemoveOptions::default()).await.unwrap();
    let errors: Vec<_> = plain
        .iter()
        .map(|one| one.error.as_ref().map(|error| error.error))
        .collect();
    assert_eq!(
        errors,
        [Some(ErrorName::BadRequest), Some(ErrorName::NotFound), None]
    );
    let all = RemoveOptions {
        recursive: true,
        dry_run: false,
    };
    assert!(files.remove(&[mine("a")], all).await.unwrap()[0].error.is_none());
    assert_eq!(refusal(files.stat(&mine("a")).await), ErrorName::NotFound);
    stage.finish().await;
}

#[tokio::test]
async fn a_home_itself_and_the_servers_own_folder_cannot_be_changed() {
    let stage = Stage::new().await;
    let files = stage.me.files();
    let all = RemoveOptions {
        recursive: true,
        dry_run: false,
    };
    for path in [
        "/pfs/dc/home/me",
        "/pfs/dc/home/me/.paddlecloud",
        "/pfs/dc/public",
    ] {
        let removed = files.remove(&[path.parse().unwrap()], all).await.unwrap();
        assert_eq!(
            removed[0].error.as_ref().unwrap().error,
            ErrorName::Forbidden,
            "{path}"
        );
    }
    assert_eq!(
        refusal(files.mkdir(&mine(".paddlecloud/x"), true).await),
        ErrorName::Forbidden
    );
    stage.finish().await;
}

#[tokio::test]
async fn a_part_of_a_file_can_be_read() {
    let stage = Stage::new().await;
    let files = stage.me.files();
    files.mkdir(&mine("d"), true).await.unwrap();
    std::fs::write(stage.home("me").join("d/text"), "0123456789").unwrap();
    for (range, expected) in [
        (None, "0123456789"),
        (Some(2..5), "234"),
        (Some(8..99), "89"),
        (Some(50..60), ""),
    ] {
        let mut content = match range {
            Some(range) => files.read_range(&mine("d/text"), range).await.unwrap(),
            None => files.cat(&mine("d/text")).await.unwrap(),
        };
        let mut text = Vec::new();
        while let Some(piece) = content.next().await.unwrap() {
            text.extend_from_slice(&piece);
        }
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
    assert_eq!(
        refusal(files.cat(&mine("d")).await.map(drop)),
        ErrorName::BadRequest
    );
    stage.finish().await;
}

#[tokio::test]
async fn a_home_that_cannot_be_opened_does_not_end_a_check() {
    use paddlecloud_transfer::{TransferOptions, Upload};
    let stage = Stage::new().await;
    let local = tempfile::tempdir().unwrap();
    let path = local.path().join("f");
    std::fs::write(&path, crate::stage::noise(1, 2 << 20)).unwrap();
    for (client, remote) in [
        (&stage.me, "/pfs/dc/home/me/f"),
        (&stage.you, "/pfs/dc/home/you/f"),
    ] {
        let upload = Upload::File {
            local: path.clone(),
            remote: remote.parse().unwrap(),
        };
        let sent = client
            .files()
            .upload(vec![upload], &TransferOptions::default(), &())
            .await;
        assert!(sent.failures.is_empty(), "{:?}", sent.failures);
    }
    std::fs::remove_dir_all(stage.home("you")).unwrap();
    std::fs::write(stage.home("you"), "no folder").unwrap();
    let reply = stage.me.files().fsck().await.unwrap();
    assert_eq!(reply.checked, 2);
    let found: Vec<_> = reply
        .findings
        .iter()
        .map(|one| (one.path.as_str(), one.verdict))
        .collect();
    assert_eq!(found, [("home/you/f", FsckVerdict::Unreadable)]);
    stage.finish().await;
}

#[tokio::test]
async fn a_check_distinguishes_damage_from_changes() {
    use paddlecloud_transfer::{TransferOptions, Upload};
    use std::os::unix::fs::FileExt;
    let stage = Stage::new().await;
    let files = stage.me.files();
    let local = tempfile::tempdir().unwrap();
    for name in ["sound", "changed", "removed", "damaged"] {
        let path = local.path().join(name);
        std::fs::write(&path, crate::stage::noise(1, 2 << 20)).unwrap();
        let upload = Upload::File {
            local: path,
            remote: mine(name),
        };
        let summary = files.upload(vec![upload], &TransferOptions::default(), &()).await;
        assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    }
    let home = stage.home("me");
    std::fs::write(home.join("changed"), "other").unwrap();
    std::fs::remove_file(home.join("removed")).unwrap();
    assert_eq!(refusal(stage.you.files().fsck().await), ErrorName::Forbidden);
    // A disk that lies changes bytes and no times; so does this, except for the time the kernel notes.
    let damaged = std::fs::File::options()
        .write(true)
        .open(home.join("damaged"))
        .unwrap();
    let before = damaged.metadata().unwrap().modified().unwrap();
    damaged.write_all_at(b"x", 1000).unwrap();
    damaged.set_modified(before).unwrap();
    let reply = files.fsck().await.unwrap();
    assert_eq!(reply.checked, 4);
    let found = |name: &str| {
        let path = format!("home/me/{name}");
        reply
            .findings
            .iter()
            .find(|finding| finding.path == path)
            .map(|finding| finding.verdict)
    };
    assert_eq!(found("sound"), None);
    assert_eq!(found("changed"), Some(FsckVerdict::ChangedOutside));
    assert_eq!(found("removed"), Some(FsckVerdict::RemovedOutside));
    assert_eq!(
        found("damaged"),
        Some(FsckVerdict::ChangedOutside),
        "its change time tells"
    );
    stage.finish().await;
}
