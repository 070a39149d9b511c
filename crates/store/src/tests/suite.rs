//! What this store promises beyond the port, for every database.

use paddlecloud_core::conductor::Write;
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::{JobStore, PageRequest};
use sqlx::Row as _;

use super::{at, job, over, save};
use crate::{AuditEntry, AuditState, Heir, Record, Renewed, Store, TokenRow};

/// Runs every check, each on a fresh, empty store.
pub async fn beyond_the_port(make: impl AsyncFn() -> Store) {
    whole(make().await).await;
    pages(make().await).await;
    old(make().await).await;
    tokens(make().await).await;
    accounts(make().await).await;
    audit(make().await).await;
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

/// A batch is written completely or not at all.
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

/// Paging through the history visits every job once, despite concurrent additions and removals.
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
        // Additions and removals must not affect the paging.
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

/// Old jobs and their packages are found for pruning.
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
        id: format!("id-{digest}"),
        owner: "me".into(),
        credential: "c".into(),
        scopes: "read".into(),
        account: 7,
        expires,
        ..TokenRow::default()
    };
    let save = async |token, now, replaces: Option<&str>| {
        let replaces = replaces.map(str::to_owned).into_iter().collect();
        let entry = AuditEntry::default();
        store.token_save(token, now, replaces, entry).await.unwrap();
    };
    save(token("one", 100), 0, None).await;
    save(token("two", 200), 0, None).await;
    assert_eq!(store.token_find("one").await.unwrap(), Some(token("one", 100)));
    save(token("three", 300), 150, None).await;
    assert_eq!(store.token_find("one").await.unwrap(), None);
    assert_eq!(store.token_find("two").await.unwrap(), Some(token("two", 200)));
    save(token("four", 400), 150, Some("three")).await;
    assert_eq!(store.token_find("three").await.unwrap(), None, "it was renewed");
    let mine = store.tokens_of(&user("me")).await.unwrap();
    assert_eq!(mine.len(), 2);
    store
        .token_remove("four".into(), AuditEntry::default())
        .await
        .unwrap();
    assert_eq!(store.token_find("four").await.unwrap(), None);
    let renew = async |new: &str, old: &str, expires, replaces| {
        let digest = old.to_owned();
        let old = Renewed { digest, expires };
        let renewed = store.token_renew(token(new, 500), 150, old, replaces, AuditEntry::default());
        renewed.await.unwrap()
    };
    assert!(!renew("five", "four", 160, Vec::new()).await, "it is revoked");
    assert_eq!(store.token_find("five").await.unwrap(), None);
    assert!(renew("six", "two", 160, Vec::new()).await);
    assert_eq!(store.token_find("six").await.unwrap(), Some(token("six", 500)));
    assert_eq!(store.token_find("two").await.unwrap(), Some(token("two", 160)));
    assert!(renew("seven", "two", 190, vec!["two".into()]).await);
    assert_eq!(store.token_find("two").await.unwrap(), None);
    assert!(
        renew("seven", "two", 190, vec!["two".into()]).await,
        "written twice"
    );
}

