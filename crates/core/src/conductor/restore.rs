//! Creates a conductor from the stored jobs and the engine's state. Also creates the first conductor of a new server,
//! from an empty store.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::job::{Event, FoundAttempt, Job, Phase};
use crate::names::JobId;
use crate::planted::{Planted, bug};
use crate::ports::EngineState;
use crate::scheduler::{Request, Scheduler};

use super::batch::Batch;
use super::deadlines::Deadlines;
use super::recovery::Incomplete;
use super::tables::{Keys, Names};
use super::{Addresses, Conductor, Output, Unrecorded};

impl Conductor {
    /// Restores all unfinished jobs of the store. The output must be handled like any other.
    ///
    /// The scheduler must be new: machines, policy and quotas, but no jobs. Orders that were carried out before they
    /// could be stored are stored with this output.
    pub fn restore(
        scheduler: Scheduler,
        addresses: Box<dyn Addresses>,
        mut jobs: Vec<Job>,
        engine: EngineState,
        unrecorded: &Unrecorded,
        now: Timestamp,
    ) -> (Conductor, Output) {
        jobs.retain(|job| !job.phase.is_final());
        jobs.sort_by_key(|job| job.order);
        let mut conductor = Conductor {
            jobs: HashMap::with_capacity(jobs.len()),
            names: Names::default(),
            keys: Keys::default(),
            deadlines: Deadlines::default(),
            incomplete: Incomplete::default(),
            engine_usable: true,
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
        // Before the engine's reports: workers that ended since then were killed, they did not fail.
        conductor.record(unrecorded, now, &mut batch);
        let mut found = conductor.sort_out(&engine, &mut batch);
        for id in &admitted {
            let attempts = found.remove(id).unwrap_or_default();
            conductor.change(id, now, &mut batch, |job| job.resume(attempts, engine.boot, now));
            // The clock may have been changed while the server was down.
            conductor.change(id, now, &mut batch, |job| job.on_event(Event::Tick, now));
        }
        conductor.admit(now, &mut batch);
        conductor.reclaim(now, &mut batch);
        conductor.recover(now, &mut batch);
        let output = conductor.close(batch);
        (conductor, output)
    }

    /// Applies orders that were already carried out. A job that no longer exists needs no record.
    fn record(&mut self, unrecorded: &Unrecorded, now: Timestamp, batch: &mut Batch) {
        if bug(Planted::UnrecordedKillForgotten) {
            return;
        }
        for (id, after) in &unrecorded.kills {
            let _ = self.kill(id.clone(), *after, now, batch);
        }
        for id in &unrecorded.removals {
            let _ = self.remove(id.clone(), batch);
        }
    }

    fn take_up(&mut self, job: Job, now: Timestamp) {
        let request = Request::of(&job.spec, job.id.clone(), job.user.clone(), job.order);
        match (&job.placement, job.phase) {
            (_, Phase::Pending) | (None, _) => self.scheduler.enqueue(request, job.changed_at),
            (Some(_), _) if bug(Planted::AdoptedTakeNoRoom) => {}
            (Some(placement), _) => {
                let since = job.admitted_at.unwrap_or(job.submitted_at);
                self.scheduler.occupy(request, placement.clone(), since);
                if job.phase == Phase::Withdrawing {
                    self.scheduler.leave(&job.id, now);
                }
            }
        }
        for worker in &job.workers {
            self.addresses.keep(&worker.address);
        }
        self.index(&job);
        self.jobs.insert(job.id.clone(), Arc::new(job));
    }

    /// The engine's attempts by job. Attempts of jobs that are queued, final or removed are leftovers.
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
