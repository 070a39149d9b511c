//! What every job store must do. Call it from a test of the implementation:
//!
//! ```text
//! job_store_suite(async || SqliteStore::open_in_memory().await.unwrap()).await;
//! ```

use std::sync::Arc;

use crate::conductor::Write;
use crate::exit::{Clash, Exit};
use crate::job::{AfterKill, Event, IdempotencyKey, Job, News, WorkerKey};
use crate::names::JobId;
use crate::ports::{JobStore, Page, PageRequest};

use super::samples::{first, id, job_name, pending, running, seconds, spec, user};

/// Runs every check, each on a fresh, empty store.
pub async fn job_store_suite<S: JobStore>(make: impl AsyncFn() -> S) {
    gives_back_every_field(&make().await).await;
    replaces_and_removes(&make().await).await;
    applies_a_whole_batch(&make().await).await;
    applies_a_batch_in_its_order(&make().await).await;
    loads_active_jobs_in_submit_order(&make().await).await;
    finds_the_latest_run(&make().await).await;
    finds_finished_jobs_by_key(&make().await).await;
    pages_through_everything_once(&make().await).await;
    pages_stay_in_place_while_jobs_come_in(&make().await).await;
}

/// Saved jobs exist when the store is opened again at the same place.
pub async fn survives_reopening<S: JobStore>(open: impl AsyncFn() -> S) {
    let job = a_rich_job();
    save(&open().await, &job).await;
    assert_eq!(get(&open().await, &job.id).await, Some(job));
}

async fn gives_back_every_field<S: JobStore>(store: &S) {
    for job in [a_rich_job(), pending(2, spec("b", 0, 1)), a_final_job(3)] {
        save(store, &job).await;
        assert_eq!(get(store, &job.id).await, Some(job));
    }
    assert_eq!(get(store, &id(99)).await, None);
}

async fn replaces_and_removes<S: JobStore>(store: &S) {
    let mut job = pending(1, spec("a", 1, 1));
    save(store, &job).await;
    job.on_event(Event::KillRequested(AfterKill::KeepInHistory), seconds(5));
    save(store, &job).await;
    assert_eq!(get(store, &job.id).await, Some(job.clone()));
    for _ in 0..2 {
        store
            .save(&[Write::Remove(job.id.clone())])
            .await
            .expect("removing is no error, also twice");
        assert_eq!(get(store, &job.id).await, None);
    }
}

async fn applies_a_whole_batch<S: JobStore>(store: &S) {
    save(store, &pending(1, spec("old", 0, 1))).await;
    let mut batch: Vec<Write> = (2..40)
        .map(|number| save_of(&pending(number, spec("a", 0, 1))))
        .collect();
    batch.push(Write::Remove(id(1)));
    store.save(&batch).await.expect("a batch can be saved");
    store.save(&[]).await.expect("nothing can be saved");
    let all = store.page(&request(100)).await.expect("pages can be read");
    assert_eq!(numbers(&all), (2..40).rev().map(id).collect::<Vec<_>>());
}

/// A batch may be long, and write the same job several times.
async fn applies_a_batch_in_its_order<S: JobStore>(store: &S) {
    let mut changed = pending(5, spec("a", 0, 1));
    let mut batch: Vec<Write> = (1..150)
        .map(|number| save_of(&pending(number, spec("a", 0, 1))))
        .collect();
    for second in 1..4 {
        changed.on_event(Event::KillRequested(AfterKill::KeepInHistory), seconds(second));
        changed.message = format!("write {second}");
        batch.insert(10 * second as usize, save_of(&changed));
    }
    batch.insert(100, Write::Remove(id(7)));
    batch.push(Write::Remove(id(8)));
    batch.push(save_of(&pending(8, spec("again", 0, 1))));
    store.save(&batch).await.expect("a batch can be saved");
    assert_eq!(get(store, &changed.id).await, Some(changed));
    assert_eq!(get(store, &id(7)).await, None);
    assert_eq!(get(store, &id(8)).await, Some(pending(8, spec("again", 0, 1))));
    let all = store.page(&request(200)).await.expect("pages can be read");
    assert_eq!(all.jobs.len(), 148);
}

async fn loads_active_jobs_in_submit_order<S: JobStore>(store: &S) {
    let mut late = pending(1, spec("late", 0, 1));
    late.order = 7;
    for job in [
        late,
        pending(2, spec("early", 0, 1)),
        a_final_job(3),
        a_rich_job(),
    ] {
        save(store, &job).await;
    }
    let active = store.load_active().await.expect("active jobs can be read");
    let orders: Vec<u64> = active.iter().map(|job| job.order).collect();
    assert_eq!(orders, [2, 7, u64::from(RICH)]);
}

