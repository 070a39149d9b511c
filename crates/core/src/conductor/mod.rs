//! The conductor: owns every unfinished job and is the only place that changes jobs.
//!
//! Inputs go in, an [`Output`] comes out. The caller must keep this order; everything relies on it:
//!
//! 1. make **all** `writes` durable, in one step;
//! 2. then carry out the `commands`, those for one worker in the order given;
//! 3. then send the `replies`.
//!
//! If the writes cannot be made durable, no part of the output may be used: drop this conductor and
//! [`Conductor::restore`] a new one from the store and the engine. Only kills and removals may be carried out anyway,
//! see [`Unrecorded`]. The conductor does no I/O and reads no clock. The cost of an input does not depend on the number
//! of queued jobs.

mod addresses;
mod batch;
mod deadlines;
mod naming;
mod recovery;
mod restore;
mod tables;
mod unrecorded;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::job::{AccountEnd, Action, AfterKill, Event, IdempotencyKey, Job, Phase};
use crate::names::{JobId, JobName, NodeName, UserName};
use crate::planted::{Planted, bug};
use crate::ports::{AttemptKey, EngineCommand, Report};
use crate::scheduler::{
    Excess, GroupQuota, GroupUsage, Guarantee, NodeChange, Quota, Reasons, Request, Scheduler, StorageExcess,
    StorageHold, TooBig, Usage, Why,
};
use crate::spec::JobSpec;

pub use addresses::{Addresses, Hostnames, Loopback};
use batch::Batch;
use deadlines::Deadlines;
pub use naming::NameOrigin;
use recovery::Incomplete;
pub use recovery::Recovery;
use tables::{Keys, Names};
pub use unrecorded::Unrecorded;

/// How far the clock may go back before every job with a deadline gets a tick.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(1);

/// A submitted job.
#[derive(Debug, Clone)]
pub struct Submission {
    /// A new id; the caller has the clock and the randomness.
    pub id: JobId,
    pub user: UserName,
    pub spec: Arc<JobSpec>,
    /// Where the name in `spec` comes from.
    pub name: NameOrigin,
    /// The caller has already looked for this key in the store ([`crate::ports::JobStore::find_by_key`]). Unfinished
    /// jobs, and jobs that ended recently, are found here too.
    pub key: Option<IdempotencyKey>,
}

/// An input of the conductor.
#[derive(Debug, Clone)]
pub enum Input {
    Submit(Submission),
    Kill {
        job: JobId,
        after: AfterKill,
    },
    /// Kill a job because of its owner's account.
    AccountEnded {
        job: JobId,
        end: AccountEnd,
    },
    /// Stop a running job because its owner's files exceed the storage quota.
    StorageExceeded {
        job: JobId,
        excess: StorageExcess,
    },
    /// Whether jobs of this user may start, as far as the user's files are concerned.
    StorageHeld {
        user: UserName,
        hold: Option<StorageHold>,
    },
    /// Kill the workers of a job that is being stopped without waiting for its grace period.
    SkipGrace {
        job: JobId,
    },
    /// Remove a final job from the history.
    Remove {
        job: JobId,
    },
    Report(Report),
    /// A worker was restarted on another node than its seat's.
    Moved {
        attempt: AttemptKey,
        node: NodeName,
    },
    /// Time has passed; see [`Output::wake_at`].
    Tick,
    QuotaChanged {
        user: UserName,
        quota: Quota,
    },
    /// The quotas of all user groups.
    GroupQuotasChanged(Vec<GroupQuota>),
    NodeChanged(NodeChange),
}

/// The reply when the conductor did what was requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The job is stored and will run.
    Accepted(JobId),
    /// The key is known: it created this job earlier.
    AlreadyAccepted(JobId),
    /// The workers are being stopped.
    Killing(JobId),
    Removed(JobId),
    Noted,
}

/// Why the conductor refused an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the name `{name}` is taken by {holder}, which has not ended yet")]
    NameTaken {
        name: JobName,
        holder: JobId,
        /// A name that is free now.
        free: JobName,
    },
    #[error(transparent)]
    TooBig(#[from] TooBig),
    #[error("the priority {asked} is higher than {most}, the highest that you may use")]
    Priority { asked: i32, most: i32 },
    #[error("you already have {queued} queued jobs, and the limit is {most}")]
    QueueFull { queued: u64, most: u32 },
    /// Choose another id and submit again.
    #[error("the id {0} is in use")]
    IdTaken(JobId),
    /// The job has ended or never existed; the store knows which.
    #[error("{0} is not running")]
    NotActive(JobId),
    #[error("{0} has not ended yet")]
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
    /// At most one write per job.
    pub writes: Vec<Write>,
    pub commands: Vec<EngineCommand>,
    /// One reply per input, in the same order.
    pub replies: Vec<Result<Reply, Refusal>>,
    /// When the next [`Input::Tick`] is due. An early or late tick does no harm.
    pub wake_at: Option<Timestamp>,
}

