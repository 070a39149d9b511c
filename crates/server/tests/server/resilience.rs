//! What users, disks and operators do to a server, which must survive it.

use std::os::unix::fs::symlink;
use std::path::Path;

use paddlecloud_core::job::Phase;
use paddlecloud_server::start::{Server, StartError};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::client::{Reply, Request};
use crate::engine::wait_until;
use crate::stage::{Stage, basic, config, home};

async fn as_you(stage: &Stage, path: &str) -> Reply {
    let request = Request::new("GET", path).header("authorization", &basic("you"));
    request.send(&stage.address).await
}

/// The form that the original's documents print.
#[tokio::test]
async fn an_empty_worker_in_the_query_of_logs_means_all_workers() {
    let stage = Stage::new().await;
    wait_until_blocker_runs(&stage).await;
    let reply = as_you(&stage, "/api/v1/logs?jobname=blocker&n=3&w=").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let stream = as_you(&stage, "/api/v1/jobs/blocker/logs?n=3&w=").await;
    assert_eq!(stream.status, 200);
    stage.finish().await;
}

async fn wait_until_blocker_runs(stage: &Stage) {
    let runs = || {
        let active = stage.app.jobs.active();
        active.iter().any(|job| job.phase == Phase::Running)
    };
    wait_until("the blocker runs", runs).await;
}

#[tokio::test]
async fn a_server_whose_disk_is_gone_is_not_ready() {
    let stage = Stage::new().await;
    // A run that is still being prepared would create the folder again.
    wait_until_blocker_runs(&stage).await;
    wait_until_status(&stage, 200).await;
    let (storage, away) = (
        stage.folder.path().join("data/storage"),
        stage.folder.path().join("away"),
    );
    std::fs::rename(&storage, &away).unwrap();
    // The result of the last check is reused for a while.
    wait_until_status(&stage, 503).await;
    std::fs::rename(&away, &storage).unwrap();
    wait_until_status(&stage, 200).await;
    stage.finish().await;
}

/// The size of a page, and of what the log of writes has before each.
const PAGE: usize = 4096;
const BEFORE_PAGE: usize = 24;

/// Overwrites all pages but the first, also those in SQLite's log of writes.
fn overwrite_pages(data: &Path) {
    let database = data.join("server.db");
    let mut pages = std::fs::read(&database).unwrap();
    pages[PAGE..].fill(0xff);
    std::fs::write(database, pages).unwrap();
    let log = data.join("server.db-wal");
    let mut written = std::fs::read(&log).unwrap_or_default();
    for frame in written
        .get_mut(32..)
        .unwrap_or_default()
        .chunks_exact_mut(BEFORE_PAGE + PAGE)
    {
        if frame[..4] != 1_u32.to_be_bytes() {
            frame[BEFORE_PAGE..].fill(0xff);
        }
    }
    // Without truncating it: the server has mapped its index.
    let log = std::fs::OpenOptions::new().write(true).open(log);
    log.map_or(Ok(()), |mut log| std::io::Write::write_all(&mut log, &written))
        .unwrap();
}

#[tokio::test]
async fn a_server_whose_database_is_damaged_is_not_ready() {
    let stage = Stage::new().await;
    wait_until_blocker_runs(&stage).await;
    wait_until_status(&stage, 200).await;
    stage.end_jobs().await;
    overwrite_pages(&stage.folder.path().join("data"));
    // The damage is known once a request has met it.
    drop(stage.get("/api/v1/admin/audit").await);
    drop(stage.get("/api/v1/tokens").await);
    wait_until_status(&stage, 503).await;
    let text = stage.get("/readyz").await.text();
    assert!(text.contains("the server's database is damaged"), "{text}");
    stage.pause().await;
}

