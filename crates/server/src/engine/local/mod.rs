//! The local engine: every worker is a process of this machine with its own supervisor.
//!
//! A supervisor outlives the server. The two share the attempt's folder
//! (`<data>/attempts/<job>/<role>-<index>.<attempt>/`): the plan, the socket, the log, the recorded exit. Which workers
//! should run is decided elsewhere, and the folders of runs are prepared elsewhere.

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
use paddlecloud_core::conductor::{Addresses, Loopback};
use paddlecloud_core::job::News;
use paddlecloud_core::names::{DatacenterName, JobId};
use paddlecloud_core::ports::{
    Assignment, AttemptKey, Engine, EngineError, EngineEvent, EngineState, Report,
};
use paddlecloud_core::scheduler::Node;
use paddlecloud_supervisor::protocol::{Command, Isolation, LogLimits};
use tokio::sync::{Semaphore, mpsc};

use crate::auth::Secret;
use crate::homes::Storage;
use crate::logs::SegmentLogs;
use folders::AttemptFolder;
use link::Link;

pub use boot::BootId;
pub use launch::PYTHON_FOLDER;

/// Supervisors that are started at the same time; more would only compete for the cores.
const STARTS_AT_ONCE: usize = 8;

/// What the engine needs to know about this machine and this server.
#[derive(Debug, Clone)]
pub struct LocalSettings {
    /// Where attempts' folders are created.
    pub data: PathBuf,
    pub datacenter: DatacenterName,
    /// This machine, as far as jobs may use it.
    pub nodes: Vec<Node>,
    /// Different for every server on a machine: where its workers' addresses begin.
    pub address_seed: u64,
    pub isolation: Isolation,
    pub logs: LogLimits,
    /// Whether a worker's log has a copy in the run's output.
    pub log_copy: bool,
    pub boot: BootId,
    /// This program: started again under the name of the supervisor.
    pub program: PathBuf,
    /// A folder with `paddle` in it, first in every worker's `PATH`.
    pub programs: PathBuf,
}

/// Runs workers on this machine. Cheap to clone.
#[derive(Clone)]
pub struct LocalEngine {
    inner: Arc<Inner>,
}

struct Inner {
    settings: LocalSettings,
    storage: Storage,
    logs: SegmentLogs,
    secret: Secret,
    links: Mutex<HashMap<AttemptKey, Link>>,
    /// Attempts that are being launched: on disk they may be in any state.
    launching: Mutex<HashSet<AttemptKey>>,
    /// Attempts whose supervisor did not stop in time, and was killed for that.
    forced: Mutex<HashSet<AttemptKey>>,
    starts: Semaphore,
    /// This boot is not recorded yet: the exits it caused may not be stored.
    boot_is_news: AtomicBool,
    reports: mpsc::UnboundedSender<Report>,
    incoming: tokio::sync::Mutex<mpsc::UnboundedReceiver<Report>>,
}

impl LocalEngine {
    /// Creates an engine; nothing runs until its state is read or a launch is ordered.
    ///
    /// The logs are below the same data folder: supervisors write them there.
    pub fn new(settings: LocalSettings, storage: Storage, logs: SegmentLogs, secret: Secret) -> LocalEngine {
        let (reports, incoming) = mpsc::unbounded_channel();
        LocalEngine {
            inner: Arc::new(Inner {
                settings,
                storage,
                logs,
                secret,
                links: Mutex::default(),
                launching: Mutex::default(),
                forced: Mutex::default(),
                starts: Semaphore::new(STARTS_AT_ONCE),
                boot_is_news: AtomicBool::new(true),
                reports,
                incoming: tokio::sync::Mutex::new(incoming),
            }),
        }
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

    /// Orders come only after the state found at the start is durable: from now on this boot is the recorded one.
    ///
    /// If it cannot be written now, on a full disk, the next order tries again.
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
    async fn launch(&self, assignment: &Assignment) {
        self.inner.remember_boot().await;
        launch::launch(&self.inner, assignment).await;
    }

    async fn go(&self, attempt: &AttemptKey) {
        let lines = launch::preamble(&self.inner, attempt).await;
        self.inner.tell(attempt, Command::Go { lines });
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

    /// What is left after cleaning is removed with the job's logs, whose folder it shares.
    async fn discard(&self, _job: &JobId) {}

    async fn state(&self) -> Result<EngineState, EngineError> {
        state::read(&self.inner).await
    }

    async fn next_events(&self) -> Vec<EngineEvent> {
        let mut incoming = self.inner.incoming.lock().await;
        let mut reports = Vec::new();
        incoming.recv_many(&mut reports, 256).await;
        reports.into_iter().map(EngineEvent::Worker).collect()
    }

    /// One machine: every worker has its own loopback address.
    fn addresses(&self) -> Box<dyn Addresses> {
        Box::new(Loopback::from_seed(self.inner.settings.address_seed))
    }

    /// What this machine does not permit.
    fn notes(&self) -> Vec<String> {
        self.inner.settings.isolation.degraded.clone()
    }

    fn era(&self) -> String {
        self.inner.settings.boot.as_str().to_owned()
    }
}
