//! A home at its limit: replacing a file needs space for both versions, and files in the staging folder count.

use std::fs;
use std::path::Path;
use std::time::Duration;

use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{FsckVerdict, StorageView};
use paddlecloud_pfs::content::{Assembly, AssemblyPlan};
use paddlecloud_pfs::pack::write_pack;
use paddlecloud_pfs::{Existing, Root};
use paddlecloud_transfer::{FileService, Summary, TransferError, TransferOptions, Upload};

use crate::stage::{Stage, assert_tidy, entries, mine, noise, raw};

const USERS: &str = "users:\n\
    - {name: me, password_file: word, admin: true, system_user: a, quota: {storage: 4Mi, files: 20}}\n\
    - {name: you, password_file: word, system_user: b, quota: {storage: 4Mi}}\n";

const MIB: usize = 1 << 20;

async fn send(stage: &Stage, local: &Path, name: &str, content: &[u8]) -> Summary {
    let path = local.join(name);
    fs::write(&path, content).unwrap();
    let upload = Upload::File {
        local: path,
        remote: mine(name),
    };
    let files = stage.me.files();
    files.upload(vec![upload], &TransferOptions::default(), &()).await
}

#[track_caller]
fn assert_sent(summary: &Summary) {
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
}

#[track_caller]
fn assert_refused(summary: &Summary) -> &str {
    match summary.failures.first().map(|failure| &failure.error) {
        Some(TransferError::Server(ClientError::Refused(body))) => {
            assert_eq!(body.error, ErrorName::QuotaExceeded, "{body:?}");
            &body.msg
        }
        other => panic!("{other:?}"),
    }
}

async fn used(stage: &Stage) -> (u64, u64) {
    let StorageView {
        bytes_used,
        files_used,
        ..
    } = stage.me.files().quota().await.unwrap();
    (bytes_used, files_used)
}

#[tokio::test]
async fn a_file_that_replaces_another_needs_room_for_both() {
    let stage = Stage::with(USERS).await;
    let local = tempfile::tempdir().unwrap();
    // A large file, which comes in chunks, and a small one, which comes in a pack.
    let (large, small) = (2 * MIB - 500_000, 500_000);
    assert_sent(&send(&stage, local.path(), "large", &noise(1, large)).await);
    assert_sent(&send(&stage, local.path(), "small", &noise(2, small)).await);
    for (name, seed, size) in [("large", 3, large + 7), ("small", 4, small)] {
        let content = noise(seed, size);
        assert_sent(&send(&stage, local.path(), name, &content).await);
        assert!(
            fs::read(stage.home("me").join(name)).unwrap() == content,
            "{name}"
        );
    }
    assert_eq!(used(&stage).await, (2 * MIB as u64 + 7, 2));

    let files = stage.me.files();
    for name in ["large", "new"] {
        let before = fs::read(stage.home("me").join(name)).ok();
        let refused = send(&stage, local.path(), name, &noise(6, 2 * MIB)).await;
        assert!(assert_refused(&refused).contains("of 4 MiB are used"));
        assert!(fs::read(stage.home("me").join(name)).ok() == before, "{name}");
        assert_tidy(&stage.home("me"));
    }
    files
        .copy(&mine("small"), &mine("large"), Existing::Replace)
        .await
        .unwrap();
    assert_eq!(used(&stage).await, (2 * small as u64, 2));
    stage.finish().await;
}

/// Sends files as one pack into a folder of the home; answers the status.
async fn send_pack(stage: &Stage, folder: &str, contents: &[(&str, Vec<u8>)]) -> u16 {
    let local = tempfile::tempdir().unwrap();
    for (name, content) in contents {
        fs::write(local.path().join(name), content).unwrap();
    }
    let root = Root::open(local.path()).unwrap();
    let (pack, _) = write_pack(&root, &entries(local.path()), Vec::new()).unwrap();
    let bytes: usize = contents.iter().map(|(_, content)| content.len()).sum();
    let target = format!(
        "/api/v1/pfs/pack?path=/pfs/dc/home/me{folder}&bytes={bytes}&entries={}",
        contents.len()
    );
    raw(stage, "me", "PUT", &target, &pack).await.0
}

#[tokio::test]
async fn a_pack_that_cannot_be_merged_leaves_nothing() {
    let stage = Stage::with(USERS).await;
    let home = stage.home("me");
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join("wall"), "a file where the folder should be").unwrap();
    let before = used(&stage).await;
    let status = send_pack(&stage, "/wall", &[("a", noise(1, MIB))]).await;
    assert_eq!(status, 400);
    assert_tidy(&home);
    assert_eq!(used(&stage).await, before);
    assert_eq!(send_pack(&stage, "", &[("a", noise(1, MIB))]).await, 200);
    stage.finish().await;
}

