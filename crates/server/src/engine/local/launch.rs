//! Starting one worker: the run's folders, the plan in the supervisor's words, the supervisor itself.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, PoisonError};

use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::{Job, News, WorkerKey};
use paddlecloud_core::plan::{self, Member, Role, Site};
use paddlecloud_core::ports::AttemptKey;
use paddlecloud_core::spec::Resources;
use paddlecloud_pfs::RelPath;
use paddlecloud_supervisor::protocol::{self, Bind, Limits, PrivateFile, files};

use super::Inner;
use super::folders::AttemptFolder;
use super::link::{self, ConnectError};
use crate::packages::{PackageError, RunFolders, WorkDir};

/// Where uploads lie below a home.
const PACKAGES: &str = ".paddlecloud/packages";

/// Two ports per run from here on, spread by the first worker's address.
const PORT_FLOOR: u16 = 10_000;
const PORT_PAIRS: u32 = 10_000;

/// Where workers that are not the server's own system user find `paddle`: its data folder is closed to them.
const SHOWN_PROGRAMS: &str = "/.paddlecloud/bin";

/// An attempt that is being launched, and known as such while this lives.
struct UnderWay<'a> {
    inner: &'a Inner,
    attempt: &'a AttemptKey,
}

impl<'a> UnderWay<'a> {
    fn new(inner: &'a Inner, attempt: &'a AttemptKey) -> UnderWay<'a> {
        inner.launching().insert(attempt.clone());
        UnderWay { inner, attempt }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.inner.launching().remove(self.attempt);
    }
}

/// Starts an attempt, or reports why it cannot be started.
pub async fn launch(inner: &Arc<Inner>, job: &Arc<Job>, attempt: AttemptKey) {
    let folder = inner.folder(&attempt);
    let _under_way = UnderWay::new(inner, &attempt);
    if folder.path.join(files::PLAN).exists() {
        return;
    }
    match start(inner, job, &attempt, &folder).await {
        Ok(Some(state)) => {
            inner.report(&attempt, News::Up);
            inner.report(&attempt, link::news_of_state(&state));
        }
        Ok(None) => {}
        Err(reason) => {
            tracing::warn!(?attempt, %reason, "a worker could not be started");
            let exit = protocol::Exit::load(&folder.path).ok().flatten();
            let news = exit.map_or_else(|| News::Exited(Exit::unseen(reason)), link::news_of_exit);
            inner.report(&attempt, news);
        }
    }
}

async fn start(
    inner: &Arc<Inner>,
    job: &Arc<Job>,
    attempt: &AttemptKey,
    folder: &AttemptFolder,
) -> Result<Option<protocol::State>, String> {
    let prepared = prepare(inner, job)
        .await
        .map_err(|error| format!("its folder cannot be prepared: {error}"))?;
    let plan = worker_plan(inner, job, attempt, folder, &prepared).ok_or("the job has no such worker")?;
    let _slot = inner.starts.acquire().await.map_err(|error| error.to_string())?;
    make_log_folder(inner, job, prepared.run.node(attempt.worker.index)).await?;
    write_plan(plan, folder.path.clone()).await?;
    let started = run_supervisor(inner, folder).await;
    let lives = || paddlecloud_supervisor::is_alive(&folder.path);
    // One that a server before this one started may have been faster.
    if started.is_err() && !lives() {
        return started.map(|()| None);
    }
    match link::connect(inner, attempt, folder.path.clone()).await {
        Ok(state) => Ok(Some(state)),
        Err(ConnectError::Broken(error)) if !lives() => {
            Err(format!("its supervisor cannot be reached: {error}"))
        }
        Err(error) => {
            link::connect_later(inner, attempt, folder.path.clone(), &error);
            Ok(None)
        }
    }
}

/// A run whose folders are ready, and where its package is shown, as it was found on disk.
struct Prepared {
    run: RunFolders,
    shown: Option<RelPath>,
}

/// Prepares the run once, however many of its workers start.
async fn prepare(inner: &Arc<Inner>, job: &Arc<Job>) -> Result<Prepared, PackageError> {
    let turn = {
        let mut preparing = inner.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(preparing.entry(job.id.clone()).or_default())
    };
    let held = turn.lock().await;
    let (storage, boot, prepared) = (
        inner.storage.clone(),
        inner.settings.boot.clone(),
        Arc::clone(job),
    );
    let prepare = move || {
        let run = storage.prepare_run(&prepared, boot.as_str())?;
        let shown = storage.shown_workdir(&prepared);
        Ok(Prepared { run, shown })
    };
    let folders = tokio::task::spawn_blocking(prepare)
        .await
        .unwrap_or_else(|panic| Err(PackageError::Disk(std::io::Error::other(panic))));
    drop(held);
    let mut preparing = inner.preparing.lock().unwrap_or_else(PoisonError::into_inner);
    // Ours and the table's: nobody else waits for a turn.
    if Arc::strong_count(&turn) == 2 {
        preparing.remove(&job.id);
    }
    folders
}

