//! Making a conductor from what is stored and what the engine still has. Also how the first one is made,
//! when there is nothing yet.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::job::{FoundAttempt, Job, Phase};
use crate::names::JobId;
use crate::ports::EngineState;
use crate::scheduler::{Request, Scheduler};
use crate::testing::planted::{Planted, bug};

use super::batch::Batch;
use super::deadlines::Deadlines;
use super::tables::{Keys, Names};
use super::{Addresses, Conductor, Output};

impl Conductor {
    /// Takes up all jobs of the store that are not final. The output is to be treated like any other.
    ///
    /// The scheduler is fresh: machines, policy and quotas, but no jobs.
    pub fn restore(
        scheduler: Scheduler,
        addresses: Box<dyn Addresses>,
        mut jobs: Vec<Job>,
        engine: EngineState,
        now: Timestamp,
    ) -> (Conductor, Output) {
        jobs.retain(|job| !job.phase.is_final());
        jobs.sort_by_key(|job| job.order);
        let mut conductor = Conductor {
            jobs: HashMap::with_capacity(jobs.len()),
            names: Names::default(),
            keys: Keys::default(),
            deadlines: Deadlines::default(),
            scheduler,
            addresses,
            next_order: jobs.last().map_or(0, |job| job.order + 1),
            latest_now: now,
        };
        let mut batch = Batch::default();
        let mut order = Vec::with_capacity(jobs.len());
        for job in jobs {
            order.push(job.id.clone());
            conductor.take_up(job, now);
        }
        let mut found = conductor.sort_out(&engine, &mut batch);
        for id in &order {
            let attempts = found.remove(id).unwrap_or_default();
            conductor.change(id, now, &mut batch, |job| job.resume(attempts, engine.boot, now));
        }
        conductor.tick_all(&order, now, &mut batch);
        conductor.admit(now, &mut batch);
        let output = conductor.close(batch);
        (conductor, output)
    }

    fn take_up(&mut self, job: Job, now: Timestamp) {
        let request = Request::of(&job.spec, job.id.clone(), job.user.clone(), job.order);
        match (&job.placement, job.phase) {
            (_, Phase::Pending) | (None, _) => self.scheduler.enqueue(request, now),
            (Some(_), _) if bug(Planted::AdoptedTakeNoRoom) => {}
            (Some(placement), _) => {
                let since = job.admitted_at.unwrap_or(job.submitted_at);
                self.scheduler.occupy(request, placement.clone(), since);
            }
        }
        for worker in &job.workers {
            self.addresses.keep(&worker.address);
        }
        self.index(&job);
        self.jobs.insert(job.id.clone(), Arc::new(job));
    }

    /// The engine's attempts by job. Those of jobs that are final or removed are only in the way.
    fn sort_out(&self, engine: &EngineState, batch: &mut Batch) -> HashMap<JobId, Vec<FoundAttempt>> {
        let mut found: HashMap<JobId, Vec<FoundAttempt>> = HashMap::new();
        for report in &engine.attempts {
            let attempt = &report.attempt;
            if !self.jobs.contains_key(&attempt.job) {
                batch.clean_stray(attempt.clone());
                continue;
            }
            let one = FoundAttempt {
                worker: attempt.worker,
                attempt: attempt.attempt,
                news: report.news.clone(),
            };
            found.entry(attempt.job.clone()).or_default().push(one);
        }
        found
    }

    /// The clock may have been set while the server was away.
    fn tick_all(&mut self, order: &[JobId], now: Timestamp, batch: &mut Batch) {
        for id in order {
            self.change(id, now, batch, |job| job.on_event(crate::job::Event::Tick, now));
        }
    }
}
