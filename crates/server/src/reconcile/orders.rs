//! Carries out one order: prepares the run's folders, calls the engine, and removes the leftovers of a removed job.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::{Job, News, WorkerKey};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::{
    Assignment, AttemptKey, Engine, EngineCommand, LogStore, PrepareError, PreparedRun, Report, RunPreparer,
    SecretEnv, SecretSource,
};

/// Pause when the server lacks a resource.
const NEXT_TRY: Duration = Duration::from_secs(2);

/// Everything that orders need.
pub(crate) struct Orders<E> {
    engine: E,
    runs: Arc<dyn RunPreparer>,
    logs: Arc<dyn LogStore>,
    secrets: Arc<dyn SecretSource>,
    /// Serializes the preparation of each run.
    turns: Mutex<HashMap<JobId, Arc<tokio::sync::Mutex<()>>>>,
}

impl<E: Engine> Orders<E> {
    pub fn new(
        engine: E,
        runs: Arc<dyn RunPreparer>,
        logs: Arc<dyn LogStore>,
        secrets: Arc<dyn SecretSource>,
    ) -> Orders<E> {
        Orders {
            engine,
            runs,
            logs,
            secrets,
            turns: Mutex::default(),
        }
    }

    /// Carries out one order. Returns a report if the engine cannot make one, because the attempt never reached it.
    pub async fn carry_out(&self, command: &EngineCommand) -> Option<Report> {
        match command {
            EngineCommand::Launch { job, worker, attempt } => {
                return self.launch(job, *worker, *attempt).await;
            }
            EngineCommand::Go { attempt } => self.engine.go(attempt).await,
            EngineCommand::Stop { attempt, grace } => self.engine.stop(attempt, *grace).await,
            EngineCommand::Clean { attempt } => self.engine.clean(attempt).await,
            EngineCommand::Discard { job } => self.discard(job).await,
        }
        None
    }

    async fn launch(&self, job: &Arc<Job>, worker: WorkerKey, attempt: u32) -> Option<Report> {
        match self.prepare(job, worker).await {
            Ok((run, secrets)) => {
                let assignment = Assignment {
                    job: Arc::clone(job),
                    run: Arc::new(run),
                    worker,
                    attempt,
                    secrets,
                };
                self.engine.launch(&assignment).await;
                None
            }
            Err(reason) => {
                let attempt = AttemptKey {
                    job: job.id.clone(),
                    worker,
                    attempt,
                };
                tracing::warn!(?attempt, %reason, "a run could not be prepared");
                let news = match reason {
                    PrepareError::Failed(reason) => News::Exited(Exit::unseen(reason)),
                    PrepareError::Shortage(reason) => {
                        // Nothing notifies us when there is space again.
                        tokio::time::sleep(NEXT_TRY).await;
                        News::NoRoom(reason)
                    }
                };
                Some(Report { attempt, news })
            }
        }
    }

    /// Prepares the run once for all its workers.
    async fn prepare(
        &self,
        job: &Arc<Job>,
        worker: WorkerKey,
    ) -> Result<(PreparedRun, SecretEnv), PrepareError> {
        let run = self.prepare_run(job, worker).await?;
        let secrets = self.secrets.secrets(job).await?;
        Ok((run, secrets))
    }

    async fn prepare_run(&self, job: &Arc<Job>, worker: WorkerKey) -> Result<PreparedRun, PrepareError> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(job.id.clone()).or_default())
        };
        let held = turn.lock().await;
        let (runs, prepared) = (Arc::clone(&self.runs), Arc::clone(job));
        let run = tokio::task::spawn_blocking(move || runs.prepare(&prepared, worker))
            .await
            .unwrap_or_else(|panic| Err(PrepareError::Failed(panic.to_string())));
        drop(held);
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Two references, ours and the table's: no other task waits for the lock.
        if Arc::strong_count(&turn) == 2 {
            turns.remove(&job.id);
        }
        run
    }

    /// Removes the leftovers of a job that is no longer in the history.
    pub async fn discard(&self, job: &JobId) {
        self.engine.discard(job).await;
        let (logs, runs, removed) = (Arc::clone(&self.logs), Arc::clone(&self.runs), job.clone());
        let clear = move || {
            if let Err(error) = logs.discard(&removed) {
                tracing::warn!(%error, "the logs of a removed job could not be deleted");
            }
            if let Err(error) = runs.discard(&removed) {
                tracing::warn!(job = %removed, %error, "the folder of a removed job could not be deleted");
            }
        };
        if let Err(error) = tokio::task::spawn_blocking(clear).await {
            tracing::warn!(%job, %error, "cleaning up after a removed job failed");
        }
    }

    /// Jobs that still have a log.
    pub async fn jobs_with_logs(&self) -> std::io::Result<Vec<JobId>> {
        let logs = Arc::clone(&self.logs);
        let listed = tokio::task::spawn_blocking(move || logs.jobs()).await;
        listed.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
    }
}
