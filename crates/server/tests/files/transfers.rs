//! Uploads and downloads of trees: everything arrives, nothing is sent twice, one bad file does not stop the others.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;

use paddlecloud_pfs::Entry;
use paddlecloud_transfer::{
    Download, Failure, FileService, ListOptions, Outcome, Progress, Side, Summary, TransferOptions, Upload,
};

use crate::stage::{Stage, assert_same, assert_tidy, entries, mine, noise};

fn fill(folder: &Path) {
    std::fs::create_dir_all(folder.join("sub/deep/empty")).unwrap();
    for index in 0..300 {
        std::fs::write(
            folder.join(format!("sub/{index:03}.txt")),
            noise(index, index as usize * 10),
        )
        .unwrap();
    }
    std::fs::write(folder.join("empty"), "").unwrap();
    std::fs::write(folder.join("sub/deep/run.sh"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(
        folder.join("sub/deep/run.sh"),
        std::fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    std::os::unix::fs::symlink("sub/000.txt", folder.join("link")).unwrap();
    std::fs::write(folder.join("large"), noise(7, 9 << 20)).unwrap();
    std::fs::write(folder.join("just-over"), noise(8, (1 << 20) + 1)).unwrap();
    use std::os::unix::ffi::OsStrExt;
    std::fs::write(folder.join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
}

fn up(local: &Path, remote: &str) -> Vec<Upload> {
    vec![Upload::Tree {
        local: local.to_owned(),
        remote: mine(remote),
        entries: entries(local),
    }]
}

async fn remote_entries(stage: &Stage, path: &str) -> Vec<Entry> {
    let options = ListOptions {
        recursive: true,
        digests: false,
    };
    let listing = stage.me.files().list(&mine(path), options).await.unwrap();
    let listed = listing.collect().await.unwrap();
    listed.iter().filter_map(|entry| entry.entry()).collect()
}

fn clean(summary: &Summary) {
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
}

#[tokio::test]
async fn a_tree_is_the_same_after_upload_and_download() {
    let stage = Stage::new().await;
    let (local, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(local.path());
    let files = stage.me.files();
    let options = TransferOptions::default();
    let sent = files.upload(up(local.path(), "data/tree"), &options, &()).await;
    clean(&sent);
    assert_eq!(sent.transferred, 306);
    assert_same(local.path(), &stage.home("me").join("data/tree"));
    assert_tidy(&stage.home("me"));

    let again = files.upload(up(local.path(), "data/tree"), &options, &()).await;
    clean(&again);
    assert_eq!((again.transferred, again.unchanged, again.moved), (0, 306, 0));

    let download = || async {
        vec![Download::Tree {
            remote: mine("data/tree"),
            local: back.path().join("tree"),
            entries: remote_entries(&stage, "data/tree").await,
        }]
    };
    let fetched = files.download(download().await, &options, &()).await;
    clean(&fetched);
    assert_same(local.path(), &back.path().join("tree"));
    assert_tidy(&back.path().join("tree"));
    let again = files.download(download().await, &options, &()).await;
    assert_eq!((again.transferred, again.unchanged, again.moved), (0, 306, 0));

    let sides = (
        Side::Local(local.path().to_owned()),
        Side::Remote(mine("data/tree")),
    );
    assert!(files.check(&sides.0, &sides.1).await.unwrap().is_empty());
    std::fs::write(stage.home("me").join("data/tree/sub/010.txt"), "other").unwrap();
    let difference = files.check(&sides.0, &sides.1).await.unwrap();
    assert_eq!(difference.different, ["sub/010.txt".parse().unwrap()]);
    stage.finish().await;
}

#[tokio::test]
async fn a_change_in_a_large_file_sends_little() {
    let stage = Stage::new().await;
    let local = tempfile::tempdir().unwrap();
    let path = local.path().join("model");
    let mut content = noise(3, 40 << 20);
    std::fs::write(&path, &content).unwrap();
    let files = stage.me.files();
    let options = TransferOptions::default();
    let upload = || {
        vec![Upload::File {
            local: path.clone(),
            remote: mine("model"),
        }]
    };
    let first = files.upload(upload(), &options, &()).await;
    clean(&first);
    assert_eq!(first.moved, 40 << 20);
    content[20 << 20] ^= 1;
    content.splice(10_000_000..10_000_000, noise(9, 1000));
    std::fs::write(&path, &content).unwrap();
    let second = files.upload(upload(), &options, &()).await;
    clean(&second);
    assert!(second.moved < 100_000, "{} bytes were sent", second.moved);
    assert_eq!(std::fs::read(stage.home("me").join("model")).unwrap(), content);
    assert_tidy(&stage.home("me"));
    stage.finish().await;
}

#[tokio::test]
async fn checksums_find_changes_that_times_hide_and_no_overwrite_keeps_files() {
    let stage = Stage::new().await;
    let local = tempfile::tempdir().unwrap();
    for (name, text) in [("a", "one"), ("b", "two")] {
        std::fs::write(local.path().join(name), text).unwrap();
    }
    let files = stage.me.files();
    clean(
        &files
            .upload(up(local.path(), "t"), &TransferOptions::default(), &())
            .await,
    );
    let there = stage.home("me").join("t/a");
    let time = std::fs::metadata(&there).unwrap().modified().unwrap();
    std::fs::write(&there, "ONE").unwrap();
    std::fs::File::options()
        .write(true)
        .open(&there)
        .unwrap()
        .set_modified(time)
        .unwrap();
    let by_time = files
        .upload(up(local.path(), "t"), &TransferOptions::default(), &())
        .await;
    assert_eq!((by_time.transferred, by_time.unchanged), (0, 2));
    let keep = TransferOptions {
        checksum: true,
        no_overwrite: true,
        ..TransferOptions::default()
    };
    let kept = files.upload(up(local.path(), "t"), &keep, &()).await;
    assert_eq!((kept.transferred, kept.unchanged, kept.kept), (0, 1, 1));
    let checksum = TransferOptions {
        checksum: true,
        ..TransferOptions::default()
    };
    let dry = TransferOptions {
        dry_run: true,
        ..checksum.clone()
    };
    let would = files.upload(up(local.path(), "t"), &dry, &()).await;
    assert_eq!(
        (
            would.transferred,
            std::fs::read_to_string(&there).unwrap().as_str()
        ),
        (1, "ONE")
    );
    let sent = files.upload(up(local.path(), "t"), &checksum, &()).await;
    assert_eq!(
        (
            sent.transferred,
            std::fs::read_to_string(&there).unwrap().as_str()
        ),
        (1, "one")
    );
    stage.finish().await;
}

/// Records what it receives.
#[derive(Default)]
struct RecordedProgress(Mutex<Vec<String>>);

impl Progress for RecordedProgress {
    fn finished(&self, path: &str, outcome: Outcome) {
        self.0
            .lock()
            .unwrap()
            .push(format!("{} {outcome:?}", path.rsplit('/').next().unwrap()));
    }

    fn failed(&self, failure: &Failure) {
        let name = failure.path.rsplit('/').next().unwrap().to_owned();
        self.0.lock().unwrap().push(format!("{name} failed"));
    }
}

#[tokio::test]
async fn one_bad_file_does_not_stop_the_others() {
    let stage = Stage::new().await;
    let local = tempfile::tempdir().unwrap();
    for name in ["a", "gone", "in-the-way", "z"] {
        std::fs::write(local.path().join(name), name).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", local.path().join("out")).unwrap();
    let mut all: Vec<Entry> = {
        std::fs::remove_file(local.path().join("out")).unwrap();
        entries(local.path())
    };
    let link = Entry {
        path: "out".parse().unwrap(),
        node: paddlecloud_pfs::Node::Symlink {
            target: "/etc/passwd".parse().unwrap(),
        },
        mtime: Default::default(),
    };
    all.insert(3, link);
    std::fs::remove_file(local.path().join("gone")).unwrap();
    std::fs::create_dir_all(stage.home("me").join("d/in-the-way/x")).unwrap();
    let progress = RecordedProgress::default();
    let uploads = vec![Upload::Tree {
        local: local.path().to_owned(),
        remote: mine("d"),
        entries: all,
    }];
    let summary = stage
        .me
        .files()
        .upload(uploads, &TransferOptions::default(), &progress)
        .await;
    let mut lines = progress.0.into_inner().unwrap();
    lines.sort();
    assert_eq!(
        lines,
        [
            "a Transferred",
            "gone failed",
            "in-the-way failed",
            "out failed",
            "z Transferred"
        ]
    );
    assert_eq!(summary.failures.len(), 3);
    assert_tidy(&stage.home("me"));
    stage.finish().await;
}

#[tokio::test]
async fn an_unnamed_file_is_uploaded_under_the_remote_name() {
    let stage = Stage::new().await;
    let files = stage.me.files();
    for size in [0, 10, 9_000_000] {
        let content = noise(5, size);
        let mut nameless = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut nameless, &content).unwrap();
        let summary = files
            .upload_open(nameless, "-", &mine("piped"), &TransferOptions::default(), &())
            .await;
        clean(&summary);
        assert_eq!(std::fs::read(stage.home("me").join("piped")).unwrap(), content);
    }
    assert_tidy(&stage.home("me"));
    stage.finish().await;
}

#[tokio::test]
async fn a_single_file_may_change_its_name_on_the_way() {
    let stage = Stage::new().await;
    let local = tempfile::tempdir().unwrap();
    let files = stage.me.files();
    for (name, size) in [("small", 10), ("large", 5 << 20)] {
        let path = local.path().join(name);
        std::fs::write(&path, noise(1, size)).unwrap();
        let remote = mine(&format!("renamed-{name}"));
        let upload = Upload::File {
            local: path.clone(),
            remote: remote.clone(),
        };
        clean(&files.upload(vec![upload], &TransferOptions::default(), &()).await);
        let back = local.path().join(format!("back-{name}"));
        let download = Download::File {
            meta: files.stat(&remote).await.unwrap(),
            remote,
            local: back.clone(),
        };
        clean(
            &files
                .download(vec![download], &TransferOptions::default(), &())
                .await,
        );
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(back).unwrap());
    }
    assert_tidy(local.path());
    stage.finish().await;
}
