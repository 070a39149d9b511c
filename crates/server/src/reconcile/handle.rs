//! The handle through which the rest of the server uses the loop.

use std::sync::Arc;

use paddlecloud_core::conductor::{self, Input, NameOrigin, Recovery, Refusal, Reply};
use paddlecloud_core::job::{AccountEnd, AfterKill, IdempotencyKey, Job, runs_alone};
use paddlecloud_core::names::{JobId, JobName, JobRef, UserName};
use paddlecloud_core::ports::{AttemptKey, Engine, JobStore};
use paddlecloud_core::scheduler::{Guarantee, Reasons, StorageExcess, StorageHold, Why};
use paddlecloud_core::spec::JobSpec;
use paddlecloud_store::Store;
use tokio::sync::{mpsc, oneshot, watch};

use super::board::Board;
use super::ids::Ids;
use super::{Done, JobsError, Message, Undone, UserUsage};

/// Attempts to find an unused id; one is enough unless the clock stands still.
const ID_TRIES: usize = 8;

/// A checked and complete job to submit.
#[derive(Debug, Clone)]
pub struct NewJob {
    pub user: UserName,
    pub spec: JobSpec,
    pub name: NameOrigin,
    pub key: Option<IdempotencyKey>,
}

/// An accepted job.
#[derive(Debug, Clone)]
pub struct Submitted {
    pub job: Arc<Job>,
    pub acceptance: Acceptance,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// When a job was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptance {
    Now,
    /// By an earlier request with the same idempotency key.
    Before,
}

/// A job that was killed, or had ended before.
#[derive(Debug, Clone)]
pub struct Killed {
    pub id: JobId,
    pub name: JobName,
    pub effect: KillEffect,
    /// Whether it leaves the history.
    pub removed: bool,
    /// Set if the order took effect but is not durable yet.
    pub note: Option<&'static str>,
}

/// What a kill did to the job's workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillEffect {
    /// The job was active. This many live workers terminate in the background.
    Stops {
        workers: u32,
    },
    HadEnded,
}

/// A handle to the loop. Cheap to clone.
#[derive(Clone)]
pub struct Jobs {
    messages: mpsc::Sender<Message>,
    board: Arc<Board>,
    store: Store,
    ids: Arc<Ids>,
    /// Notes for every submitter about restrictions of this machine.
    notes: Arc<[String]>,
    queries: Arc<dyn EngineQueries>,
}

/// What is asked of the engine directly: it changes without the loop.
pub(super) trait EngineQueries: Send + Sync {
    fn obstacles(&self, job: &JobId) -> Vec<String>;
    fn unlinked(&self, job: &JobId) -> Vec<AttemptKey>;
}

impl<E: Engine> EngineQueries for E {
    fn obstacles(&self, job: &JobId) -> Vec<String> {
        Engine::obstacles(self, job)
    }

    fn unlinked(&self, job: &JobId) -> Vec<AttemptKey> {
        Engine::unlinked(self, job)
    }
}

impl Jobs {
    pub(super) fn new(
        messages: mpsc::Sender<Message>,
        board: Arc<Board>,
        store: Store,
        ids: Ids,
        notes: Vec<String>,
        queries: Arc<dyn EngineQueries>,
    ) -> Jobs {
        Jobs {
            messages,
            board,
            store,
            ids: Arc::new(ids),
            notes: notes.into(),
            queries,
        }
    }

    /// Accepts a job. It is durable when this returns.
    pub async fn submit(&self, asked: NewJob) -> Result<Submitted, JobsError> {
        if let Some(earlier) = self.submitted_before(&asked).await? {
            return self.submitted_again(earlier, &asked.spec).await;
        }
        let spec = Arc::new(asked.spec);
        for _ in 0..ID_TRIES {
            let submission = conductor::Submission {
                id: self.ids.fresh(),
                user: asked.user.clone(),
                spec: Arc::clone(&spec),
                name: asked.name,
                key: asked.key.clone(),
            };
            return match self.record(Input::Submit(submission)).await {
                Ok(Reply::Accepted(id)) => self.submitted(id, Acceptance::Now).await,
                Ok(Reply::AlreadyAccepted(id)) => self.submitted_again(id, &spec).await,
                Err(Undone::Refused(Refusal::IdTaken(_))) => continue,
                Err(undone) => Err(undone.into()),
                Ok(other) => unreachable!("a submit is never answered with {other:?}"),
            };
        }
        let words = "no unused id was found".into();
        Err(Undone::NotStored { words, full: false }.into())
    }

    async fn submitted_before(&self, asked: &NewJob) -> Result<Option<JobId>, JobsError> {
        match &asked.key {
            Some(key) => Ok(self.store.find_by_key(&asked.user, key).await?),
            None => Ok(None),
        }
    }

