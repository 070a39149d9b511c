//! The loop around the conductor: receives requests and reports, makes the result durable, then acts on it.
//!
//! One task owns the conductor. While one batch is being written, the next one accumulates: that is the group commit.
//! The conductor makes all decisions; this module only keeps the order *write, act, answer*. While the store refuses
//! writes, kills and removals are carried out first and recorded later (see [`Unrecorded`]); everything else is
//! refused.

mod board;
mod chores;
mod clock;
mod error;
mod handle;
mod ids;
mod orders;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use paddlecloud_accounts::users::{Account, Users};
use paddlecloud_core::conductor::{self, Conductor, Input, Output, Recovery, Refusal, Reply, Unrecorded};
use paddlecloud_core::job::{AfterKill, News};
use paddlecloud_core::names::{JobId, JobName, UserName};
use paddlecloud_core::ports::{
    AttemptKey, Engine, EngineError, EngineEvent, EngineState, JobStore, LogStore, PageRequest, Report,
    RunPreparer, SecretSource, StoreError,
};
use paddlecloud_core::scheduler::{
    Excess, GroupQuota, GroupUsage, Guarantee, Inventory, Node, Policy, Quota, Reasons, Scheduler,
    StorageHold, Usage, Why,
};
use paddlecloud_store::Store;
use tokio::sync::{mpsc, oneshot, watch};

use board::Board;
use chores::Chores;
pub use clock::Clock;
use clock::Watch;
pub use error::{JobsError, Undone};
pub use handle::{Acceptance, Jobs, KillEffect, Killed, NewJob, Submitted};
use ids::Ids;
use orders::Orders;

/// Most requests in one batch.
const BATCH: usize = 1024;

/// Pause before the next try when the store does not answer.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// How an order was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// It is durable.
    Recorded(Reply),
    /// The store refuses writes. The order is carried out now and recorded when the store accepts it.
    Unrecorded { full: bool },
}

type Answer = oneshot::Sender<Result<Done, Undone>>;

/// A request to the loop.
enum Message {
    Do(Input, Answer),
    Explain(JobId, oneshot::Sender<Option<Why>>),
    Reasons(Vec<JobId>, oneshot::Sender<Reasons>),
    Recovery(JobId, oneshot::Sender<Option<Recovery>>),
    Usage(UserName, oneshot::Sender<UserUsage>),
    Capacity(oneshot::Sender<Guarantee>),
    Check(
        conductor::Submission,
        oneshot::Sender<Result<Option<Excess>, Refusal>>,
    ),
    Name(conductor::Submission, oneshot::Sender<JobName>),
}

/// What a user and their groups may have running, and what they have.
#[derive(Debug, Clone, Default)]
pub struct UserUsage {
    pub quota: Quota,
    pub used: Usage,
    pub groups: Vec<GroupUsage>,
}

/// How this server shares the resources of its engine.
#[derive(Debug, Clone)]
pub struct Sharing {
    pub policy: Policy,
    /// The accounts whose quotas limit the jobs.
    pub users: Users,
    /// Users whose jobs do not start because of their files.
    pub held: HashMap<UserName, StorageHold>,
}

/// The parts that the loop connects.
pub struct Parts<E> {
    pub store: Store,
    pub engine: E,
    pub runs: Arc<dyn RunPreparer>,
    pub logs: Arc<dyn LogStore>,
    pub secrets: Arc<dyn SecretSource>,
    pub clock: Clock,
}

impl Sharing {
    /// Jobs of users with a limit of storage wait until their homes were compared with it.
    pub fn new(policy: Policy, users: Users) -> Sharing {
        let accounts = users.all();
        let limited = accounts
            .iter()
            .filter(|account| account.storage != Default::default());
        let held = limited.map(|account| (account.name.clone(), StorageHold::Unmeasured));
        Sharing {
            policy,
            held: held.collect(),
            users,
        }
    }

    /// Remembers who is held: a new scheduler must know it.
    fn note_holds(&mut self, inputs: &[Input]) {
        for input in inputs {
            if let Input::StorageHeld { user, hold } = input {
                match hold {
                    Some(hold) => self.held.insert(user.clone(), hold.clone()),
                    None => self.held.remove(user),
                };
            }
        }
    }

