//! Finds and checks the run whose training a new job continues.

use std::collections::HashSet;
use std::sync::Arc;

use paddlecloud_accounts::auth::Caller;
use paddlecloud_core::job::{IdempotencyKey, Job, Outcome, Phase};
use paddlecloud_core::names::{JobId, JobName, JobRef, UserName};
use paddlecloud_core::ports::JobStore;
use paddlecloud_core::resumed::ResumedRun;
use paddlecloud_files::runs::RunCheckpoints;

use super::{App, AppError};

/// Why the training of a run cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum ResumeRefusal {
    #[error("none of your jobs has ended yet")]
    NoneEnded,
    #[error("{name} ({id}) {}, so it cannot be resumed yet", if *.stopping { "is being stopped" } else { "has not ended" })]
    NotEnded {
        name: JobName,
        id: JobId,
        stopping: bool,
    },
    #[error("{name} ({id}) had no parameter servers, so there is nothing to resume")]
    NoServers { name: JobName, id: JobId },
    #[error("{name} ({id}) {why}")]
    NoCheckpoints {
        name: JobName,
        id: JobId,
        why: NoCheckpoints,
        /// The run that it continued itself.
        before: Option<JobId>,
    },
}

/// Why a run has no checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoCheckpoints {
    #[error("ended before its trainers started, so it has no checkpoints")]
    NotStarted,
    #[error("has no checkpoints in its output")]
    NoneWritten,
    #[error("has no output any more, and its checkpoints were in it")]
    Removed,
}

impl App {
    /// The run that a request asks to continue, if it can be.
    pub(super) async fn resume_find(
        &self,
        caller: &Caller,
        target: &JobRef,
        key: Option<&IdempotencyKey>,
    ) -> Result<ResumedRun, AppError> {
        if let Some(first) = self.resumed_at_first(caller, target, key).await? {
            return Ok(first);
        }
        let job = self.own_run(caller, target).await?;
        check_run(&job)?;
        let run = self.storage.resumed_run(&job).ok_or(AppError::Internal)?;
        self.check_checkpoints(&caller.user, &run, Some(&job)).await?;
        Ok(run)
    }

    /// Checks before a rerun that the run which the job continued can still be continued.
    pub(super) async fn resume_check(&self, job: &Job) -> Result<(), AppError> {
        let Some(run) = &job.spec.resume else {
            return Ok(());
        };
        let record = self.store.get(&run.id).await?;
        self.check_checkpoints(&job.user, run, record.as_deref()).await
    }

