//! No path leads to files that its user may not access, whatever they write and whatever a job does concurrently.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_pfs::{Existing, PfsPath};
use paddlecloud_transfer::{FileService, ListOptions, RemoveOptions, TransferOptions, Upload};

use crate::stage::{Stage, entries, mine};

fn theirs(path: &str) -> PfsPath {
    format!("/pfs/dc/home/you/{path}").parse().unwrap()
}

fn not_found<T: std::fmt::Debug>(result: Result<T, ClientError>) {
    assert_eq!(result.unwrap_err().refusal(), Some(ErrorName::NotFound));
}

#[tokio::test]
async fn other_peoples_files_are_not_found_by_any_request() {
    let stage = Stage::new().await;
    std::fs::create_dir_all(stage.home("you").join("d")).unwrap();
    std::fs::write(stage.home("you").join("d/secret"), "secret").unwrap();
    std::fs::create_dir_all(stage.home("me")).unwrap();
    std::fs::write(stage.home("me").join("own"), "own").unwrap();
    let files = stage.me.files();
    let path = theirs("d/secret");
    not_found(files.stat(&path).await);
    not_found(files.stat_digest(&path).await);
    not_found(files.list(&theirs("d"), ListOptions::default()).await.map(drop));
    not_found(files.glob("/pfs/dc/home/you/d/*").await);
    not_found(files.glob("/pfs/dc/home/*/d/*").await);
    not_found(files.cat(&path).await.map(drop));
    not_found(files.du(&path).await);
    not_found(files.mkdir(&theirs("new"), true).await);
    not_found(files.rename(&path, &mine("stolen"), Existing::Replace).await);
    not_found(
        files
            .rename(&mine("own"), &theirs("gift"), Existing::Replace)
            .await,
    );
    not_found(files.copy(&path, &mine("stolen"), Existing::Replace).await);
    not_found(files.publish(&path, std::time::Duration::from_secs(60)).await);
    let removed = files
        .remove(std::slice::from_ref(&path), RemoveOptions::default())
        .await
        .unwrap();
    assert_eq!(removed[0].error.as_ref().unwrap().error, ErrorName::NotFound);
    let upload = Upload::File {
        local: stage.home("me").join("own"),
        remote: path,
    };
    let summary = files.upload(vec![upload], &TransferOptions::default(), &()).await;
    assert_eq!(summary.failures.len(), 1);
    not_found(files.stat(&"/pfs/elsewhere/home/me/own".parse().unwrap()).await);
    assert_eq!(
        std::fs::read_to_string(stage.home("you").join("d/secret")).unwrap(),
        "secret"
    );
    stage.finish().await;
}

#[tokio::test]
async fn the_public_folder_is_read_by_all_and_written_by_administrators() {
    let stage = Stage::new().await;
    std::fs::write(stage.public().join("set"), "data").unwrap();
    for path in ["/pfs/public/set", "/pfs/dc/public/set"] {
        let path: PfsPath = path.parse().unwrap();
        assert_eq!(stage.you.files().stat(&path).await.unwrap().size, 4);
    }
    let new: PfsPath = "/pfs/public/new".parse().unwrap();
    let refused = stage.you.files().mkdir(&new, true).await.unwrap_err();
    assert_eq!(refused.refusal(), Some(ErrorName::Forbidden));
    stage.me.files().mkdir(&new, true).await.unwrap();
    stage.finish().await;
}

