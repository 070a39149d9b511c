//! Damaged databases: each is refused with an error that names it and a hint, and is not changed.

use std::fs;
use std::path::{Path, PathBuf};

use paddlecloud_core::error_chain::chain_of;
use paddlecloud_core::ports::JobStore;
use sqlx::Row as _;

use super::{job, save};
use crate::{AuditEntry, AuditState, DatabaseUrl, Store, damage, hint};

fn file(folder: &Path) -> PathBuf {
    folder.join("server.db")
}

fn url(folder: &Path) -> DatabaseUrl {
    DatabaseUrl::sqlite_file(&file(folder))
}

async fn refused(folder: &Path, jobs: usize) -> String {
    let error = Store::open_knowing(&url(folder), jobs).await.err().unwrap();
    let hint = error.hint().expect("a way out");
    format!("{}\nhint: {hint}", chain_of(&error)).replace(&folder.display().to_string(), "DATA")
}

/// A database with enough jobs that their table has inner pages.
async fn filled(folder: &Path) {
    let store = Store::open(&url(folder)).await.unwrap();
    let jobs: Vec<_> = (0..400).map(|number| save(&job(number, "me", "kept"))).collect();
    store.save(&jobs).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        file(folder.path()),
        "no database, but long enough to be read as the head of one. ".repeat(99),
    )
    .unwrap();
    insta::assert_snapshot!(refused(folder.path(), 0).await, @"
    the database `DATA/server.db` is damaged: error returned from database: (code: 26) file is not a database
    hint: restore it from a backup; without one, move the files `DATA/server.db*` and the folder `attempts` elsewhere: the server then starts without job history and logs, packages and outputs stay
    ");
}

#[tokio::test]
async fn a_folder_in_place_of_the_database_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(file(folder.path())).unwrap();
    insta::assert_snapshot!(refused(folder.path(), 0).await, @"
    `DATA/server.db` is a folder, where the database should be a file
    hint: move the folder away, or name another file in `database` of the configuration
    ");
}

#[tokio::test]
async fn an_emptied_database_is_refused_if_there_were_jobs() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path()).await;
    let jobs = 3;
    assert!(
        Store::open_knowing(&url(folder.path()), jobs).await.is_ok(),
        "it knows them"
    );
    fs::write(file(folder.path()), "").unwrap();
    insta::assert_snapshot!(refused(folder.path(), jobs).await, @"
    the database `DATA/server.db` is empty, but the data folder has the folders of 3 jobs
    hint: restore the database from a backup; to continue with an empty history, move the folder `attempts` out of the server's data folder (it contains the logs; packages and outputs are elsewhere)
    ");
    let again = refused(folder.path(), jobs).await;
    assert!(
        again.contains("is empty"),
        "a second try is refused like the first: {again}"
    );
    assert!(
        Store::open_knowing(&url(folder.path()), 0).await.is_ok(),
        "a new server is"
    );
}

#[tokio::test]
async fn a_damaged_inner_page_is_reported_with_the_file_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path()).await;
    let read_at_the_start = pages_without_jobs(folder.path()).await;
    let mut bytes = fs::read(file(folder.path())).unwrap();
    let page = 4096;
    for at in (3 * page..bytes.len()).step_by(page) {
        if !read_at_the_start.contains(&(at / page)) {
            bytes[at..at + 64].fill(0xff);
        }
    }
    fs::write(file(folder.path()), bytes).unwrap();
    let store = Store::open(&url(folder.path())).await.unwrap();
    let error = store.load_active().await.unwrap_err();
    let message = chain_of(&error).replace(&folder.path().display().to_string(), "DATA");
    insta::assert_snapshot!(
        message,
        @"cannot read from the job store: the database `DATA/server.db` is damaged: error returned from database: (code: 11) database disk image is malformed"
    );
    assert!(
        damage(&error)
            .unwrap()
            .hint()
            .contains("restore it from a backup")
    );
    store.ping().await.unwrap();
    assert!(store.is_damaged(), "although its first page can still be read");
}

#[tokio::test]
async fn an_audit_log_that_is_emptied_while_accounts_exist_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let opened = async || {
        let store = Store::open(&url(folder.path())).await.unwrap();
        store.set_audit_key([7; 32]);
        store
    };
    let store = opened().await;
    let sound = store.audit_verify().await.unwrap();
    assert!(matches!(sound, AuditState::Sound { rows: 0, .. }), "{sound:?}");
    let ann = serde_json::from_str(r#"{"id": 1, "name": "ann"}"#).unwrap();
    store.accounts_save(&[ann], AuditEntry::default()).await.unwrap();
    for text in ["DELETE FROM audit", "DELETE FROM audit_head"] {
        sqlx::query(text).execute(&store.reads).await.unwrap();
    }
    store.close().await;
    let store = opened().await;
    let broken = |problem: &str| AuditState::Broken {
        seq: 1,
        problem: problem.to_owned(),
    };
    let emptied = store.audit_verify().await.unwrap();
    assert_eq!(emptied, broken("the rows from here on are missing"));
    store.audit(AuditEntry::default()).await.unwrap();
    store.close().await;
    let state = opened().await.audit_verify().await.unwrap();
    assert_eq!(state, broken("the row is missing"));
}

/// The zero-based pages of the other tables, which are small.
async fn pages_without_jobs(folder: &Path) -> Vec<usize> {
    let store = Store::open(&url(folder)).await.unwrap();
    let query = sqlx::query("SELECT rootpage FROM sqlite_master WHERE tbl_name != 'jobs'");
    let rows = query.fetch_all(&store.reads).await.unwrap();
    store.close().await;
    rows.iter()
        .map(|row| usize::try_from(row.get::<i64, _>(0)).unwrap() - 1)
        .collect()
}

#[tokio::test]
async fn a_damaged_job_record_is_reported_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&url(folder.path())).await.unwrap();
    let torn = job(1, "me", "torn");
    store.save(&[save(&torn)]).await.unwrap();
    sqlx::query("UPDATE jobs SET document = '{\"id\":'")
        .execute(&store.reads)
        .await
        .unwrap();
    let error = store.load_active().await.unwrap_err();
    let message = format!("{error}\nhint: {}", hint(&error).unwrap()).replace(torn.id.as_str(), "j_1");
    insta::assert_snapshot!(message, @r"
    the record of job j_1 cannot be parsed
    hint: restore the database from a backup; without one, remove this record with `DELETE FROM jobs WHERE id = 'j_1'`: the job is then forgotten, its files stay
    ");
}
