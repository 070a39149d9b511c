//! Puts a server together, runs it until it is asked to stop, and takes it apart again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use paddlecloud_core::ports::{Engine, JobStore};
use paddlecloud_supervisor::protocol::{Isolation, LogLimits};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app::{App, chain_of};
use crate::auth::{Authenticator, Secret, SecretError};
use crate::config::{Backend, Config, SystemUserError, SystemUsers};
use crate::data_folder::{DataFolder, TakeError};
use crate::engine::local::{BootId, LocalEngine, LocalSettings};
use crate::files::{Files, StoreError};
use crate::http::serve::{self, Bound, ListenError};
use crate::lane;
use crate::logs::Logs;
use crate::long::{self, Long};
use crate::metrics::Metrics;
use crate::packages::{HomeError, InUse, Storage, StorageLock};
use crate::ready::Ready;
use crate::reconcile::{self, Clock, Parts, Reconciler, Sharing};
use crate::store::{OpenError, Store, jobs_below};
use crate::tls::{self, TlsError};

/// Threads that answer requests. The work is waiting; two are plenty and cost little.
const THREADS: usize = 2;
/// Threads for what blocks and is short: a look at a folder, a password, a piece of a file.
const SHORT_THREADS: usize = 6;
/// Threads for what blocks. Whatever moves bytes or takes long leaves some to what is short.
const BLOCKING_THREADS: usize =
    lane::LANES + long::AT_ONCE + long::ENDS_AT_ONCE + long::REMOVALS_AT_ONCE + SHORT_THREADS;

