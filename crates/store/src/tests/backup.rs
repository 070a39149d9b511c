//! Backups: taken from either database while it is in use, restored into either, and what a restore keeps.

use std::path::PathBuf;

use paddlecloud_core::job::Phase;
use paddlecloud_core::names::UserName;

use super::*;
use crate::{AuditEntry, AuditState, BackupError, Heir, Record, SecretRow, TokenRow, back_up, restore};

/// Folders of one test.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn sqlite(&self, name: &str) -> DatabaseUrl {
        DatabaseUrl::sqlite_file(&self.folder.path().join(name))
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("backup")
    }
}

/// No job has started since its backup.
fn all_known(_: &Job) -> bool {
    true
}

async fn opened(url: &DatabaseUrl) -> Store {
    let store = Store::open(url).await.unwrap();
    store.set_audit_key([7; 32]);
    store
}

fn record(id: u64, name: &str) -> Record {
    Record::new(id, name.parse().unwrap())
}

fn entry(subject: &str) -> AuditEntry {
    AuditEntry {
        action: "user.add".to_owned(),
        subject: subject.to_owned(),
        ..AuditEntry::default()
    }
}

async fn add(store: &Store, id: u64, name: &str) {
    store
        .accounts_save(&[record(id, name)], entry(name))
        .await
        .unwrap();
}

async fn names(store: &Store) -> Vec<String> {
    let ann: UserName = "ann".parse().unwrap();
    let page = paddlecloud_core::ports::PageRequest {
        user: Some(ann),
        name: None,
        before: None,
        limit: 100,
    };
    let jobs = store.page(&page).await.unwrap().jobs;
    jobs.iter().map(|job| job.spec.name.to_string()).collect()
}

/// Restores a backup of one open database into another and compares the content.
async fn carries(place: &Place, from: &DatabaseUrl, to: &DatabaseUrl) {
    let store = opened(from).await;
    store
        .save(&[
            save(&over(job(1, "ann", "old"), 5)),
            save(&job(2, "ann", "waits")),
        ])
        .await
        .unwrap();
    add(&store, 1, "ann").await;
    back_up(from, &place.file()).await.unwrap();
    store.save(&[save(&job(3, "ann", "later"))]).await.unwrap();
    restore(to, &place.file(), &all_known).await.unwrap();
    let restored = opened(to).await;
    assert_eq!(names(&restored).await, ["waits", "old"]);
    assert!(restored.accounts_load().await.unwrap() == [record(1, "ann")]);
    let state = restored.audit_verify().await.unwrap();
    assert!(matches!(state, AuditState::Sound { rows: 1, .. }), "{state:?}");
    assert!(restored.may_be_unknown(&job(3, "ann", "later").id));
    assert!(!restored.may_be_unknown(&job(2, "ann", "waits").id));
    restored.close().await;
    store.close().await;
}

