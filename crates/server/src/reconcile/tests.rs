//! The loop with a clock that the test sets and a store that refuses writes on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use paddlecloud_accounts::users::{Account, AccountTable, Users};
use paddlecloud_core::conductor::{NameOrigin, Write};
use paddlecloud_core::job::{IdempotencyKey, Job, Outcome, Phase, WorkerKey};
use paddlecloud_core::names::{JobName, JobRef};
use paddlecloud_core::ports::Page;
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{Node, Policy, Reason, StorageExcess};
use paddlecloud_core::testing::engine_suite::Program;
use paddlecloud_core::testing::{MemoryLogs, PretendEngine, PretendMachine, PretendRuns, UNPREPARED};
use paddlecloud_store::DatabaseUrl;

use super::*;

const DAY: i64 = 24 * 60 * 60;

/// A store that refuses the next saves, as on a full disk.
#[derive(Clone)]
struct Refusing {
    store: Store,
    left: Arc<AtomicUsize>,
}

impl JobStore for Refusing {
    async fn save(&self, writes: &[Write]) -> Result<(), StoreError> {
        let refuses = |left: usize| left.checked_sub(1);
        match self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuses)
        {
            Ok(_) => Err(StoreError::Write("no space left on device".into())),
            Err(_) => self.store.save(writes).await,
        }
    }

    async fn load_active(&self) -> Result<Vec<Job>, StoreError> {
        self.store.load_active().await
    }

    async fn get(&self, job: &JobId) -> Result<Option<Arc<Job>>, StoreError> {
        self.store.get(job).await
    }

    async fn latest(&self, user: &UserName, name: Option<&JobName>) -> Result<Option<Arc<Job>>, StoreError> {
        self.store.latest(user, name).await
    }

    async fn find_by_key(&self, user: &UserName, key: &IdempotencyKey) -> Result<Option<JobId>, StoreError> {
        self.store.find_by_key(user, key).await
    }

    async fn page(&self, request: &PageRequest) -> Result<Page, StoreError> {
        self.store.page(request).await
    }
}

