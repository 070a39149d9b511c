//! Making a conductor from what is stored and what the engine still has. Also how the first one is made,
//! when there is nothing yet.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::job::{Event, FoundAttempt, Job, Phase};
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
            clock_set: None,
        };
        let mut batch = Batch::default();
        let mut admitted = Vec::new();
        for job in jobs {
            if job.phase.occupies() {
                admitted.push(job.id.clone());
            }
            conductor.take_up(job, now);
        }
        let mut found = conductor.sort_out(&engine, &mut batch);
        for id in &admitted {
            let attempts = found.remove(id).unwrap_or_default();
            conductor.change(id, now, &mut batch, |job| job.resume(attempts, engine.boot, now));
            // The clock may have been set while the server was away.
            conductor.change(id, now, &mut batch, |job| job.on_event(Event::Tick, now));
        }
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

    /// The engine's attempts by job. Those of jobs that wait, are final or were removed are only in the way.
    fn sort_out(&self, engine: &EngineState, batch: &mut Batch) -> HashMap<JobId, Vec<FoundAttempt>> {
        let mut found: HashMap<JobId, Vec<FoundAttempt>> = HashMap::new();
        for report in &engine.attempts {
            let attempt = &report.attempt;
            let admitted = self
                .jobs
                .get(&attempt.job)
                .is_some_and(|job| job.phase.occupies());
            if !admitted {
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
}
