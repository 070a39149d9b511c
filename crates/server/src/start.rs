//! Constructs a server, runs it until it is asked to stop, and shuts it down.
//!
//! `run` parses the command line; each engine constructs itself from the configuration (`engine`).

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use paddlecloud_accounts::Accounts;
use paddlecloud_accounts::auth::{Authenticator, Secret, SecretError};
use paddlecloud_accounts::authority::{Authority, AuthorityError};
use paddlecloud_accounts::oidc::{Oidc, OidcError};
use paddlecloud_accounts::secrets::{Secrets, SecretsError};
use paddlecloud_accounts::tls::{Tls, TlsError};
use paddlecloud_accounts::users::{SystemUserError, SystemUserMap, SystemUsers};
use paddlecloud_core::error_chain::chain_of;
use paddlecloud_core::ports::{Engine, JobStore, PageRequest};
use paddlecloud_core::quantity::Bytes;
use paddlecloud_files::homes::{HomeError, InUse, Storage, StorageLock};
use paddlecloud_files::lane;
use paddlecloud_files::locks::Locks;
use paddlecloud_files::packages::MOST_LIST;
use paddlecloud_files::queue::{self, Queue};
use paddlecloud_files::runs::HomeRuns;
use paddlecloud_files::{Backend, FileStoreError, Files};
use paddlecloud_k8s::NamespaceNames;
use paddlecloud_store::{OpenError, Store};
use paddlecloud_worker::protocol::Isolation;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app::{App, DisksChecked, LogReaders, StorageWatch};
use crate::config::{Config, EngineKind, machine_memory};
use crate::data_folder::{DataFolder, TakeError, jobs_below};
use crate::engine::kubernetes::{self, KubernetesError};
use crate::engine::local;
use crate::http::serve::{self, Bound, ListenError};
use crate::logs::{Logs, SegmentLogs};
use crate::metrics::Metrics;
use crate::ready::Ready;
use crate::reconcile::{self, Clock, Jobs, Parts, Reconciler, Sharing};

/// Threads that answer requests. Most of the work is waiting; two are enough.
const THREADS: usize = 2;
/// Threads for short blocking work: reading a folder, checking a password, a piece of a file.
const SHORT_THREADS: usize = 6;
/// Threads for blocking work. Transfers and long work leave some of them to short work.
const BLOCKING_THREADS: usize = lane::LANES + queue::THREADS + SHORT_THREADS;

