//! Finds the job that a request refers to.

use std::sync::Arc;

use paddlecloud_accounts::auth::{Action, Caller, request_id};
use paddlecloud_core::error_chain::chain_of;
use paddlecloud_core::job::Job;
use paddlecloud_core::names::{JobRef, UserName};
use paddlecloud_core::ports::{JobStore, PageRequest};
use paddlecloud_store::AuditEntry;

use super::accounts::audit;
use super::{AdminOnly, App, AppError};
use crate::nearest::nearest;

/// The audit log's name for a kill.
pub(super) const KILL: &str = "job.kill";
/// How many of the caller's latest jobs are searched for a similar name.
const SIMILAR_AMONG: usize = 100;

impl App {
    /// Finds a job: any run by id, the latest by name. Other users' jobs do not exist for the caller; an administrator's access
    /// to one is recorded in the audit log as `action`.
    ///
    /// The store is as current as memory: every change is written before it becomes visible.
    pub async fn job_find(
        &self,
        caller: &Caller,
        target: &JobRef,
        action: &str,
    ) -> Result<Arc<Job>, AppError> {
        let found = match target {
            JobRef::Id(id) => match self.jobs.get(id) {
                Some(job) => Ok(Some(job)),
                None => self.store.get(id).await,
            },
            JobRef::Name(name) => self.store.latest(&caller.user, Some(name)).await,
            JobRef::Of(user, name) => self.store.latest(user, Some(name)).await,
            JobRef::Latest => self.store.latest(&caller.user, None).await,
        };
        let job = found?;
        let own = job.filter(|job| caller.may(Action::UseOf(&job.user)));
        let Some(job) = own else {
            return Err(self.no_such_job(caller, target).await);
        };
        if job.user != caller.user {
            let subject = format!("{}/{}", job.user, job.spec.name);
            self.record_access(caller, action, &subject, job.id.as_str())
                .await?;
        }
        Ok(job)
    }

    /// Records an administrator's access to what belongs to others. If that fails, access is denied, except for a kill, which may
    /// be what frees the database's disk.
    pub(super) async fn record_access(
        &self,
        caller: &Caller,
        action: &str,
        subject: &str,
        detail: &str,
    ) -> Result<(), AppError> {
        let entry = audit(caller, action, subject, detail);
        match self.store.audit(entry).await {
            Err(error) if action == KILL => {
                let error = chain_of(&error);
                tracing::error!(
                    error,
                    subject,
                    "a kill by an administrator is not in the audit log"
                );
                Ok(())
            }
            recorded => Ok(recorded?),
        }
    }

    /// Records that a logged-in user was refused what their login does not allow. The refusal stands whether or not this succeeds.
    pub async fn record_refusal(&self, user: &UserName, request: &str) {
        let entry = AuditEntry {
            actor: user.to_string(),
            action: "refuse".to_owned(),
            subject: request.to_owned(),
            request: request_id::current(),
            ..AuditEntry::default()
        };
        if let Err(error) = self.store.audit(entry).await {
            tracing::warn!(error = chain_of(&error), "a refusal is not in the audit log");
        }
    }

    /// Allows only administrators to access all users' jobs and quotas, and records it.
    pub(super) async fn check_all_users(&self, caller: &Caller, action: &str) -> Result<(), AppError> {
        if !caller.may(Action::Administer) {
            return Err(AdminOnly::SeeAllUsers.into());
        }
        self.record_access(caller, action, "all users", "").await
    }

    pub(super) async fn no_such_job(&self, caller: &Caller, target: &JobRef) -> AppError {
        let latest = PageRequest {
            user: Some(caller.user.clone()),
            name: None,
            before: None,
            limit: SIMILAR_AMONG,
        };
        // Without the jobs, the error has no suggestion.
        let own = self
            .store
            .page(&latest)
            .await
            .map_or(Vec::new(), |page| page.jobs);
        let near = nearest(&target.to_string(), own.iter().map(|job| job.spec.name.as_str()));
        AppError::NoJob {
            target: target.clone(),
            near: near.map(str::to_owned),
        }
    }
}