/// A loop with a fake engine, and controls for its clock and store.
struct Stage {
    jobs: Jobs,
    engine: PretendEngine,
    runs: PretendRuns,
    refused: Arc<AtomicUsize>,
    reconciler: Reconciler,
    set: Arc<AtomicI64>,
    accounts: Arc<AccountTable>,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&DatabaseUrl::sqlite_file(&folder.path().join("jobs.db")))
            .await
            .unwrap();
        let set = Arc::new(AtomicI64::new(0));
        let hand = Arc::clone(&set);
        let node = Node {
            name: "here".into(),
            cpu: Cpu::cores(4),
            memory: Bytes::new(1 << 40),
            gpus: 0,
            taken: Default::default(),
            traits: Default::default(),
        };
        let engine = PretendMachine::default().with_nodes(vec![node]).engine();
        let keeps = Refusing {
            store: store.clone(),
            left: Arc::default(),
        };
        let refused = Arc::clone(&keeps.left);
        let runs = PretendRuns::default();
        let parts = Parts {
            store,
            engine: engine.clone(),
            runs: Arc::new(runs.clone()),
            logs: Arc::new(MemoryLogs::default()),
            secrets: Arc::new(paddlecloud_core::ports::NoSecrets),
            clock: Clock::new(move || {
                Timestamp::now() + SignedDuration::from_secs(hand.load(Ordering::SeqCst))
            }),
        };
        let accounts = Arc::new(AccountTable::default());
        let sharing = Sharing::new(Policy::default(), Users::new(Arc::clone(&accounts)));
        let (jobs, reconciler) = start_with(parts, keeps, sharing, Vec::new()).await.unwrap();
        Stage {
            jobs,
            engine,
            runs,
            refused,
            reconciler,
            set,
            accounts,
            _folder: folder,
        }
    }

    /// Sets the clock to this many seconds from the machine's own.
    fn set_clock(&self, seconds: i64) {
        self.set.store(seconds, Ordering::SeqCst);
    }

    async fn submit(&self, name: &str) -> Arc<Job> {
        self.submit_of(name, &Program::Serves.command()).await
    }

    async fn submit_of(&self, name: &str, entry: &str) -> Arc<Job> {
        self.try_submit(name, entry).await.unwrap()
    }

    async fn try_submit(&self, name: &str, entry: &str) -> Result<Arc<Job>, JobsError> {
        let mut spec = paddlecloud_core::testing::samples::spec(name, 0, 1);
        spec.entry = entry.into();
        spec.max_runtime = Some(SignedDuration::from_hours(1));
        let asked = NewJob {
            user: "ada".parse().unwrap(),
            spec,
            name: NameOrigin::Request,
            key: None,
        };
        Ok(self.jobs.submit(asked).await?.job)
    }

    async fn wait_until_nothing_runs(&self) {
        let stopped = async {
            while self.engine.state().await.unwrap().attempts.iter().any(is_live) {
                tokio::task::yield_now().await;
            }
        };
        let stopped = tokio::time::timeout(Duration::from_secs(60), stopped).await;
        stopped.expect("the workers end");
    }

    /// Sets ada's limit of concurrent trainers and waits until the loop knows it.
    async fn wait_until_allowed(&self, trainers: u32) {
        let ada: UserName = "ada".parse().unwrap();
        let mut account = Account::new(ada.clone());
        account.quota.parallelism = Some(trainers);
        self.accounts.put(account);
        let known = async { while self.jobs.usage(&ada).await.quota.parallelism != Some(trainers) {} };
        tokio::time::timeout(Duration::from_secs(60), known)
            .await
            .expect("within the limit");
    }

    async fn wait_until_it_runs(&self, job: &Job) {
        let mut changes = self.jobs.watch(&job.id).expect("a job that is not final");
        let running = changes.wait_for(|job| job.phase == Phase::Running);
        tokio::time::timeout(Duration::from_secs(60), running)
            .await
            .expect("within the limit")
            .unwrap();
    }

    async fn wait_until_its_run_is_gone(&self, job: &Job) {
        let started_at = std::time::Instant::now();
        while self.runs.prepared(&job.id).is_some() {
            assert!(
                started_at.elapsed() < Duration::from_secs(60),
                "its folders are left"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) {
        for job in self.jobs.active() {
            let target = JobRef::Id(job.id.clone());
            self.jobs
                .kill(&job.user, target, AfterKill::KeepInHistory)
                .await
                .unwrap();
            self.jobs.wait_final(&job.id).await;
        }
        drop(self.jobs);
        self.reconciler.ended().await;
    }
}

fn is_live(report: &Report) -> bool {
    !matches!(report.news, News::Exited(_) | News::Lost(_))
}

#[tokio::test]
async fn a_clock_that_jumps_ends_no_job_and_keeps_the_order_of_runs() {
    let stage = Stage::new().await;
    let first = stage.submit("first").await;
    stage.wait_until_it_runs(&first).await;
    let mut before = first;
    for (step, clock) in [400 * DAY, -400 * DAY, 0].into_iter().enumerate() {
        stage.set_clock(clock);
        // If the loop took the clock at face value, it would end a job that seems to have run for a year.
        let next = stage.submit(&format!("next-{step}")).await;
        assert!(next.id > before.id, "runs keep their order");
        stage.wait_until_it_runs(&next).await;
        before = next;
    }
    let running = stage.jobs.active();
    assert_eq!(running.len(), 4, "{running:#?}");
    assert!(running.iter().all(|job| job.phase == Phase::Running));
    stage.end().await;
}

#[tokio::test]
async fn a_larger_quota_starts_the_job_that_waited_for_it() {
    let stage = Stage::new().await;
    stage.wait_until_allowed(1).await;
    let first = stage.submit("first").await;
    stage.wait_until_it_runs(&first).await;
    let second = stage.submit("second").await;
    let why = stage.jobs.explain(&second.id).await.unwrap();
    assert!(format!("{:?}", why.reason).contains("Quota"), "{:?}", why.reason);
    stage.wait_until_allowed(2).await;
    stage.wait_until_it_runs(&second).await;
    stage.end().await;
}

#[tokio::test]
async fn the_engine_says_what_hinders_a_job() {
    let stage = Stage::new().await;
    let job = stage.submit("hindered").await;
    assert_eq!(stage.jobs.obstacles(&job.id), [""; 0]);
    stage.engine.hinder("node `n1` does not answer");
    assert_eq!(stage.jobs.obstacles(&job.id), ["node `n1` does not answer"]);
    stage.end().await;
}

#[tokio::test]
async fn a_refused_write_is_reported_and_ends_no_job() {
    let stage = Stage::new().await;
    let job = stage.submit("goes-on").await;
    stage.wait_until_it_runs(&job).await;
    let mut changes = stage.jobs.watch(&job.id).unwrap();
    stage.refused.store(1, Ordering::SeqCst);
    let error = stage.try_submit("refused", "true").await.unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error:?}");
    let next = stage.submit("next").await;
    stage.wait_until_it_runs(&next).await;
    assert_eq!(changes.borrow_and_update().phase, Phase::Running);
    stage.end().await;
}