async fn wait_until_status(stage: &Stage, status: u16) {
    let answered = async {
        while stage.get("/readyz").await.status != status {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let answered = tokio::time::timeout(std::time::Duration::from_secs(60), answered).await;
    answered.expect("the state of the disk is noticed");
}

#[tokio::test]
async fn a_job_that_replaces_the_servers_folder_by_a_link_does_not_lock_its_user_out() {
    let stage = Stage::new().await;
    stage.submit("before").await;
    let home = home(stage.folder.path(), "me");
    let user = "me".parse().unwrap();
    for planted in [".paddlecloud", ".paddlecloud/packages"] {
        std::fs::create_dir_all(home.join(planted)).unwrap();
        std::fs::rename(home.join(planted), home.join("elsewhere")).unwrap();
        symlink(home.join("elsewhere"), home.join(planted)).unwrap();
        drop(stage.app.storage.home(&user).expect("the home can be used"));
        stage.submit(&format!("after-{}", planted.len())).await;
        assert!(!home.join(planted).is_symlink(), "{planted}");
        std::fs::remove_dir_all(home.join("elsewhere")).unwrap();
    }
    stage.finish().await;
}

#[tokio::test]
async fn a_missing_storage_folder_is_not_recreated_if_there_were_jobs() {
    let stage = Stage::new().await;
    stage.submit("known").await;
    let folder = stage.finish().await;
    let storage = folder.path().join("data/storage");
    std::fs::rename(&storage, folder.path().join("not-mounted")).unwrap();
    let isolation = paddlecloud_supervisor::probe();
    let started = Server::start(config(folder.path(), ""), isolation, CancellationToken::new()).await;
    let error = started.err().expect("its files are missing");
    assert!(
        matches!(&error, StartError::StorageMissing(path) if *path == storage),
        "{error}"
    );
    assert!(!storage.exists());
}

#[tokio::test]
async fn a_storage_folder_that_is_not_on_cephfs_is_refused_as_cephfs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("word"), "secret\n").unwrap();
    let config = config(folder.path(), "storage: {kind: cephfs, path: files}\n");
    let isolation = paddlecloud_supervisor::probe();
    let started = Server::start(config, isolation, CancellationToken::new()).await;
    let error = started.err().expect("a temporary folder is not on CephFS");
    let problem = std::error::Error::source(&error)
        .expect("the store says why")
        .to_string();
    assert!(problem.contains("the folder is not on CephFS"), "{problem}");
}

#[tokio::test]
async fn logs_beyond_the_storage_quota_lose_their_oldest_parts_and_the_job_continues() {
    let lines = "logs: {segment: 64Ki, keep: 64Mi}\nusers:\n\
         - {name: me, password_file: word, system_user: a, quota: {storage: 1Mi}}\n\
         - {name: you, password_file: word, system_user: b}\n";
    let stage = Stage::with(lines).await;
    let chatty = json!({
        "name": "chatty", "job_package": "/pfs/dc1/home/me/job_word_emb", "pservers": 0,
        "cpu": "10m", "memory": "64Mi",
        "entry": "head -c 3000000 /dev/zero | tr '\\0' 'x' | fold -w 79; echo; echo written; exec sleep 1000",
    });
    let reply = stage.post("/api/v1/jobs", chatty).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    wait_until_printed(&stage, "written").await;
    stage.app.trim_logs().await;
    let quota = stage.get("/api/v1/quota").await.json();
    let rows = quota["msg"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["resource"] == "logs"), "{quota}");
    let logs = bytes_below(&stage.folder.path().join("data/attempts"));
    // What is written now stays: up to one segment more than the quota.
    assert!(logs < (1 << 20) + (64 << 10), "{logs} bytes are left");
    wait_until_printed(&stage, "written").await;
    let running = stage.app.jobs.active();
    let chatty = running
        .iter()
        .find(|job| job.spec.name.as_str() == "chatty")
        .unwrap();
    assert_eq!(chatty.phase, Phase::Running);
    stage.finish().await;
}

/// Waits until the last line of the job `chatty` is this; after logs were deleted, it must still be there.
async fn wait_until_printed(stage: &Stage, line: &str) {
    let printed = async {
        while !stage
            .get("/api/v1/logs?jobname=chatty&n=1")
            .await
            .text()
            .contains(line)
        {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let printed = tokio::time::timeout(std::time::Duration::from_secs(60), printed).await;
    printed.expect("it prints a lot");
}

fn bytes_below(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}
