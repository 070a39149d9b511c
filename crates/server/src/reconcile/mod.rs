//! The loop around the conductor: takes in requests and reports, makes the outcome durable, then acts on it.
//!
//! One task owns the conductor. While one batch is being written, the next gathers: that is the group commit.
//! All decisions are the conductor's; here is only the order *write, act, answer*.

mod board;
mod chores;
mod clock;
mod handle;
mod ids;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use paddlecloud_core::conductor::{self, Conductor, Input, Loopback, Output, Refusal, Reply};
use paddlecloud_core::job::News;
use paddlecloud_core::names::{JobId, UserName};
use paddlecloud_core::ports::{
    AttemptKey, Engine, EngineError, EngineState, JobStore, PageRequest, Report, StoreError,
};
use paddlecloud_core::scheduler::{Inventory, Policy, Quota, Scheduler, Usage, Why};
use tokio::sync::{mpsc, oneshot};

use board::Board;
use chores::Chores;
pub use clock::Clock;
use clock::Watch;
pub use handle::{Jobs, Submission, Submitted};
use ids::Ids;

use crate::store::{self, Store};

/// Requests taken into one batch at most.
const BATCH: usize = 1024;

/// Pause before the next try when the store does not answer.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Why an order was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Undone {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the change could not be stored: {words}")]
    NotStored { words: String, full: bool },
    #[error("the server is stopping")]
    Stopping,
}

/// What the loop is asked.
enum Message {
    Do(Input, oneshot::Sender<Result<Reply, Undone>>),
    Explain(JobId, oneshot::Sender<Option<Why>>),
    Usage(UserName, oneshot::Sender<(Quota, Usage)>),
    Check(
        conductor::Submission,
        oneshot::Sender<Result<Option<String>, Refusal>>,
    ),
}

/// How this server shares out what it has.
#[derive(Debug, Clone)]
pub struct Sharing {
    /// Different for every server on a machine: where its workers' addresses begin.
    pub seed: u64,
    pub inventory: Inventory,
    pub policy: Policy,
    pub quotas: Vec<(UserName, Quota)>,
}

/// What the loop works with.
pub struct Parts<E> {
    pub store: Store,
    pub engine: E,
    pub clock: Clock,
}

impl Sharing {
    fn scheduler(&self) -> Scheduler {
        let mut scheduler = Scheduler::new(self.inventory.clone(), self.policy);
        for (user, quota) in &self.quotas {
            scheduler.set_quota(user.clone(), *quota);
        }
        scheduler
    }
}

/// Takes up what the store and the engine have, and starts the loop. Returns when jobs can be submitted.
///
/// `notes` are sentences that every submitter should read.
pub async fn start<E>(
    parts: Parts<E>,
    sharing: Sharing,
    notes: Vec<String>,
) -> Result<(Jobs, Reconciler), StartError>
where
    E: Engine + Clone + 'static,
{
    let keeps = parts.store.clone();
    start_with(parts, keeps, sharing, notes).await
}

/// The same with a store of its own for what the loop writes.
async fn start_with<E, S>(
    parts: Parts<E>,
    keeps: S,
    sharing: Sharing,
    notes: Vec<String>,
) -> Result<(Jobs, Reconciler), StartError>
where
    E: Engine + Clone + 'static,
    S: JobStore + 'static,
{
    let Parts { store, engine, clock } = parts;
    let (sender, messages) = mpsc::channel(4 * BATCH);
    let board = Arc::new(Board::default());
    let mut keeper = Keeper {
        store: keeps,
        engine: engine.clone(),
        sharing,
        board: Arc::clone(&board),
        chores: Chores::new(engine),
        watch: Watch::new(clock.clone()),
    };
    let (conductor, wake_at) = keeper.restore().await?;
    let newest = PageRequest {
        user: None,
        name: None,
        before: None,
        limit: 1,
    };
    let latest = store.page(&newest).await?.jobs.first().map(|job| job.id.clone());
    let jobs = Jobs::new(sender, board, store, Ids::after(latest, clock), notes);
    let task = tokio::spawn(keeper.run(conductor, wake_at, messages));
    Ok((jobs, Reconciler { task }))
}

/// Why the loop could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The running loop; it ends when the last [`Jobs`] is dropped.
pub struct Reconciler {
    task: tokio::task::JoinHandle<()>,
}

impl Reconciler {
    pub async fn ended(self) {
        let _ = self.task.await;
    }
}

struct Keeper<E, S> {
    store: S,
    engine: E,
    sharing: Sharing,
    board: Arc<Board>,
    chores: Chores<E>,
    watch: Watch,
}