    fn scheduler(&self, nodes: Vec<Node>) -> Scheduler {
        let mut scheduler = Scheduler::new(Inventory { nodes }, self.policy);
        for account in self.users.all() {
            scheduler.set_quota(account.name.clone(), account.quota);
        }
        scheduler.set_group_quotas(group_quotas(&self.users.all()));
        for (user, hold) in &self.held {
            scheduler.hold_for_storage(user, Some(hold.clone()));
        }
        scheduler
    }

    /// The current quotas.
    fn quotas(&self) -> impl Iterator<Item = Input> {
        let accounts = self.users.all();
        let groups = Input::GroupQuotasChanged(group_quotas(&accounts));
        let users = accounts.into_iter().map(|account| Input::QuotaChanged {
            user: account.name.clone(),
            quota: account.quota,
        });
        users.chain([groups])
    }
}

/// The groups with a total, and their members.
fn group_quotas(accounts: &[Arc<Account>]) -> Vec<GroupQuota> {
    let mut groups: BTreeMap<Arc<str>, GroupQuota> = BTreeMap::new();
    for account in accounts {
        for total in &account.totals {
            let group = groups
                .entry(Arc::clone(&total.group))
                .or_insert_with(|| GroupQuota {
                    group: Arc::clone(&total.group),
                    quota: total.quota,
                    members: Vec::new(),
                });
            group.members.push(account.name.clone());
        }
    }
    groups.into_values().collect()
}

/// Restores the jobs of the store and the engine's state, and starts the loop. Returns when jobs can be submitted.
///
/// `notes` are sentences for every submitter.
pub async fn start<E>(
    parts: Parts<E>,
    sharing: Sharing,
    notes: Vec<String>,
) -> Result<(Jobs, Reconciler), LoadError>
where
    E: Engine + Clone + 'static,
{
    let keeps = parts.store.clone();
    start_with(parts, keeps, sharing, notes).await
}

/// Like [`start`], with a separate store for the loop's writes.
async fn start_with<E, S>(
    parts: Parts<E>,
    keeps: S,
    sharing: Sharing,
    notes: Vec<String>,
) -> Result<(Jobs, Reconciler), LoadError>
where
    E: Engine + Clone + 'static,
    S: JobStore + 'static,
{
    let Parts {
        store,
        engine,
        runs,
        logs,
        secrets,
        clock,
    } = parts;
    let orders = Arc::new(Orders::new(engine.clone(), runs, logs, secrets));
    let queries = Arc::new(engine.clone());
    let (reports, incoming_reports) = mpsc::unbounded_channel();
    let (sender, messages) = mpsc::channel(4 * BATCH);
    let board = Arc::new(Board::default());
    let mut keeper = Keeper {
        store: keeps,
        engine,
        // Subscribed before the quotas are read, so that a later change is noticed.
        accounts: sharing.users.changes(),
        sharing,
        board: Arc::clone(&board),
        chores: Chores::new(Arc::clone(&orders), reports),
        incoming_reports,
        watch: Watch::new(clock.clone()),
        unrecorded: Unrecorded::default(),
    };
    let (conductor, wake_at) = keeper.restore().await?;
    let newest = PageRequest {
        user: None,
        name: None,
        before: None,
        limit: 1,
    };
    let latest = store.page(&newest).await?.jobs.first().map(|job| job.id.clone());
    drop(tokio::spawn(discard_strays(store.clone(), orders)));
    let ids = Ids::after(latest, clock);
    let jobs = Jobs::new(sender, board, store, ids, notes, queries);
    let task = tokio::spawn(keeper.run(conductor, wake_at, messages));
    Ok((jobs, Reconciler { task }))
}

/// Why the jobs cannot be loaded, at the start or after the store refused a write.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
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
    accounts: watch::Receiver<u64>,
    board: Arc<Board>,
    chores: Chores<E>,
    /// Reports about attempts that never reached an engine.
    incoming_reports: mpsc::UnboundedReceiver<Report>,
    watch: Watch,
    unrecorded: Unrecorded,
}