#[tokio::test]
async fn the_servers_own_name_is_its_own_in_homes_only() {
    let stage = Stage::new().await;
    let local = tempfile::tempdir().unwrap();
    std::fs::create_dir(local.path().join(".paddlecloud")).unwrap();
    for name in [".paddlecloud/notes", "beside"] {
        std::fs::write(local.path().join(name), name).unwrap();
    }
    let send = async |remote: &str| {
        let upload = Upload::Tree {
            local: local.path().to_owned(),
            remote: remote.parse().unwrap(),
            entries: entries(local.path()),
        };
        let files = stage.me.files();
        files.upload(vec![upload], &TransferOptions::default(), &()).await
    };
    for (remote, folder) in [
        ("/pfs/public", stage.public()),
        ("/pfs/dc/home/me/d", stage.home("me").join("d")),
    ] {
        let sent = send(remote).await;
        assert!(sent.failures.is_empty(), "{remote}: {:?}", sent.failures);
        let there = std::fs::read_to_string(folder.join(".paddlecloud/notes"));
        assert_eq!(there.unwrap(), ".paddlecloud/notes", "{remote}");
    }
    let refused = send("/pfs/dc/home/me").await;
    let message = format!("{:?}", refused.failures);
    assert!(
        message.contains("`/pfs/dc/home/me/.paddlecloud` is managed by the server"),
        "{message}"
    );
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_swapped_in_by_a_job_leads_nowhere() {
    let stage = Stage::new().await;
    std::fs::create_dir_all(stage.home("you").join("d")).unwrap();
    std::fs::write(stage.home("you").join("d/file"), "top secret").unwrap();
    let home = stage.home("me");
    std::fs::create_dir_all(home.join("real")).unwrap();
    std::fs::write(home.join("real/file"), "mine").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, home) = (stop.clone(), home.clone());
        std::thread::spawn(move || {
            // What a job does: `d` is now a folder of its own, now a link to a neighbour's.
            while !stop.load(Ordering::Relaxed) {
                let _ = std::fs::rename(home.join("real"), home.join("d"));
                let _ = std::fs::rename(home.join("d"), home.join("real"));
                let _ = symlink("../you/d", home.join("d"));
                let _ = std::fs::remove_file(home.join("d"));
            }
        })
    };
    let files = stage.me.files();
    let local = tempfile::tempdir().unwrap();
    std::fs::write(local.path().join("file"), "planted").unwrap();
    for _ in 0..200 {
        if let Ok(mut content) = files.cat(&mine("d/file")).await {
            let mut text = Vec::new();
            while let Some(piece) = content.next().await.unwrap() {
                text.extend_from_slice(&piece);
            }
            assert_ne!(text, b"top secret");
        }
        let upload = Upload::File {
            local: local.path().join("file"),
            remote: mine("d/file"),
        };
        let options = TransferOptions {
            checksum: true,
            ..TransferOptions::default()
        };
        files.upload(vec![upload], &options, &()).await;
        let _ = files.remove(&[mine("d/file")], RemoveOptions::default()).await;
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert_eq!(
        std::fs::read_to_string(stage.home("you").join("d/file")).unwrap(),
        "top secret"
    );
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn uploaded_files_belong_to_the_homes_system_user() {
    use std::os::unix::fs::MetadataExt;
    let stage = Stage::with("users:\n- {name: me, password_file: word, system_user: daemon}\n").await;
    let local = tempfile::tempdir().unwrap();
    std::fs::write(local.path().join("small"), "x").unwrap();
    std::fs::write(local.path().join("large"), crate::stage::noise(1, 5 << 20)).unwrap();
    let upload = Upload::Tree {
        local: local.path().to_owned(),
        remote: mine("d/e"),
        entries: crate::stage::entries(local.path()),
    };
    let files = stage.me.files();
    let summary = files.upload(vec![upload], &TransferOptions::default(), &()).await;
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    files
        .copy(&mine("d"), &mine("copy"), Existing::Replace)
        .await
        .unwrap();
    let daemon = std::fs::metadata(stage.home("me")).unwrap().uid();
    assert_ne!(daemon, 0);
    for path in ["d", "d/e", "d/e/small", "d/e/large", "copy/e/large"] {
        let owner = std::fs::metadata(stage.home("me").join(path)).unwrap().uid();
        assert_eq!(owner, daemon, "{path}");
    }
    // A file of root's that a user only points to stays closed to them.
    std::fs::write(stage.home("me").join("roots"), "private").unwrap();
    use std::os::unix::fs::PermissionsExt;
    let closed = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(stage.home("me").join("roots"), closed).unwrap();
    let refused = files.cat(&mine("roots")).await.map(drop).unwrap_err();
    assert_eq!(refused.refusal(), Some(ErrorName::Forbidden));
    stage.finish().await;
}
