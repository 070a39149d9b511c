//! Superseded uploads, and downloads that cannot finish: nothing of them stays, and they reserve no space.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::{CommitRequest, UploadRequest};
use paddlecloud_pfs::content::{Assembly, AssemblyError, AssemblyPlan};
use paddlecloud_pfs::{Digest, Root, RootError};
use paddlecloud_transfer::{Download, FileService, TransferError, TransferOptions, Upload};

use crate::breaking::SmallDisk;
use crate::stage::{self, Stage, assert_tidy, entries, me, mine, noise};

const USERS: &str = "users:\n\
    - {name: me, password_file: word, system_user: a, quota: {storage: 4Mi, files: 10}}\n";

/// As a server that was killed leaves it: nobody sends to it.
fn leave_unfinished(stage: &Stage, name: &str, size: u64) {
    let home = stage.home("me");
    std::fs::create_dir_all(&home).unwrap();
    let plan = AssemblyPlan {
        path: name.parse().unwrap(),
        size,
        executable: false,
        mtime: None,
    };
    drop(Assembly::create(&Root::open(&home).unwrap(), plan).unwrap());
}

/// The paths of all that is unfinished.
async fn unfinished(stage: &Stage) -> Vec<String> {
    let listed = stage.app.upload_list(&me()).await.unwrap();
    let name = |path: String| path.rsplit('/').next().unwrap().to_owned();
    let mut names: Vec<String> = listed.iter().map(|one| name(one.path.0.to_string())).collect();
    names.sort();
    names
}

fn request(name: &str, key: &str) -> UploadRequest {
    UploadRequest {
        key: key.to_owned(),
        ..stage::begin(name, 3)
    }
}

async fn begin(stage: &Stage, name: &str, key: &str) -> String {
    let started = stage.app.upload_begin(&me(), request(name, key)).await.unwrap();
    started.id.to_string()
}

async fn send_abc(stage: &Stage, id: &str) {
    let mut taking = stage.app.upload_range(&me(), id, 0, 3).await.unwrap();
    let bytes = vec![bytes::Bytes::from_static(b"abc")];
    taking.feed(bytes).await.unwrap();
    taking.finish().await.unwrap();
}

fn commit_of(content: &[u8]) -> CommitRequest {
    CommitRequest {
        digest: Digest::of(content),
        no_overwrite: false,
    }
}

#[tokio::test]
async fn a_file_sent_again_may_use_the_space_of_its_unfinished_upload() {
    let stage = Stage::with(USERS).await;
    leave_unfinished(&stage, "a", 3 << 20);
    leave_unfinished(&stage, "other", 10);
    let local = tempfile::tempdir().unwrap();
    let path = local.path().join("a");
    std::fs::write(&path, noise(1, 3 << 20)).unwrap();
    let upload = Upload::File {
        local: path,
        remote: mine("a"),
    };
    let files = stage.me.files();
    let sent = files.upload(vec![upload], &TransferOptions::default(), &()).await;
    assert!(sent.failures.is_empty(), "{:?}", sent.failures);
    assert_eq!(unfinished(&stage).await, ["other"], "others stay");
    let view = files.quota().await.unwrap();
    assert_eq!(view.bytes_used, (3 << 20) + 10);
    stage.finish().await;
}

