//! The loop with a clock that a test sets: limits count time that passed, whatever the clock says of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};
use paddlecloud_core::job::{Job, Phase};
use paddlecloud_core::names::JobRef;
use paddlecloud_core::quantity::{Bytes, Cpu};
use paddlecloud_core::scheduler::{Inventory, Node, Policy};
use paddlecloud_core::testing::PretendMachine;
use paddlecloud_core::testing::engine_suite::Program;

use super::*;
use crate::config::DatabaseUrl;

const DAY: i64 = 24 * 60 * 60;

/// A loop on a pretended machine, and the hand that sets its clock.
struct Stage {
    jobs: Jobs,
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
        let parts = Parts {
            store,
            engine: PretendMachine::default().engine(),
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
        let (jobs, reconciler) = start(parts, sharing, Vec::new()).await.unwrap();
        Stage {
            jobs,
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
