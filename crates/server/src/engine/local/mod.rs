//! The local engine: every worker is a process of this machine with its own supervisor.
//!
//! A supervisor outlives the server. The two share the attempt's folder (`<data>/attempts/<job>/<role>-<index>.<attempt>/`): the
//! plan, the socket, the log, the recorded exit. The conductor decides which workers run, and `runs` prepares their folders.

mod boot;
mod folders;
mod launch;
mod link;
mod start;
mod state;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use paddlecloud_accounts::auth::Secret;
use paddlecloud_core::conductor::{Addresses, Loopback};
use paddlecloud_core::job::News;
use paddlecloud_core::names::{DatacenterName, JobId};
use paddlecloud_core::ports::{
    Assignment, AttemptKey, Engine, EngineError, EngineEvent, EngineState, Report,
};
use paddlecloud_core::scheduler::Node;
use paddlecloud_files::homes::Storage;
use paddlecloud_worker::protocol::{Command, Isolation, LogLimits};
use tokio::sync::{Semaphore, mpsc};

use crate::logs::SegmentLogs;
use folders::AttemptFolder;
use link::SupervisorLink;

pub use boot::BootId;
pub use start::start;

/// Supervisors started concurrently; more would only compete for the cores.
const STARTS_AT_ONCE: usize = 8;

/// What the engine needs to know about this machine and this server.
#[derive(Debug, Clone)]
pub struct LocalSettings {
    /// The folder that contains the attempts' folders.
    pub data: PathBuf,
    pub datacenter: DatacenterName,
    /// The part of this machine that jobs may use.
    pub nodes: Vec<Node>,
    /// Where the workers' addresses begin; different for every server on a machine.
    pub address_seed: u64,
    pub isolation: Isolation,
    pub logs: LogLimits,
    /// Whether the run's output has a copy of each worker's log.
    pub log_copy: bool,
    pub boot: BootId,
    /// This program, which is started again under the supervisor's name.
    pub program: PathBuf,
    /// A folder with `paddle` in it, first in every worker's `PATH`.
    pub programs: PathBuf,
    /// The rest of `PATH`, unless the job has its own.
    pub path: String,
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
    links: Mutex<HashMap<AttemptKey, SupervisorLink>>,
    /// Attempts being launched: their folders may be in any state.
    launching: Mutex<HashSet<AttemptKey>>,
    /// Attempts whose supervisor did not stop in time and was killed.
    forced: Mutex<HashSet<AttemptKey>>,
    starts: Semaphore,
    /// Whether this boot is not recorded yet: the exits it caused may not be stored.
    boot_is_unrecorded: AtomicBool,
    reports: mpsc::UnboundedSender<Report>,
    incoming: tokio::sync::Mutex<mpsc::UnboundedReceiver<Report>>,
}

impl LocalEngine {
    /// Creates an engine. Nothing runs until its state is read or a launch is ordered.
    ///
    /// `logs` must use the same data folder: supervisors write there.
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
                boot_is_unrecorded: AtomicBool::new(true),
                reports,
                incoming: tokio::sync::Mutex::new(incoming),
            }),
        }
    }
}

impl Inner {
    fn links(&self) -> std::sync::MutexGuard<'_, HashMap<AttemptKey, SupervisorLink>> {
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

    fn send_command(&self, attempt: &AttemptKey, command: Command) {
        if let Some(link) = self.links().get(attempt) {
            link.send_command(command);
        }
    }

    fn boot_file(&self) -> PathBuf {
        self.settings.data.join("boot_id")
    }

    /// Records this boot as known. Orders come only after the state found at the start is durable, so the exits caused by the
    /// reboot are stored by now.
    ///
    /// If the write fails, for example on a full disk, the next order retries it.
    async fn remember_boot(self: &Arc<Self>) {
        if !self.boot_is_unrecorded.swap(false, Ordering::Relaxed) {
            return;
        }
        let inner = Arc::clone(self);
        let write = move || inner.settings.boot.remember_in(&inner.boot_file());
        let written = tokio::task::spawn_blocking(write)
            .await
            .unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
        if let Err(error) = written {
            self.boot_is_unrecorded.store(true, Ordering::Relaxed);
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
        self.inner.send_command(attempt, Command::Go { lines });
    }

    async fn stop(&self, attempt: &AttemptKey, grace: SignedDuration) {
        let grace = Duration::try_from(grace).unwrap_or_default();
        let link_stop = |link: &mut SupervisorLink| link.stop(grace);
        let overdue = self.inner.links().get_mut(attempt).is_some_and(link_stop);
        if overdue {
            state::force(&self.inner, attempt).await;
        }
    }

    async fn clean(&self, attempt: &AttemptKey) {
        self.inner.remember_boot().await;
        state::clean(&self.inner, attempt).await;
    }

    /// Does nothing: the remaining files are removed with the job's logs, which share the folder.
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

    /// All workers are on one machine, so each one gets its own loopback address.
    fn addresses(&self) -> Box<dyn Addresses> {
        Box::new(Loopback::from_seed(self.inner.settings.address_seed))
    }

    /// Restrictions of this machine.
    fn notes(&self) -> Vec<String> {
        self.inner.settings.isolation.degraded.clone()
    }

    fn era(&self) -> String {
        self.inner.settings.boot.as_str().to_owned()
    }
}
