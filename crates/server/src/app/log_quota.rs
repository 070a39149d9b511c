//! Logs count toward their owner's storage quota: they may use what files leave free.
//!
//! Beyond that, the oldest segments of the user's logs are deleted, from any job; readers find a gap, and jobs
//! continue. The segment that a worker is writing stays, so each worker can exceed the quota by one segment.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use paddlecloud_accounts::auth::Caller;
use paddlecloud_core::error_chain::chain_of;
use paddlecloud_core::names::{JobId, UserName};

use super::{App, AppError};

/// The maximum age of the measurement of a home.
const MEASURED_WITHIN: Duration = Duration::from_secs(60);

impl App {
    /// Deletes the oldest log segments of every user who exceeds their quota.
    pub async fn trim_logs(&self) {
        let limited: Vec<Caller> = self
            .storage
            .accounts()
            .all()
            .iter()
            .map(|account| Caller {
                user: account.name.clone(),
                scopes: account.scopes,
            })
            .filter(|caller| self.files.is_limited(caller))
            .collect();
        if limited.is_empty() {
            return;
        }
        let mut logs = match self.logs_by_user().await {
            Ok(logs) => logs,
            Err(error) => return tracing::warn!(error = chain_of(&error), "logs cannot be measured"),
        };
        for caller in limited {
            let Some(jobs) = logs.remove(&caller.user) else {
                continue;
            };
            if let Err(error) = self.trim_logs_of(&caller, jobs).await {
                tracing::warn!(user = %caller.user, error = chain_of(&error), "logs cannot be compared with the storage quota");
            }
        }
    }

    /// Bytes of a user's logs.
    pub(super) async fn log_bytes(&self, user: &UserName) -> Result<u64, AppError> {
        let jobs = self.logs_by_user().await?.remove(user).unwrap_or_default();
        Ok(self.logs.occupied(&jobs).await)
    }

    async fn logs_by_user(&self) -> Result<HashMap<UserName, Vec<JobId>>, AppError> {
        let mut by_user: HashMap<UserName, Vec<JobId>> = HashMap::new();
        let listed = self.logs.jobs_with_logs().await.map_err(|error| {
            tracing::error!(%error, "logs cannot be listed");
            AppError::Internal
        })?;
        for job in listed {
            if let Some(found) = self.jobs.get_any(&job).await? {
                by_user.entry(found.user.clone()).or_default().push(job);
            }
        }
        Ok(by_user)
    }

    async fn trim_logs_of(&self, caller: &Caller, jobs: Vec<JobId>) -> Result<(), AppError> {
        let since = Instant::now()
            .checked_sub(MEASURED_WITHIN)
            .unwrap_or_else(Instant::now);
        let stored = self.file_storage_since(caller, since).await?;
        let Some(limit) = stored.bytes_limit else {
            return Ok(());
        };
        let left = limit.saturating_sub(stored.bytes_used);
        let freed = self.logs.trim(jobs, left).await;
        if freed > 0 {
            tracing::info!(user = %caller.user, freed, "the oldest logs were deleted: the storage quota is used up");
        }
        Ok(())
    }
}
