//! The engine itself: orders become objects and messages, watches and links become news.
//!
//! The server's own records determine which attempts exist; the cluster and the links report their state.

mod cluster;
mod ends;
mod launch;
#[cfg(test)]
mod link_tests;
mod made;
mod nodes;
mod obstacles;
mod orders;
mod own_pods;
mod pods;
mod records;
mod settle;
mod speaking;
mod sweeping;
mod table;
mod tenants;
mod watching;
mod worker_plan;

pub use cluster::CallError;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use paddlecloud_core::conductor::{Addresses, Hostnames};
use paddlecloud_core::job::{Boot, News, WorkerKey};
use paddlecloud_core::names::{DatacenterName, JobId, UserName};
use paddlecloud_core::ports::{
    Assignment, AttemptKey, Engine, EngineError, EngineEvent, EngineState, LogStore, Report,
};
use paddlecloud_core::scheduler::Quota;
use paddlecloud_link::{self as link, LinkSettings};
use paddlecloud_worker::protocol::{FileError, LogLimits, WorkerPlan};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::render::{self, tenancy::Grant};
use crate::settings::{Limits, Namespaces, Settings};
use cluster::Cluster;
use made::Turn;
pub use nodes::ANY_NODE;
use nodes::Room;
use obstacles::RefusedWatches;
use records::Records;
use table::Table;
pub use tenants::{Accounts, NamespaceNames, Tenancy};