/// The plain log lies among the user's own files.
async fn make_log_folder(inner: &Inner, job: &Job, folder: RelPath) -> Result<(), String> {
    let (storage, user) = (inner.storage.clone(), job.user.clone());
    let made = tokio::task::spawn_blocking(move || storage.make_run_folder(&user, &folder)).await;
    made.unwrap_or_else(|panic| Err(PackageError::Disk(std::io::Error::other(panic))))
        .map_err(|error| format!("the folder of its log cannot be made: {error}"))
}

async fn write_plan(plan: protocol::WorkerPlan, folder: PathBuf) -> Result<(), String> {
    let write = move || {
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        plan.store(&folder).map_err(|error| error.to_string())
    };
    tokio::task::spawn_blocking(write)
        .await
        .unwrap_or_else(|panic| Err(panic.to_string()))
        .map_err(|error| format!("its plan cannot be written: {error}"))
}

/// Returns when the supervisor can be connected to; from then on it depends on nobody.
async fn run_supervisor(inner: &Inner, folder: &AttemptFolder) -> Result<(), String> {
    let mut command = tokio::process::Command::new(&inner.settings.program);
    command
        .arg0("paddlecloud-supervise")
        .arg(&folder.path)
        .env_clear();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = command
        .output()
        .await
        .map_err(|error| format!("its supervisor cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "its supervisor did not start: {}",
        words.trim().trim_start_matches("error: ")
    ))
}

/// The lines before a trainer's own output.
pub async fn preamble(inner: &Inner, job: &Arc<Job>, worker: WorkerKey) -> Vec<String> {
    let Ok(run) = inner.storage.run_folders(job) else {
        return Vec::new();
    };
    let (storage, shown_job) = (inner.storage.clone(), Arc::clone(job));
    let shown = tokio::task::spawn_blocking(move || storage.shown_workdir(&shown_job)).await;
    let prepared = Prepared {
        run,
        shown: shown.ok().flatten(),
    };
    let view = View::new(inner, job, &prepared);
    plan_of(job, &view.site(inner, job), worker)
        .map(|plan| plan.preamble)
        .unwrap_or_default()
}

fn plan_of(job: &Job, site: &Site, worker: WorkerKey) -> Option<plan::WorkerPlan> {
    let members: Vec<Member> = job
        .workers
        .iter()
        .enumerate()
        .map(|(at, worker)| member(job, at, worker))
        .collect();
    plan::plan_worker(&job.spec, site, &members, worker.role, worker.index)
}

fn member(job: &Job, position: usize, worker: &paddlecloud_core::job::Worker) -> Member {
    let seat = job
        .placement
        .as_ref()
        .and_then(|placement| placement.workers.get(position));
    Member {
        role: worker.key.role,
        index: worker.key.index,
        name: worker.name.clone(),
        address: worker.address.clone(),
        gpus: seat.map(|seat| seat.gpus.clone()).unwrap_or_default(),
    }
}

/// Paths as this job's workers see them: at `/pfs/…`, or the real ones where the machine permits no private view.
struct View {
    home: String,
    public: String,
    workdir: String,
    run: String,
    output: String,
    rendezvous: String,
}

impl View {
    fn new(inner: &Inner, job: &Job, prepared: &Prepared) -> View {
        let (storage, run) = (&inner.storage, &prepared.run);
        let (home, public) = match inner.settings.isolation.namespaces {
            Some(_) => (storage.home_name(&job.user), storage.public_name()),
            None => (
                storage.home_path(&job.user).to_string_lossy().into_owned(),
                storage.public_path().to_string_lossy().into_owned(),
            ),
        };
        let shown = prepared
            .shown
            .as_ref()
            .filter(|_| inner.settings.isolation.namespaces.is_some());
        let workdir = match (&run.workdir, shown) {
            (_, Some(shown)) => format!("{home}/{shown}"),
            (WorkDir::Home(below), None) => format!("{home}/{below}"),
            (WorkDir::Public(below), None) => format!("{public}/{below}"),
        };
        View {
            workdir,
            run: format!("{home}/{}", run.run),
            output: format!("{home}/{}", run.output),
            rendezvous: format!("{home}/{}", run.rendezvous),
            home,
            public,
        }
    }

