//! Removes old jobs from the history.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::jobs::{PruneOptions, PruneReply, PrunedJob};
use paddlecloud_core::error_chain::chain_of;
use paddlecloud_core::job::AfterKill;
use paddlecloud_core::names::{JobId, JobRef, UserName};
use paddlecloud_core::ports::JobStore as _;
use paddlecloud_files::homes::Removal;
use paddlecloud_files::packages::Latest;
use paddlecloud_files::runs::Outputs;

use super::{App, AppError, FieldRule};

/// Limit on the jobs removed by one request.
const MOST: u32 = 10_000;

impl App {
    /// Removes the caller's jobs that ended longer ago than `older_than`, their working copies and unused packages; also their
    /// outputs if requested.
    pub async fn job_prune(
        &self,
        caller: &Caller,
        older_than: SignedDuration,
        options: PruneOptions,
    ) -> Result<PruneReply, AppError> {
        let Ok(before) = Timestamp::now().checked_sub(older_than) else {
            return Err(AppError::BadField {
                field: "older_than_seconds",
                rule: FieldRule::Smaller,
            });
        };
        let mut old = self.store.finished_before(&caller.user, before, MOST).await?;
        let kept = match options.outputs {
            true => self.keep_runs_in_use(&caller.user, &mut old),
            false => None,
        };
        let mut reply = PruneReply {
            removed: old.iter().map(ToString::to_string).collect(),
            bytes: 0,
            jobs: self.described(&old).await?,
            note: kept.clone(),
        };
        // A request to remove everything includes the latest package.
        let latest = match older_than.is_zero() {
            true => Latest::Goes,
            false => Latest::Stays,
        };
        let outputs = match options.outputs {
            true => Outputs::Go,
            false => Outputs::Stay,
        };
        // It is unknown when runs that left the history ended, so their outputs are removed only with all others.
        let strays = match older_than.is_zero() {
            true => outputs,
            false => Outputs::Stay,
        };
        if options.dry_run {
            let logs = self.logs.occupied(&old).await;
            let strays = self.sweep_runs(&caller.user, strays, Removal::Foreseen).await?;
            reply.bytes = logs + strays + self.foresee_prune(caller, old, latest, outputs).await?;
            return Ok(reply);
        }
        let (mut last_error, mut not_durable) = (None, None);
        for id in &old {
            // One run that cannot be removed must not block the others.
            match self.prune_one(caller, id, outputs).await {
                Ok((bytes, note)) => {
                    reply.bytes += bytes;
                    not_durable = note.or(not_durable);
                }
                Err(error) => {
                    tracing::warn!(%id, error = chain_of(&error), "a job could not be pruned");
                    reply.removed.retain(|removed| removed != id.as_str());
                    reply.jobs.retain(|job| job.id != id.as_str());
                    last_error = Some(error);
                }
            }
        }
        let notes = kept.into_iter().chain(not_durable);
        reply.note = notes.reduce(|first, second| format!("{first}; {second}"));
        let swept = self.sweep_home(&caller.user, latest, strays).await;
        self.files.home_changed(caller);
        reply.bytes += swept?;
        match last_error {
            Some(error) if reply.removed.is_empty() => Err(error),
            _ => Ok(reply),
        }
    }

    /// Takes the runs off the list whose checkpoints another job needs; returns a note about them.
    fn keep_runs_in_use(&self, user: &UserName, old: &mut Vec<JobId>) -> Option<String> {
        let in_use = self.runs_in_use(user);
        let kept: Vec<String> = old
            .iter()
            .filter(|id| in_use.contains(id))
            .map(ToString::to_string)
            .collect();
        old.retain(|id| !in_use.contains(id));
        (!kept.is_empty()).then(|| {
            format!(
                "{} stays with its output: a job that has not ended continues its training",
                kept.join(", ")
            )
        })
    }

    /// The names and end times of jobs, because users do not know their jobs by id.
    async fn described(&self, old: &[JobId]) -> Result<Vec<PrunedJob>, AppError> {
        let mut described = Vec::new();
        for id in old {
            let job = self.store.get(id).await?;
            described.extend(job.map(|job| PrunedJob {
                id: id.to_string(),
                name: job.spec.name.to_string(),
                ended: job.finished_at,
            }));
        }
        Ok(described)
    }

