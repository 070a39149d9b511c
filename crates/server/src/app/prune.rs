//! Clearing the history of what is long over.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::{PruneReply, PrunedJob};
use paddlecloud_core::names::{JobId, JobRef, UserName};
use paddlecloud_core::ports::JobStore as _;

use super::{App, store_failed};
use crate::auth::Caller;
use crate::engine::local::job_folder;
use crate::packages::{Latest, Removal};

/// Jobs removed by one request.
const MOST: u32 = 10_000;

impl App {
    /// Removes the caller's jobs that ended longer ago than `older_than`, their working copies and the
    /// packages nothing uses any more. Output stays.
    pub async fn job_prune(
        &self,
        caller: &Caller,
        older_than: SignedDuration,
        dry_run: bool,
    ) -> Result<PruneReply, ErrorBody> {
        let Ok(before) = Timestamp::now().checked_sub(older_than) else {
            return Err(ErrorBody::new(
                ErrorName::BadRequest,
                "`older_than_seconds` reaches before all times",
            ));
        };
        let old = self
            .store
            .finished_before(&caller.user, before, MOST)
            .await
            .map_err(store_failed)?;
        let mut reply = PruneReply {
            removed: old.iter().map(ToString::to_string).collect(),
            bytes: 0,
            jobs: self.told(&old).await?,
        };
        // Who wants to be rid of everything is rid of the latest package, too.
        let latest = match older_than.is_zero() {
            true => Latest::Goes,
            false => Latest::Stays,
        };
        if dry_run {
            reply.bytes = self.logs_of(&old).await + self.foresee_prune(caller, old, latest).await?;
            return Ok(reply);
        }
        let mut trouble = None;
        for id in &old {
            // One run that cannot be cleared must not keep the others.
            match self.prune_one(caller, id).await {
                Ok(bytes) => reply.bytes += bytes,
                Err(error) => {
                    reply.removed.retain(|removed| removed != id.as_str());
                    reply.jobs.retain(|job| job.id != id.as_str());
                    trouble = Some(error);
                }
            }
        }
        reply.bytes += self.sweep_home(&caller.user, latest).await?;
        match trouble {
            Some(error) if reply.removed.is_empty() => Err(error),
            _ => Ok(reply),
        }
    }

    /// Names and ends: nobody knows their jobs by id.
    async fn told(&self, old: &[JobId]) -> Result<Vec<PrunedJob>, ErrorBody> {
        let mut told = Vec::new();
        for id in old {
            let job = self.store.get(id).await.map_err(store_failed)?;
            told.extend(job.map(|job| PrunedJob {
                id: id.to_string(),
                name: job.spec.name.to_string(),
                ended: job.finished_at,
            }));
        }
        Ok(told)
    }

    /// The bytes of these jobs' logs. One that cannot be looked at counts nothing: it may be gone already.
    async fn logs_of(&self, jobs: &[JobId]) -> u64 {
        let folder = |job: &JobId| job_folder(&self.config.data, job);
        let folders: Vec<PathBuf> = jobs.iter().map(folder).collect();
        let measure = move || folders.iter().map(|folder| bytes_below(folder)).sum();
        tokio::task::spawn_blocking(measure).await.unwrap_or(0)
    }

    /// Removes what no job of the history needs: working copies of runs that left it, and packages. Says how much went.
    async fn sweep_home(&self, user: &UserName, latest: Latest) -> Result<u64, ErrorBody> {
        let mut bytes = self.sweep_runs(user, Removal::Real).await?;
        let turn = self.storage.turn(user);
        let alone = Arc::clone(&turn.packages).write_owned().await;
        let kept = self.store.snapshots(user, &[]).await.map_err(store_failed)?;
        let owner = user.clone();
        let condemned = self.with_files(move |storage| {
            let condemned = storage.condemn_packages(&owner, &kept, latest);
            // Not before: whoever asked may be gone, and this goes on.
            drop(alone);
            condemned
        });
        let condemned = condemned.await?;
        let owner = user.clone();
        let removed =
            self.with_files_at_length(user, move |storage| storage.remove_condemned(&owner, &condemned));
        bytes += removed.await?.bytes;
        Ok(bytes)
    }

    /// A run that was removed while its package's path led to it kept its copy, until a later run took its place.
    async fn sweep_runs(&self, user: &UserName, removal: Removal) -> Result<u64, ErrorBody> {
        let owner = user.clone();
        let runs = self.with_files(move |storage| storage.runs_of(&owner)).await?;
        let mut bytes = 0;
        for run in runs {
            if self.jobs.get_any(&run).await?.is_some() {
                continue;
            }
            let (owner, id) = (user.clone(), run.clone());
            let pruned =
                self.with_files_at_length(user, move |storage| storage.prune_run(&owner, &id, removal));
            match pruned.await {
                Ok(pruned) => bytes += pruned.bytes,
                // It must not keep what others left.
                Err(error) => tracing::warn!(%user, %run, %error, "a run could not be cleared away"),
            }
        }
        Ok(bytes)
    }

    /// Sweeps every home, as after a crash; packages that are whole stay. What cannot be swept now is told and left.
    pub(crate) async fn sweep_homes(&self) {
        let users = self.with_files(|storage| storage.users()).await;
        for user in users.unwrap_or_default() {
            if self.stop.is_cancelled() {
                return;
            }
            if let Err(error) = self.sweep_leftovers(&user).await {
                tracing::warn!(%user, %error, "a home could not be cleared of what nobody needs");
            }
        }
    }

    async fn sweep_leftovers(&self, user: &UserName) -> Result<(), ErrorBody> {
        self.sweep_runs(user, Removal::Real).await?;
        let owner = user.clone();
        self.with_files_at_length(user, move |storage| storage.sweep_packages(&owner))
            .await?;
        Ok(())
    }

    /// The bytes that would go with these jobs.
    async fn foresee_prune(
        &self,
        caller: &Caller,
        old: Vec<JobId>,
        latest: Latest,
    ) -> Result<u64, ErrorBody> {
        let strays = self.sweep_runs(&caller.user, Removal::Foreseen).await?;
        let kept = self.store.snapshots(&caller.user, &old).await;
        let (user, kept) = (caller.user.clone(), kept.map_err(store_failed)?);
        self.with_files_at_length(&caller.user, move |storage| {
            let mut bytes = strays + storage.unused_packages(&user, &kept, latest)?.bytes;
            for id in &old {
                // What cannot be looked at cannot go either.
                let foreseen = storage.prune_run(&user, id, Removal::Foreseen);
                bytes += foreseen.unwrap_or_default().bytes;
            }
            Ok(bytes)
        })
        .await
    }

    /// Files first: a job that is still listed can be pruned again.
    async fn prune_one(&self, caller: &Caller, id: &JobId) -> Result<u64, ErrorBody> {
        let logs = self.logs_of(std::slice::from_ref(id)).await;
        let (user, run) = (caller.user.clone(), id.clone());
        let pruned = self
            .with_files_at_length(&caller.user, move |storage| {
                storage.prune_run(&user, &run, Removal::Real)
            })
            .await?;
        self.jobs.kill(&caller.user, JobRef::Id(id.clone()), true).await?;
        Ok(logs + pruned.bytes)
    }
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}
