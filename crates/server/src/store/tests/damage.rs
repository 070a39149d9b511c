//! Damaged databases: each is refused with an error that names it and a hint, and is not changed.

use std::fs;
use std::path::{Path, PathBuf};

use paddlecloud_core::ports::JobStore;
use sqlx::Row as _;

use super::{job, save};
use crate::config::DatabaseUrl;
use crate::error_chain::chain_of;
use crate::store::{Store, damage, hint, jobs_below};

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
    for number in 0..3 {
        let id = job(number, "me", "kept").id.to_string();
        fs::create_dir_all(folder.path().join("attempts").join(id)).unwrap();
    }
    fs::create_dir(folder.path().join("attempts/other")).unwrap();
    let jobs = jobs_below(folder.path());
    assert_eq!(jobs, 3);
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
    let read_at_the_start = page_of(folder.path(), "unknown_runs").await;
    let mut bytes = fs::read(file(folder.path())).unwrap();
    let page = 4096;
    for at in (3 * page..bytes.len()).step_by(page) {
        if at / page != read_at_the_start {
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
}

/// The zero-based page of a small table.
async fn page_of(folder: &Path, table: &str) -> usize {
    let store = Store::open(&url(folder)).await.unwrap();
    let query = sqlx::query("SELECT rootpage FROM sqlite_master WHERE name = $1").bind(table);
    let row = query.fetch_one(&store.reads).await.unwrap();
    store.close().await;
    usize::try_from(row.get::<i64, _>(0)).unwrap() - 1
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