    /// Removes what no job of the history needs: working copies of removed runs, and packages. Returns the number of bytes.
    async fn sweep_home(&self, user: &UserName, latest: Latest, strays: Outputs) -> Result<u64, AppError> {
        let mut bytes = self.sweep_runs(user, strays, Removal::Real).await?;
        if self.has_unknown_runs(user).await? {
            // Any package may belong to these runs.
            return Ok(bytes);
        }
        let locks = self.storage.locks(user);
        let alone = Arc::clone(&locks.packages).write_owned().await;
        let kept = self.store.snapshots(user, &[]).await?;
        let owner = user.clone();
        let condemned = self.with_files(move |storage| {
            let condemned = storage.condemn_packages(&owner, &kept, latest);
            // Dropped here and not in the caller, which may be cancelled while this continues.
            drop(alone);
            condemned
        });
        let condemned = condemned.await?;
        let owner = user.clone();
        let removed =
            self.with_files_queued(user, move |storage| storage.remove_condemned(&owner, &condemned));
        bytes += removed.await?.bytes;
        Ok(bytes)
    }

    /// Whether the home has runs that are newer than the backup from which the database was restored.
    async fn has_unknown_runs(&self, user: &UserName) -> Result<bool, AppError> {
        let owner = user.clone();
        let runs = self.with_files(move |storage| storage.runs_of(&owner)).await?;
        for run in runs.iter().filter(|run| self.store.may_be_unknown(run)) {
            if self.jobs.get_any(run).await?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Prunes runs that left the history. A run that was removed while its package's path led to it kept its copy until a later
    /// run replaced it.
    async fn sweep_runs(&self, user: &UserName, outputs: Outputs, removal: Removal) -> Result<u64, AppError> {
        let owner = user.clone();
        let runs = self.with_files(move |storage| storage.runs_of(&owner)).await?;
        let in_use = self.runs_in_use(user);
        let mut bytes = 0;
        for run in runs {
            let outputs = match in_use.contains(&run) {
                true => Outputs::Stay,
                false => outputs,
            };
            if self.jobs.get_any(&run).await?.is_some() || self.store.may_be_unknown(&run) {
                continue;
            }
            let (owner, id) = (user.clone(), run.clone());
            let pruned = self.with_files_queued(user, move |storage| {
                storage.prune_run(&owner, &id, outputs, removal)
            });
            match pruned.await {
                Ok(pruned) => bytes += pruned.bytes,
                // One failure must not block the removal of others.
                Err(error) => {
                    let error = chain_of(&error);
                    tracing::warn!(%user, %run, error, "a run could not be removed");
                }
            }
        }
        Ok(bytes)
    }

    /// Cleans every home, as after a crash; complete packages stay. Homes that cannot be cleaned now are logged and skipped.
    pub(crate) async fn sweep_homes(&self) {
        let users = match self.with_files(|storage| storage.users()).await {
            Ok(users) => users,
            Err(error) => return tracing::warn!(error = chain_of(&error), "homes cannot be listed"),
        };
        for user in users {
            if self.stop.is_cancelled() {
                return;
            }
            if let Err(error) = self.sweep_leftovers(&user).await {
                tracing::warn!(%user, error = chain_of(&error), "a home could not be cleaned up");
            }
        }
    }

    async fn sweep_leftovers(&self, user: &UserName) -> Result<(), AppError> {
        self.sweep_runs(user, Outputs::Stay, Removal::Real).await?;
        let owner = user.clone();
        self.with_files_queued(user, move |storage| storage.sweep_packages(&owner))
            .await?;
        Ok(())
    }

    /// The number of bytes that would be removed with these jobs.
    async fn foresee_prune(
        &self,
        caller: &Caller,
        old: Vec<JobId>,
        latest: Latest,
        outputs: Outputs,
    ) -> Result<u64, AppError> {
        let kept = self.store.snapshots(&caller.user, &old).await;
        let (user, kept) = (caller.user.clone(), kept?);
        self.with_files_queued(&caller.user, move |storage| {
            let mut bytes = storage.unused_packages(&user, &kept, latest)?.bytes;
            for id in &old {
                // Unreadable files cannot be removed either.
                let foreseen = storage.prune_run(&user, id, outputs, Removal::Foreseen);
                bytes += foreseen.unwrap_or_default().bytes;
            }
            Ok(bytes)
        })
        .await
    }

    /// Removes one job. Files go first, so that a job that is still listed can be pruned again. Also returns a note if the
    /// removal is not durable yet.
    async fn prune_one(
        &self,
        caller: &Caller,
        id: &JobId,
        outputs: Outputs,
    ) -> Result<(u64, Option<String>), AppError> {
        let logs = self.logs.occupied(std::slice::from_ref(id)).await;
        let (user, run) = (caller.user.clone(), id.clone());
        let pruned = self
            .with_files_queued(&caller.user, move |storage| {
                storage.prune_run(&user, &run, outputs, Removal::Real)
            })
            .await?;
        let removed = self
            .jobs
            .kill(&caller.user, JobRef::Id(id.clone()), AfterKill::Remove)
            .await?;
        Ok((logs + pruned.bytes, removed.note.map(str::to_owned)))
    }
}