/// Accounts are read as they were written. A retired one gives its jobs away and keeps its number.
async fn accounts(store: Store) {
    let mut ann = Record::new(1, user("Ann"));
    ann.limits.set("cpu", "4").unwrap();
    store
        .accounts_save(std::slice::from_ref(&ann), entry("add"))
        .await
        .unwrap();
    let again = Record::new(2, user("ANN"));
    let refused = store
        .accounts_save(std::slice::from_ref(&again), entry("add"))
        .await;
    assert!(refused.is_err(), "the same name in other letters");
    let mut keyed = job(1, "Ann", "a");
    keyed.key = Some("k".parse().unwrap());
    store
        .save(&[save(&over(keyed, 100)), save(&job(2, "bob", "b"))])
        .await
        .unwrap();
    let token = TokenRow {
        digest: "d".into(),
        owner: "Ann".into(),
        account: 1,
        expires: 100,
        ..TokenRow::default()
    };
    store
        .token_save(token, 0, Vec::new(), entry("token"))
        .await
        .unwrap();
    ann.deleted = true;
    let heir = Heir {
        from: user("Ann"),
        to: ann.retired_name(),
    };
    store
        .account_retire(&ann, Some(&heir), entry("delete"))
        .await
        .unwrap();
    assert_eq!(store.token_find("d").await.unwrap(), None);
    assert!(
        store
            .page(&page(Some("Ann"), None, 9))
            .await
            .unwrap()
            .jobs
            .is_empty()
    );
    let kept = store.page(&page(Some("Ann~1"), None, 9)).await.unwrap().jobs;
    assert_eq!((kept.len(), kept[0].user.as_str()), (1, "Ann~1"));
    let key = "k".parse().unwrap();
    assert_eq!(store.find_by_key(&user("Ann"), &key).await.unwrap(), None);
    store
        .accounts_save(std::slice::from_ref(&again), entry("add"))
        .await
        .unwrap();
    let loaded = store.accounts_load().await.unwrap();
    assert_eq!(loaded.iter().map(|record| record.id).collect::<Vec<_>>(), [1, 2]);
    assert!(loaded[0].deleted && !loaded[1].deleted);
}

fn entry(action: &str) -> AuditEntry {
    AuditEntry {
        actor: "me".into(),
        action: action.into(),
        ..AuditEntry::default()
    }
}

/// A refused change leaves no entry, and the chain of the other entries is valid.
async fn audit(store: Store) {
    store.set_audit_key([7; 32]);
    for action in ["a", "b", "c"] {
        store.audit(entry(action)).await.unwrap();
    }
    let twice = [Record::new(1, user("x")), Record::new(2, user("X"))];
    assert!(store.accounts_save(&twice, entry("refused")).await.is_err());
    let latest = store.audit_list(None, 2).await.unwrap();
    let actions: Vec<_> = latest.iter().map(|record| record.entry.action.as_str()).collect();
    assert_eq!(actions, ["c", "b"]);
    let older = store.audit_list(Some(latest[1].seq), 9).await.unwrap();
    assert_eq!(older.len(), 1);
    let state = store.audit_verify().await.unwrap();
    assert!(matches!(state, AuditState::Sound { rows: 3, .. }), "{state:?}");
    let tampered = async |text: &'static str| {
        sqlx::query(text).execute(&store.reads).await.unwrap();
        store.audit_verify().await.unwrap()
    };
    let broken = |seq, problem: &str| AuditState::Broken {
        seq,
        problem: problem.to_owned(),
    };
    assert_eq!(
        tampered("UPDATE audit SET actor = 'you' WHERE seq = 2").await,
        broken(2, "the row was altered")
    );
    assert!(matches!(
        tampered("UPDATE audit SET actor = 'me' WHERE seq = 2").await,
        AuditState::Sound { .. }
    ));
    let head = sqlx::query("SELECT digest FROM audit_head").fetch_one(&store.reads);
    let head: String = head.await.unwrap().get(0);
    assert_eq!(
        tampered("UPDATE audit_head SET seq = 2, digest = (SELECT digest FROM audit WHERE seq = 2)").await,
        broken(2, "the head names another last row"),
        "a log that is cut off at an earlier row"
    );
    sqlx::query("UPDATE audit_head SET seq = 3, digest = $1")
        .bind(head)
        .execute(&store.reads)
        .await
        .unwrap();
    assert_eq!(
        tampered("DELETE FROM audit WHERE seq = 3").await,
        broken(3, "the rows from here on are missing")
    );
    assert_eq!(
        tampered("DELETE FROM audit WHERE seq = 1").await,
        broken(1, "the row is missing")
    );
    for text in ["DELETE FROM audit", "DELETE FROM audit_head"] {
        let emptied = broken(1, "the rows from here on are missing");
        assert_eq!(tampered(text).await, emptied, "{text}");
    }
    store.audit(entry("d")).await.unwrap();
    let state = store.audit_verify().await.unwrap();
    assert_eq!(
        state,
        broken(1, "the row is missing"),
        "the next row leaves a gap"
    );
}