    /// Replies to a repeated request. A key belongs to one request: the same key with another job is an error.
    async fn submitted_again(&self, id: JobId, asked: &JobSpec) -> Result<Submitted, JobsError> {
        let submitted = self.submitted(id, Acceptance::Before).await?;
        let first = &submitted.job.spec;
        // A generated name may differ, and the shell's environment changes between calls.
        let alike = JobSpec {
            name: first.name.clone(),
            shell_env: first.shell_env.clone(),
            ..asked.clone()
        };
        if **first == alike {
            return Ok(submitted);
        }
        Err(JobsError::KeyUsed(submitted.job.id.clone()))
    }

    async fn submitted(&self, id: JobId, acceptance: Acceptance) -> Result<Submitted, JobsError> {
        let job = match self.board.get(&id) {
            Some(job) => Some(job),
            None => self.store.get(&id).await?,
        };
        let job = job.ok_or(JobsError::Removed(id))?;
        let notes = self.notes.iter().cloned().chain(job.note.clone()).collect();
        Ok(Submitted {
            job,
            acceptance,
            notes,
        })
    }

    /// Whether a job would be accepted, and the notes for its submitter.
    pub async fn check(&self, asked: &NewJob) -> Result<Vec<String>, JobsError> {
        let (answer, reply) = oneshot::channel();
        self.messages
            .send(Message::Check(self.submission(asked), answer))
            .await
            .map_err(|_| Undone::Stopping)?;
        let checked = reply.await.map_err(|_| Undone::Stopping)?;
        let alone = checked.map_err(Undone::Refused)?;
        let note = alone.as_ref().map(runs_alone);
        Ok(self.notes.iter().cloned().chain(note).collect())
    }

    /// The name that a job would get now.
    pub async fn name_of(&self, asked: &NewJob) -> Result<JobName, JobsError> {
        let (answer, reply) = oneshot::channel();
        self.messages
            .send(Message::Name(self.submission(asked), answer))
            .await
            .map_err(|_| Undone::Stopping)?;
        Ok(reply.await.map_err(|_| Undone::Stopping)?)
    }

    fn submission(&self, asked: &NewJob) -> conductor::Submission {
        conductor::Submission {
            id: self.ids.fresh(),
            user: asked.user.clone(),
            spec: Arc::new(asked.spec.clone()),
            name: asked.name,
            key: asked.key.clone(),
        }
    }

    /// Kills a job, or removes an ended one. The order is accepted when this returns, and durable unless the result has a note
    /// that says otherwise; workers terminate in the background.
    pub async fn kill(&self, user: &UserName, target: JobRef, after: AfterKill) -> Result<Killed, JobsError> {
        let job = self.find(user, target).await?;
        let id = job.id.clone();
        let remove = after == AfterKill::Remove;
        let kill = Input::Kill {
            job: id.clone(),
            after,
        };
        let (effect, removed, done) = match self.order(kill).await {
            Ok(done) => {
                let workers = self.board.get(&id).map_or(0, |job| live_workers(&job));
                (KillEffect::Stops { workers }, remove, Some(done))
            }
            Err(Undone::Refused(_)) if remove => {
                let done = self.order(Input::Remove { job: id.clone() }).await?;
                (KillEffect::HadEnded, true, Some(done))
            }
            Err(Undone::Refused(_)) => (KillEffect::HadEnded, false, None),
            Err(undone) => return Err(undone.into()),
        };
        Ok(Killed {
            id,
            name: job.spec.name.clone(),
            effect,
            removed,
            note: done.and_then(not_recorded),
        })
    }

    /// Kills a job because of its owner's account. Does nothing if the job has ended meanwhile.
    pub async fn account_ended(&self, job: &JobId, end: AccountEnd) -> Result<(), JobsError> {
        let job = job.clone();
        self.order_if_active(Input::AccountEnded { job, end }).await
    }

    /// Stops a running job whose owner exceeds the storage quota. Does nothing if the job does not run any longer.
    pub async fn storage_exceeded(&self, job: &JobId, excess: StorageExcess) -> Result<(), JobsError> {
        let job = job.clone();
        self.order_if_active(Input::StorageExceeded { job, excess }).await
    }

    /// Starts none of the user's jobs while there is a hold.
    pub async fn hold_for_storage(
        &self,
        user: &UserName,
        hold: Option<StorageHold>,
    ) -> Result<(), JobsError> {
        let user = user.clone();
        self.order_if_active(Input::StorageHeld { user, hold }).await
    }

    /// Kills the workers of a stopping job without waiting for its grace period. Does nothing if the job has ended meanwhile.
    pub async fn skip_grace(&self, job: &JobId) -> Result<(), JobsError> {
        self.order_if_active(Input::SkipGrace { job: job.clone() }).await
    }

    async fn order_if_active(&self, order: Input) -> Result<(), JobsError> {
        match self.order(order).await {
            Ok(_) | Err(Undone::Refused(_)) => Ok(()),
            Err(undone) => Err(undone.into()),
        }
    }