/// How often unfinished uploads are checked.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// How often logs are compared with the storage quota.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// How often the server checks whose home is due to be measured while jobs run.
const STORAGE_CHECK_EVERY: Duration = Duration::from_secs(1);

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Data(#[from] TakeError),
    #[error("cannot use the storage folder `{path}`", path = .path.display())]
    Storage {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the storage folder `{path}` does not exist, but the database contains jobs", path = .0.display())]
    StorageMissing(PathBuf),
    #[error(transparent)]
    StorageInUse(#[from] InUse),
    #[error("cannot serve users' files from {backend}")]
    Files {
        backend: Box<Backend>,
        #[source]
        source: FileStoreError,
    },
    #[error(transparent)]
    SystemUsers(#[from] SystemUserError),
    #[error(transparent)]
    Homes(#[from] HomeError),
    #[error("cannot open the logs in the data folder")]
    Logs(#[source] io::Error),
    #[error("cannot start the engine")]
    Engine(#[source] io::Error),
    #[error("cannot start the Kubernetes engine")]
    Kubernetes(#[from] KubernetesError),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    #[error(transparent)]
    Oidc(#[from] OidcError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{0} can be reached from other machines, and passwords and tokens would be sent in plain text")]
    PlainHttp(String),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot load the jobs")]
    Jobs(#[from] reconcile::LoadError),
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
}

/// Runs a server until it is asked to stop. Reports on `ready` when the server is ready, or why it failed.
pub fn run(config: Config, ready: Ready) -> Result<(), StartError> {
    allow_many_files();
    return_large_blocks();
    // Forks, so it must run before threads start.
    let isolation = paddlecloud_supervisor::probe();
    let result = runtime().map_err(StartError::Threads).and_then(|runtime| {
        let stop = CancellationToken::new();
        let server = runtime.block_on(Server::start(config, isolation, stop))?;
        Ok((runtime, server))
    });
    match result {
        Ok((runtime, server)) => {
            runtime.block_on(async {
                stop_on_signals(server.stop_token());
                tracing::info!(
                    version = crate::VERSION,
                    listen = server.addresses().join(", "),
                    "ready"
                );
                ready.ready();
                server.run().await;
            });
            Ok(())
        }
        Err(error) => {
            ready.failed(&chain_of(&error), error.hint().as_deref());
            Err(error)
        }
    }
}

/// Makes the allocator return every block of 1 MiB or more when it is freed. By default glibc keeps blocks of up to 32 MiB for the
/// thread that freed them, such as the 19 MiB of a password hash. Free memory at the end of
/// an arena is returned only above 1 MiB: with glibc's initial 128 KiB, the buffers of every transfer would be returned and
/// requested again.
fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only sets a parameter, before other threads start.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
    }
}

/// The threads of a server.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("paddlecloud")
        .enable_all()
        .build()
}

/// A server whose sockets are open and whose jobs are loaded.
pub struct Server {
    app: Arc<App>,
    sockets: Vec<Bound>,
    tls: Option<Tls>,
    reconciler: Reconciler,
    /// Held until the end: no other process may use the folder.
    data: Arc<DataFolder>,
    /// Held until the end as well.
    storage: StorageLock,
}

impl Server {
    /// Starts everything that is needed to answer the first request.
    pub async fn start(
        config: Config,
        isolation: Isolation,
        stop: CancellationToken,
    ) -> Result<Server, StartError> {
        let (system_users, map) = system_users(&config, &isolation)?;
        let data = DataFolder::take(&config.data)?;
        let (tls, authority) = open_tls(&config)?;
        let store = Store::open_knowing(&config.database, jobs_below(&config.data)).await?;
        let secret = Secret::open(&config.data)?;
        store.set_audit_key(Authenticator::audit_key(&secret));
        refuse_lost_storage(&config, &store).await?;
        let (storage, storage_lock) = open_storage(&config)?;
        let accounts = Accounts::open(store.clone(), config.account_settings(), &system_users, map).await;
        let accounts = accounts.map_err(reconcile::LoadError::from)?;
        let users = accounts.users();
        let storage = storage.with_users(users.clone());
        storage.make_homes()?;
        let files = Files::open(&config.file_settings(), &storage).map_err(|source| StartError::Files {
            backend: Box::new(config.backend.clone()),
            source,
        })?;
        let logs = SegmentLogs::open(&config.data, config.logs.limits()).map_err(StartError::Logs)?;
        let secrets = Secrets::open(store.clone(), config.secrets_key.clone())?;
        let parts = EngineParts {
            config: &config,
            store: &store,
            storage: &storage,
            logs: &logs,
            secrets: &secrets,
        };
        let Started {
            jobs,
            reconciler,
            notes: degraded,
            namespaces,
        } = parts.start(isolation, &secret).await?;
        let sockets = bind(&config).await?;
        let metrics = Metrics::default();
        let app = Arc::new(App {
            auth: Authenticator::new(users, config.socket_user.clone(), store.clone(), secret)
                .with_token_limits(config.tokens)
                .with_rates(config.rates, Arc::clone(&metrics.refusals))
                .with_provider_lifetime(config.oidc.as_ref().map(|oidc| oidc.token_lifetime)),
            oidc: config.oidc.clone().map(Oidc::new).transpose()?,
            accounts,
            namespaces,
            authority,
            submitting: tokio::sync::RwLock::default(),
            secrets,
            logs: Logs::new(Arc::new(logs), jobs.clone()),
            log_readers: LogReaders::of_this_process(config.embedded),
            disks: DisksChecked::default(),
            listen: sockets.iter().map(|socket| socket.address.clone()).collect(),
            metrics,
            started: Timestamp::now(),
            config,
            store,
            jobs,
            storage,
            files,
            queue: Queue::for_memory(machine_memory()),
            list_limit: list_limit(machine_memory()),
            locks: Locks::default(),
            stop,
            degraded,
        });
        let data = Arc::new(data);
        drop(tokio::spawn(
            Arc::clone(&data).stop_when_removed(app.stop.clone()),
        ));
        spawn_chores(&app);
        warn_without_accounts(&app);
        Ok(Server {
            app,
            sockets,
            tls,
            reconciler,
            data,
            storage: storage_lock,
        })
    }

    pub fn stop_token(&self) -> CancellationToken {
        self.app.stop.clone()
    }

    /// The addresses it listens on, with actual ports.
    pub fn addresses(&self) -> &[String] {
        &self.app.listen
    }

    /// The application behind the sockets, for tests of a whole server.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Serves until it is asked to stop; then finishes replies and writes. Workers keep running.
    pub async fn run(self) {
        let router = crate::http::router(Arc::clone(&self.app));
        let refusals = Arc::clone(&self.app.metrics.refusals);
        let trusted = self.app.config.trusted_proxies.clone();
        let stop = self.app.stop.clone();
        serve::serve(self.sockets, self.tls, trusted, router, refusals, stop).await;
        let store = self.app.store.clone();
        self.app.files_sweep().await;
        // The last handle to the jobs is dropped with the app, which ends the loop.
        drop(self.app);
        self.reconciler.ended().await;
        store.close().await;
        drop(self.storage);
        self.data.release();
        tracing::info!("stopped");
    }
}

/// The system users that run workers. Pods need none: their mounts isolate them.
fn system_users(
    config: &Config,
    isolation: &Isolation,
) -> Result<(SystemUsers, SystemUserMap), SystemUserError> {
    match config.engine {
        EngineKind::Local => Ok((
            SystemUsers::find(&config.users, isolation)?,
            SystemUserMap::new(config.system_uids, isolation),
        )),
        EngineKind::Kubernetes(_) => Ok((SystemUsers::default(), SystemUserMap::none())),
    }
}

/// TLS and the server's own authority, which issues the server's certificate if names are configured.
fn open_tls(config: &Config) -> Result<(Option<Tls>, Option<Authority>), StartError> {
    let Some(files) = &config.tls else {
        return Ok((None, None));
    };
    let authority = Authority::open(&config.data)?;
    if !config.tls_names.is_empty() {
        authority.issue(&config.tls_names, files)?;
    }
    let tls = Tls::new(files, authority.certificate())?;
    Ok((Some(tls), Some(authority)))
}

fn open_storage(config: &Config) -> Result<(Storage, StorageLock), StartError> {
    let storage = Storage::open(&config.storage, config.datacenter.clone());
    let storage = storage.map_err(|source| StartError::Storage {
        path: config.storage.clone(),
        source,
    })?;
    let lock = storage.take()?;
    Ok((storage, lock))
}

async fn bind(config: &Config) -> Result<Vec<Bound>, StartError> {
    let mut sockets = Vec::new();
    for listen in &config.listen {
        sockets.push(serve::bind(listen).await?);
    }
    refuse_plain_http(config, &sockets)?;
    Ok(sockets)
}

/// Refuses to start if the storage folder is missing although the database has jobs: the disk is probably not mounted, and
/// nothing may be created in its place.
async fn refuse_lost_storage(config: &Config, store: &Store) -> Result<(), StartError> {
    if config.storage.exists() {
        return Ok(());
    }
    let any = PageRequest {
        user: None,
        name: None,
        before: None,
        limit: 1,
    };
    let known = store.page(&any).await.map_err(reconcile::LoadError::from)?;
    match known.jobs.is_empty() {
        true => Ok(()),
        false => Err(StartError::StorageMissing(config.storage.clone())),
    }
}

/// Warns if nobody can log in.
fn warn_without_accounts(app: &App) {
    let makes_accounts = app.config.oidc.as_ref().is_some_and(|oidc| oidc.create_accounts);
    if app.auth.users().all().is_empty() && !makes_accounts {
        tracing::warn!(
            "there is no account, so nobody can log in: stop the server and run `paddlecloud-server init`"
        );
    }
}

/// The longest list of a package's files: while it is compared it takes several times its size.
fn list_limit(memory: Bytes) -> usize {
    usize::try_from(memory.as_u64() / 32).map_or(MOST_LIST, |bytes| bytes.min(MOST_LIST))
}

/// Refuses to send passwords and tokens unencrypted to other machines, unless the configuration allows it.
fn refuse_plain_http(config: &Config, sockets: &[Bound]) -> Result<(), StartError> {
    let outside = sockets.iter().find(|socket| socket.is_reachable_from_outside());
    match outside.filter(|_| config.tls.is_none()) {
        Some(socket) if !config.plain_http => Err(StartError::PlainHttp(socket.address.clone())),
        Some(_) => {
            tracing::warn!("passwords and tokens are sent in plain text: `plain_http` is set");
            Ok(())
        }
        None => Ok(()),
    }
}

/// What every engine needs to start.
struct EngineParts<'a> {
    config: &'a Config,
    store: &'a Store,
    storage: &'a Storage,
    logs: &'a SegmentLogs,
    secrets: &'a Secrets,
}

/// The running loop of an engine.
struct Started {
    jobs: Jobs,
    reconciler: Reconciler,
    /// Notes for the engine's users.
    notes: Vec<String>,
    namespaces: NamespaceNames,
}

impl EngineParts<'_> {
    /// Starts the configured engine. This is the only place that chooses one.
    async fn start(&self, isolation: Isolation, secret: &Secret) -> Result<Started, StartError> {
        match &self.config.engine {
            EngineKind::Local => {
                let (storage, logs) = (self.storage.clone(), self.logs.clone());
                let engine = local::start(self.config, isolation, secret, storage, logs);
                let engine = engine.map_err(StartError::Engine)?;
                let for_submitters = engine.notes();
                self.start_with(engine, for_submitters).await
            }
            EngineKind::Kubernetes(settings) => {
                let logs = Arc::new(self.logs.clone());
                let users = self.storage.accounts().clone();
                let engine = kubernetes::start(self.config, settings, secret, users, logs).await?;
                let namespaces = engine.namespace_names();
                // Its notes are about the cluster, which only administrators can change.
                let started = self.start_with(engine, Vec::new()).await?;
                Ok(Started {
                    namespaces,
                    ..started
                })
            }
        }
    }

    async fn start_with<E: Engine + Clone + 'static>(
        &self,
        engine: E,
        for_submitters: Vec<String>,
    ) -> Result<Started, StartError> {
        let sharing = Sharing::new(self.config.policy, self.storage.accounts().clone());
        let notes = engine.notes();
        let parts = Parts {
            store: self.store.clone(),
            runs: Arc::new(HomeRuns::new(self.storage.clone(), engine.era())),
            engine,
            logs: Arc::new(self.logs.clone()),
            secrets: Arc::new(self.secrets.clone()),
            clock: Clock::machine(),
        };
        let (jobs, reconciler) = reconcile::start(parts, sharing, for_submitters).await?;
        Ok(Started {
            jobs,
            reconciler,
            notes,
            namespaces: NamespaceNames::default(),
        })
    }
}

/// Raises the limit of open files: followers of logs hold files open, and the usual limit of 1024 is too low.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// Starts the housekeeping tasks. They end with the server.
fn spawn_chores(app: &Arc<App>) {
    drop(tokio::spawn(sweep_files(Arc::downgrade(app), app.stop.clone())));
    drop(tokio::spawn(sweep_homes(Arc::downgrade(app))));
    drop(tokio::spawn(trim_logs(Arc::downgrade(app), app.stop.clone())));
    drop(tokio::spawn(bind_storage(Arc::downgrade(app), app.stop.clone())));
}

/// Removes abandoned uploads and leftovers of a killed server, repeatedly until the server stops.
async fn sweep_files(app: Weak<App>, stop: CancellationToken) {
    if let Some(app) = app.upgrade() {
        app.files_sweep().await;
    }
    while stop
        .run_until_cancelled(tokio::time::sleep(SWEEP_EVERY))
        .await
        .is_some()
    {
        let Some(app) = app.upgrade() else { return };
        app.files_sweep().await;
    }
}

/// Keeps logs within their owners' storage quotas.
async fn trim_logs(app: Weak<App>, stop: CancellationToken) {
    while stop
        .run_until_cancelled(tokio::time::sleep(TRIM_EVERY))
        .await
        .is_some()
    {
        let Some(app) = app.upgrade() else { return };
        app.trim_logs().await;
    }
}

/// Stops jobs that write more than their owners' quotas allow.
async fn bind_storage(app: Weak<App>, stop: CancellationToken) {
    let mut watch = StorageWatch::default();
    loop {
        let Some(app) = app.upgrade() else { return };
        app.bind_storage(&mut watch).await;
        drop(app);
        let pause = tokio::time::sleep(STORAGE_CHECK_EVERY);
        if stop.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// Removes unneeded files of runs and packages, once, in case the last server did not stop cleanly.
async fn sweep_homes(app: Weak<App>) {
    if let Some(app) = app.upgrade() {
        app.sweep_homes().await;
    }
}

/// Stops the server on SIGTERM and SIGINT. A second signal ends the process immediately, which loses nothing that was
/// accepted.
fn stop_on_signals(stop: CancellationToken) {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let stop = stop.clone();
        match signal(kind) {
            Ok(mut signals) => drop(tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    if stop.is_cancelled() {
                        tracing::warn!("second signal: stopping immediately");
                        std::process::exit(1);
                    }
                    tracing::info!("stopping on a signal; a second one stops the server immediately");
                    stop.cancel();
                }
            })),
            Err(error) => tracing::warn!(%error, "a signal cannot be watched"),
        }
    }
}
