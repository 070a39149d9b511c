//! The local engine: every worker is a process of this machine under a supervisor of its own.
//!
//! A supervisor outlives the server. What connects the two is the attempt's folder
//! (`<data>/attempts/<job>/<role>-<index>.<attempt>/`): the plan, the socket, the log, the recorded end.
//! Which workers should run is not decided here.

mod boot;
mod folders;
mod launch;
mod link;
mod state;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use paddlecloud_core::job::{Job, News, WorkerKey};
use paddlecloud_core::names::{DatacenterName, JobId};
use paddlecloud_core::ports::{AttemptKey, Engine, EngineError, EngineState, Report};
use paddlecloud_supervisor::protocol::{Command, Isolation, LogLimits};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::packages::Storage;
use folders::AttemptFolder;
use link::Link;

pub use boot::BootId;
pub use folders::{attempt_folder, job_folder};

/// Supervisors that are started at the same moment; more would only fight for the cores.
const STARTS_AT_ONCE: usize = 8;

/// What the engine needs to know about this machine and this server.
#[derive(Debug, Clone)]
pub struct LocalSettings {
    /// Where attempts' folders are made.
    pub data: PathBuf,
    pub datacenter: DatacenterName,
    pub isolation: Isolation,
    pub logs: LogLimits,
    pub boot: BootId,
    /// This program: started again under the name of the supervisor.
    pub program: PathBuf,
    /// A folder with `paddle` in it, first in every worker's `PATH`.
    pub programs: PathBuf,
}

/// How far a worker's log reaches, for those who follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogMark {
    pub length: u64,
    /// Nothing will be added.
    pub complete: bool,
}

/// Runs workers on this machine. Cheap to clone.
#[derive(Clone)]
pub struct LocalEngine {
    inner: Arc<Inner>,
}

struct Inner {
    settings: LocalSettings,
    storage: Storage,
    links: Mutex<HashMap<AttemptKey, Link>>,
    /// Attempts whose launch is under way: on disk they may look like anything.
    launching: Mutex<HashSet<AttemptKey>>,
    /// Attempts whose supervisor did nothing when told to stop, and was killed for that.
    forced: Mutex<HashSet<AttemptKey>>,
    starts: Semaphore,
    /// This boot is not remembered yet: what it ended may not be stored.
    boot_is_news: AtomicBool,
    /// One run is prepared by one task at a time.
    preparing: Mutex<HashMap<JobId, Arc<tokio::sync::Mutex<()>>>>,
    reports: mpsc::UnboundedSender<Report>,
    incoming: tokio::sync::Mutex<mpsc::UnboundedReceiver<Report>>,
}

impl LocalEngine {
    /// Makes an engine; nothing runs until it is asked for its state or told to launch.
    pub fn new(settings: LocalSettings, storage: Storage) -> std::io::Result<LocalEngine> {
        std::fs::create_dir_all(settings.data.join(folders::ATTEMPTS))?;
        let (reports, incoming) = mpsc::unbounded_channel();
        Ok(LocalEngine {
            inner: Arc::new(Inner {
                settings,
                storage,
                links: Mutex::default(),
                launching: Mutex::default(),
                forced: Mutex::default(),
                starts: Semaphore::new(STARTS_AT_ONCE),
                boot_is_news: AtomicBool::new(true),
                preparing: Mutex::default(),
                reports,
                incoming: tokio::sync::Mutex::new(incoming),
            }),
        })
    }

    /// Follows the growth of an attempt's log. `None`: it is over, the log on disk is complete.
    pub fn follow_log(&self, attempt: &AttemptKey) -> Option<watch::Receiver<LogMark>> {
        self.inner.links().get(attempt).map(Link::follow)
    }

    /// Jobs of which any folder is left.
    pub async fn jobs_with_folders(&self) -> std::io::Result<Vec<JobId>> {
        let attempts = self.inner.settings.data.join(folders::ATTEMPTS);
        let list = move || {
            let names = std::fs::read_dir(attempts)?
                .flatten()
                .map(|entry| entry.file_name());
            Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
        };
        let listed = tokio::task::spawn_blocking(list).await;
        listed.unwrap_or_else(|panic| Err(std::io::Error::other(panic)))
    }

