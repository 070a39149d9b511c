//! A full disk: the reserve still allows kills and removals, and is restored when there is room.

use std::time::Duration;

use paddlecloud_core::conductor::Write;
use paddlecloud_core::ports::JobStore;
use paddlecloud_pfs::small_disk::Disk;

use super::{job, open, over, save};
use crate::is_full;

#[tokio::test]
#[ignore = "needs permission to mount"]
async fn a_full_disk_allows_ending_and_removing_jobs_but_has_no_room_for_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::mount(folder.path());
    let store = open(disk.path()).await;
    let jobs: Vec<_> = (0..60).map(|number| job(number, "me", "kept")).collect();
    for job in &jobs {
        store.save(&[save(job)]).await.unwrap();
    }
    assert!(store.has_room());
    disk.fill();
    for (number, job) in (0..).zip(&jobs) {
        let ended = save(&over(job.clone(), 1000 + number));
        store.save(&[ended]).await.unwrap();
        store.save(&[Write::Remove(job.id.clone())]).await.unwrap();
    }
    // Use up the space that the write-ahead log has freed.
    disk.fill();
    assert!(!store.has_room(), "new jobs do not fit");

    disk.make_room();
    // A process that another test has just started may hold the file open for a moment.
    let kept = async {
        while !store.has_room() {
            tokio::task::yield_now().await;
        }
    };
    let limit = Duration::from_secs(60);
    let kept = tokio::time::timeout(limit, kept).await;
    kept.expect("there is room again, and it is kept");
    store.close().await;
}

#[tokio::test]
#[ignore = "needs permission to mount"]
async fn a_reserve_that_is_used_up_is_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::mount(folder.path());
    let store = open(disk.path()).await;
    disk.fill();
    let mut results = Vec::new();
    for number in 0..3000 {
        results.push(store.save(&[save(&job(number, "me", "more"))]).await);
        if !store.has_room() && number % 10 == 0 {
            disk.fill();
        }
        if results.last().is_some_and(Result::is_err) {
            break;
        }
    }
    let error = results
        .pop()
        .unwrap()
        .expect_err("a disk of 8 MiB is full at last");
    assert!(is_full(&error), "{error:?}");
    store.close().await;
}