/// How often unfinished uploads are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

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
    #[error(transparent)]
    StorageInUse(#[from] InUse),
    #[error("cannot serve users' files from {backend}")]
    Files {
        backend: Box<Backend>,
        #[source]
        source: StoreError,
    },
    #[error(transparent)]
    SystemUsers(#[from] SystemUserError),
    #[error(transparent)]
    Homes(#[from] HomeError),
    #[error("cannot start the engine")]
    Engine(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot take up the jobs")]
    Jobs(#[from] reconcile::StartError),
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
}

/// Runs a server until it is asked to stop. Says on `ready` when it can be used, or why it cannot.
pub fn run(config: Config, ready: Ready) -> Result<(), StartError> {
    allow_many_files();
    // Forks, so it comes before the threads.
    let isolation = paddlecloud_supervisor::probe();
    let result = runtime().map_err(StartError::Threads).and_then(|runtime| {
        let stop = CancellationToken::new();
        let server = runtime.block_on(Server::start(config, isolation, stop))?;
        Ok((runtime, server))
    });
    match result {
        Ok((runtime, server)) => {
            ready.ready();
            runtime.block_on(async {
                stop_on_signals(server.stop_token());
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

/// The threads of a server.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("paddlecloud")
        .enable_all()
        .build()
}

/// A server whose sockets are open and whose jobs are taken up.
pub struct Server {
    app: Arc<App>,
    sockets: Vec<Bound>,
    tls: Option<tokio_rustls::TlsAcceptor>,
    reconciler: Reconciler,
    /// Held until the end: nobody else may use it.
    data: Arc<DataFolder>,
    /// As is this.
    storage: StorageLock,
}

impl Server {
    /// Everything up to the point where the first request can be answered.
    pub async fn start(
        config: Config,
        isolation: Isolation,
        stop: CancellationToken,
    ) -> Result<Server, StartError> {
        let system_users = SystemUsers::find(&config.users, &isolation)?;
        let data = DataFolder::take(&config.data)?;
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        let store = Store::open_knowing(&config.database, jobs_below(&config.data)).await?;
        let secret = Secret::open(&config.data)?;
        let storage = Storage::open(&config.storage, config.datacenter.clone()).map_err(|source| {
            StartError::Storage {
                path: config.storage.clone(),
                source,
            }
        })?;
        let storage_lock = storage.take()?;
        let storage = storage.with_owners(system_users);
        storage.make_homes()?;
        let files = Files::open(&config, &storage).map_err(|source| StartError::Files {
            backend: Box::new(config.backend.clone()),
            source,
        })?;
        let engine = engine(&config, isolation, &storage).map_err(StartError::Engine)?;
        let degraded = engine.degraded().to_vec();
        let sharing = Sharing {
            seed: address_seed(&config.data),
            inventory: config.inventory.clone(),
            policy: config.policy,
            quotas: config
                .users
                .iter()
                .map(|user| (user.name.clone(), user.quota))
                .collect(),
        };
        let parts = Parts {
            store: store.clone(),
            engine: engine.clone(),
            clock: Clock::machine(),
        };
        let (jobs, reconciler) = reconcile::start(parts, sharing, degraded.clone()).await?;
        drop(tokio::spawn(discard_strays(store.clone(), engine.clone())));
        let mut sockets = Vec::new();
        for listen in &config.listen {
            sockets.push(serve::bind(listen).await?);
        }
        warn_if_readable_by_others(&config, &sockets);
        let app = Arc::new(App {
            auth: Authenticator::new(&config, store.clone(), secret),
            logs: Logs::new(config.data.clone(), engine, jobs.clone()),
            listen: sockets.iter().map(|socket| socket.address.clone()).collect(),
            metrics: Metrics::default(),
            started: Timestamp::now(),
            config,
            store,
            jobs,
            storage,
            files,
            long: Long::default(),
            stop,
            degraded,
        });
        let data = Arc::new(data);
        drop(tokio::spawn(Arc::clone(&data).stop_when_gone(app.stop.clone())));
        drop(tokio::spawn(sweep_files(Arc::downgrade(&app), app.stop.clone())));
        drop(tokio::spawn(sweep_homes(Arc::downgrade(&app))));
        tracing::info!(version = crate::VERSION, listen = app.listen.join(", "), "ready");
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

    /// Where it listens, with real ports.
    pub fn addresses(&self) -> &[String] {
        &self.app.listen
    }

    /// The parts behind the sockets, for tests of a whole server.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Answers until it is asked to stop; then finishes replies and writes. Workers go on.
    pub async fn run(self) {
        let router = crate::http::router(Arc::clone(&self.app));
        serve::serve(self.sockets, self.tls, router, self.app.stop.clone()).await;
        let store = self.app.store.clone();
        self.app.files_sweep().await;
        self.app.files_save().await;
        // The last handle to the jobs goes with the app, and with it the loop ends.
        drop(self.app);
        self.reconciler.ended().await;
        store.close().await;
        drop(self.storage);
        self.data.release();
        tracing::info!("stopped");
    }
}

fn warn_if_readable_by_others(config: &Config, sockets: &[Bound]) {
    if config.tls.is_none() && sockets.iter().any(Bound::is_reachable_from_outside) {
        tracing::warn!(
            "passwords and tokens travel in plain text: set `tls`, or listen on 127.0.0.1 behind a proxy"
        );
    }
}

fn engine(config: &Config, isolation: Isolation, storage: &Storage) -> io::Result<LocalEngine> {
    let program = match &config.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?,
    };
    let settings = LocalSettings {
        data: config.data.clone(),
        datacenter: config.datacenter.clone(),
        isolation,
        logs: LogLimits {
            segment_bytes: config.logs.segment.as_u64(),
            keep_bytes: config.logs.keep.as_u64(),
        },
        boot: BootId::read()?,
        programs: programs_folder(&config.data, &program)?,
        program,
    };
    LocalEngine::new(settings, storage.clone())
}

/// Programs of ours that workers call by name.
const WORKERS_PROGRAMS: [&str; 2] = ["paddle", "paddle-data"];

/// A folder in which `paddle` and its kin are this program, for workers to find first.
fn programs_folder(data: &Path, program: &Path) -> io::Result<PathBuf> {
    let folder = data.join("bin");
    std::fs::create_dir_all(&folder)?;
    for name in WORKERS_PROGRAMS {
        let link = folder.join(name);
        if std::fs::read_link(&link).is_ok_and(|target| target == program) {
            continue;
        }
        let fresh = folder.join(format!(".{name}.new"));
        let _ = std::fs::remove_file(&fresh);
        std::os::unix::fs::symlink(program, &fresh)?;
        std::fs::rename(&fresh, &link)?;
    }
    Ok(folder)
}

/// Followers of logs hold files open; the usual limit of 1024 is a shell's, not a server's.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Removes folders of jobs that nobody knows: the server ended between a job's removal and that of its logs.
async fn discard_strays(store: Store, engine: LocalEngine) {
    let found = match engine.jobs_with_folders().await {
        Ok(found) => found,
        Err(error) => return tracing::warn!(%error, "the attempts' folder cannot be listed"),
    };
    for job in found {
        if let Ok(None) = store.get(&job).await {
            engine.discard(&job).await;
        }
    }
}

/// Clears away uploads nobody returned to and what a killed server left, now and again until the server stops.
async fn sweep_files(app: std::sync::Weak<App>, stop: CancellationToken) {
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
        app.files_save().await;
    }
}

/// Removes what runs and packages left that nobody needs: once, after whatever ended the server before.
async fn sweep_homes(app: std::sync::Weak<App>) {
    if let Some(app) = app.upgrade() {
        app.sweep_homes().await;
    }
}

/// From the data folder's place, so that it stays the same when the server starts again.
fn address_seed(data: &Path) -> u64 {
    let hash = blake3::hash(data.as_os_str().as_encoded_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
}

/// Whatever moment the process ends in, the next server finds all that was accepted.
fn stop_on_signals(stop: CancellationToken) {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let stop = stop.clone();
        match signal(kind) {
            Ok(mut signals) => drop(tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    if stop.is_cancelled() {
                        tracing::warn!("asked again to stop: ending at once");
                        std::process::exit(1);
                    }
                    tracing::info!("a signal asks to stop; another one ends the server at once");
                    stop.cancel();
                }
            })),
            Err(error) => tracing::warn!(%error, "a signal cannot be watched"),
        }
    }
}
