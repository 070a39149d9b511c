//! The loop with a clock that a test sets and a store that refuses when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use paddlecloud_core::conductor::Write;
use paddlecloud_core::job::{IdempotencyKey, Job, Phase, WorkerKey};
use paddlecloud_core::names::{JobName, JobRef};
use paddlecloud_core::ports::Page;
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{Inventory, Node, Policy};
use paddlecloud_core::testing::engine_suite::Program;
use paddlecloud_core::testing::{PretendEngine, PretendMachine};

use super::*;
use crate::config::DatabaseUrl;

const DAY: i64 = 24 * 60 * 60;

/// A store whose next so many saves are refused, as on a full disk.
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

/// A loop on a pretended machine, and the hands that set its clock and stop its store.
struct Stage {
    jobs: Jobs,
    engine: PretendEngine,
    refused: Arc<AtomicUsize>,
    reconciler: Reconciler,
    set: Arc<AtomicI64>,
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
        let engine = PretendMachine::default().engine();
        let keeps = Refusing {
            store: store.clone(),
            left: Arc::default(),
        };
        let refused = Arc::clone(&keeps.left);
        let parts = Parts {
            store,
            engine: engine.clone(),
            clock: Clock::new(move || {
                Timestamp::now() + SignedDuration::from_secs(hand.load(Ordering::SeqCst))
            }),
        };
        let node = Node {
            name: "here".into(),
            cpu: Cpu::cores(4),
            memory: Bytes::new(1 << 40),
            gpus: 0,
        };
        let sharing = Sharing {
            seed: 1,
            inventory: Inventory { nodes: vec![node] },
            policy: Policy::default(),
            quotas: Vec::new(),
        };
        let (jobs, reconciler) = start_with(parts, keeps, sharing, Vec::new()).await.unwrap();
        Stage {
            jobs,
            engine,
            refused,
            reconciler,
            set,
            _folder: folder,
        }
    }

    /// Sets the clock, this many seconds from the machine's own.
    fn set_clock(&self, seconds: i64) {
        self.set.store(seconds, Ordering::SeqCst);
    }

    async fn submit(&self, name: &str) -> Arc<Job> {
        let mut spec = paddlecloud_core::testing::samples::spec(name, 0, 1);
        spec.entry = Program::Serves.command();
        spec.max_runtime = Some(SignedDuration::from_hours(1));
        let asked = Submission {
            user: "ada".parse().unwrap(),
            spec,
            key: None,
        };
        self.jobs.submit(asked).await.unwrap().job
    }

    async fn wait_until_it_runs(&self, job: &Job) {
        let mut changes = self.jobs.watch(&job.id).expect("a job that is not final");
        let running = changes.wait_for(|job| job.phase == Phase::Running);
        tokio::time::timeout(Duration::from_secs(60), running)
            .await
            .expect("within the limit")
            .unwrap();
    }

    async fn end(self) {
        for job in self.jobs.active() {
            let target = JobRef::Id(job.id.clone());
            self.jobs.kill(&job.user, target, false).await.unwrap();
            self.jobs.wait_final(&job.id).await;
        }
        drop(self.jobs);
        self.reconciler.ended().await;
    }
}

#[tokio::test]
async fn a_clock_that_jumps_ends_no_job_and_keeps_the_order_of_runs() {
    let stage = Stage::new().await;
    let first = stage.submit("first").await;
    stage.wait_until_it_runs(&first).await;
    let mut before = first;
    for (step, clock) in [400 * DAY, -400 * DAY, 0].into_iter().enumerate() {
        stage.set_clock(clock);
        // Whatever makes the loop look at the time would end a job that seems to have run for a year.
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
async fn a_refused_write_is_told_and_ends_no_job() {
    let stage = Stage::new().await;
    let job = stage.submit("goes-on").await;
    stage.wait_until_it_runs(&job).await;
    let mut changes = stage.jobs.watch(&job.id).unwrap();
    stage.refused.store(2, Ordering::SeqCst);
    let target = JobRef::Id(job.id.clone());
    let told = stage.jobs.kill(&job.user, target, false).await.unwrap_err();
    assert!(told.msg.contains("no space left"), "{told:?}");
    let next = stage.submit("next").await;
    stage.wait_until_it_runs(&next).await;
    assert_eq!(changes.borrow_and_update().phase, Phase::Running);
    stage.end().await;
}

#[tokio::test]
async fn who_watches_a_job_that_ends_while_the_loop_starts_over_learns_its_end() {
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
