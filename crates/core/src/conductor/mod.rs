//! The conductor: owns every job that is not final and is the only one that changes jobs.
//!
//! Inputs go in, an [`Output`] comes out. Whoever calls it keeps this order, on which everything rests:
//!
//! 1. make **all** `writes` durable, in one step;
//! 2. then carry out the `commands`, those about one worker in the order given;
//! 3. then send the `replies`.
//!
//! If the writes cannot be made durable, nothing of the output may be used: throw this conductor away
//! and [`Conductor::restore`] a new one from the store and the engine. It does no I/O, knows no clock,
//! and an input costs the same however many jobs are queued.

mod addresses;
mod batch;
mod deadlines;
mod restore;
mod tables;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::job::{Action, AfterKill, Event, IdempotencyKey, Job, Phase};
use crate::names::{JobId, JobName, UserName};
use crate::ports::{EngineCommand, Report};
use crate::scheduler::{Inventory, Quota, Request, Scheduler, TooBig, Usage, Why};
use crate::spec::JobSpec;
use crate::testing::planted::{Planted, bug};

pub use addresses::{Addresses, Hostnames, Loopback};
use batch::Batch;
use deadlines::Deadlines;
use tables::{Keys, Names};

/// How far the clock may go back before every running job is told the time again.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(1);

/// A job somebody wants to run.
#[derive(Debug, Clone)]
pub struct Submission {
    /// A fresh id; the caller has the clock and the randomness.
    pub id: JobId,
    pub user: UserName,
    pub spec: Arc<JobSpec>,
    /// The caller has looked for this key in the store ([`crate::ports::JobStore::find_by_key`]); jobs that
    /// are not final, and those that ended lately, are found here too.
    pub key: Option<IdempotencyKey>,
}

/// What the conductor is told.
#[derive(Debug, Clone)]
pub enum Input {
    Submit(Submission),
    Kill {
        job: JobId,
        after: AfterKill,
    },
    /// Remove a final job from the history.
    Remove {
        job: JobId,
    },
    Report(Report),
    /// Time has passed; see [`Output::wake_at`].
    Tick,
    QuotaChanged {
        user: UserName,
        quota: Quota,
    },
    InventoryChanged(Inventory),
}

/// What the conductor answers when it did what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The job is stored and will run.
    Accepted(JobId),
    /// The key is known: this job was made by it before.
    AlreadyAccepted(JobId),
    /// The workers are being ended.
    Killing(JobId),
    Removed(JobId),
    Noted,
}

/// Why the conductor did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the name `{name}` is taken by {holder}, which is not over yet")]
    NameTaken {
        name: JobName,
        holder: JobId,
        /// A name that is free now.
        free: JobName,
    },
    #[error(transparent)]
    TooBig(#[from] TooBig),
    /// Choose another id and submit again.
    #[error("the id {0} is in use")]
    IdTaken(JobId),
    /// It is over, or there never was one: the store knows.
    #[error("{0} does not run")]
    NotActive(JobId),
    #[error("{0} is not over yet")]
    StillActive(JobId),
}

/// A change of the store.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Insert the job or replace the record with the same id.
    Save(Arc<Job>),
    Remove(JobId),
}

/// What must be done, in the order of the fields.
#[derive(Debug, Default)]
pub struct Output {
    /// At most one per job.
    pub writes: Vec<Write>,
    pub commands: Vec<EngineCommand>,
    /// One per input, in their order.
    pub replies: Vec<Result<Reply, Refusal>>,
    /// When [`Input::Tick`] is next due. Earlier and later are harmless.
    pub wake_at: Option<Timestamp>,
}

/// See the module.
pub struct Conductor {
    jobs: HashMap<JobId, Arc<Job>>,
    names: Names,
    keys: Keys,
    deadlines: Deadlines,
    scheduler: Scheduler,
    addresses: Box<dyn Addresses>,
    next_order: u64,
    latest_now: Timestamp,
    /// How far the clock was set since the latest `now`.
    clock_set: Option<SignedDuration>,
}

impl Conductor {
    /// Takes in everything that happened, decides who may start, and says what must be done.
    ///
    /// Who notices that the clock jumped says so first ([`Conductor::clock_was_set`]); a jump that nobody noticed
    /// costs at most wrong times and limits that pass early or late.
    pub fn handle(&mut self, inputs: impl IntoIterator<Item = Input>, now: Timestamp) -> Output {
        let mut batch = Batch::default();
        self.follow_the_clock(now, &mut batch);
        self.notice_a_clock_set_back(now, &mut batch);
        for input in inputs {
            let reply = self.one(input, now, &mut batch);
            batch.replies.push(reply);
        }
        self.admit(now, &mut batch);
        self.close(batch)
    }