impl<E: Engine + Clone + 'static, S: JobStore> Keeper<E, S> {
    /// A conductor made anew from what is stored, its first output carried out.
    async fn restore(&mut self) -> Result<(Conductor, Option<Timestamp>), StartError> {
        let stored = self.store.load_active().await?;
        let found = self.engine_state().await?;
        let addresses = Box::new(Loopback::from_seed(self.sharing.seed));
        let (conductor, output) = Conductor::restore(
            self.sharing.scheduler(),
            addresses,
            stored,
            found,
            self.watch.now(),
        );
        self.store.save(&output.writes).await?;
        let wake_at = output.wake_at;
        // Those who watch a job that ended just now hear of it before its place is gone.
        self.act(output);
        self.board.fill(conductor.jobs().cloned());
        Ok((conductor, wake_at))
    }

    /// What the engine has, and what it was told to launch before this loop started over.
    async fn engine_state(&self) -> Result<EngineState, EngineError> {
        let ordered = self.chores.launches();
        let mut found = self.engine.state().await?;
        let listed: HashSet<AttemptKey> = found.attempts.iter().map(|one| one.attempt.clone()).collect();
        let unlisted = ordered.into_iter().filter(|attempt| !listed.contains(attempt));
        found.attempts.extend(unlisted.map(|attempt| Report {
            attempt,
            news: News::Launched,
        }));
        Ok(found)
    }

    async fn run(
        mut self,
        mut conductor: Conductor,
        mut wake_at: Option<Timestamp>,
        mut messages: mpsc::Receiver<Message>,
    ) {
        let mut gathered = Vec::with_capacity(BATCH);
        let engine = self.engine.clone();
        loop {
            let mut inputs = Vec::new();
            tokio::select! {
                count = messages.recv_many(&mut gathered, BATCH) => if count == 0 { return },
                reports = engine.next_reports() => inputs.extend(reports.into_iter().map(Input::Report)),
                () = until(wake_at, &self.watch) => inputs.push(Input::Tick),
            }
            let answers = sort_messages(&mut gathered, &conductor, &self.watch, &mut inputs);
            if inputs.is_empty() {
                continue;
            }
            let skip = inputs.len() - answers.len();
            let (now, set) = self.watch.look();
            if let Some(by) = set {
                tracing::warn!(
                    seconds = by.as_secs(),
                    "the machine's clock was set; limits go on as if it had not been"
                );
                conductor.clock_was_set(by);
            }
            let mut output = conductor.handle(inputs, now);
            wake_at = output.wake_at;
            let replies = output.replies.split_off(skip);
            match self.store.save(&output.writes).await {
                Ok(()) => {
                    self.act(output);
                    answer(
                        answers,
                        replies.into_iter().map(|reply| reply.map_err(Undone::Refused)),
                    );
                }
                Err(error) => {
                    let undone = Undone::NotStored {
                        full: store::is_full(&error),
                        words: words_of(&error),
                    };
                    tracing::error!(error = %undone, "the store refused; starting over from what it has");
                    answer(answers, replies.into_iter().map(|_| Err(undone.clone())));
                    (conductor, wake_at) = self.restore_until_it_works().await;
                }
            }
        }
    }

    async fn restore_until_it_works(&mut self) -> (Conductor, Option<Timestamp>) {
        loop {
            match self.restore().await {
                Ok(restored) => return restored,
                Err(error) => tracing::error!(%error, "the store still refuses"),
            }
            tokio::time::sleep(STORE_PAUSE).await;
        }
    }

    /// Everything is durable now: tell those who watch, and the engine.
    fn act(&mut self, output: Output) {
        self.board.publish(&output.writes);
        for command in output.commands {
            self.chores.add(command);
        }
    }
}

/// Questions are answered at once, orders become inputs; their answers wait for the write.
fn sort_messages(
    gathered: &mut Vec<Message>,
    conductor: &Conductor,
    watch: &Watch,
    inputs: &mut Vec<Input>,
) -> Vec<oneshot::Sender<Result<Reply, Undone>>> {
    let mut answers = Vec::new();
    for message in gathered.drain(..) {
        // Whoever asked and went away does not mind.
        match message {
            Message::Do(input, answer) => {
                inputs.push(input);
                answers.push(answer);
            }
            Message::Explain(job, answer) => drop(answer.send(conductor.why(&job, watch.now()))),
            Message::Usage(user, answer) => {
                let _ = answer.send((conductor.quota(&user), conductor.usage(&user)));
            }
            Message::Check(submission, answer) => drop(answer.send(conductor.check(&submission))),
        }
    }
    answers
}

fn answer(
    answers: Vec<oneshot::Sender<Result<Reply, Undone>>>,
    replies: impl Iterator<Item = Result<Reply, Undone>>,
) {
    for (answer, reply) in answers.into_iter().zip(replies) {
        drop(answer.send(reply));
    }
}

async fn until(at: Option<Timestamp>, watch: &Watch) {
    let Some(at) = at else {
        return std::future::pending().await;
    };
    let left = at.duration_since(watch.now());
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
}

fn words_of(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