/// See the module.
pub struct Conductor {
    jobs: HashMap<JobId, Arc<Job>>,
    names: Names,
    keys: Keys,
    deadlines: Deadlines,
    incomplete: Incomplete,
    engine_usable: bool,
    scheduler: Scheduler,
    addresses: Box<dyn Addresses>,
    next_order: u64,
    latest_now: Timestamp,
    /// How far the clock was changed since the latest `now`.
    clock_set: Option<SignedDuration>,
}

impl Conductor {
    /// Processes all inputs, decides which jobs start, and returns what must be done.
    ///
    /// A caller that notices a clock jump reports it first ([`Conductor::clock_was_set`]). An unnoticed jump causes at
    /// most wrong times and limits that expire early or late.
    pub fn handle(&mut self, inputs: impl IntoIterator<Item = Input>, now: Timestamp) -> Output {
        let mut batch = Batch::default();
        self.follow_the_clock(now, &mut batch);
        self.notice_a_clock_set_back(now, &mut batch);
        for input in inputs {
            let reply = self.one(input, now, &mut batch);
            batch.replies.push(reply);
        }
        self.admit(now, &mut batch);
        self.reclaim(now, &mut batch);
        self.recover(now, &mut batch);
        self.close(batch)
    }

    /// Reports that the machine's clock was changed by this much. From the next `now` on, limits are not affected by it.
    pub fn clock_was_set(&mut self, by: SignedDuration) {
        let before = self.clock_set.unwrap_or_default();
        self.clock_set = Some(before.checked_add(by).unwrap_or(by));
    }

    /// An unfinished job.
    pub fn job(&self, id: &JobId) -> Option<&Arc<Job>> {
        self.jobs.get(id)
    }

    /// All unfinished jobs, in no order.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    /// Unfinished runs of this name, the latest last: one active run, and earlier ones that are still stopping.
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

    /// Why pending jobs wait.
    pub fn reasons(&self, ids: &[JobId]) -> Reasons {
        self.scheduler.reasons(ids)
    }

    /// Whether a submit would be accepted now: the name is free, and the job could be admitted at some time.
    ///
    /// Returns by how much the job exceeds the machines, if it would run alone because of that.
    pub fn check(&self, asked: &Submission) -> Result<Option<Excess>, Refusal> {
        self.check_name(asked, &self.name_of(asked))?;
        let request = Request::of(&asked.spec, asked.id.clone(), asked.user.clone(), self.next_order);
        self.scheduler.check_fits_ever(&request)?;
        self.check_queue(&request)?;
        Ok(self.scheduler.would_run_alone(&request))
    }

    /// Checks the limits that apply only at submit.
    fn check_queue(&self, request: &Request) -> Result<(), Refusal> {
        let quota = self.scheduler.quota(&request.user);
        if let Some(most) = quota.priority.filter(|most| request.priority > *most) {
            let asked = request.priority;
            return Err(Refusal::Priority { asked, most });
        }
        let queued = self.scheduler.queued(&request.user);
        match quota.queued.filter(|most| queued >= u64::from(*most)) {
            Some(most) => Err(Refusal::QueueFull { queued, most }),
            None => Ok(()),
        }
    }

    /// See [`Scheduler::set_closed_nodes`].
    pub fn set_closed_nodes(&mut self, count: usize) {
        self.scheduler.set_closed_nodes(count);
    }

    pub fn quota(&self, user: &UserName) -> Quota {
        self.scheduler.quota(user)
    }

    /// What all nodes have together.
    pub fn capacity(&self) -> Guarantee {
        self.scheduler.capacity()
    }

    /// The resources that a user's jobs hold now.
    pub fn usage(&self, user: &UserName) -> Usage {
        self.scheduler.usage(user)
    }

    /// The quotas of the user's groups, and the resources that the jobs of all their members hold.
    pub fn group_usage(&self, user: &UserName) -> Vec<GroupUsage> {
        self.scheduler.group_usage(user)
    }