async fn finds_the_latest_run<S: JobStore>(store: &S) {
    let mut theirs = pending(9, spec("a", 0, 1));
    theirs.user = user("bob");
    for job in [
        a_final_job(1),
        pending(2, spec("a", 0, 1)),
        pending(3, spec("b", 0, 1)),
        theirs,
    ] {
        save(store, &job).await;
    }
    let ada = user("ada");
    let latest = async |name: Option<&str>| {
        let name = name.map(job_name);
        let job = store
            .latest(&ada, name.as_ref())
            .await
            .expect("the latest can be read");
        job.map(|job| job.id.clone())
    };
    assert_eq!(latest(Some("a")).await, Some(id(2)));
    assert_eq!(latest(Some("over")).await, Some(id(1)));
    assert_eq!(latest(None).await, Some(id(3)));
    assert_eq!(latest(Some("none")).await, None);
}

async fn finds_finished_jobs_by_key<S: JobStore>(store: &S) {
    let key: IdempotencyKey = "once".parse().expect("a valid key");
    let mut over = a_final_job(1);
    over.key = Some(key.clone());
    save(store, &over).await;
    save(store, &pending(2, spec("b", 0, 1))).await;
    let find = async |name: &str| {
        store
            .find_by_key(&user(name), &key)
            .await
            .expect("keys can be read")
    };
    assert_eq!(find("ada").await, Some(id(1)));
    assert_eq!(find("bob").await, None, "a key is its user's own");
}

async fn pages_through_everything_once<S: JobStore>(store: &S) {
    let jobs = (0..25).map(|number| match number % 5 {
        0 => a_final_job(number),
        1 => Job {
            user: user("bob"),
            ..pending(number, spec("a", 0, 1))
        },
        _ => pending(number, spec(if number % 2 == 0 { "even" } else { "odd" }, 0, 1)),
    });
    let batch: Vec<Write> = jobs.map(|job| save_of(&job)).collect();
    store.save(&batch).await.expect("a batch can be saved");
    let all = walk(store, request(7)).await;
    assert_eq!(all, (0..25).rev().map(id).collect::<Vec<_>>());
    let bobs = walk(
        store,
        PageRequest {
            user: Some(user("bob")),
            ..request(2)
        },
    )
    .await;
    assert_eq!(bobs, [21, 16, 11, 6, 1].map(id));
    let even = PageRequest {
        user: Some(user("ada")),
        name: Some(job_name("even")),
        ..request(100)
    };
    assert_eq!(walk(store, even).await, [24, 22, 18, 14, 12, 8, 4, 2].map(id));
}

async fn pages_stay_in_place_while_jobs_come_in<S: JobStore>(store: &S) {
    for number in 0..4 {
        save(store, &pending(number, spec("a", 0, 1))).await;
    }
    let page = store.page(&request(2)).await.expect("pages can be read");
    assert_eq!((numbers(&page), page.more), (vec![id(3), id(2)], true));
    save(store, &pending(4, spec("a", 0, 1))).await;
    let next = PageRequest {
        before: Some(id(2)),
        ..request(2)
    };
    let page = store.page(&next).await.expect("pages can be read");
    assert_eq!((numbers(&page), page.more), (vec![id(1), id(0)], false));
}

async fn walk<S: JobStore>(store: &S, mut request: PageRequest) -> Vec<JobId> {
    let mut seen = Vec::new();
    loop {
        let page = store.page(&request).await.expect("pages can be read");
        assert!(
            page.jobs.len() <= request.limit,
            "a page is not longer than asked for"
        );
        seen.extend(numbers(&page));
        if !page.more {
            return seen;
        }
        request.before = seen.last().cloned();
    }
}

fn numbers(page: &Page) -> Vec<JobId> {
    page.jobs.iter().map(|job| job.id.clone()).collect()
}

fn request(limit: usize) -> PageRequest {
    PageRequest {
        user: None,
        name: None,
        before: None,
        limit,
    }
}

fn save_of(job: &Job) -> Write {
    Write::Save(Arc::new(job.clone()))
}

async fn save<S: JobStore>(store: &S, job: &Job) {
    store.save(&[save_of(job)]).await.expect("a job can be saved");
}

async fn get<S: JobStore>(store: &S, id: &JobId) -> Option<Job> {
    let job = store.get(id).await.expect("a job can be read");
    job.map(|job| Job::clone(&job))
}

/// The number of [`a_rich_job`].
const RICH: u32 = 50;

/// A running job with a value in every field.
fn a_rich_job() -> Job {
    let mut spec = spec("rich", 2, 2);
    spec.retries = 3;
    spec.envs
        .insert("TEXT".into(), "\"quoted\"\nand ünicode \u{1f600}".into());
    let mut job = running(RICH, spec);
    job.key = Some("key-1".parse().expect("a valid key"));
    job.note = Some("10 cores requested, 2 in total".into());
    let exit = Exit {
        clash: Some(Clash {
            port: 7164,
            by: Some("process 42".into()),
        }),
        message: Some("it said 'no'".into()),
        oom: true,
        log_end: u64::from(u32::MAX) * 1000,
        ..Exit::by_signal(9)
    };
    job.on_event(first(WorkerKey::trainer(1), News::Exited(exit)), seconds(3));
    job
}

fn a_final_job(number: u32) -> Job {
    let mut job = pending(number, spec("over", 0, 1));
    job.on_event(Event::KillRequested(AfterKill::KeepInHistory), seconds(5));
    assert!(
        job.phase.is_final(),
        "a pending job that is killed is final at once"
    );
    job
}
