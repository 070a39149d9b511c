//! The only writer. It collects the rows of all callers into one transaction, commits once, and then answers them all, so that
//! many callers share one disk sync.
//!
//! A caller gets its answer only after its rows are committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::{AnyConnection, Connection, Executor as _};
use tokio::sync::{mpsc, oneshot};

use super::accounts::{AccountRow, GroupRow};
use super::audit::{AuditChain, AuditRow};
use super::connect::DatabaseTarget;
use super::jobs::JobRow;
use super::reserve::Reserve;
use super::secrets::SecretRow;
use super::tokens::{Renewed, TokenRow};
use super::{WriteError, is_full_error, usage};

/// Limit on the rows of one transaction, so that no caller waits long behind a flood.
const MOST_ROWS: usize = 4096;
/// Limit on waiting callers; further ones block.
const QUEUE: usize = 4096;

/// One change.
#[derive(Debug)]
pub(super) enum Row {
    SaveJob(JobRow),
    RemoveJob(String),
    SaveToken(TokenRow),
    /// Exchanges the second for the first.
    RenewToken(TokenRow, Renewed),
    RemoveTokensBefore(i64),
    RemoveToken(String),
    RemoveTokensOf(i64),
    SaveAccount(AccountRow),
    SaveGroup(GroupRow),
    RemoveGroup(String),
    SaveSecret(SecretRow),
    RemoveSecret(SecretRow),
    /// All secrets of a user.
    RemoveSecretsOf(String),
    /// Gives an ended job to another owner.
    GiveJob(JobRow),
    /// Gives the usage of a deleted account's removed jobs to another owner.
    GiveUse {
        from: String,
        to: String,
    },
    Audit(AuditRow),
}

impl Row {
    /// The job to save.
    fn job(&self) -> Option<&JobRow> {
        match self {
            Row::SaveJob(job) => Some(job),
            _ => None,
        }
    }
}

/// Rows that are written together or not at all.
struct Batch {
    rows: Vec<Row>,
    done: oneshot::Sender<Result<(), WriteError>>,
}

/// How much was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriterCounts {
    pub commits: u64,
    pub rows: u64,
}

#[derive(Default)]
struct Counters {
    commits: AtomicU64,
    rows: AtomicU64,
}

/// A handle to the writer's task. The task ends after [`Writer::close`].
#[derive(Clone)]
pub(super) struct Writer {
    batches: mpsc::Sender<Message>,
    counters: Arc<Counters>,
}

enum Message {
    Batch(Batch),
    Close(oneshot::Sender<()>),
}

impl Writer {
    pub fn start(
        place: DatabaseTarget,
        connection: AnyConnection,
        reserve: Option<Arc<Reserve>>,
        audit: Arc<AuditChain>,
    ) -> Writer {
        let (batches, inbox) = mpsc::channel(QUEUE);
        let counters = Arc::new(Counters::default());
        let task = Task {
            place,
            connection: Some(connection),
            inbox,
            counters: Arc::clone(&counters),
            reserve,
            audit,
        };
        tokio::spawn(task.run());
        Writer { batches, counters }
    }

    pub async fn write(&self, rows: Vec<Row>) -> Result<(), WriteError> {
        let (done, answer) = oneshot::channel();
        let message = Message::Batch(Batch { rows, done });
        self.batches.send(message).await.map_err(|_| WriteError::Closed)?;
        answer.await.unwrap_or(Err(WriteError::Closed))
    }

    pub fn counts(&self) -> WriterCounts {
        WriterCounts {
            commits: self.counters.commits.load(Ordering::Relaxed),
            rows: self.counters.rows.load(Ordering::Relaxed),
        }
    }

    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.batches.send(Message::Close(done)).await.is_ok() {
            // The task drops `done` when it has ended.
            let _ = closed.await;
        }
    }
}

struct Task {
    place: DatabaseTarget,
    /// `None` after a failure, until the next write connects again.
    connection: Option<AnyConnection>,
    inbox: mpsc::Receiver<Message>,
    counters: Arc<Counters>,
    reserve: Option<Arc<Reserve>>,
    audit: Arc<AuditChain>,
}

