//! Tests of the store on both databases, of crashes, and of the order of syncs and answers.

mod backup;
mod crash;
mod damage;
mod full_disk;
mod postgres;
mod suite;
mod upgrade;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use jiff::Timestamp;
use paddlecloud_core::conductor::Write;
use paddlecloud_core::job::{AfterKill, Event, Job};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::JobStore;
use paddlecloud_core::spec::JobSpec;
use paddlecloud_core::testing::job_store_suite::{job_store_suite, survives_reopening};

use super::{DatabaseUrl, OpenError, Store};

/// The start time of every test.
const START: i64 = 1_700_000_000_000;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(START + millis).unwrap()
}

/// The job with this number; higher numbers are submitted later.
fn job(number: u32, user: &str, name: &str) -> Job {
    let mut spec = JobSpec::new(name.parse().unwrap());
    spec.package = Some(format!("/pfs/local/home/{user}/p"));
    let id = JobId::new(START as u64 + u64::from(number), number);
    let now = at(i64::from(number));
    Job::new(
        id,
        user.parse().unwrap(),
        Arc::new(spec),
        None,
        u64::from(number),
        now,
    )
}

/// The same job, killed before it ran and therefore final.
fn over(mut job: Job, millis: i64) -> Job {
    job.on_event(Event::KillRequested(AfterKill::KeepInHistory), at(millis));
    assert!(job.phase.is_final());
    job
}

fn save(job: &Job) -> Write {
    Write::Save(Arc::new(job.clone()))
}

async fn open(folder: &Path) -> Store {
    Store::open(&DatabaseUrl::sqlite_file(&folder.join("odd name %3F?.db")))
        .await
        .unwrap()
}

#[tokio::test]
async fn sqlite_keeps_every_promise_of_the_port() {
    let folder = tempfile::tempdir().unwrap();
    let number = AtomicU32::new(0);
    let make = async || open(&folder.path().join(number.fetch_add(1, Relaxed).to_string())).await;
    job_store_suite(make).await;
    suite::beyond_the_port(make).await;
    survives_reopening(async || open(folder.path()).await).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn postgres_keeps_every_promise_of_the_port() {
    let server = postgres::Server::start();
    let number = AtomicU32::new(0);
    let make = async || {
        let name = format!("suite{}", number.fetch_add(1, Relaxed));
        Store::open(&server.database(&name)).await.unwrap()
    };
    job_store_suite(make).await;
    suite::beyond_the_port(make).await;
    let url = server.database("reopened");
    survives_reopening(async || Store::open(&url).await.unwrap()).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_lost_connection_to_the_database_is_replaced() {
    let server = postgres::Server::start();
    let store = Store::open(&server.database("lost")).await.unwrap();
    store.save(&[save(&job(1, "me", "before"))]).await.unwrap();
    server.restart();
    store.save(&[save(&job(2, "me", "after"))]).await.unwrap();
    assert_eq!(store.load_active().await.unwrap().len(), 2);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_second_server_on_the_same_postgres_database_is_refused() {
    let server = postgres::Server::start();
    let url = server.database("shared");
    let first = Store::open(&url).await.unwrap();
    let error = Store::open(&url).await.err().expect("the first one has it");
    assert!(matches!(&error, OpenError::InUse(_)), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with("another server uses the database `postgres"),
        "{error}"
    );
    assert!(error.hint().is_some());
    first.save(&[save(&job(1, "me", "kept"))]).await.unwrap();
    first.close().await;
    let next = Store::open(&url).await.unwrap();
    assert_eq!(next.load_active().await.unwrap().len(), 1);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_server_that_lost_its_connection_writes_nothing_while_another_has_the_database() {
    let server = postgres::Server::start();
    let url = server.database("contended");
    let first = Store::open(&url).await.unwrap();
    first.save(&[save(&job(1, "me", "before"))]).await.unwrap();
    server.restart();
    let second = Store::open(&url)
        .await
        .expect("the lock went with the connection");
    first
        .save(&[save(&job(2, "me", "stale"))])
        .await
        .expect_err("the second server has the database");
    assert_eq!(second.load_active().await.unwrap().len(), 1);
    second.close().await;
    first.save(&[save(&job(3, "me", "after"))]).await.unwrap();
}

#[tokio::test]
async fn a_closed_store_can_be_opened_again_with_everything_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let job = job(1, "me", "kept");
    store.save(&[save(&job)]).await.unwrap();
    store.close().await;
    assert!(
        store.save(&[save(&job)]).await.is_err(),
        "a closed store takes nothing"
    );
    let again = open(folder.path()).await;
    assert_eq!(again.load_active().await.unwrap(), [job]);
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let url = DatabaseUrl::sqlite_file(&folder.path().join("new.db"));
    let store = Store::open(&url).await.unwrap();
    sqlx::query("INSERT INTO schema_version (version) VALUES (99)")
        .execute(&store.reads)
        .await
        .unwrap();
    store.close().await;
    let error = Store::open(&url).await.err().unwrap();
    let OpenError::Newer { found: 99, known } = error else {
        panic!("{error}");
    };
    assert_eq!(
        error.to_string(),
        format!(
            "the database has version 99, but this program supports versions up to {known}: it was written by a newer program"
        )
    );
}

#[tokio::test]
async fn many_callers_share_few_commits() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let before = store.counts();
    let writes = (0..500).map(|number| {
        let store = store.clone();
        async move { store.save(&[save(&job(number, "me", "many"))]).await.unwrap() }
    });
    futures_util::future::join_all(writes).await;
    let after = store.counts();
    assert_eq!(after.rows - before.rows, 500);
    assert!(after.commits - before.commits < 100, "{after:?}");
}

#[tokio::test]
async fn a_refused_batch_does_not_fail_its_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let keyed = |number| {
        let mut job = job(number, "me", "keyed");
        job.key = Some("the-same-key".parse().unwrap());
        job
    };
    store.save(&[save(&keyed(1))]).await.unwrap();
    let batches = [keyed(2), job(3, "me", "good"), job(4, "me", "good-too")];
    let results =
        futures_util::future::join_all(batches.iter().map(async |job| store.save(&[save(job)]).await)).await;
    let fine: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [false, true, true]);
    assert_eq!(store.load_active().await.unwrap().len(), 3);
}