    fn one(&mut self, input: Input, now: Timestamp, batch: &mut Batch) -> Result<Reply, Refusal> {
        match input {
            Input::Submit(submission) => self.submit(submission, now, batch),
            Input::Kill { job, after } => self.kill(job, after, now, batch),
            Input::AccountEnded { job, end } => self.order(&job, Event::AccountEnded(end), now, batch),
            Input::StorageExceeded { job, excess } => {
                self.order(&job, Event::StorageExceeded(excess), now, batch)
            }
            Input::StorageHeld { user, hold } => {
                self.scheduler.hold_for_storage(&user, hold);
                Ok(Reply::Noted)
            }
            Input::SkipGrace { job } => self.order(&job, Event::SkipGrace, now, batch),
            Input::Remove { job } => self.remove(job, batch),
            Input::Report(report) => self.report(report, now, batch),
            Input::Moved { attempt, node } => self.moved(&attempt, node, now, batch),
            Input::Tick => self.tick(now, batch),
            Input::QuotaChanged { user, quota } => {
                self.scheduler.set_quota(user, quota);
                Ok(Reply::Noted)
            }
            Input::GroupQuotasChanged(quotas) => {
                self.scheduler.set_group_quotas(quotas);
                Ok(Reply::Noted)
            }
            Input::NodeChanged(change) => {
                self.scheduler.change_node(change);
                Ok(Reply::Noted)
            }
        }
    }

    fn submit(&mut self, mut asked: Submission, now: Timestamp, batch: &mut Batch) -> Result<Reply, Refusal> {
        if let Some(made) = asked
            .key
            .as_ref()
            .and_then(|key| self.keys.find(&asked.user, key))
        {
            return Ok(Reply::AlreadyAccepted(made.clone()));
        }
        self.check(&asked)?;
        let name = self.name_of(&asked);
        if name != asked.spec.name {
            Arc::make_mut(&mut asked.spec).name = name;
        }
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

    fn order(
        &mut self,
        id: &JobId,
        event: Event,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Result<Reply, Refusal> {
        if !self.jobs.contains_key(id) {
            return Err(Refusal::NotActive(id.clone()));
        }
        self.change(id, now, batch, |job| job.on_event(event, now));
        Ok(Reply::Noted)
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

    fn moved(
        &mut self,
        attempt: &AttemptKey,
        node: NodeName,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Result<Reply, Refusal> {
        let before = self.jobs.get(&attempt.job).map(|job| job.revision);
        let event = Event::Moved {
            worker: attempt.worker,
            attempt: attempt.attempt,
            node,
        };
        self.change(&attempt.job, now, batch, |job| job.on_event(event, now));
        let changed = self
            .jobs
            .get(&attempt.job)
            .filter(|job| Some(job.revision) != before);
        if let Some(job) = changed
            && let Some(placement) = &job.placement
        {
            let request = Request::of(&job.spec, job.id.clone(), job.user.clone(), job.order);
            let since = job.admitted_at.unwrap_or(job.submitted_at);
            self.scheduler.occupy(request, placement.clone(), since);
        }
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
                alone: admission.alone,
            };
            self.change(&admission.id, now, batch, |job| job.on_event(event, now));
        }
    }

    /// Stops borrowing jobs for a job within its owner's guarantee.
    fn reclaim(&mut self, now: Timestamp, batch: &mut Batch) {
        for id in self.scheduler.reclaim(now) {
            self.change(&id, now, batch, |job| job.on_event(Event::Reclaimed, now));
        }
    }

    /// The one place where a job changes: updates every index and records what must be done.
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
        let held = addresses_that_may_go(job);
        let actions = change(job);
        batch.order(id, actions);
        if job.revision == revision {
            return;
        }
        if !bug(Planted::RestartNotWritten) || job.workers.iter().all(|worker| worker.attempt == 1) {
            batch.mark(id);
        }
        self.deadlines.replace(id, deadline, job.deadline());
        self.incomplete.follow(job);
        let stopping = matches!(job.phase, Phase::Stopping(_));
        if job.phase.is_final() {
            self.retire(id, phase, now, batch);
        } else if job.phase == Phase::Pending && phase.occupies() {
            self.queue_again(id, held, now);
        } else if stopping && bug(Planted::RoomFreeTooEarly) {
            self.scheduler.release(id, now);
        }
    }

    /// Releases the resources of a job and queues it again at its old place: it found no room, or its borrowed room is needed.
    fn queue_again(&mut self, id: &JobId, held: Vec<String>, now: Timestamp) {
        for address in held {
            self.addresses.give_back(&address);
        }
        self.scheduler.release(id, now);
        let job = &self.jobs[id];
        let request = Request::of(&job.spec, job.id.clone(), job.user.clone(), job.order);
        self.scheduler.enqueue(request, now);
    }

    /// Removes a final job from every table and frees its resources.
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
        self.incomplete.follow(job);
    }

    fn close(&self, batch: Batch) -> Output {
        let wake_at = self
            .deadlines
            .next()
            .into_iter()
            .chain(self.scheduler.reclaim_at())
            .chain(self.recover_at());
        batch.close(&self.jobs, wake_at.min())
    }
}

/// The addresses of a job that may still be withdrawn.
fn addresses_that_may_go(job: &Job) -> Vec<String> {
    match job.phase {
        Phase::Starting | Phase::Running | Phase::Withdrawing => {
            job.workers.iter().map(|worker| worker.address.clone()).collect()
        }
        _ => Vec::new(),
    }
}
