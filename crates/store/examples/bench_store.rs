//! How fast the store is on this machine: durable submits and pages of a long history. Asserts nothing.
//!
//! `cargo run --release -p paddlecloud-store --example bench_store [folder]`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use paddlecloud_core::conductor::Write;
use paddlecloud_core::job::{AfterKill, Event, Job};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::{JobStore, PageRequest};
use paddlecloud_core::spec::JobSpec;
use paddlecloud_store::{DatabaseUrl, Store};

const HISTORY: u32 = 100_000;
const SUBMITS: u32 = 20_000;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(folder).expect("the folder can be written to");
    let url = DatabaseUrl::sqlite_file(&folder.path().join("bench.db"));
    let store = Store::open(&url).await.expect("a new database opens");
    for callers in [1, 16, 256] {
        submits(&store, callers).await;
    }
    fill(&store).await;
    pages(&store).await;
    store.close().await;
}

fn job(number: u32) -> Job {
    let mut spec = JobSpec::new(format!("job-{}", number % 1000).parse().expect("a plain name"));
    spec.package = Some("/pfs/local/home/me/package".into());
    let id = JobId::new(1_700_000_000_000 + u64::from(number), number);
    let user = "me".parse().expect("a plain name");
    Job::new(
        id,
        user,
        Arc::new(spec),
        None,
        u64::from(number),
        Timestamp::now(),
    )
}

async fn submits(store: &Store, callers: u32) {
    let before = store.counts();
    let count = SUBMITS.min(callers * 1000) / callers;
    let start = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0..count {
                    let job = Arc::new(job(HISTORY + callers * 1_000_000 + caller * count + number));
                    store.save(&[Write::Save(job)]).await.expect("the store writes");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no caller panics");
    }
    let (time, commits) = (start.elapsed(), store.counts().commits - before.commits);
    let rate = f64::from(callers * count) / time.as_secs_f64();
    println!("{callers:>4} callers: {rate:>8.0} durable submits/s in {commits} commits");
}

async fn fill(store: &Store) {
    let now = Timestamp::now();
    for first in (0..HISTORY).step_by(1000) {
        let jobs = (first..first + 1000).map(|number| {
            let mut job = job(number);
            job.on_event(Event::KillRequested(AfterKill::KeepInHistory), now);
            Write::Save(Arc::new(job))
        });
        store
            .save(&jobs.collect::<Vec<_>>())
            .await
            .expect("the store writes");
    }
}

async fn pages(store: &Store) {
    let mut request = PageRequest {
        user: Some("me".parse().expect("a plain name")),
        name: None,
        before: None,
        limit: 100,
    };
    let mut slowest = Duration::ZERO;
    let mut count = 0;
    loop {
        let start = Instant::now();
        let page = store.page(&request).await.expect("the store reads");
        slowest = slowest.max(start.elapsed());
        count += page.jobs.len();
        request.before = page.jobs.last().map(|job| job.id.clone());
        if !page.more {
            break;
        }
    }
    println!(
        "{count} jobs in pages of 100: slowest page {:.1} ms",
        slowest.as_secs_f64() * 1e3
    );
}
