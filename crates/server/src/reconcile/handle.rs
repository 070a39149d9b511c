//! What the rest of the server can ask about jobs and of them.

use std::sync::Arc;

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::KillReply;
use paddlecloud_core::conductor::{self, Input, Refusal, Reply};
use paddlecloud_core::job::{AfterKill, IdempotencyKey, Job};
use paddlecloud_core::names::{JobId, JobRef, UserName};
use paddlecloud_core::ports::JobStore;
use paddlecloud_core::scheduler::{Quota, Usage, Why};
use paddlecloud_core::spec::JobSpec;
use tokio::sync::{mpsc, oneshot, watch};

use super::board::Board;
use super::ids::Ids;
use super::{Message, Undone};
use crate::app::{disk_is_full, store_failed};
use crate::store::Store;

/// Tries to find an unused id before giving up; one is enough unless the clock stands still.
const ID_TRIES: usize = 8;

/// A job somebody wants to run, checked and complete.
#[derive(Debug, Clone)]
pub struct Submission {
    pub user: UserName,
    pub spec: JobSpec,
    pub key: Option<IdempotencyKey>,
}

/// An accepted job.
#[derive(Debug, Clone)]
pub struct Submitted {
    pub job: Arc<Job>,
    /// False when the key showed that it had been accepted before.
    pub created: bool,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A handle to the loop. Cheap to clone.
#[derive(Clone)]
pub struct Jobs {
    messages: mpsc::Sender<Message>,
    board: Arc<Board>,
    store: Store,
    ids: Arc<Ids>,
    /// Sentences every submitter should read: what this machine does not permit.
    notes: Arc<[String]>,
}

impl Jobs {
    pub(super) fn new(
        messages: mpsc::Sender<Message>,
        board: Arc<Board>,
        store: Store,
        ids: Ids,
        notes: Vec<String>,
    ) -> Jobs {
        Jobs {
            messages,
            board,
            store,
            ids: Arc::new(ids),
            notes: notes.into(),
        }
    }

    /// Accepts a job. It is durable when this returns.
    pub async fn submit(&self, asked: Submission) -> Result<Submitted, ErrorBody> {
        if let Some(earlier) = self.submitted_before(&asked).await? {
            return self.submitted_again(earlier, &asked.spec).await;
        }
        let spec = Arc::new(asked.spec);
        for _ in 0..ID_TRIES {
            let submission = conductor::Submission {
                id: self.ids.fresh(),
                user: asked.user.clone(),
                spec: Arc::clone(&spec),
                key: asked.key.clone(),
            };
            return match self.order(Input::Submit(submission)).await {
                Ok(Reply::Accepted(id)) => self.submitted(id, true).await,
                Ok(Reply::AlreadyAccepted(id)) => self.submitted_again(id, &spec).await,
                Err(Undone::Refused(Refusal::IdTaken(_))) => continue,
                Err(undone) => Err(refused(undone)),
                Ok(other) => unreachable!("a submit is never answered with {other:?}"),
            };
        }
        Err(refused(Undone::NotStored {
            words: "no unused id was found".into(),
            full: false,
        }))
    }

    async fn submitted_before(&self, asked: &Submission) -> Result<Option<JobId>, ErrorBody> {
        match &asked.key {
            Some(key) => self
                .store
                .find_by_key(&asked.user, key)
                .await
                .map_err(store_failed),
            None => Ok(None),
        }
    }

    /// A key stands for one request: the same key with another job is a mistake, and said to be one.
    async fn submitted_again(&self, id: JobId, asked: &JobSpec) -> Result<Submitted, ErrorBody> {
        let submitted = self.submitted(id, false).await?;
        let first = &submitted.job.spec;
        // A name that was not given may have come out differently, and a shell changes from call to call.
        let alike = JobSpec {
            name: first.name.clone(),
            shell_env: first.shell_env.clone(),
            ..asked.clone()
        };
        if **first == alike {
            return Ok(submitted);
        }
        let problem = format!(
            "this idempotency key was used for another request, which made job {}",
            submitted.job.id
        );
        Err(ErrorBody::new(ErrorName::Conflict, problem).with_hint("use a new key for a new job"))
    }

    async fn submitted(&self, id: JobId, created: bool) -> Result<Submitted, ErrorBody> {
        let job = match self.board.get(&id) {
            Some(job) => Some(job),
            None => self.store.get(&id).await.map_err(store_failed)?,
        };
        let job = job
            .ok_or_else(|| ErrorBody::new(ErrorName::NotFound, format!("job {id} was removed meanwhile")))?;
        let notes = self.notes.iter().cloned().chain(job.note.clone()).collect();
        Ok(Submitted { job, created, notes })
    }

    /// Whether a job would be accepted, and what its submitter should know.
    pub async fn check(&self, asked: &Submission) -> Result<Vec<String>, ErrorBody> {
        let submission = conductor::Submission {
            id: self.ids.fresh(),
            user: asked.user.clone(),
            spec: Arc::new(asked.spec.clone()),
            key: asked.key.clone(),
        };
        let (answer, reply) = oneshot::channel();
        self.messages
            .send(Message::Check(submission, answer))
            .await
            .map_err(|_| refused(Undone::Stopping))?;
        let checked = reply.await.map_err(|_| refused(Undone::Stopping))?;
        let note = checked.map_err(|refusal| refused(Undone::Refused(refusal)))?;
        Ok(self.notes.iter().cloned().chain(note).collect())
    }

