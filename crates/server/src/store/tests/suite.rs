//! What this store promises beyond the port, on whatever database.

use paddlecloud_core::conductor::Write;
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::{JobStore, PageRequest};

use super::{at, job, over, save};
use crate::store::{Store, TokenRow};

/// Runs every check, each on a fresh, empty store.
pub async fn beyond_the_port(make: impl AsyncFn() -> Store) {
    whole(make().await).await;
    pages(make().await).await;
    old(make().await).await;
    tokens(make().await).await;
}

fn user(name: &str) -> UserName {
    name.parse().unwrap()
}

fn page(user: Option<&str>, name: Option<&str>, limit: usize) -> PageRequest {
    PageRequest {
        user: user.map(|user| user.parse().unwrap()),
        name: name.map(|name| name.parse().unwrap()),
        before: None,
        limit,
    }
}

/// A batch is written whole or not at all.
async fn whole(store: Store) {
    let mut keyed = job(1, "me", "a");
    keyed.key = Some("k".parse().unwrap());
    store.save(&[save(&keyed)]).await.unwrap();
    let mut clash = job(3, "me", "c");
    clash.key.clone_from(&keyed.key);
    let fine = job(2, "me", "b");
    assert!(store.save(&[save(&fine), save(&clash)]).await.is_err());
    assert_eq!(store.get(&fine.id).await.unwrap(), None);
    store.save(&[]).await.unwrap();
}

/// A walk through the history meets every job once, whatever is added or removed on the way.
async fn pages(store: Store) {
    let jobs: Vec<_> = (0..25)
        .map(|n| job(n, if n % 5 == 0 { "you" } else { "me" }, "a"))
        .collect();
    let writes: Vec<Write> = jobs.iter().map(save).collect();
    store.save(&writes).await.unwrap();
    let mut request = page(Some("me"), None, 6);
    let mut seen = Vec::new();
    loop {
        let page = store.page(&request).await.unwrap();
        seen.extend(page.jobs.iter().map(|job| job.id.clone()));
        request.before = seen.last().cloned();
        if !page.more {
            break;
        }
        // What is added or removed on the way does not disturb the walk.
        store
            .save(&[save(&job(100 + seen.len() as u32, "me", "late"))])
            .await
            .unwrap();
        store
            .save(&[Write::Remove(request.before.clone().unwrap())])
            .await
            .unwrap();
    }
    let expected: Vec<_> = jobs
        .iter()
        .rev()
        .filter(|job| job.user == user("me"))
        .map(|job| job.id.clone())
        .collect();
    assert_eq!(seen, expected);
    assert_eq!(
        store.page(&page(None, Some("late"), 2)).await.unwrap().jobs.len(),
        2
    );
    assert_eq!(
        store
            .page(&page(Some("you"), Some("a"), 50))
            .await
            .unwrap()
            .jobs
            .len(),
        5
    );
}

/// What can be pruned is told.
async fn old(store: Store) {
    let mut packed = over(job(1, "me", "a"), 100);
    std::sync::Arc::make_mut(&mut packed.spec).snapshot = Some("abc".into());
    let jobs = [
        packed.clone(),
        over(job(2, "me", "b"), 300),
        job(3, "me", "c"),
        over(job(4, "you", "d"), 100),
    ];
    let writes: Vec<Write> = jobs.iter().map(save).collect();
    store.save(&writes).await.unwrap();
    let old = store.finished_before(&user("me"), at(200), 10).await.unwrap();
    assert_eq!(old, [packed.id.clone()]);
    let snapshots = store.snapshots(&user("me"), &[]).await.unwrap();
    assert_eq!(snapshots.into_iter().collect::<Vec<_>>(), ["abc"]);
    assert!(store.snapshots(&user("me"), &old).await.unwrap().is_empty());
}

/// Tokens are found until they expire.
async fn tokens(store: Store) {
    let token = |digest: &str, expires| TokenRow {
        digest: digest.into(),
        owner: "me".into(),
        credential: "c".into(),
        expires,
    };
    store.token_save(token("one", 100), 0).await.unwrap();
    store.token_save(token("two", 200), 0).await.unwrap();
    assert_eq!(store.token_find("one").await.unwrap(), Some(token("one", 100)));
    store.token_save(token("three", 300), 150).await.unwrap();
    assert_eq!(store.token_find("one").await.unwrap(), None);
    assert_eq!(store.token_find("two").await.unwrap(), Some(token("two", 200)));
}