    /// The machine's clock was set by this much. From the next `now` on, limits count as if it had not been.
    pub fn clock_was_set(&mut self, by: SignedDuration) {
        let before = self.clock_set.unwrap_or_default();
        self.clock_set = Some(before.checked_add(by).unwrap_or(by));
    }

    /// A job that is not final.
    pub fn job(&self, id: &JobId) -> Option<&Arc<Job>> {
        self.jobs.get(id)
    }

    /// All jobs that are not final, in no order.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    /// Runs of this name that are not final, the latest last: one, and those before it that still end.
    pub fn runs(&self, user: &UserName, name: &JobName) -> impl Iterator<Item = &Arc<Job>> {
        self.names
            .runs(user, name)
            .iter()
            .filter_map(|id| self.jobs.get(id))
    }

    /// Why a pending job waits.
    pub fn why(&self, id: &JobId, now: Timestamp) -> Option<Why> {
        self.scheduler.explain(id, now)
    }

    /// Whether a submit would be accepted now: its name is free, and its size can ever be admitted here.
    ///
    /// Gives what its owner should know: that it would run alone.
    pub fn check(&self, asked: &Submission) -> Result<Option<String>, Refusal> {
        self.check_name(asked)?;
        let request = Request::of(&asked.spec, asked.id.clone(), asked.user.clone(), self.next_order);
        self.scheduler.check_fits_ever(&request)?;
        Ok(self.scheduler.note(&request))
    }

    pub fn quota(&self, user: &UserName) -> Quota {
        self.scheduler.quota(user)
    }

    /// What a user's jobs hold now.
    pub fn usage(&self, user: &UserName) -> Usage {
        self.scheduler.usage(user)
    }

    fn one(&mut self, input: Input, now: Timestamp, batch: &mut Batch) -> Result<Reply, Refusal> {
        match input {
            Input::Submit(submission) => self.submit(submission, now, batch),
            Input::Kill { job, after } => self.kill(job, after, now, batch),
            Input::Remove { job } => self.remove(job, batch),
            Input::Report(report) => self.report(report, now, batch),
            Input::Tick => self.tick(now, batch),
            Input::QuotaChanged { user, quota } => {
                self.scheduler.set_quota(user, quota);
                Ok(Reply::Noted)
            }
            Input::InventoryChanged(inventory) => {
                self.scheduler.set_inventory(inventory);
                Ok(Reply::Noted)
            }
        }
    }

    fn submit(&mut self, asked: Submission, now: Timestamp, batch: &mut Batch) -> Result<Reply, Refusal> {
        if let Some(made) = asked
            .key
            .as_ref()
            .and_then(|key| self.keys.find(&asked.user, key))
        {
            return Ok(Reply::AlreadyAccepted(made.clone()));
        }
        self.check(&asked)?;
        if self.jobs.contains_key(&asked.id) {
            return Err(Refusal::IdTaken(asked.id));
        }
        let request = Request::of(&asked.spec, asked.id.clone(), asked.user.clone(), self.next_order);
        let job = Job::new(asked.id, asked.user, asked.spec, asked.key, self.next_order, now);
        self.next_order += 1;
        let id = job.id.clone();
        self.index(&job);
        self.jobs.insert(id.clone(), Arc::new(job));
        self.scheduler.enqueue(request, now);
        if !bug(Planted::AcceptWithoutWriting) {
            batch.mark(&id);
        }
        Ok(Reply::Accepted(id))
    }

    fn check_name(&self, asked: &Submission) -> Result<(), Refusal> {
        let name = &asked.spec.name;
        let Some(holder) = self
            .holder(&asked.user, name)
            .filter(|_| !bug(Planted::NamesNotChecked))
        else {
            return Ok(());
        };
        Err(Refusal::NameTaken {
            name: name.clone(),
            holder: holder.id.clone(),
            free: self.free_name(&asked.user, name, &asked.id),
        })
    }

    /// Who keeps others from using the name. Only the latest run can.
    fn holder(&self, user: &UserName, name: &JobName) -> Option<&Arc<Job>> {
        let latest = self.names.runs(user, name).last()?;
        self.jobs
            .get(latest)
            .filter(|job| job.holds_name() || bug(Planted::NameKeptAfterKill))
    }

    fn free_name(&self, user: &UserName, name: &JobName, id: &JobId) -> JobName {
        let numbered = (2..=16).map(|number| name.with_suffix(&number.to_string()));
        let marked = name.with_suffix(&id.as_str()[2..]);
        numbered
            .chain([marked])
            .find(|free| self.holder(user, free).is_none())
            .unwrap_or_else(|| name.clone())
    }

