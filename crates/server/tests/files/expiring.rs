//! Abandoned uploads expire, and uploads in progress are not disturbed.

use std::time::SystemTime;

use paddlecloud_files::KEEP_UNFINISHED;

use crate::stage::{self, Stage, assert_tidy, me, noise};

#[tokio::test]
async fn unfinished_uploads_expire_while_others_are_on_their_way() {
    let stage = Stage::new().await;
    let caller = me();
    let content = noise(9, 5 << 20);
    let begin = async |name: &str| {
        let request = stage::begin(name, content.len() as u64);
        let started = stage.app.upload_begin(&caller, request).await.unwrap();
        started.id.to_string()
    };
    let touched = async |id: &str| -> SystemTime {
        let all = stage.app.upload_list(&caller).await.unwrap();
        let found = all.iter().find(|one| one.id.to_string() == id);
        found.expect("it has started").touched.into()
    };
    let (old, left, sent) = (begin("old").await, begin("left").await, begin("sent").await);

    // One chunk is on its way: half of it came after the last byte of the old one, the other half comes later.
    let layout = paddlecloud_pfs::content::Layout::of(content.len() as u64);
    let chunk = |index: u64| {
        let (offset, len) = layout.range(index).unwrap();
        let bytes = &content[offset as usize..(offset + len) as usize];
        let mut hasher = layout.hasher(index);
        hasher.update(bytes);
        (bytes::Bytes::copy_from_slice(bytes), hasher.finish())
    };
    let (first, name) = chunk(0);
    let mut taking = stage.app.upload_chunk(&caller, &sent, 0, name).await.unwrap();
    let mut pieces = first.chunks(4 << 10).map(bytes::Bytes::copy_from_slice);
    let mut range = stage.app.upload_range(&caller, &left, 0, 1 << 20).await.unwrap();
    while touched(&sent).await <= touched(&old).await || touched(&left).await <= touched(&old).await {
        let piece = pieces.next().expect("the clock advances in a megabyte");
        range.feed(vec![piece.clone()]).await.unwrap();
        taking.feed(vec![piece]).await.unwrap();
    }
    drop(range);

    let spaces = [paddlecloud_pfs::Space::Home("me".parse().unwrap())];
    let sweep = |now: SystemTime| stage.app.files.sweep_at(&spaces, now.into());
    assert_eq!(sweep(SystemTime::now()), 0, "all are young");
    let three_days_later = touched(&old).await + KEEP_UNFINISHED;
    assert_eq!(sweep(three_days_later), 0, "just not old enough");
    let youngest = touched(&sent).await.min(touched(&left).await);
    let expired = wait_until_some(|| sweep(youngest + KEEP_UNFINISHED)).await;
    assert_eq!(expired, 1, "the old one goes");

    taking.feed(pieces.collect()).await.unwrap();
    taking.finish().await.unwrap();
    let (second, name) = chunk(1);
    let mut taking = stage.app.upload_chunk(&caller, &sent, 1, name).await.unwrap();
    taking.feed(vec![second]).await.unwrap();
    taking.finish().await.unwrap();
    let commit = paddlecloud_api::files::CommitRequest {
        digest: paddlecloud_pfs::Digest::of(&content),
        no_overwrite: false,
    };
    stage.app.upload_commit(&caller, &sent, commit).await.unwrap();
    assert!(std::fs::read(stage.home("me").join("sent")).unwrap() == content);
    let all = stage.app.upload_list(&caller).await.unwrap();
    assert_eq!(all.len(), 1, "the one that is left stays: {all:?}");
    assert_eq!(all[0].id.to_string(), left);
    stage.app.upload_discard(&caller, &left).await.unwrap();
    assert_tidy(&stage.home("me"));
    stage.finish().await;
}

/// A process that another test just forked off holds what is open here for a moment.
async fn wait_until_some(expired: impl Fn() -> u64) -> u64 {
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match expired() {
            0 => assert!(tokio::time::Instant::now() < until, "nothing goes"),
            some => return some,
        }
        tokio::task::yield_now().await;
    }
}