impl<E: Engine + Clone + 'static, S: JobStore> Keeper<E, S> {
    /// Restores a conductor from the stored jobs and carries out its first output.
    async fn restore(&mut self) -> Result<(Conductor, Option<Timestamp>), LoadError> {
        let stored = self.store.load_active().await?;
        let found = self.engine_state().await?;
        let (conductor, output) = Conductor::restore(
            self.sharing.scheduler(found.nodes.clone()),
            self.engine.addresses(),
            stored,
            found,
            &self.unrecorded,
            self.watch.now(),
        );
        self.store.save(&output.writes).await?;
        self.unrecorded = Unrecorded::default();
        let wake_at = output.wake_at;
        // Watchers of a job that has just ended are notified before its entry is removed.
        self.act(output);
        self.board.fill(conductor.jobs().cloned());
        Ok((conductor, wake_at))
    }

    /// The engine's state, and the launches that were ordered before this loop restarted.
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
                events = engine.next_events() => inputs.extend(events.into_iter().map(input_of)),
                Some(report) = self.incoming_reports.recv() => inputs.push(Input::Report(report)),
                () = until(wake_at, &self.watch) => inputs.push(Input::Tick),
                Ok(()) = self.accounts.changed() => inputs.extend(self.sharing.quotas()),
            }
            conductor.set_closed_nodes(engine.closed_nodes());
            conductor.set_engine_usable(engine.can_start_workers());
            let answers = sort_messages(&mut gathered, &conductor, &self.watch, &mut inputs);
            if inputs.is_empty() {
                continue;
            }
            self.sharing.note_holds(&inputs);
            let skip = inputs.len() - answers.len();
            let endings: Vec<Option<Ending>> = inputs[skip..].iter().map(Ending::of).collect();
            let (now, set) = self.watch.look();
            if let Some(by) = set {
                tracing::warn!(
                    seconds = by.as_secs(),
                    "the machine's clock was changed; time limits are not affected"
                );
                conductor.clock_was_set(by);
            }
            let mut output = conductor.handle(inputs, now);
            wake_at = output.wake_at;
            let replies = output.replies.split_off(skip);
            match self.store.save(&output.writes).await {
                Ok(()) => {
                    self.act(output);
                    for (answer, reply) in answers.into_iter().zip(replies) {
                        drop(answer.send(reply.map(Done::Recorded).map_err(Undone::Refused)));
                    }
                }
                Err(error) => {
                    let undone = undone(&LoadError::Store(error));
                    tracing::error!(error = %undone, "the store refused a write; reloading the jobs from it");
                    self.end_unrecorded(answers.into_iter().zip(endings), &undone);
                    let Some(restored) = self.restore_until_it_works(conductor, &mut messages).await else {
                        return;
                    };
                    (conductor, wake_at) = restored;
                }
            }
        }
    }

    /// Retries until the store and the engine answer. Meanwhile queries are answered from the last known state, and jobs can be
    /// killed. Returns `None` when there are no more callers.
    async fn restore_until_it_works(
        &mut self,
        stale: Conductor,
        messages: &mut mpsc::Receiver<Message>,
    ) -> Option<(Conductor, Option<Timestamp>)> {
        let mut gathered = Vec::new();
        loop {
            let error = match self.restore().await {
                Ok(restored) => return Some(restored),
                Err(error) => error,
            };
            let undone = undone(&error);
            tracing::error!(error = %undone, "the store still refuses");
            self.stop_unrecorded_again();
            let pause = tokio::time::sleep(STORE_PAUSE);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    count = messages.recv_many(&mut gathered, BATCH) => if count == 0 { return None },
                }
                let mut inputs = Vec::new();
                let answers = sort_messages(&mut gathered, &stale, &self.watch, &mut inputs);
                self.sharing.note_holds(&inputs);
                let endings = inputs.iter().map(Ending::of);
                self.end_unrecorded(answers.into_iter().zip(endings), &undone);
            }
        }
    }

    /// Carries out orders that stop a job although the store refuses writes, and refuses everything else.
    fn end_unrecorded(&mut self, asked: impl Iterator<Item = (Answer, Option<Ending>)>, undone: &Undone) {
        let full = matches!(undone, Undone::NotStored { full: true, .. });
        for (answer, ending) in asked {
            let done = match ending {
                None => Err(undone.clone()),
                Some(Ending::Kill(job, after)) => match self.board.get(&job) {
                    None => Err(Undone::Refused(Refusal::NotActive(job))),
                    Some(job) => {
                        let commands = self.unrecorded.kill(&job, after, self.watch.now());
                        commands.into_iter().for_each(|command| self.chores.add(command));
                        Ok(Done::Unrecorded { full })
                    }
                },
                // Workers that were stopped exit after their grace period.
                Some(Ending::SkipGrace) => Ok(Done::Unrecorded { full }),
                Some(Ending::Remove(job)) => match self.board.get(&job) {
                    Some(job) => Err(Undone::Refused(Refusal::StillActive(job.id.clone()))),
                    None => {
                        let command = self.unrecorded.remove(job);
                        self.chores.add(command);
                        Ok(Done::Unrecorded { full })
                    }
                },
            };
            // The caller may have disconnected.
            drop(answer.send(done));
        }
    }

    /// Repeats stop orders that are not recorded. A supervisor that does not answer on a full disk is killed by the second order.
    fn stop_unrecorded_again(&mut self) {
        let now = self.watch.now();
        for id in self.unrecorded.killed() {
            let Some(job) = self.board.get(id) else { continue };
            for command in self.unrecorded.stop_again(&job, now) {
                self.chores.add(command);
            }
        }
    }

    /// Notifies watchers and the engine. Everything is durable now.
    fn act(&mut self, output: Output) {
        self.board.publish(&output.writes);
        for command in output.commands {
            self.chores.add(command);
        }
    }
}