    fn kill(
        &mut self,
        id: JobId,
        after: AfterKill,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Result<Reply, Refusal> {
        if !self.jobs.contains_key(&id) {
            return Err(Refusal::NotActive(id));
        }
        self.change(&id, now, batch, |job| {
            job.on_event(Event::KillRequested(after), now)
        });
        if after == AfterKill::Remove && bug(Planted::RemovedWhileRunning) {
            batch.finish(id.clone(), Write::Remove(id.clone()));
        }
        Ok(Reply::Killing(id))
    }

    fn remove(&mut self, id: JobId, batch: &mut Batch) -> Result<Reply, Refusal> {
        if self.jobs.contains_key(&id) {
            return Err(Refusal::StillActive(id));
        }
        batch.finish(id.clone(), Write::Remove(id.clone()));
        batch.discard(id.clone());
        Ok(Reply::Removed(id))
    }

    fn report(&mut self, report: Report, now: Timestamp, batch: &mut Batch) -> Result<Reply, Refusal> {
        let Report { attempt, news } = report;
        let event = Event::Worker {
            worker: attempt.worker,
            attempt: attempt.attempt,
            news,
        };
        self.change(&attempt.job, now, batch, |job| job.on_event(event, now));
        Ok(Reply::Noted)
    }

    fn tick(&mut self, now: Timestamp, batch: &mut Batch) -> Result<Reply, Refusal> {
        for id in self.deadlines.due(now) {
            self.change(&id, now, batch, |job| job.on_event(Event::Tick, now));
        }
        Ok(Reply::Noted)
    }

    fn follow_the_clock(&mut self, now: Timestamp, batch: &mut Batch) {
        let Some(by) = self.clock_set.take() else {
            return;
        };
        for id in self.deadlines.all() {
            self.change(&id, now, batch, |job| job.on_event(Event::ClockSet(by), now));
        }
        self.latest_now = now;
    }

    fn notice_a_clock_set_back(&mut self, now: Timestamp, batch: &mut Batch) {
        if now + CLOCK_TOLERANCE < self.latest_now {
            for id in self.deadlines.all() {
                self.change(&id, now, batch, |job| job.on_event(Event::Tick, now));
            }
        }
        self.latest_now = now;
    }

    fn admit(&mut self, now: Timestamp, batch: &mut Batch) {
        for admission in self.scheduler.decide(now) {
            let Some(job) = self.jobs.get(&admission.id) else {
                continue;
            };
            let count = job.spec.workers();
            let addresses = (0..count)
                .map(|position| self.addresses.take(job, position))
                .collect();
            let event = Event::Admitted {
                placement: admission.placement,
                addresses,
                note: admission.note,
            };
            self.change(&admission.id, now, batch, |job| job.on_event(event, now));
        }
    }

    /// The one place where a job changes: keeps every index right and remembers what must be done.
    fn change(
        &mut self,
        id: &JobId,
        now: Timestamp,
        batch: &mut Batch,
        change: impl FnOnce(&mut Job) -> Vec<Action>,
    ) {
        let Some(shared) = self.jobs.get_mut(id) else {
            return;
        };
        let job = Arc::make_mut(shared);
        let (revision, deadline, phase) = (job.revision, job.deadline(), job.phase);
        let actions = change(job);
        batch.order(id, actions);
        if job.revision == revision {
            return;
        }
        if !bug(Planted::RestartNotWritten) || job.workers.iter().all(|worker| worker.attempt == 1) {
            batch.mark(id);
        }
        self.deadlines.replace(id, deadline, job.deadline());
        let stopping = matches!(job.phase, Phase::Stopping(_));
        if job.phase.is_final() {
            self.retire(id, phase, now, batch);
        } else if stopping && bug(Planted::RoomFreeTooEarly) {
            self.scheduler.release(id, now);
        }
    }

    /// A job became final: it leaves every table, and its room is free.
    fn retire(&mut self, id: &JobId, phase_before: Phase, now: Timestamp, batch: &mut Batch) {
        let Some(job) = self.jobs.remove(id) else {
            return;
        };
        self.names.remove(&job.user, &job.spec.name, id);
        self.keys.retire(&job);
        for worker in &job.workers {
            self.addresses.give_back(&worker.address);
        }
        match phase_before {
            Phase::Pending if bug(Planted::KilledStaysQueued) => {}
            Phase::Pending => self.scheduler.withdraw(id),
            _ => self.scheduler.release(id, now),
        }
        if job.remove_when_final {
            batch.finish(id.clone(), Write::Remove(id.clone()));
            batch.discard(id.clone());
        } else {
            batch.finish(id.clone(), Write::Save(job));
        }
    }

    fn index(&mut self, job: &Job) {
        self.names.insert(&job.user, &job.spec.name, &job.id);
        self.keys.insert(job);
        self.deadlines.replace(&job.id, None, job.deadline());
    }

    fn close(&self, batch: Batch) -> Output {
        batch.close(&self.jobs, self.deadlines.next())
    }
}