    fn site(&self, inner: &Inner, job: &Job) -> Site {
        Site {
            user: job.user.clone(),
            datacenter: inner.settings.datacenter.clone(),
            package: self.workdir.clone(),
            job_path: self.run.clone(),
            output: self.output.clone(),
            home: self.home.clone(),
            public: self.public.clone(),
            rendezvous: self.rendezvous.clone(),
            programs: match inner.storage.owner(&job.user).run_as() {
                Some(_) => SHOWN_PROGRAMS.to_owned(),
                None => inner.settings.programs.to_string_lossy().into_owned(),
            },
            nic: "lo".to_owned(),
            port_base: port_base(job),
        }
    }
}

/// Addresses of live workers differ, so the ports of live runs do.
fn port_base(job: &Job) -> u16 {
    let address = job
        .workers
        .first()
        .and_then(|worker| worker.address.parse::<std::net::Ipv4Addr>().ok());
    let pair = address.map_or(0, u32::from) % PORT_PAIRS;
    PORT_FLOOR + 2 * pair as u16
}

fn worker_plan(
    inner: &Inner,
    job: &Job,
    attempt: &AttemptKey,
    folder: &AttemptFolder,
    prepared: &Prepared,
) -> Option<protocol::WorkerPlan> {
    let run = &prepared.run;
    let view = View::new(inner, job, prepared);
    let plan = plan_of(job, &view.site(inner, job), attempt.worker)?;
    let resources = match plan.role {
        Role::Pserver => &job.spec.pserver,
        Role::Trainer => &job.spec.trainer,
    };
    let log = inner
        .storage
        .home_path(&job.user)
        .join(run.node(plan.index).as_path());
    let log_name = if plan.role == Role::Pserver {
        "server.log"
    } else {
        "train.log"
    };
    let hosts = job
        .workers
        .iter()
        .filter_map(|worker| Some((worker.name.clone(), worker.address.parse().ok()?)));
    Some(protocol::WorkerPlan {
        marker: folder.marker.clone(),
        worker: plan.name,
        role: match plan.role {
            Role::Pserver => protocol::Role::Pserver,
            Role::Trainer => protocol::Role::Trainer,
        },
        index: plan.index,
        command: plan.command,
        env: plan.env.into_iter().collect(),
        workdir: plan.workdir.into(),
        address: plan.address.parse().ok()?,
        hosts: hosts.collect(),
        binds: binds(inner, job, run),
        files: plan
            .files
            .into_iter()
            .map(|(path, contents)| PrivateFile {
                path: path.into(),
                contents,
            })
            .collect(),
        limits: limits(resources),
        wait_for_go: plan.waits_for_all,
        ready_ports: plan.ports,
        grace_ms: u64::try_from(job.spec.grace.as_millis()).unwrap_or(0),
        log: inner.settings.logs,
        plain_log: Some(log.join(log_name)),
        run_as: inner.storage.owner(&job.user).run_as().cloned(),
        isolation: inner.settings.isolation.clone(),
        boot_id: inner.settings.boot.as_str().to_owned(),
    })
}

fn limits(resources: &Resources) -> Limits {
    Limits {
        cpu_millis: Some(resources.cpu.as_millis()),
        memory_bytes: Some(resources.memory.as_u64()),
    }
}

/// `/pfs/…` under both spellings of the documents; within it, `latest` leads to this very run.
fn binds(inner: &Inner, job: &Job, run: &RunFolders) -> Vec<Bind> {
    let storage = &inner.storage;
    let home = storage.home_path(&job.user);
    let own_latest = home.join(run.own_latest.as_path());
    let datacenter = &inner.settings.datacenter;
    let mut binds = Vec::new();
    for word in ["home", "user"] {
        let target = PathBuf::from(format!("/pfs/{datacenter}/{word}/{}", job.user));
        let latest = target.join(".paddlecloud/latest");
        let packages = target.join(PACKAGES);
        binds.push(Bind {
            source: home.clone(),
            target,
            read_only: false,
        });
        binds.push(Bind {
            source: own_latest.clone(),
            target: latest,
            read_only: false,
        });
        // What was uploaded is what later submits are compared with: no job changes it.
        binds.push(Bind {
            source: home.join(PACKAGES),
            target: packages,
            read_only: true,
        });
    }
    for target in [storage.public_name(), "/pfs/public".to_owned()] {
        binds.push(Bind {
            source: storage.public_path(),
            target: target.into(),
            read_only: true,
        });
    }
    if storage.owner(&job.user).run_as().is_some() {
        let target = PathBuf::from(SHOWN_PROGRAMS).join("paddle");
        binds.push(Bind {
            source: inner.settings.program.clone(),
            target,
            read_only: true,
        });
    }
    binds
}