/// What the engine needs in addition to its settings.
pub struct Options {
    pub settings: Settings,
    /// A kubeconfig file; absent: `KUBECONFIG`, the usual file, or the pod's own service account.
    pub kubeconfig: Option<PathBuf>,
    /// The server's own folder.
    pub data: PathBuf,
    /// The tree that pods mount, as the server sees it.
    pub storage: PathBuf,
    pub datacenter: DatacenterName,
    pub log_limits: LogLimits,
    /// Whether a copy of each log is kept in the run's output.
    pub log_copy: bool,
    pub logs: Arc<dyn LogStore>,
    pub link: LinkSettings,
    pub limits: Limits,
    pub accounts: Arc<dyn Accounts>,
}

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot find the cluster's configuration: {0}")]
    Config(String),
    #[error("the cluster does not answer: {0}")]
    Unreachable(String),
    #[error("this server may not list and watch {kind}: {message}")]
    Refused { kind: String, message: String },
    #[error("cannot mark the storage folder")]
    Mark(#[source] std::io::Error),
    #[error("cannot read the records of attempts")]
    Records(#[from] FileError),
    #[error("cannot create the folder of attempts")]
    Folder(#[from] std::io::Error),
}

/// Runs workers as pods. Cheap to clone.
#[derive(Clone)]
pub struct KubernetesEngine {
    inner: Arc<Inner>,
    /// Watches, links and launches end with the last handle; pods keep running.
    tasks: Arc<Tasks>,
}

/// Background tasks of the engine; they end when this is dropped. Nothing is kept of those that have ended.
#[derive(Default)]
pub(crate) struct Tasks(CancellationToken);

impl Tasks {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(self.0.clone().run_until_cancelled_owned(task));
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

pub(crate) struct Inner {
    settings: Settings,
    storage: PathBuf,
    datacenter: DatacenterName,
    log_limits: LogLimits,
    log_copy: bool,
    limits: Limits,
    accounts: Arc<dyn Accounts>,
    cluster: Cluster,
    /// The rights that this server gives itself in the namespaces that it creates.
    grant: Option<Grant>,
    records: Records,
    logs: Arc<dyn LogStore>,
    certificate: String,
    link_key: [u8; 32],
    table: Mutex<Table>,
    launches: tokio::sync::Semaphore,
    room: Mutex<Room>,
    /// The uid of each run's owner object, which is created once.
    owners: Mutex<HashMap<JobId, Turn<String>>>,
    /// The namespaces of users, where they differ from what the accounts say, and how they are found.
    names: NamespaceNames,
    name_turns: Mutex<HashMap<String, Turn<tenants::Found>>>,
    /// Namespaces that are ready, with their current quota.
    tenants: Mutex<HashMap<String, Turn<Quota>>>,
    /// Nodes that are blamed for the end of an attempt, by worker.
    blamed: Mutex<HashMap<(JobId, WorkerKey), BTreeSet<String>>>,
    refused_watches: Mutex<RefusedWatches>,
    events: mpsc::UnboundedSender<EngineEvent>,
    incoming: tokio::sync::Mutex<mpsc::UnboundedReceiver<EngineEvent>>,
}

impl KubernetesEngine {
    /// Connects to the cluster and adopts the attempts of earlier servers.
    pub async fn start(options: Options) -> Result<KubernetesEngine, StartError> {
        mark_tree(&options.storage, &options.settings.server).map_err(StartError::Mark)?;
        let client = watching::client(options.kubeconfig.as_deref()).await?;
        let grant = tenants::grant(&options.settings, &client).await?;
        let inner = Arc::new(Inner::open(&options, client.clone(), grant)?);
        inner.take_up_records().await?;
        tenants::recognize_names(&inner);
        tenants::bind_recorded(&inner).await;
        let tasks = Tasks::default();
        watching::start(&inner, client, &tasks).await?;
        let LinkSettings {
            listener, tls, key, ..
        } = options.link;
        tasks.spawn(link::listen(listener, tls, key, Arc::clone(&inner)));
        tasks.spawn(sweeping::sweep(Arc::clone(&inner)));
        tasks.spawn(tenants::follow_quotas(Arc::clone(&inner)));
        Ok(KubernetesEngine {
            inner,
            tasks: Arc::new(tasks),
        })
    }

    /// Where the namespaces of users differ from what their accounts say.
    pub fn namespace_names(&self) -> NamespaceNames {
        self.inner.names.clone()
    }
}

/// Marks the tree. Pods check the mark before they use the tree, to detect a volume that is not the server's storage.
fn mark_tree(storage: &Path, server: &str) -> std::io::Result<()> {
    let folder = storage.join(render::TREE_FOLDER);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(render::TREE_MARK), server)
}

impl Inner {
    /// Knows no attempt and nothing of the cluster yet.
    fn open(options: &Options, client: kube::Client, grant: Option<Grant>) -> Result<Inner, StartError> {
        let (events, incoming) = mpsc::unbounded_channel();
        let room = match options.settings.pins() {
            true => Room::new(options.settings.pods.clone()),
            false => Room::boundless(),
        };
        Ok(Inner {
            room: Mutex::new(room),
            settings: options.settings.clone(),
            storage: options.storage.clone(),
            datacenter: options.datacenter.clone(),
            log_limits: options.log_limits,
            log_copy: options.log_copy,
            cluster: Cluster::new(client, options.limits.api_server),
            grant,
            limits: options.limits,
            accounts: Arc::clone(&options.accounts),
            records: Records::open(&options.data)?,
            logs: Arc::clone(&options.logs),
            certificate: options.link.certificate.clone(),
            link_key: options.link.key,
            table: Mutex::default(),
            launches: tokio::sync::Semaphore::new(launch::LAUNCHES_AT_ONCE),
            owners: Mutex::default(),
            names: NamespaceNames::default(),
            name_turns: Mutex::default(),
            tenants: Mutex::default(),
            blamed: Mutex::default(),
            refused_watches: Mutex::default(),
            events,
            incoming: tokio::sync::Mutex::new(incoming),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<String, Turn<Quota>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blamed_nodes(&self) -> MutexGuard<'_, HashMap<(JobId, WorkerKey), BTreeSet<String>>> {
        self.blamed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused_watches(&self) -> MutexGuard<'_, RefusedWatches> {
        self.refused_watches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The namespace of a user's jobs.
    fn namespace_of(&self, user: &UserName) -> String {
        let own = || self.names.of(self.accounts.tenancy(user).namespace);
        self.settings.namespaces.of(user, own)
    }

    /// Forgets a run of which no objects are left.
    fn forget_run(&self, job: &JobId) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.remove(job);
        drop(owners);
        self.blamed_nodes().retain(|(of, _), _| of != job);
    }

    /// Reports what an attempt waits for, unless its launcher has connected or this news was already reported.
    fn report_waiting(&self, attempt: &AttemptKey, news: News) {
        let is_new = self
            .table()
            .get(attempt)
            .is_some_and(|entry| entry.is_awaited() && entry.news != news);
        if is_new {
            self.report(attempt, news);
        }
    }

    /// Stores and reports the news of an attempt. News after its end is ignored.
    fn report(&self, attempt: &AttemptKey, news: News) {
        let mut table = self.table();
        let Some(entry) = table.get_mut(attempt).filter(|entry| !entry.news.is_end()) else {
            return;
        };
        entry.news = news.clone();
        drop(table);
        if !news.is_end() {
            self.records.note_news(attempt, &news);
        }
        self.send(EngineEvent::Worker(Report {
            attempt: attempt.clone(),
            news,
        }));
    }

    fn send(&self, event: EngineEvent) {
        // The receiver lives as long as the engine, so sending cannot fail.
        let _ = self.events.send(event);
    }

    /// The plan of an attempt, from its record.
    async fn plan(self: &Arc<Self>, attempt: &AttemptKey) -> std::io::Result<WorkerPlan> {
        let attempt = attempt.clone();
        let read = self.blocking(move |inner| inner.records.plan(&attempt));
        read.await?.map_err(std::io::Error::other)
    }

    /// Runs blocking disk operations on a thread for them.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> std::io::Result<T> {
        let inner = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&inner))
            .await
            .map_err(std::io::Error::other)
    }
}

impl Engine for KubernetesEngine {
    async fn launch(&self, assignment: &Assignment) {
        launch::launch(&self.inner, assignment, &self.tasks);
    }

    async fn go(&self, attempt: &AttemptKey) {
        orders::go(&self.inner, attempt).await;
    }

    async fn stop(&self, attempt: &AttemptKey, grace: SignedDuration) {
        orders::stop(
            &self.inner,
            attempt,
            Duration::try_from(grace).unwrap_or_default(),
        )
        .await;
    }

    async fn clean(&self, attempt: &AttemptKey) {
        orders::clean(&self.inner, attempt).await;
    }

    async fn discard(&self, job: &JobId) {
        orders::discard(&self.inner, job);
    }

    async fn state(&self) -> Result<EngineState, EngineError> {
        let table = self.inner.table();
        let attempts = table.iter().map(|(key, entry)| Report {
            attempt: key.clone(),
            news: entry.news.clone(),
        });
        Ok(EngineState {
            attempts: attempts.collect(),
            nodes: self.inner.room().nodes(),
            boot: Boot::Same,
        })
    }

    async fn next_events(&self) -> Vec<EngineEvent> {
        let mut incoming = self.inner.incoming.lock().await;
        let mut events = Vec::new();
        incoming.recv_many(&mut events, 256).await;
        events
    }

    fn addresses(&self) -> Box<dyn Addresses> {
        Box::new(Hostnames)
    }

    fn closed_nodes(&self) -> usize {
        self.inner.room().closed()
    }

    fn can_start_workers(&self) -> bool {
        self.inner.cluster.trouble().is_none()
    }

    fn obstacles(&self, job: &JobId) -> Vec<String> {
        obstacles::of_job(&self.inner, job, Timestamp::now())
    }

    fn unlinked(&self, job: &JobId) -> Vec<AttemptKey> {
        self.inner.table().unlinked(job)
    }

    fn notes(&self) -> Vec<String> {
        let settings = &self.inner.settings;
        let level = settings.volume.security_level();
        // Given namespaces have the level that their administrator chose.
        if level == "restricted" || settings.namespaces != Namespaces::PerUser {
            return Vec::new();
        }
        vec![format!(
            "users' namespaces permit pod security level `{level}`, because of the kind of volume"
        )]
    }
}