#[tokio::test]
async fn a_published_file_ends_other_uploads_of_it_except_active_ones() {
    let stage = Stage::with(USERS).await;
    let second = begin(&stage, "f", "2").await;
    let mut taking = stage.app.upload_range(&me(), &second, 0, 3).await.unwrap();
    taking.feed(vec![bytes::Bytes::from_static(b"a")]).await.unwrap();
    let first = begin(&stage, "f", "1").await;
    leave_unfinished(&stage, "f", 7);
    assert_eq!(unfinished(&stage).await, ["f", "f", "f"]);
    send_abc(&stage, &first).await;
    let commit = commit_of(b"abc");
    stage.app.upload_commit(&me(), &first, commit).await.unwrap();
    assert_eq!(
        unfinished(&stage).await,
        ["f"],
        "the second sender is still at it"
    );
    drop(taking);
    // One that was broken off goes when the file is sent again, as soon as the server knows.
    let gone = async {
        for key in 3.. {
            drop(begin(&stage, "f", &key.to_string()).await);
            let listed = stage.app.upload_list(&me()).await.unwrap();
            if listed.iter().all(|one| one.id.to_string() != second) {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
    stage.finish().await;
}

#[tokio::test]
async fn wrong_content_holds_no_room() {
    let stage = Stage::with(USERS).await;
    let id = begin(&stage, "f", "1").await;
    send_abc(&stage, &id).await;
    let commit = commit_of(b"abd");
    let refused = stage.app.upload_commit(&me(), &id, commit).await.unwrap_err();
    let refused = ErrorBody::from(refused);
    assert_eq!(refused.error, ErrorName::Damaged, "{refused:?}");
    assert_tidy(&stage.home("me"));
    assert_eq!(stage.me.files().quota().await.unwrap().bytes_used, 0);
    stage.finish().await;
}

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("there is a mkfifo").success());
}

/// Begins an upload, sends all of it, lets somebody come in its way, and is refused; nothing of it stays.
async fn is_permanently_refused(stage: &Stage, name: &str, error: ErrorName, block_path: impl FnOnce()) {
    let id = begin(stage, name, "1").await;
    send_abc(stage, &id).await;
    block_path();
    let refused = stage.app.upload_commit(&me(), &id, commit_of(b"abc")).await;
    let refused = ErrorBody::from(refused.unwrap_err());
    assert_eq!(refused.error, error, "{name}: {refused:?}");
    assert_eq!(unfinished(stage).await, [""; 0], "{name}");
    assert_tidy(&stage.home("me"));
    assert_eq!(stage.me.files().quota().await.unwrap().bytes_used, 0, "{name}");
}

#[tokio::test]
async fn a_permanently_refused_upload_holds_no_room() {
    let stage = Stage::with(USERS).await;
    let home = stage.home("me");
    is_permanently_refused(&stage, "pipe", ErrorName::BadRequest, || {
        make_pipe(&home.join("pipe"))
    })
    .await;
    is_permanently_refused(&stage, "folder", ErrorName::BadRequest, || {
        std::fs::create_dir(home.join("folder")).unwrap();
    })
    .await;
    is_permanently_refused(&stage, "file/f", ErrorName::BadRequest, || {
        std::fs::write(home.join("file"), "").unwrap();
    })
    .await;
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs root"]
async fn an_upload_that_its_user_may_not_store_holds_no_room() {
    let stage = Stage::with("users:\n- {name: me, password_file: word, system_user: daemon}\n").await;
    stage.me.files().mkdir(&mine("ro"), true).await.unwrap();
    let ro = stage.home("me").join("ro");
    std::fs::set_permissions(&ro, Permissions::from_mode(0o555)).unwrap();
    for name in ["ro/x", "ro/new/x"] {
        is_permanently_refused(&stage, name, ErrorName::Forbidden, || {}).await;
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_file_that_would_replace_a_pipe_is_refused_before_it_is_sent() {
    let stage = Stage::with(USERS).await;
    let home = stage.home("me");
    std::fs::create_dir_all(&home).unwrap();
    make_pipe(&home.join("pipe"));
    let refused = stage.app.upload_begin(&me(), request("pipe", "1")).await;
    let refused = ErrorBody::from(refused.unwrap_err());
    assert_eq!(refused.msg, "`/pfs/dc/home/me/pipe` is not a regular file");
    assert_tidy(&home);
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs permission to mount"]
async fn a_download_that_fills_the_disk_leaves_room_for_the_next_one() {
    let disk = SmallDisk::new("4m");
    let stage = Stage::new().await;
    let home = stage.home("me");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("large"), noise(1, 6 << 20)).unwrap();
    std::fs::write(home.join("small"), noise(2, 2 << 20)).unwrap();
    let files = stage.me.files();
    let fetch = async |name: &str| {
        let download = Download::File {
            remote: mine(name),
            local: disk.path().join(name),
            meta: files.stat(&mine(name)).await.unwrap(),
        };
        let options = TransferOptions::default();
        files.download(vec![download], &options, &()).await
    };
    let refused = fetch("large").await;
    let full = &refused.failures[0].error;
    assert!(
        matches!(
            full,
            TransferError::Local(RootError::NoSpace(_))
                | TransferError::Assembly(AssemblyError::Storage(RootError::NoSpace(_)))
        ),
        "{full:?}"
    );
    assert_tidy(disk.path());
    let fetched = fetch("small").await;
    assert!(fetched.failures.is_empty(), "{:?}", fetched.failures);
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs permission to mount"]
async fn small_files_that_fill_the_disk_here_are_not_blamed_on_the_server() {
    let disk = SmallDisk::new("4m");
    let stage = Stage::new().await;
    let home = stage.home("me").join("many");
    std::fs::create_dir_all(&home).unwrap();
    for number in 0..20 {
        std::fs::write(home.join(format!("{number:02}")), noise(number, 400_000)).unwrap();
    }
    let download = |local: std::path::PathBuf, count: usize| Download::Tree {
        remote: mine("many"),
        local,
        entries: entries(&home).into_iter().take(count).collect(),
    };
    let files = stage.me.files();
    let options = TransferOptions::default();
    let place = disk.path().join("many");
    let refused = files.download(vec![download(place, 20)], &options, &()).await;
    assert_eq!(refused.failures.len(), 20, "{:?}", refused.failures);
    for failure in &refused.failures {
        let TransferError::Local(RootError::NoSpace(path)) = &failure.error else {
            panic!("{failure:?}");
        };
        assert!(
            failure.path.ends_with(&path.to_string()),
            "each tells its own name"
        );
    }
    assert_tidy(&disk.path().join("many"));
    let fetched = files
        .download(vec![download(disk.path().join("few"), 5)], &options, &())
        .await;
    assert!(fetched.failures.is_empty(), "{:?}", fetched.failures);
    stage.finish().await;
}

#[tokio::test]
async fn a_download_removes_leftovers_of_a_killed_one() {
    let stage = Stage::new().await;
    let home = stage.home("me");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("f"), "1").unwrap();
    let local = tempfile::tempdir().unwrap();
    let pack = local.path().join(".pfs-staging/0123456789abcdef0123456789abcdef");
    std::fs::create_dir_all(&pack).unwrap();
    std::fs::write(pack.join("part"), "of a pack").unwrap();
    let fetch = async |options: TransferOptions| {
        let download = Download::File {
            remote: mine("f"),
            local: local.path().join("f"),
            meta: stage.me.files().stat(&mine("f")).await.unwrap(),
        };
        stage.me.files().download(vec![download], &options, &()).await
    };
    let pretended = fetch(TransferOptions {
        dry_run: true,
        ..TransferOptions::default()
    })
    .await;
    assert_eq!(pretended.transferred, 1);
    assert!(pack.exists(), "a dry run changes nothing");
    assert_eq!(fetch(TransferOptions::default()).await.transferred, 1);
    assert_tidy(local.path());
    stage.finish().await;
}

#[tokio::test]
async fn an_upload_with_extra_staged_bytes_ends_and_holds_no_room() {
    use std::io::Write as _;
    let stage = Stage::with(USERS).await;
    let id = begin(&stage, "f", "one").await;
    send_abc(&stage, &id).await;
    let data = stage.home("me").join(format!(".pfs-staging/{id}/data"));
    let mut data = std::fs::OpenOptions::new().append(true).open(data).unwrap();
    data.write_all(b"more").unwrap();
    let request = CommitRequest {
        digest: Digest::of(b"abc"),
        no_overwrite: false,
    };
    let refused = stage.app.upload_commit(&me(), &id, request).await.unwrap_err();
    assert!(refused.to_string().contains("changing"), "{refused}");
    assert_eq!(unfinished(&stage).await, [""; 0]);
    assert_tidy(&stage.home("me"));
    // The next sender starts over.
    let again = begin(&stage, "f", "one").await;
    assert_ne!(again, id);
    stage.finish().await;
}

#[tokio::test]
#[ignore = "needs permission to mount"]
async fn an_old_clients_upload_is_discarded_when_the_disk_is_full() {
    let disk = SmallDisk::new("8m");
    let users = format!(
        "storage: {}\nusers:\n- {{name: me, password_file: word, system_user: a, quota: {{storage: 10Mi}}}}\n",
        disk.path().display()
    );
    let stage = Stage::with(&users).await;
    let home = disk.path().join("home/me");
    let (path, size) = ("/pfs/dc/home/me/f", 4_u64 << 20);
    let send = async || {
        let sent = stage.app.old_post(&me(), path, 0, noise(1, 4 << 20)).await;
        sent.map_err(ErrorBody::from)
    };
    stage.app.old_touch(&me(), path, size).await.unwrap();
    std::fs::write(home.join("filler"), noise(2, 6 << 20)).unwrap();
    assert_eq!(send().await.unwrap_err().error, ErrorName::StorageFull);
    assert_eq!(unfinished(&stage).await, Vec::<String>::new());
    assert_tidy(&home);
    let used = stage.me.files().quota().await.unwrap();
    assert_eq!((used.bytes_used, used.unfinished_bytes), (6 << 20, 0));

    std::fs::remove_file(home.join("filler")).unwrap();
    let unknown = send().await.unwrap_err();
    assert_eq!(unknown.error, ErrorName::NotFound, "it must be announced again");
    stage.app.old_touch(&me(), path, size).await.unwrap();
    send().await.unwrap();
    assert_eq!(std::fs::read(home.join("f")).unwrap(), noise(1, 4 << 20));
    stage.finish().await;
}