    /// What this machine does not permit, each a sentence.
    pub fn degraded(&self) -> &[String] {
        &self.inner.settings.isolation.degraded
    }
}

impl Inner {
    fn links(&self) -> std::sync::MutexGuard<'_, HashMap<AttemptKey, Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn launching(&self) -> std::sync::MutexGuard<'_, HashSet<AttemptKey>> {
        self.launching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forced(&self) -> std::sync::MutexGuard<'_, HashSet<AttemptKey>> {
        self.forced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, attempt: &AttemptKey, news: News) {
        // The receiver lives as long as the engine.
        let _ = self.reports.send(Report {
            attempt: attempt.clone(),
            news,
        });
    }

    fn tell(&self, attempt: &AttemptKey, command: Command) {
        if let Some(link) = self.links().get(attempt) {
            link.tell(command);
        }
    }

    fn boot_file(&self) -> PathBuf {
        self.settings.data.join("boot_id")
    }

    /// Orders come only after what was found at the start is durable: from now on this boot is the known one.
    ///
    /// What cannot be written now, on a full disk, is tried again at the next order.
    async fn remember_boot(self: &Arc<Self>) {
        if !self.boot_is_news.swap(false, Ordering::Relaxed) {
            return;
        }
        let inner = Arc::clone(self);
        let write = move || inner.settings.boot.remember_in(&inner.boot_file());
        let written = tokio::task::spawn_blocking(write)
            .await
            .unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
        if let Err(error) = written {
            self.boot_is_news.store(true, Ordering::Relaxed);
            tracing::warn!(%error, "the boot id cannot be written; the next order tries again");
        }
    }

    fn folder(&self, attempt: &AttemptKey) -> AttemptFolder {
        AttemptFolder::of(&self.settings.data, attempt)
    }
}

impl Engine for LocalEngine {
    async fn launch(&self, job: &Arc<Job>, worker: WorkerKey, attempt: u32) {
        self.inner.remember_boot().await;
        let key = AttemptKey {
            job: job.id.clone(),
            worker,
            attempt,
        };
        launch::launch(&self.inner, job, key).await;
    }

    async fn go(&self, job: &Arc<Job>, worker: WorkerKey, attempt: u32) {
        let key = AttemptKey {
            job: job.id.clone(),
            worker,
            attempt,
        };
        let lines = launch::preamble(&self.inner, job, worker).await;
        self.inner.tell(&key, Command::Go { lines });
    }

    async fn stop(&self, attempt: &AttemptKey, grace: SignedDuration) {
        let grace = Duration::try_from(grace).unwrap_or_default();
        let link_stop = |link: &mut Link| link.stop(grace);
        let overdue = self.inner.links().get_mut(attempt).is_some_and(link_stop);
        if overdue {
            state::force(&self.inner, attempt).await;
        }
    }

    async fn clean(&self, attempt: &AttemptKey) {
        self.inner.remember_boot().await;
        state::clean(&self.inner, attempt).await;
    }

    async fn discard(&self, job: &JobId) {
        let folder = folders::job_folder(&self.inner.settings.data, job);
        let removed = tokio::fs::remove_dir_all(&folder).await;
        if let Err(error) = removed.or_else(folders::absent_is_fine) {
            tracing::warn!(%job, %error, "the logs of a removed job could not be deleted");
        }
        let (storage, removed) = (self.inner.storage.clone(), job.clone());
        match tokio::task::spawn_blocking(move || storage.forget_run(&removed)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%job, %error, "the folder of a removed job could not be deleted")
            }
            Err(error) => tracing::warn!(%job, %error, "clearing up after a removed job failed"),
        }
    }

    async fn state(&self) -> Result<EngineState, EngineError> {
        state::read(&self.inner).await
    }

    async fn next_reports(&self) -> Vec<Report> {
        let mut incoming = self.inner.incoming.lock().await;
        let mut reports = Vec::new();
        incoming.recv_many(&mut reports, 256).await;
        reports
    }
}
