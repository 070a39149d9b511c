//! What every database must do, as small checks on an empty store.

use std::future::Future;
use std::pin::Pin;

use paddlecloud_core::conductor::Write;
use paddlecloud_core::names::{JobName, UserName};
use paddlecloud_core::ports::{JobStore, PageRequest};

use super::{at, job, over, save};
use crate::store::{Store, TokenRow};

type Check = fn(Store) -> Pin<Box<dyn Future<Output = ()> + Send>>;

pub const CHECKS: [(&str, Check); 8] = [
    ("a saved job is found by id, by name and as the latest", |store| {
        Box::pin(found(store))
    }),
    ("saving again replaces", |store| Box::pin(replaced(store))),
    (
        "only jobs that are not final are active, in their order",
        |store| Box::pin(active(store)),
    ),
    ("a batch is written whole or not at all", |store| {
        Box::pin(whole(store))
    }),
    ("pages walk the history once, latest first", |store| {
        Box::pin(pages(store))
    }),
    ("a key finds its job, also when it is over", |store| {
        Box::pin(keys(store))
    }),
    ("old jobs and used packages are told", |store| {
        Box::pin(old(store))
    }),
    ("tokens are found until they expire", |store| {
        Box::pin(tokens(store))
    }),
];

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

async fn found(store: Store) {
    let (first, second, other) = (job(1, "me", "a"), job(2, "me", "a"), job(3, "you", "a"));
    store
        .save(&[save(&first), save(&second), save(&other)])
        .await
        .unwrap();
    assert_eq!(store.get(&first.id).await.unwrap().as_deref(), Some(&first));
    let name: JobName = "a".parse().unwrap();
    let latest = store.latest(&user("me"), Some(&name)).await.unwrap();
    assert_eq!(latest.as_deref(), Some(&second));
    assert_eq!(
        store.latest(&user("you"), None).await.unwrap().as_deref(),
        Some(&other)
    );
    assert_eq!(store.latest(&user("nobody"), None).await.unwrap(), None);
    store
        .save(&[Write::Remove(second.id.clone()), Write::Remove(second.id.clone())])
        .await
        .unwrap();
    assert_eq!(store.get(&second.id).await.unwrap(), None);
    assert_eq!(
        store.latest(&user("me"), Some(&name)).await.unwrap().as_deref(),
        Some(&first)
    );
}

async fn replaced(store: Store) {
    let before = job(1, "me", "a");
    let after = over(before.clone(), 5);
    store.save(&[save(&before)]).await.unwrap();
    store.save(&[save(&after)]).await.unwrap();
    assert_eq!(store.get(&before.id).await.unwrap().as_deref(), Some(&after));
    assert_eq!(store.page(&page(None, None, 10)).await.unwrap().jobs.len(), 1);
}

async fn active(store: Store) {
    let jobs = [job(3, "me", "c"), job(1, "you", "a"), over(job(2, "me", "b"), 9)];
    let writes: Vec<Write> = jobs.iter().map(save).collect();
    store.save(&writes).await.unwrap();
    let names: Vec<String> = store
        .load_active()
        .await
        .unwrap()
        .iter()
        .map(|job| job.spec.name.to_string())
        .collect();
    assert_eq!(names, ["a", "c"]);
}

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

async fn keys(store: Store) {
    let mut keyed = job(1, "me", "a");
    keyed.key = Some("k".parse().unwrap());
    store.save(&[save(&over(keyed.clone(), 4))]).await.unwrap();
    let key = keyed.key.clone().unwrap();
    assert_eq!(
        store.find_by_key(&user("me"), &key).await.unwrap(),
        Some(keyed.id.clone())
    );
    assert_eq!(store.find_by_key(&user("you"), &key).await.unwrap(), None);
    let mut other = job(2, "you", "a");
    other.key = Some(key.clone());
    store.save(&[save(&other)]).await.unwrap();
    assert_eq!(
        store.find_by_key(&user("you"), &key).await.unwrap(),
        Some(other.id)
    );
}

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
    assert_eq!(old, [packed.id]);
    let snapshots = store.snapshots(&user("me")).await.unwrap();
    assert_eq!(snapshots.into_iter().collect::<Vec<_>>(), ["abc"]);
}

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