/// The disk stays full until the job that fills it is stopped.
#[tokio::test]
async fn a_job_is_stopped_while_the_store_refuses_and_the_kill_is_recorded_when_it_accepts() {
    let stage = Stage::new().await;
    let job = stage.submit("fills-the-disk").await;
    stage.wait_until_it_runs(&job).await;
    let mut changes = stage.jobs.watch(&job.id).unwrap();
    stage.refused.store(usize::MAX, Ordering::SeqCst);
    // The first kill finds that the store refuses; the second arrives during the retries.
    for _ in 0..2 {
        let target = JobRef::Id(job.id.clone());
        let killed = stage
            .jobs
            .kill(&job.user, target, AfterKill::KeepInHistory)
            .await
            .unwrap();
        assert_eq!(killed.effect, KillEffect::Stops { workers: 1 });
        assert!(killed.note.unwrap().contains("recorded when"));
    }
    stage.try_submit("refused", "true").await.unwrap_err();
    stage.wait_until_nothing_runs().await;
    assert_eq!(
        changes.borrow_and_update().phase,
        Phase::Running,
        "nothing is stored"
    );

    stage.refused.store(0, Ordering::SeqCst);
    let end = changes.wait_for(|job| job.phase.is_final());
    let end = tokio::time::timeout(Duration::from_secs(60), end).await;
    let end = end.expect("within the limit").unwrap().clone();
    assert_eq!(end.phase, Phase::Final(Outcome::Killed), "{}", end.message);
    stage.end().await;
}

#[tokio::test]
async fn a_job_above_the_storage_quota_is_stopped_on_a_full_disk_and_the_next_still_waits() {
    let stage = Stage::new().await;
    let job = stage.submit("writes").await;
    stage.wait_until_it_runs(&job).await;
    stage.refused.store(usize::MAX, Ordering::SeqCst);
    let excess = StorageExcess::Bytes { used: 11, limit: 10 };
    let hold = StorageHold::Over(excess.clone());
    // The store's refusal is the caller's concern; the scheduler that replaces this one knows of the hold anyway.
    let _ = stage.jobs.hold_for_storage(&job.user, Some(hold.clone())).await;
    stage.jobs.storage_exceeded(&job.id, excess).await.unwrap();
    stage.wait_until_nothing_runs().await;

    stage.refused.store(0, Ordering::SeqCst);
    let ended = stage.jobs.wait_final(&job.id);
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
    ended.expect("within the limit");
    let next = stage.submit("waits").await;
    let why = stage.jobs.explain(&next.id).await.unwrap();
    assert_eq!(why.reason, Reason::Storage(hold));
    stage.jobs.hold_for_storage(&job.user, None).await.unwrap();
    stage.wait_until_it_runs(&next).await;
    stage.end().await;
}