    /// The run that the first request with this key chose. `last` may be another one by now.
    async fn resumed_at_first(
        &self,
        caller: &Caller,
        target: &JobRef,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<ResumedRun>, AppError> {
        let Some(key) = key else { return Ok(None) };
        let Some(id) = self.store.find_by_key(&caller.user, key).await? else {
            return Ok(None);
        };
        let first = self.store.get(&id).await?;
        let run = first.and_then(|job| job.spec.resume.clone());
        Ok(run.filter(|run| match target {
            JobRef::Id(id) => *id == run.id,
            JobRef::Name(_) | JobRef::Of(..) | JobRef::Latest => true,
        }))
    }

    /// A run of the caller. Those of other users do not exist here, even for an administrator: their files are in another home.
    async fn own_run(&self, caller: &Caller, target: &JobRef) -> Result<Arc<Job>, AppError> {
        let user = &caller.user;
        let found = match target {
            JobRef::Id(id) => self.store.get(id).await?,
            JobRef::Name(name) => self.store.latest(user, Some(name)).await?,
            JobRef::Of(owner, name) if owner == user => self.store.latest(user, Some(name)).await?,
            JobRef::Of(..) => None,
            JobRef::Latest => self.last_ended(user).await?,
        };
        match found.filter(|job| job.user == *user) {
            Some(job) => Ok(job),
            None => Err(self.no_such_job(caller, target).await),
        }
    }

    /// The user's run that ended last. One that is being stopped counts: it ends next, and most likely it is the one that is meant.
    async fn last_ended(&self, user: &UserName) -> Result<Option<Arc<Job>>, AppError> {
        let own = |job: &Job| job.user == *user;
        let ending = |job: &Job| own(job) && is_stopping(job);
        if let Some(job) = self.jobs.latest_active(None, 1, ending).pop() {
            return Ok(Some(job));
        }
        let ended = self.store.last_finished(user).await?;
        if ended.is_none() && !self.jobs.latest_active(None, 1, own).is_empty() {
            return Err(ResumeRefusal::NoneEnded.into());
        }
        Ok(ended)
    }

    /// `job` is the record of the run; `None` if it was removed.
    async fn check_checkpoints(
        &self,
        user: &UserName,
        run: &ResumedRun,
        job: Option<&Job>,
    ) -> Result<(), AppError> {
        let why = match self.found_checkpoints(user, run).await? {
            RunCheckpoints::Some | RunCheckpoints::NoFolder => return Ok(()),
            RunCheckpoints::None => NoCheckpoints::NoneWritten,
            RunCheckpoints::NoOutput => NoCheckpoints::Removed,
        };
        match job {
            Some(job) => Err(without_checkpoints(job, why).into()),
            None => Err(self.removed_run(run)),
        }
    }

    async fn found_checkpoints(&self, user: &UserName, run: &ResumedRun) -> Result<RunCheckpoints, AppError> {
        let (user, run) = (user.clone(), run.clone());
        self.with_files(move |storage| storage.checkpoints_of(&user, &run))
            .await
    }

    fn removed_run(&self, run: &ResumedRun) -> AppError {
        AppError::NoJob {
            target: JobRef::Id(run.id.clone()),
            near: None,
        }
    }

    /// A note that names the run, since a name or `last` may mean another one than expected.
    pub(super) async fn resume_note(&self, user: &UserName, run: Option<&ResumedRun>) -> Option<String> {
        let run = run?;
        let id = &run.id;
        let job = self.store.get(id).await.ok().flatten();
        let note = match job {
            Some(job) => format!(
                "continues the training of {} ({id}), which {}",
                job.spec.name,
                ended(&job)
            ),
            None => format!("continues the training of {id}"),
        };
        match self.found_checkpoints(user, run).await {
            Ok(RunCheckpoints::NoFolder) => Some(format!(
                "{note}; its output has no folder `checkpoints`: if the program does not keep them elsewhere, the job will fail"
            )),
            _ => Some(note),
        }
    }

    /// The runs whose checkpoints a waiting or running job of the user needs.
    pub(super) fn runs_in_use(&self, user: &UserName) -> HashSet<JobId> {
        let jobs = self.jobs.active().into_iter();
        let resuming = jobs.filter(|job| job.user == *user);
        resuming
            .filter_map(|job| Some(job.spec.resume.as_ref()?.id.clone()))
            .collect()
    }
}

fn is_stopping(job: &Job) -> bool {
    job.kill_requested || matches!(job.phase, Phase::Stopping(_))
}

/// Whether a run can have left checkpoints, as far as its record shows.
fn check_run(job: &Job) -> Result<(), ResumeRefusal> {
    let (name, id) = (job.spec.name.clone(), job.id.clone());
    if !job.phase.is_final() {
        let stopping = is_stopping(job);
        return Err(ResumeRefusal::NotEnded { name, id, stopping });
    }
    if job.spec.pservers == 0 {
        return Err(ResumeRefusal::NoServers { name, id });
    }
    match job.started_at {
        Some(_) => Ok(()),
        None => Err(without_checkpoints(job, NoCheckpoints::NotStarted)),
    }
}

fn without_checkpoints(job: &Job, why: NoCheckpoints) -> ResumeRefusal {
    ResumeRefusal::NoCheckpoints {
        name: job.spec.name.clone(),
        id: job.id.clone(),
        why,
        before: job.spec.resume.as_ref().map(|run| run.id.clone()),
    }
}

fn ended(job: &Job) -> &'static str {
    match job.phase.outcome() {
        Some(Outcome::Succeeded) => "succeeded",
        Some(Outcome::Killed) => "was killed",
        Some(Outcome::Lost) => "was lost with its machine",
        Some(Outcome::Failed) | None => "failed",
    }
}