#[tokio::test]
async fn files_hidden_among_unfinished_uploads_count() {
    let stage = Stage::with(USERS).await;
    let local = tempfile::tempdir().unwrap();
    let staging = stage.home("me").join(".pfs-staging");
    let ours = "0123456789abcdef0123456789abcdef";
    fs::create_dir_all(staging.join("stash/deep")).unwrap();
    fs::create_dir_all(staging.join(ours)).unwrap();
    fs::write(staging.join("stash/deep/a"), noise(1, 2 * MIB)).unwrap();
    fs::write(staging.join(ours).join("data"), noise(2, MIB)).unwrap();
    fs::write(staging.join(ours).join("state"), "garbage").unwrap();
    let (bytes, files) = used(&stage).await;
    assert_eq!((bytes, files), (3 * MIB as u64 + 7, 3));
    assert_refused(&send(&stage, local.path(), "a", &noise(3, MIB)).await);
    assert_sent(&send(&stage, local.path(), "b", &noise(4, MIB / 2)).await);
    fs::remove_dir_all(&staging).unwrap();
    assert_eq!(used(&stage).await, (MIB as u64 / 2, 1));
    assert_tidy(&stage.home("me"));
    stage.finish().await;
}

#[tokio::test]
async fn an_unfinished_upload_counts_once_in_addition_to_the_file_it_replaces() {
    let stage = Stage::with(USERS).await;
    let local = tempfile::tempdir().unwrap();
    assert_sent(&send(&stage, local.path(), "there", &noise(1, 2 * MIB)).await);
    let folder = stage.finish().await;
    let home = folder.path().join("data/storage/home/me");
    let begin = |name: &str, size: usize| {
        let plan = AssemblyPlan {
            path: name.parse().unwrap(),
            size: size as u64,
            executable: false,
            mtime: None,
        };
        drop(Assembly::create(&Root::open(&home).unwrap(), plan).unwrap());
    };
    begin("there", MIB);
    begin("new", MIB / 2);
    let stage = Stage::on(folder, USERS).await;
    let counted = (3 * MIB as u64 + MIB as u64 / 2, 3);
    assert_eq!(used(&stage).await, counted);
    // Measuring again counts no more than before.
    assert_eq!(used(&stage).await, counted);
    assert_refused(&send(&stage, local.path(), "more", &noise(2, MIB)).await);
    stage.finish().await;
}

#[tokio::test]
async fn pipes_planted_among_unfinished_uploads_block_no_requests() {
    let stage = Stage::with(USERS).await;
    let local = tempfile::tempdir().unwrap();
    let staging = stage.home("me").join(".pfs-staging");
    for (digit, name) in [("a", "state"), ("b", "journal"), ("c", "data")] {
        let place = staging.join(digit.repeat(32));
        fs::create_dir_all(&place).unwrap();
        let state = r#"{"path":"f","size":9223372036854775807,"boot":""}"#;
        fs::write(place.join("state"), state).unwrap();
        for sparse in ["journal", "data"] {
            let file = fs::File::create(place.join(sparse)).unwrap();
            file.set_len(1 << 40).unwrap();
        }
        fs::remove_file(place.join(name)).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(place.join(name))
            .status();
        assert!(made.unwrap().success());
    }
    let both = async {
        let view = stage.me.files().quota().await.unwrap();
        assert!(view.bytes_used > 1 << 40, "what they claim is counted: {view:?}");
        assert_eq!(view.unfinished_uploads, 0);
        assert_refused(&send(&stage, local.path(), "f", &noise(1, 2 * MIB)).await);
        stage.you.files().quota().await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("nobody waits for a pipe");
    stage.finish().await;
}

#[tokio::test]
async fn fsck_reports_changes_of_small_files_too() {
    let stage = Stage::with(USERS).await;
    let local = tempfile::tempdir().unwrap();
    let names = [
        "changed",
        "damaged",
        "removed",
        "sound",
        "sub/touched",
        "sub/moved",
    ];
    fs::create_dir(local.path().join("sub")).unwrap();
    for (seed, name) in names.iter().enumerate() {
        fs::write(local.path().join(name), noise(seed as u64, 5000)).unwrap();
    }
    let upload = async || {
        let upload = Upload::Tree {
            local: local.path().to_owned(),
            remote: mine("d"),
            entries: entries(local.path()),
        };
        let files = stage.me.files();
        let options = TransferOptions::default();
        assert_sent(&files.upload(vec![upload], &options, &()).await);
    };
    let files = stage.me.files();
    // The first time folders move over whole, the second time files take their places one by one.
    for round in 0..2 {
        upload().await;
        let reply = files.fsck().await.unwrap();
        assert_eq!((reply.checked, reply.findings), (6, vec![]), "{round}");
        for (seed, name) in names.iter().enumerate() {
            fs::write(local.path().join(name), noise(100 + seed as u64, 4000)).unwrap();
        }
    }
    let home = stage.home("me").join("d");
    files
        .rename(&mine("d/sub/moved"), &mine("d/elsewhere"), Existing::Keep)
        .await
        .unwrap();
    fs::write(home.join("changed"), "a job wrote this").unwrap();
    fs::remove_file(home.join("removed")).unwrap();
    let touched = fs::File::options().write(true).open(home.join("sub/touched"));
    touched
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();
    let findings = async || {
        let reply = files.fsck().await.unwrap();
        let mut findings: Vec<_> = reply
            .findings
            .into_iter()
            .map(|one| (one.path, one.verdict))
            .collect();
        findings.sort_by(|one, other| one.0.cmp(&other.0));
        findings
    };
    let at = |name: &str| format!("home/me/d/{name}");
    let expected = [
        (at("changed"), FsckVerdict::ChangedOutside),
        (at("removed"), FsckVerdict::RemovedOutside),
        (at("sub/touched"), FsckVerdict::Touched),
    ];
    assert_eq!(findings().await, expected);
    assert_eq!(findings().await, [], "reported once");
    stage.finish().await;
}