#[tokio::test]
async fn a_job_that_is_over_is_removed_while_the_store_refuses_and_leaves_the_history_later() {
    let stage = Stage::new().await;
    let job = stage.submit("over").await;
    stage.wait_until_it_runs(&job).await;
    let target = || JobRef::Id(job.id.clone());
    stage
        .jobs
        .kill(&job.user, target(), AfterKill::KeepInHistory)
        .await
        .unwrap();
    stage.jobs.wait_final(&job.id).await;
    stage.refused.store(usize::MAX, Ordering::SeqCst);
    let removed = stage
        .jobs
        .kill(&job.user, target(), AfterKill::Remove)
        .await
        .unwrap();
    assert!(removed.removed && removed.note.is_some(), "{removed:?}");
    assert!(stage.jobs.get_any(&job.id).await.unwrap().is_some());
    stage.refused.store(0, Ordering::SeqCst);
    let gone = async {
        while stage.jobs.get_any(&job.id).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(60), gone).await;
    gone.expect("it leaves the history");
    stage.end().await;
}

#[tokio::test]
async fn the_loop_ends_with_its_last_handle_even_if_the_store_refuses() {
    let stage = Stage::new().await;
    let job = stage.submit("left").await;
    stage.wait_until_it_runs(&job).await;
    stage.refused.store(usize::MAX, Ordering::SeqCst);
    let target = JobRef::Id(job.id.clone());
    stage
        .jobs
        .kill(&job.user, target, AfterKill::KeepInHistory)
        .await
        .unwrap();
    drop(stage.jobs);
    let ended = tokio::time::timeout(Duration::from_secs(60), stage.reconciler.ended()).await;
    ended.expect("a full disk does not hold a stop up");
}

#[tokio::test]
async fn a_watcher_sees_the_end_of_a_job_across_a_loop_restart() {
    let stage = Stage::new().await;
    let job = stage.submit("ends").await;
    stage.wait_until_it_runs(&job).await;
    let mut changes = stage.jobs.watch(&job.id).unwrap();
    stage.refused.store(1, Ordering::SeqCst);
    let attempt = AttemptKey {
        job: job.id.clone(),
        worker: WorkerKey::trainer(0),
        attempt: 1,
    };
    stage.engine.stop(&attempt, SignedDuration::ZERO).await;
    let end = changes.wait_for(|job| job.phase.is_final());
    let end = tokio::time::timeout(Duration::from_secs(60), end).await;
    assert!(end.expect("within the limit").is_ok(), "the last word is the end");
    assert!(
        stage
            .jobs
            .get_any(&job.id)
            .await
            .unwrap()
            .unwrap()
            .phase
            .is_final()
    );
    stage.end().await;
}

#[tokio::test]
async fn a_run_is_prepared_before_its_worker_starts_and_removed_with_its_job() {
    let stage = Stage::new().await;
    let job = stage.submit("tidy").await;
    stage.wait_until_it_runs(&job).await;
    assert_eq!(stage.runs.prepared(&job.id), Some(1));
    let target = JobRef::Id(job.id.clone());
    stage
        .jobs
        .kill(&job.user, target, AfterKill::Remove)
        .await
        .unwrap();
    stage.wait_until_its_run_is_gone(&job).await;
    stage.end().await;
}

#[tokio::test]
async fn a_run_that_cannot_be_prepared_fails_its_job_with_the_reason() {
    let stage = Stage::new().await;
    let job = stage.submit_of("unprepared", UNPREPARED).await;
    let ended = stage.jobs.wait_final(&job.id);
    tokio::time::timeout(Duration::from_secs(60), ended)
        .await
        .expect("within the limit");
    let job = stage.jobs.get_any(&job.id).await.unwrap().unwrap();
    assert!(job.phase.is_final());
    assert!(job.message.contains("cannot be prepared"), "{}", job.message);
    stage.end().await;
}
