//! `paddlecloud-server backup|restore`: writes the database to a file and restores it.

use std::path::Path;

use paddlecloud_accounts::auth::{Authenticator, Secret, SecretError};
use paddlecloud_core::job::{Job, Phase};
use paddlecloud_core::ports::AttemptKey;
use paddlecloud_store::{AuditEntry, BackupError, OpenError, Store};
use paddlecloud_worker::attempts;

use crate::config::Config;
use crate::data_folder::{DataFolder, TakeError};

/// Why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupCommandError {
    #[error(transparent)]
    Data(#[from] TakeError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("the backup was restored, but this could not be recorded in the audit log")]
    Audit(#[source] paddlecloud_core::ports::StoreError),
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
}

impl BackupCommandError {
    /// How to fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            BackupCommandError::Data(TakeError::Locked { .. }) => {
                Some("stop the server, restore, and start it again".to_owned())
            }
            BackupCommandError::Open(error) | BackupCommandError::Backup(BackupError::Open(error)) => {
                error.hint()
            }
            BackupCommandError::Secret(error) => error.hint(),
            _ => None,
        }
    }
}

/// Writes a backup; the server may be running.
pub fn back_up(config: &Config, file: &Path) -> Result<String, BackupCommandError> {
    let runtime = crate::start::runtime().map_err(BackupCommandError::Threads)?;
    let rows = runtime.block_on(paddlecloud_store::back_up(&config.database, file))?;
    Ok(format!("wrote {rows} rows to {}", file.display()))
}

/// Restores a backup; the server must not be running.
pub fn restore(config: &Config, file: &Path) -> Result<String, BackupCommandError> {
    let runtime = crate::start::runtime().map_err(BackupCommandError::Threads)?;
    let data = DataFolder::take(&config.data)?;
    let restored = runtime.block_on(restore_database(config, file));
    data.release();
    let rows = restored?;
    Ok(format!("restored {rows} rows from {}", file.display()))
}

async fn restore_database(config: &Config, file: &Path) -> Result<u64, BackupCommandError> {
    let rows = paddlecloud_store::restore(&config.database, file, &|job| is_known(job, &config.data)).await?;
    let store = Store::open(&config.database).await?;
    store.set_audit_key(Authenticator::audit_key(&Secret::open(&config.data)?));
    let entry = AuditEntry {
        action: "backup.restore".to_owned(),
        subject: file.display().to_string(),
        detail: format!("{rows} rows, by `paddlecloud-server restore`"),
        ..AuditEntry::default()
    };
    let recorded = store.audit(entry).await;
    store.close().await;
    recorded.map_err(BackupCommandError::Audit)?;
    Ok(rows)
}

/// Whether the job has not started yet, or the engine still has each of its attempts.
fn is_known(job: &Job, data: &Path) -> bool {
    if job.phase == Phase::Pending {
        return !attempts::job_folder(data, &job.id).exists();
    }
    let mut live = job.workers.iter().filter(|worker| worker.status.is_live());
    live.all(|worker| {
        let attempt = AttemptKey {
            job: job.id.clone(),
            worker: worker.key,
            attempt: worker.attempt,
        };
        attempts::is_launched(data, &attempt)
    })
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::testing::samples;

    use super::*;

    #[test]
    fn a_waiting_job_with_a_folder_has_started_since() {
        let folder = tempfile::tempdir().unwrap();
        let job = samples::pending(1, samples::spec("waits", 0, 1));
        assert!(is_known(&job, folder.path()));
        std::fs::create_dir_all(attempts::job_folder(folder.path(), &job.id)).unwrap();
        assert!(!is_known(&job, folder.path()));
    }
}