    /// Ends a job, or removes one that is over. Accepted, and durable, when this returns; workers end in the background.
    pub async fn kill(&self, user: &UserName, target: JobRef, remove: bool) -> Result<KillReply, ErrorBody> {
        let job = self.find(user, target).await?;
        let id = job.id.clone();
        let after = if remove {
            AfterKill::Remove
        } else {
            AfterKill::KeepInHistory
        };
        let killed = self
            .order(Input::Kill {
                job: id.clone(),
                after,
            })
            .await;
        let (msg, ending, removed) = match killed {
            Ok(_) => {
                let ending = self.board.get(&id).map_or(0, |job| live_workers(&job));
                ("OK".to_owned(), ending, remove)
            }
            Err(Undone::Refused(_)) if remove => {
                self.order(Input::Remove { job: id.clone() })
                    .await
                    .map_err(refused)?;
                ("it was over; removed from the history".to_owned(), 0, true)
            }
            Err(Undone::Refused(_)) => ("it was over already".to_owned(), 0, false),
            Err(undone) => return Err(refused(undone)),
        };
        Ok(KillReply {
            code: 200,
            msg,
            id: id.to_string(),
            name: job.spec.name.to_string(),
            ending,
            removed,
        })
    }

    async fn find(&self, user: &UserName, target: JobRef) -> Result<Arc<Job>, ErrorBody> {
        let found = match target {
            JobRef::Id(id) => match self.board.get(&id) {
                Some(job) => Ok(Some(job)),
                None => self.store.get(&id).await,
            },
            JobRef::Name(name) => self.store.latest(user, Some(&name)).await,
            JobRef::Latest => self.store.latest(user, None).await,
        };
        let found = found.map_err(store_failed)?;
        found.ok_or_else(|| ErrorBody::new(ErrorName::NotFound, "there is no such job"))
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

    pub async fn usage(&self, user: &UserName) -> (Quota, Usage) {
        let (answer, reply) = oneshot::channel();
        match self.messages.send(Message::Usage(user.clone(), answer)).await {
            Ok(()) => reply.await.unwrap_or_default(),
            Err(_) => Default::default(),
        }
    }

    /// Follows a job's changes; `None` if it is final or unknown: the store knows which.
    pub fn watch(&self, job: &JobId) -> Option<watch::Receiver<Arc<Job>>> {
        self.board.watch(job)
    }

    /// A job in its newest durable state, also when it is over; `None` if it was removed.
    pub async fn get_any(&self, job: &JobId) -> Result<Option<Arc<Job>>, ErrorBody> {
        match self.board.get(job) {
            Some(job) => Ok(Some(job)),
            None => self.store.get(job).await.map_err(store_failed),
        }
    }

    /// Resolves when the job is final, or is not there at all.
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

    /// A job that is not final, in its newest durable state.
    pub fn get(&self, job: &JobId) -> Option<Arc<Job>> {
        self.board.get(job)
    }

    /// The latest jobs that are not final and that `wanted` takes, at most `limit`; with `before`, only older ones.
    pub fn latest_active(
        &self,
        before: Option<&JobId>,
        limit: usize,
        wanted: impl Fn(&Job) -> bool,
    ) -> Vec<Arc<Job>> {
        self.board.latest(before, limit, wanted)
    }

    /// All jobs that are not final, in no order.
    pub fn active(&self) -> Vec<Arc<Job>> {
        self.board.all()
    }

    /// How many wait, and how many hold room.
    pub fn counts(&self) -> (u64, u64) {
        self.board.counts()
    }

    async fn order(&self, input: Input) -> Result<Reply, Undone> {
        let (answer, reply) = oneshot::channel();
        self.messages
            .send(Message::Do(input, answer))
            .await
            .map_err(|_| Undone::Stopping)?;
        reply.await.map_err(|_| Undone::Stopping)?
    }
}

fn live_workers(job: &Job) -> u32 {
    job.workers
        .iter()
        .filter(|worker| worker.status.is_live())
        .count() as u32
}

fn refused(undone: Undone) -> ErrorBody {
    let words = undone.to_string();
    match undone {
        Undone::Refused(Refusal::NameTaken { name, holder, free }) => ErrorBody::new(
            ErrorName::NameTaken,
            format!("the name `{name}` is taken by {holder}, which is not over yet"),
        )
        .with_hint(format!(
            "use `-jobname {free}`, or end the other with `paddlectl kill {name}`"
        )),
        Undone::Refused(Refusal::TooBig(_)) => ErrorBody::new(ErrorName::TooBig, words),
        Undone::Refused(Refusal::NotActive(_)) => ErrorBody::new(ErrorName::NotFound, words),
        Undone::Refused(_) => ErrorBody::new(ErrorName::Conflict, words),
        Undone::NotStored { full: true, .. } => disk_is_full(),
        Undone::NotStored { .. } => ErrorBody::new(ErrorName::Unavailable, words)
            .with_hint("try again; the server's log has the cause"),
        Undone::Stopping => {
            ErrorBody::new(ErrorName::Unavailable, words).with_hint("ask again when it is back")
        }
    }
}