    async fn find(&self, user: &UserName, target: JobRef) -> Result<Arc<Job>, JobsError> {
        let found = match target {
            JobRef::Id(id) => match self.board.get(&id) {
                Some(job) => Ok(Some(job)),
                None => self.store.get(&id).await,
            },
            JobRef::Name(name) => self.store.latest(user, Some(&name)).await,
            JobRef::Of(user, name) => self.store.latest(&user, Some(&name)).await,
            JobRef::Latest => self.store.latest(user, None).await,
        };
        found?.ok_or(JobsError::NoSuchJob)
    }

    /// Why a pending job waits.
    pub async fn explain(&self, job: &JobId) -> Option<Why> {
        let (answer, reply) = oneshot::channel();
        self.messages
            .send(Message::Explain(job.clone(), answer))
            .await
            .ok()?;
        reply.await.ok()?
    }

    /// The same for several jobs, without anything but the reasons.
    pub async fn reasons(&self, jobs: Vec<JobId>) -> Option<Reasons> {
        let (answer, reply) = oneshot::channel();
        self.messages.send(Message::Reasons(jobs, answer)).await.ok()?;
        reply.await.ok()
    }

    /// What happens to a running job that lacks a worker.
    pub async fn recovery(&self, job: &JobId) -> Option<Recovery> {
        let (answer, reply) = oneshot::channel();
        self.messages
            .send(Message::Recovery(job.clone(), answer))
            .await
            .ok()?;
        reply.await.ok()?
    }

    /// What hinders the live workers of a job, one sentence each.
    pub fn obstacles(&self, job: &JobId) -> Vec<String> {
        self.queries.obstacles(job)
    }

    /// Live attempts of a job whose output does not arrive now.
    pub fn unlinked(&self, job: &JobId) -> Vec<AttemptKey> {
        self.queries.unlinked(job)
    }

    pub async fn usage(&self, user: &UserName) -> UserUsage {
        let (answer, reply) = oneshot::channel();
        match self.messages.send(Message::Usage(user.clone(), answer)).await {
            Ok(()) => reply.await.unwrap_or_default(),
            Err(_) => Default::default(),
        }
    }

    /// The total resources of all nodes; `None` while they are unknown.
    pub async fn capacity(&self) -> Option<Guarantee> {
        let (answer, reply) = oneshot::channel();
        self.messages.send(Message::Capacity(answer)).await.ok()?;
        reply.await.ok()
    }

    /// Subscribes to a job's changes. Returns `None` if the job is final or unknown; the store knows which.
    pub fn watch(&self, job: &JobId) -> Option<watch::Receiver<Arc<Job>>> {
        self.board.watch(job)
    }

    /// A job in its latest durable state, ended or not; `None` if it was removed.
    pub async fn get_any(&self, job: &JobId) -> Result<Option<Arc<Job>>, JobsError> {
        match self.board.get(job) {
            Some(job) => Ok(Some(job)),
            None => Ok(self.store.get(job).await?),
        }
    }

    /// Resolves when the job is final, or does not exist.
    pub async fn wait_final(&self, job: &JobId) {
        let Some(mut changes) = self.watch(job) else {
            return;
        };
        while !changes.borrow_and_update().phase.is_final() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// An unfinished job, in its latest durable state.
    pub fn get(&self, job: &JobId) -> Option<Arc<Job>> {
        self.board.get(job)
    }

    /// The latest unfinished jobs that `wanted` accepts, at most `limit`; with `before`, only older ones.
    pub fn latest_active(
        &self,
        before: Option<&JobId>,
        limit: usize,
        wanted: impl Fn(&Job) -> bool,
    ) -> Vec<Arc<Job>> {
        self.board.latest(before, limit, wanted)
    }

    /// All unfinished jobs, in arbitrary order.
    pub fn active(&self) -> Vec<Arc<Job>> {
        self.board.all()
    }

    /// The number of waiting jobs, and of jobs that hold resources.
    pub fn counts(&self) -> (u64, u64) {
        self.board.counts()
    }

    /// Carries out an order that takes effect only after it was recorded.
    async fn record(&self, input: Input) -> Result<Reply, Undone> {
        match self.order(input).await? {
            Done::Recorded(reply) => Ok(reply),
            Done::Unrecorded { .. } => {
                unreachable!("only kills and removals are carried out without a record")
            }
        }
    }

    async fn order(&self, input: Input) -> Result<Done, Undone> {
        let (answer, reply) = oneshot::channel();
        self.messages
            .send(Message::Do(input, answer))
            .await
            .map_err(|_| Undone::Stopping)?;
        reply.await.map_err(|_| Undone::Stopping)?
    }
}

/// The note for an order that took effect but is not durable.
fn not_recorded(done: Done) -> Option<&'static str> {
    match done {
        Done::Recorded(_) => None,
        Done::Unrecorded { full: true } => {
            Some("the server's disk is full: this takes effect now and is recorded when there is space again")
        }
        Done::Unrecorded { full: false } => Some(
            "the server cannot reach its database: this takes effect now and is recorded when it can again",
        ),
    }
}

fn live_workers(job: &Job) -> u32 {
    job.workers
        .iter()
        .filter(|worker| worker.status.is_live())
        .count() as u32
}