fn input_of(event: EngineEvent) -> Input {
    match event {
        EngineEvent::Worker(report) => Input::Report(report),
        EngineEvent::Moved { attempt, node } => Input::Moved { attempt, node },
        EngineEvent::Node(change) => Input::NodeChanged(change),
    }
}

/// Removes leftovers of unknown jobs: the server stopped between removing a job and removing its logs.
async fn discard_strays<E: Engine>(store: Store, orders: Arc<Orders<E>>) {
    let found = match orders.jobs_with_logs().await {
        Ok(found) => found,
        Err(error) => return tracing::warn!(%error, "the logs cannot be listed"),
    };
    for job in found {
        if !store.may_be_unknown(&job)
            && let Ok(None) = store.get(&job).await
        {
            orders.discard(&job).await;
        }
    }
}

/// Answers queries immediately and turns orders into inputs. Answers to orders wait for the write.
fn sort_messages(
    gathered: &mut Vec<Message>,
    conductor: &Conductor,
    watch: &Watch,
    inputs: &mut Vec<Input>,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    for message in gathered.drain(..) {
        // A failed send means that the caller has disconnected, which is fine.
        match message {
            Message::Do(input, answer) => {
                inputs.push(input);
                answers.push(answer);
            }
            Message::Explain(job, answer) => {
                let _ = answer.send(conductor.why(&job, watch.now()));
            }
            Message::Reasons(jobs, answer) => drop(answer.send(conductor.reasons(&jobs))),
            Message::Recovery(job, answer) => drop(answer.send(conductor.recovery(&job))),
            Message::Usage(user, answer) => {
                let _ = answer.send(UserUsage {
                    quota: conductor.quota(&user),
                    used: conductor.usage(&user),
                    groups: conductor.group_usage(&user),
                });
            }
            Message::Capacity(answer) => drop(answer.send(conductor.capacity())),
            Message::Check(submission, answer) => drop(answer.send(conductor.check(&submission))),
            Message::Name(submission, answer) => drop(answer.send(conductor.name_of(&submission))),
        }
    }
    answers
}

/// An order that stops something: possible even while the store refuses writes.
enum Ending {
    Kill(JobId, AfterKill),
    Remove(JobId),
    SkipGrace,
}

impl Ending {
    fn of(input: &Input) -> Option<Ending> {
        match input {
            Input::Kill { job, after } => Some(Ending::Kill(job.clone(), *after)),
            // Without a record of its own, it counts as killed on request.
            Input::AccountEnded { job, .. } | Input::StorageExceeded { job, .. } => {
                Some(Ending::Kill(job.clone(), AfterKill::KeepInHistory))
            }
            Input::Remove { job } => Some(Ending::Remove(job.clone())),
            Input::SkipGrace { .. } => Some(Ending::SkipGrace),
            _ => None,
        }
    }
}

/// Why nothing can be stored now.
fn undone(error: &LoadError) -> Undone {
    let full = match error {
        LoadError::Store(error) => paddlecloud_store::is_full(error),
        LoadError::Engine(_) => false,
    };
    Undone::NotStored {
        full,
        words: words_of(error),
    }
}

async fn until(at: Option<Timestamp>, watch: &Watch) {
    let Some(at) = at else {
        return std::future::pending().await;
    };
    let left = at.duration_since(watch.now());
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
}

fn words_of(error: &(dyn std::error::Error + 'static)) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