#[tokio::test]
async fn a_backup_of_sqlite_is_restored_into_sqlite() {
    let place = Place::new();
    carries(&place, &place.sqlite("a.db"), &place.sqlite("b.db")).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn both_databases_have_the_same_backups() {
    let server = postgres::Server::start();
    let place = Place::new();
    carries(&place, &place.sqlite("a.db"), &server.database("b")).await;
    let place = Place::new();
    carries(&place, &server.database("c"), &place.sqlite("d.db")).await;
}

#[tokio::test]
async fn records_newer_than_the_backup_stay() {
    let place = Place::new();
    let url = place.sqlite("a.db");
    let store = opened(&url).await;
    store.save(&[save(&job(1, "ann", "ran"))]).await.unwrap();
    add(&store, 1, "ann").await;
    back_up(&url, &place.file()).await.unwrap();
    store
        .save(&[
            save(&over(job(1, "ann", "ran"), 50)),
            save(&job(2, "ann", "later")),
        ])
        .await
        .unwrap();
    add(&store, 2, "bob").await;
    store.close().await;
    restore(&url, &place.file(), &all_known).await.unwrap();
    let store = opened(&url).await;
    assert_eq!(names(&store).await, ["later", "ran"]);
    assert_eq!(
        store.load_active().await.unwrap().len(),
        1,
        "the end of `ran` is known"
    );
    assert_eq!(store.accounts_load().await.unwrap().len(), 2);
    let state = store.audit_verify().await.unwrap();
    assert!(matches!(state, AuditState::Sound { rows: 2, .. }), "{state:?}");
    store.close().await;
}

#[tokio::test]
async fn a_job_that_started_after_the_backup_is_not_run_again() {
    let place = Place::new();
    let (url, lost) = (place.sqlite("a.db"), place.sqlite("lost.db"));
    let store = opened(&url).await;
    store
        .save(&[save(&job(1, "ann", "ran")), save(&job(2, "ann", "waits"))])
        .await
        .unwrap();
    back_up(&url, &place.file()).await.unwrap();
    store.close().await;
    let ran = job(1, "ann", "ran").id;
    let is_known = |job: &Job| job.id != ran;
    restore(&lost, &place.file(), &is_known).await.unwrap();
    let store = opened(&lost).await;
    let ran = store.get(&ran).await.unwrap().unwrap();
    assert_eq!(ran.phase, Phase::Final(paddlecloud_core::job::Outcome::Lost));
    assert!(ran.message.contains("restored from a backup"), "{}", ran.message);
    let waiting = store.load_active().await.unwrap();
    assert_eq!(waiting[0].spec.name.as_str(), "waits");
    store.close().await;
}

#[tokio::test]
async fn a_backup_of_every_older_version_can_be_restored() {
    for version in 1..=crate::schema::NEWEST as usize {
        let place = Place::new();
        let url = place.sqlite("old.db");
        upgrade::old_database(&url, version).await;
        back_up(&url, &place.file()).await.unwrap();
        let new = place.sqlite("new.db");
        restore(&new, &place.file(), &all_known).await.unwrap();
        let store = opened(&new).await;
        assert_eq!(names(&store).await, ["waiting", "kept"], "version {version}");
        store.close().await;
    }
}

#[tokio::test]
async fn a_damaged_backup_changes_nothing() {
    let place = Place::new();
    let url = place.sqlite("a.db");
    let store = opened(&url).await;
    store.save(&[save(&job(1, "ann", "kept"))]).await.unwrap();
    back_up(&url, &place.file()).await.unwrap();
    store.close().await;
    let whole = std::fs::read_to_string(place.file()).unwrap();
    let cut = whole.lines().next().unwrap().to_owned();
    let altered = whole.replace("kept", "bent");
    let torn = whole[..whole.trim_end().len() - 3].to_owned();
    let (twice, more) = (whole.repeat(2), format!("{whole}hello\n"));
    for (damaged, why) in [
        (cut, "it is truncated: its last line is missing"),
        (torn, "it is truncated in line"),
        (altered, "digest does not match"),
        (twice, "more follows its last line"),
        (more, "more follows its last line"),
        ("hello\n".to_owned(), "line 1"),
        (String::new(), "it is not a backup"),
    ] {
        std::fs::write(place.file(), damaged).unwrap();
        let error = restore(&url, &place.file(), &all_known).await.unwrap_err();
        assert!(matches!(error, BackupError::Unusable { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let store = opened(&url).await;
    assert_eq!(names(&store).await, ["kept"]);
    store.close().await;
    let missing = back_up(&place.sqlite("none.db"), &place.file())
        .await
        .unwrap_err();
    assert!(matches!(missing, BackupError::NoDatabase(_)), "{missing}");
}

#[tokio::test]
async fn usage_of_removed_jobs_still_counts_and_a_new_account_does_not_inherit_it() {
    let place = Place::new();
    let store = opened(&place.sqlite("a.db")).await;
    let mut done = over(job(1, "ann", "done"), 5);
    done.admitted_at = Some(at(0));
    done.finished_at = Some(at(3_600_000));
    let used = crate::Used::since(&done, Timestamp::MIN, at(0));
    assert_eq!(
        (used.jobs, used.millis),
        (1, 2 * 1000 * 3_600_000),
        "two workers of one core"
    );
    store.save(&[save(&done)]).await.unwrap();
    let removed = Write::Remove(done.id.clone());
    store.save(std::slice::from_ref(&removed)).await.unwrap();
    store.save(&[removed]).await.unwrap();
    let kept = store.used_before(Timestamp::UNIX_EPOCH).await.unwrap();
    let ann: UserName = "ann".parse().unwrap();
    let sum = kept
        .iter()
        .map(|(_, used)| *used)
        .fold(Default::default(), crate::Used::plus);
    assert!(kept.iter().all(|(user, _)| *user == ann));
    assert_eq!(sum, used, "once, whatever was repeated");
    let mut gone = record(1, "ann");
    gone.deleted = true;
    store.account_retire(&gone, None, entry("ann")).await.unwrap();
    let kept = store.used_before(Timestamp::UNIX_EPOCH).await.unwrap();
    assert!(kept.iter().all(|(user, _)| user.as_str() == "ann~1"), "{kept:?}");
    store.close().await;
}

#[tokio::test]
async fn an_account_deleted_since_the_backup_stays_deleted_and_its_name_inherits_nothing() {
    let place = Place::new();
    let url = place.sqlite("a.db");
    let store = opened(&url).await;
    add(&store, 1, "ann").await;
    store.save(&[save(&over(job(1, "ann", "old"), 5))]).await.unwrap();
    let secret = |name: &str, sealed: &str| SecretRow {
        owner: "ann".to_owned(),
        kind: "secret".to_owned(),
        name: name.to_owned(),
        sealed: sealed.to_owned(),
        created: 1,
    };
    store
        .secret_save(vec![secret("key", "first")], entry("key"))
        .await
        .unwrap();
    back_up(&url, &place.file()).await.unwrap();
    let mut gone = record(1, "ann");
    gone.deleted = true;
    let heir = Heir {
        from: gone.name.clone(),
        to: gone.retired_name(),
    };
    store
        .account_retire(&gone, Some(&heir), entry("ann"))
        .await
        .unwrap();
    add(&store, 2, "ann").await;
    store
        .secret_save(vec![secret("other", "second")], entry("other"))
        .await
        .unwrap();
    store.close().await;
    restore(&url, &place.file(), &all_known).await.unwrap();
    let restored = opened(&url).await;
    assert!(restored.accounts_load().await.unwrap() == [gone.clone(), record(2, "ann")]);
    assert!(names(&restored).await.is_empty(), "the new ann has no job");
    let page = paddlecloud_core::ports::PageRequest {
        user: Some(gone.retired_name()),
        name: None,
        before: None,
        limit: 100,
    };
    assert_eq!(restored.page(&page).await.unwrap().jobs.len(), 1);
    let secrets = restored.secrets_all().await.unwrap();
    assert_eq!(secrets, [secret("other", "second")]);
    restored.close().await;
}

#[tokio::test]
async fn tokens_revoked_since_the_backup_stay_revoked_but_a_new_database_revokes_none() {
    let place = Place::new();
    let (url, new, empty) = (
        place.sqlite("a.db"),
        place.sqlite("new.db"),
        place.sqlite("empty.db"),
    );
    let store = opened(&url).await;
    for digest in ["kept", "revoked"] {
        let token = TokenRow {
            digest: digest.to_owned(),
            expires: i64::MAX,
            ..TokenRow::default()
        };
        store
            .token_save(token, 0, Vec::new(), entry(digest))
            .await
            .unwrap();
    }
    back_up(&url, &place.file()).await.unwrap();
    store
        .token_remove("revoked".to_owned(), entry("revoked"))
        .await
        .unwrap();
    store.close().await;
    // The server was started after the database was lost, and somebody logged in or nobody did.
    let store = opened(&new).await;
    add(&store, 1, "ann").await;
    store.close().await;
    opened(&empty).await.close().await;
    for (url, expected) in [
        (&url, [true, false]),
        (&new, [true, true]),
        (&empty, [true, true]),
    ] {
        restore(url, &place.file(), &all_known).await.unwrap();
        let store = opened(url).await;
        let kept = store.token_find("kept").await.unwrap().is_some();
        let revoked = store.token_find("revoked").await.unwrap().is_some();
        assert_eq!([kept, revoked], expected, "{url:?}");
        store.close().await;
    }
}