impl Task {
    async fn run(mut self) {
        let mut closing = None;
        while closing.is_none() {
            let Some(first) = self.inbox.recv().await else {
                break;
            };
            let (batches, close) = self.gather(first);
            self.commit(batches).await;
            closing = close;
        }
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the database did not close cleanly");
        }
        drop(closing);
    }

    /// Collects the waiting batches, up to the limit.
    fn gather(&mut self, first: Message) -> (Vec<Batch>, Option<oneshot::Sender<()>>) {
        let mut batches = Vec::new();
        let mut rows = 0;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Close(done) => return (batches, Some(done)),
                Message::Batch(batch) => {
                    rows += batch.rows.len();
                    batches.push(batch);
                }
            }
            next = if rows < MOST_ROWS {
                self.inbox.try_recv().ok()
            } else {
                None
            };
        }
        (batches, None)
    }

    async fn commit(&mut self, batches: Vec<Batch>) {
        if batches.is_empty() {
            return;
        }
        let all = batches.iter().flat_map(|batch| &batch.rows);
        match self.transact(all.collect()).await {
            Ok(()) => batches.into_iter().for_each(|batch| answer(batch, Ok(()))),
            Err(error) if batches.len() == 1 => {
                batches
                    .into_iter()
                    .for_each(|batch| answer(batch, Err(error.clone())));
            }
            // One bad batch must not fail the others: each gets its own transaction.
            Err(_) => {
                for batch in batches {
                    let result = self.transact(batch.rows.iter().collect()).await;
                    answer(batch, result);
                }
            }
        }
    }

    /// Writes rows in one transaction. Reconnects once if the connection is broken: every row is safe to write twice.
    async fn transact(&mut self, rows: Vec<&Row>) -> Result<(), WriteError> {
        let mut result = self.try_transact(&rows).await;
        if let Err(WriteError::Sql(error)) = &result
            && error.as_database_error().is_none()
        {
            tracing::warn!(%error, "connecting to the database again");
            self.disconnect().await;
            result = self.try_transact(&rows).await;
        }
        if let Err(WriteError::Sql(error)) = &result
            && is_full_error(error)
            && self.reserve.as_ref().is_some_and(|reserve| reserve.give_up())
        {
            self.disconnect().await;
            result = self.try_transact(&rows).await;
        }
        if result.is_err() {
            self.disconnect().await;
        }
        if result.is_ok() {
            self.checkpoint_if_full().await;
        }
        self.counters
            .commits
            .fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
        if result.is_ok() {
            self.counters.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
        result
    }

    /// Drops the connection. A failed commit can leave its transaction open (a full disk does), and the next one would be nested
    /// in it, acknowledged and never written.
    async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close_hard().await
        {
            tracing::warn!(%error, "the database did not close cleanly");
        }
    }

    /// On a full disk, checkpoints the write-ahead log immediately, so that it does not use up the remaining space.
    async fn checkpoint_if_full(&mut self) {
        let is_full = self.reserve.as_ref().is_some_and(|reserve| reserve.is_given_up());
        if let (true, Some(connection)) = (is_full, &mut self.connection) {
            // Readers may prevent it; the next commit tries again.
            let _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
        }
    }

    async fn try_transact(&mut self, rows: &[&Row]) -> Result<(), WriteError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => empty.insert(self.place.connect_to_write().await?),
        };
        let mut change = connection.begin().await?;
        let mut audited = 0;
        for rows in rows.chunk_by(|one, next| one.job().is_some() && next.job().is_some()) {
            let jobs: Vec<&JobRow> = rows.iter().filter_map(|row| row.job()).collect();
            JobRow::save(&jobs, &mut change).await?;
            match rows[0] {
                Row::SaveJob(_) => {}
                Row::RemoveJob(id) => {
                    usage::keep_use(id, &mut change).await?;
                    JobRow::remove(id, &mut change).await?;
                }
                Row::SaveToken(token) => token.save(&mut change).await?,
                Row::RenewToken(token, old) => {
                    if !token.renew(old, &mut change).await? {
                        return Err(WriteError::Gone);
                    }
                }
                Row::RemoveTokensBefore(time) => TokenRow::remove_before(*time, &mut change).await?,
                Row::RemoveToken(digest) => TokenRow::remove(digest, &mut change).await?,
                Row::RemoveTokensOf(account) => TokenRow::remove_of(*account, &mut change).await?,
                Row::SaveAccount(account) => account.save(&mut change).await?,
                Row::SaveGroup(group) => group.save(&mut change).await?,
                Row::RemoveGroup(name) => GroupRow::remove(name, &mut change).await?,
                Row::SaveSecret(secret) => secret.save(&mut change).await?,
                Row::RemoveSecret(secret) => secret.remove(&mut change).await?,
                Row::RemoveSecretsOf(owner) => SecretRow::remove_of(owner, &mut change).await?,
                Row::GiveJob(job) => job.give(&mut change).await?,
                Row::GiveUse { from, to } => usage::give_use(from, to, &mut change).await?,
                Row::Audit(entry) => audited = entry.append(&self.audit, &mut change).await?,
            }
        }
        change.commit().await?;
        self.audit.has_row(audited);
        Ok(())
    }
}

fn answer(batch: Batch, result: Result<(), WriteError>) {
    // The caller may have disconnected.
    let _ = batch.done.send(result);
}
