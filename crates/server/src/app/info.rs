//! What the server reports about itself and about the caller.

use std::time::{Duration, Instant};

use paddlecloud_accounts::auth::{Action, Caller};
use paddlecloud_api::server::{ServerInfo, WhoAmI};

use super::{AdminOnly, App, AppError};

/// Minimum time between two disk checks, however often clients ask.
const DISKS_EVERY: Duration = Duration::from_secs(2);
/// Time limit for a disk check.
const DISK_TIMEOUT: Duration = Duration::from_secs(10);

/// When the disks were last checked, and the result.
pub type DisksChecked = tokio::sync::Mutex<Option<(Instant, Result<(), NotReady>)>>;

/// Why the server cannot accept jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("the server is stopping")]
    Stopping,
    #[error("the server's disk is full")]
    DiskFull,
    #[error("the server's database is damaged")]
    Damaged,
    #[error("the server cannot write to its disk")]
    Disk,
    #[error("a thread that checks the disks failed")]
    Thread,
}

impl App {
    pub fn whoami(&self, caller: &Caller) -> WhoAmI {
        WhoAmI {
            user: caller.user.to_string(),
            namespace: self.namespace_of(&caller.user),
            datacenter: self.config.datacenter.to_string(),
            home: self.storage.home_name(&caller.user),
            admin: caller.may(Action::Administer),
        }
    }

    /// The server's machine and resources. Only administrators see the machine's folders.
    pub async fn server_show(&self, caller: &Caller) -> ServerInfo {
        let (jobs_pending, jobs_running) = self.jobs.counts();
        // `None` while the server stops.
        let known = self
            .jobs
            .capacity()
            .await
            .filter(|_| self.config.engine.counts_room());
        let capacity = known.unwrap_or_default();
        let shown = |amount: String| known.map(|_| amount).unwrap_or_default();
        let (store, limits) = self.files.store();
        let private = |text: String| match caller.may(Action::Administer) {
            true => text,
            false => String::new(),
        };
        ServerInfo {
            version: crate::VERSION.to_owned(),
            pid: std::process::id(),
            embedded: self.config.embedded,
            datacenter: self.config.datacenter.to_string(),
            engine: self.config.engine.to_string(),
            listen: self.listen.join(", "),
            storage: private(store),
            storage_limits: limits.to_string(),
            data: private(self.config.data.display().to_string()),
            log: self
                .config
                .embedded
                .then(|| self.config.data.join("server.log").display().to_string()),
            database: private(self.config.database.to_string()),
            started: self.started.to_string(),
            cpu: shown(capacity.cpu.to_string()),
            memory: shown(capacity.memory.to_string()),
            gpus: capacity.gpu,
            degraded: self.degraded.clone(),
            jobs_pending,
            jobs_running,
        }
    }

    /// Whether the server can accept jobs.
    pub async fn ready_check(&self) -> Result<(), AppError> {
        if self.stop.is_cancelled() {
            return Err(NotReady::Stopping.into());
        }
        let answered = self.store.ping().await;
        if self.store.is_damaged() {
            return Err(NotReady::Damaged.into());
        }
        answered?;
        let mut latest = self.disks.lock().await;
        match &*latest {
            Some((at, checked)) if at.elapsed() < DISKS_EVERY => Ok((*checked)?),
            _ => {
                let checked = self.check_disks().await;
                *latest = Some((Instant::now(), checked));
                Ok(checked?)
            }
        }
    }

    /// Writes to the disks that the server needs: a full or broken disk can often still be read.
    async fn check_disks(&self) -> Result<(), NotReady> {
        if !self.store.has_room() {
            return Err(NotReady::DiskFull);
        }
        for folder in [&self.config.data, &self.config.storage] {
            let file = folder.join(".ready-check");
            let write = move || {
                let written =
                    std::fs::write(&file, [0; 4096]).and_then(|()| std::fs::File::open(&file)?.sync_all());
                let removed = std::fs::remove_file(&file);
                written.and(removed)
            };
            let written = tokio::time::timeout(DISK_TIMEOUT, tokio::task::spawn_blocking(write)).await;
            let problem = match written {
                Ok(Ok(Ok(()))) => continue,
                Ok(Ok(Err(error))) if error.kind() == std::io::ErrorKind::StorageFull => {
                    return Err(NotReady::DiskFull);
                }
                Ok(Ok(Err(error))) => error.to_string(),
                Ok(Err(_)) => return Err(NotReady::Thread),
                Err(_) => "it does not answer".to_owned(),
            };
            tracing::error!(folder = %folder.display(), problem, "a disk is not writable");
            return Err(NotReady::Disk);
        }
        Ok(())
    }

    /// Metrics in Prometheus' format.
    pub fn metrics_text(&self) -> String {
        let active = self.jobs.active();
        self.metrics
            .text(active.iter().map(|job| &**job), self.store.counts())
    }

    /// Stops the server once its replies are sent. Workers keep running.
    pub fn server_stop(&self, caller: &Caller) -> Result<(), AppError> {
        if !caller.may(Action::Administer) {
            return Err(AdminOnly::StopServer.into());
        }
        tracing::info!(user = %caller.user, "asked to stop");
        self.stop.cancel();
        Ok(())
    }
}
