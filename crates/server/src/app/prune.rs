//! Clearing the history of what is long over.

use jiff::{SignedDuration, Timestamp};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::PruneReply;
use paddlecloud_core::names::{JobId, JobRef};

use super::{App, store_failed};
use crate::auth::Caller;
use crate::packages::Removal;

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
        };
        if dry_run {
            reply.bytes = self.foresee_prune(caller, old).await?;
            return Ok(reply);
        }
        let mut trouble = None;
        for id in &old {
            // One run that cannot be cleared must not keep the others.
            match self.prune_one(caller, id).await {
                Ok(bytes) => reply.bytes += bytes,
                Err(error) => {
                    reply.removed.retain(|removed| removed != id.as_str());
                    trouble = Some(error);
                }
            }
        }
        let kept = self.store.snapshots(&caller.user, &[]).await;
        let (user, kept) = (caller.user.clone(), kept.map_err(store_failed)?);
        reply.bytes += self
            .with_files(move |storage| storage.prune_packages(&user, &kept, Removal::Real))
            .await?
            .bytes;
        match trouble {
            Some(error) if reply.removed.is_empty() => Err(error),
            _ => Ok(reply),
        }
    }

    /// The bytes that would go with these jobs.
    async fn foresee_prune(&self, caller: &Caller, old: Vec<JobId>) -> Result<u64, ErrorBody> {
        let kept = self.store.snapshots(&caller.user, &old).await;
        let (user, kept) = (caller.user.clone(), kept.map_err(store_failed)?);
        self.with_files(move |storage| {
            let mut bytes = storage.prune_packages(&user, &kept, Removal::Foreseen)?.bytes;
            for id in &old {
                bytes += storage.prune_run(&user, id, Removal::Foreseen)?.bytes;
            }
            Ok(bytes)
        })
        .await
    }

    /// Files first: a job that is still listed can be pruned again.
    async fn prune_one(&self, caller: &Caller, id: &JobId) -> Result<u64, ErrorBody> {
        let (user, run) = (caller.user.clone(), id.clone());
        let pruned = self
            .with_files(move |storage| storage.prune_run(&user, &run, Removal::Real))
            .await?;
        self.jobs.kill(&caller.user, JobRef::Id(id.clone()), true).await?;
        Ok(pruned.bytes)
    }
}
