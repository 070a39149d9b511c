//! Starts one worker: converts its plan for the supervisor and starts the supervisor.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use paddlecloud_core::error_chain::chain_of;
use paddlecloud_core::exit::Exit;
use paddlecloud_core::job::{Job, News, Worker, WorkerKey};
use paddlecloud_core::names::UserName;
use paddlecloud_core::plan::{self, Member, Role, Site};
use paddlecloud_core::ports::{Assignment, AttemptKey, PreparedRun, WorkDir};
use paddlecloud_core::spec::Resources;
use paddlecloud_supervisor::StartError;
use paddlecloud_worker::news;
use paddlecloud_worker::protocol::{self, Bind, Limits, files};
use tokio::sync::oneshot;

use super::Inner;
use super::folders::AttemptFolder;
use super::link::{self, ConnectError};
use crate::programs;

/// The folder of uploaded packages below a home.
const PACKAGES: &str = ".paddlecloud/packages";

/// Limit on the processes and threads of one worker: enough for any training program, and low enough that a fork bomb does not
/// take down the machine.
const MOST_PROCESSES: u64 = 4096;

/// Each run gets two ports from here on, spread by the first worker's address.
const PORT_FLOOR: u16 = 10_000;
const PORT_PAIRS: u32 = 10_000;

/// The path of `paddle` for workers of other system users, which may not enter the data folder.
const SHOWN_PROGRAMS: &str = "/.paddlecloud/bin";
/// The same for `python`, in case the machine has only `python3`.
const SHOWN_PYTHON: &str = "/.paddlecloud/python";

/// How long to wait when the machine has no resources left.
const NEXT_START: Duration = Duration::from_secs(2);

/// The folder, below that of our own programs, with a `python` that runs `python3`.
pub(super) const PYTHON_FOLDER: &str = "python";

/// A secret shared by the trainers and parameter servers of one run.
const RUN_SECRET: &str = "PADDLE_PS_SECRET";

/// Registers an attempt as being launched while this lives.
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

/// Why an attempt was not started.
enum NotStarted {
    Failed(String),
    /// The machine temporarily has no process or file descriptor left.
    NoRoom(String),
}

impl From<String> for NotStarted {
    fn from(words: String) -> NotStarted {
        NotStarted::Failed(words)
    }
}

/// Starts an attempt, or reports why it cannot be started.
pub async fn launch(inner: &Arc<Inner>, assignment: &Assignment) {
    let attempt = assignment.key();
    let folder = inner.folder(&attempt);
    let _under_way = UnderWay::new(inner, &attempt);
    if folder.path.join(files::PLAN).exists() {
        return;
    }
    match start(inner, assignment, &attempt, &folder).await {
        Ok(Some(state)) => {
            inner.report(&attempt, News::Up);
            inner.report(&attempt, news::of_state(&state));
        }
        Ok(None) => {}
        Err(NotStarted::NoRoom(reason)) => {
            tracing::warn!(?attempt, %reason, "no worker can be started now");
            // Nothing notifies us when the machine has resources again.
            tokio::time::sleep(NEXT_START).await;
            inner.report(&attempt, News::NoRoom(reason));
        }
        Err(NotStarted::Failed(reason)) => {
            tracing::warn!(?attempt, %reason, "a worker could not be started");
            let exit = protocol::Exit::load(&folder.path).ok().flatten();
            let news = exit.map_or_else(|| News::Exited(Exit::unseen(reason)), news::of_exit);
            inner.report(&attempt, news);
        }
    }
}

async fn start(
    inner: &Arc<Inner>,
    assignment: &Assignment,
    attempt: &AttemptKey,
    folder: &AttemptFolder,
) -> Result<Option<protocol::State>, NotStarted> {
    let user = &assignment.job.user;
    if inner.storage.accounts().shares_system_user(user) {
        return Err(shared_system_user(user).into());
    }
    let plan = worker_plan(inner, assignment, folder).ok_or("the job has no such worker".to_owned())?;
    let _slot = inner.starts.acquire().await.map_err(|error| error.to_string())?;
    write_plan(plan, folder.path.clone()).await?;
    let mut secrets = assignment.secrets.reveal().clone();
    secrets.insert(RUN_SECRET.to_owned(), inner.secret.of_run(&assignment.job.id));
    let started = run_supervisor(inner, folder, secrets).await;
    let is_alive = || paddlecloud_supervisor::is_alive(&folder.path);
    // A supervisor started by an earlier server may have won the race.
    if started.is_err() && !is_alive() {
        return started.map(|()| None);
    }
    match link::connect(inner, attempt, folder.path.clone()).await {
        Ok(state) => Ok(Some(state)),
        Err(ConnectError::Broken(error)) if !is_alive() => {
            Err(format!("its supervisor cannot be reached: {error}").into())
        }
        Err(error) => {
            link::connect_later(inner, attempt, folder.path.clone(), &error);
            Ok(None)
        }
    }
}

/// Why a job that was queued before there were other accounts is not started.
fn shared_system_user(user: &UserName) -> String {
    format!(
        "`{user}` has no system user, and there are other accounts: \
         the worker would run as the server itself and could read other users' files"
    )
}

async fn write_plan(plan: protocol::WorkerPlan, folder: PathBuf) -> Result<(), NotStarted> {
    let write = move || {
        std::fs::create_dir_all(&folder).map_err(|error| not_written(&error))?;
        plan.store(&folder).map_err(|error| not_written(&error))
    };
    let written = tokio::task::spawn_blocking(write).await;
    written.unwrap_or_else(|panic| Err(not_written(&panic)))
}

fn not_written(error: &(dyn std::error::Error + 'static)) -> NotStarted {
    let words = format!("its plan cannot be written: {}", chain_of(error));
    match paddlecloud_supervisor::is_shortage(error) {
        true => NotStarted::NoRoom(words),
        false => NotStarted::Failed(words),
    }
}

/// Starts a supervisor. Returns when it accepts connections; from then on it is independent.
async fn run_supervisor(
    inner: &Inner,
    folder: &AttemptFolder,
    secrets: BTreeMap<String, String>,
) -> Result<(), NotStarted> {
    let (program, folder) = (inner.settings.program.clone(), folder.path.clone());
    let (done, started) = oneshot::channel();
    let start = move || drop(done.send(paddlecloud_supervisor::start(&program, &folder, &secrets)));
    // Requests wait for the runtime's own threads for blocking work, which are few.
    let thread = std::thread::Builder::new()
        .name("starter".to_owned())
        .spawn(start);
    let started = match thread {
        Ok(_) => started
            .await
            .unwrap_or_else(|error| Err(StartError::Program(io::Error::other(error)))),
        Err(error) => Err(StartError::Program(error)),
    };
    started.map_err(|error| {
        let words = format!("its supervisor {error}");
        match error.is_shortage() {
            true => NotStarted::NoRoom(words),
            false => NotStarted::Failed(words),
        }
    })
}

/// The planned lines that precede a trainer's own output.
pub async fn preamble(inner: &Inner, attempt: &AttemptKey) -> Vec<String> {
    let folder = inner.folder(attempt).path;
    let planned = tokio::task::spawn_blocking(move || protocol::WorkerPlan::load(&folder)).await;
    planned
        .ok()
        .and_then(Result::ok)
        .map(|plan| plan.preamble)
        .unwrap_or_default()
}

fn plan_of(inner: &Inner, job: &Job, site: &Site, worker: WorkerKey) -> Option<plan::WorkerPlan> {
    let members: Vec<Member> = job
        .workers
        .iter()
        .enumerate()
        .map(|(at, worker)| Member::of(worker, own_entries(inner, job, at, worker)))
        .collect();
    plan::plan_worker(&job.spec, site, &members, worker.role, worker.index)
}

/// Variables for a worker of this machine: `PATH`, its address, its GPU cards.
fn own_entries(inner: &Inner, job: &Job, position: usize, worker: &Worker) -> BTreeMap<String, String> {
    let programs = match inner.storage.owner(&job.user).run_as() {
        Some(_) => SHOWN_PROGRAMS.to_owned(),
        None => inner.settings.programs.to_string_lossy().into_owned(),
    };
    let path = job
        .spec
        .shell_env
        .get("PATH")
        .map_or(inner.settings.path.as_str(), String::as_str);
    let placement = job.placement.as_ref();
    let seat = placement.and_then(|placement| placement.workers.get(position));
    let cards: Vec<String> = seat
        .iter()
        .flat_map(|seat| &seat.gpus)
        .map(u32::to_string)
        .collect();
    let entries = [
        ("PATH", format!("{programs}:{path}")),
        ("POD_IP", worker.address.clone()),
        ("CUDA_VISIBLE_DEVICES", cards.join(",")),
    ];
    entries.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Paths as this job's workers see them: at `/pfs/…`, or the real ones if the machine does not permit private mounts.
struct View {
    home: String,
    public: String,
    workdir: String,
    run: String,
    output: String,
    rendezvous: String,
}

impl View {
    fn new(inner: &Inner, job: &Job, run: &PreparedRun) -> View {
        let storage = &inner.storage;
        let (home, public) = match inner.settings.isolation.namespaces {
            Some(_) => (storage.home_name(&job.user), storage.public_name()),
            None => (
                storage.home_path(&job.user).to_string_lossy().into_owned(),
                storage.public_path().to_string_lossy().into_owned(),
            ),
        };
        let shown = run
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
            run: format!("{home}/{}", run.folder),
            output: format!("{home}/{}", run.output),
            rendezvous: format!("{home}/{}", run.rendezvous),
            home,
            public,
        }
    }

    fn site(&self, inner: &Inner, job: &Job) -> Site {
        Site {
            user: job.user.clone(),
            namespace: job.user.namespace(),
            datacenter: inner.settings.datacenter.clone(),
            package: self.workdir.clone(),
            job_path: self.run.clone(),
            output: self.output.clone(),
            home: self.home.clone(),
            public: self.public.clone(),
            rendezvous: self.rendezvous.clone(),
            nic: "lo".to_owned(),
            port_base: port_base(job),
        }
    }
}

/// The first port of a run. Live workers have different addresses, so live runs have different ports.
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
    assignment: &Assignment,
    folder: &AttemptFolder,
) -> Option<protocol::WorkerPlan> {
    let Assignment { job, run, worker, .. } = assignment;
    let view = View::new(inner, job, run);
    let mut planned = plan_of(inner, job, &view.site(inner, job), *worker)?;
    planned.env = with_python(inner, job, planned.env);
    let address = planned.address.parse().ok()?;
    let resources = match planned.role {
        Role::Pserver => &job.spec.pserver,
        Role::Trainer => &job.spec.trainer,
    };
    let hosts = job
        .workers
        .iter()
        .filter_map(|worker| Some((worker.name.clone(), worker.address.parse().ok()?)));
    let plan = protocol::WorkerPlan::of(folder.marker.clone(), planned);
    let node = inner.storage.home_path(&job.user).join(run.node(plan.index));
    let log_copy = plan.plain_log.as_deref().and_then(Path::file_name);
    Some(protocol::WorkerPlan {
        address,
        hosts: hosts.collect(),
        binds: binds(inner, job, run),
        hidden: hidden(inner, job),
        limits: limits(resources),
        log: inner.settings.logs,
        plain_log: log_copy
            .filter(|_| inner.settings.log_copy)
            .map(|name| node.join(name)),
        run_as: inner.storage.owner(&job.user).run_as().cloned(),
        isolation: inner.settings.isolation.clone(),
        boot_id: inner.settings.boot.as_str().to_owned(),
        ..plan
    })
}

/// If only `python3` exists, appends a folder to `PATH` that provides it as `python`.
fn with_python(inner: &Inner, job: &Job, mut env: BTreeMap<String, String>) -> BTreeMap<String, String> {
    if let Some(path) = env.get_mut("PATH").filter(|path| programs::lacks_python(path)) {
        let folder = match inner.storage.owner(&job.user).run_as() {
            Some(_) => SHOWN_PYTHON.to_owned(),
            None => python_folder(inner).to_string_lossy().into_owned(),
        };
        path.push(':');
        path.push_str(&folder);
    }
    env
}

fn python_folder(inner: &Inner) -> PathBuf {
    inner.settings.programs.join(PYTHON_FOLDER)
}

fn limits(resources: &Resources) -> Limits {
    Limits {
        cpu_millis: Some(resources.cpu.as_millis()),
        memory_bytes: Some(resources.memory.as_u64()),
        processes: Some(MOST_PROCESSES),
    }
}

/// Hides the storage, which shows the names of all users, from workers that run as their own system users.
fn hidden(inner: &Inner, job: &Job) -> Vec<PathBuf> {
    let is_mapped = inner.storage.owner(&job.user).run_as().is_some();
    let storage = is_mapped.then(|| inner.storage.path().to_owned());
    storage.into_iter().collect()
}

/// Mounts `/pfs/…` under both documented spellings; within it, `latest` points to this run.
fn binds(inner: &Inner, job: &Job, run: &PreparedRun) -> Vec<Bind> {
    let storage = &inner.storage;
    let home = storage.home_path(&job.user);
    let own_latest = home.join(&run.own_latest);
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
        // Read-only: later submits are compared with the uploaded files, so no job may change them.
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
        binds.push(Bind {
            source: python_folder(inner),
            target: SHOWN_PYTHON.into(),
            read_only: true,
        });
    }
    binds
}

#[cfg(test)]
mod tests {
    use paddlecloud_accounts::auth::Secret;
    use paddlecloud_core::testing::{samples, worker_variables};
    use paddlecloud_files::homes::Storage;
    use paddlecloud_worker::protocol::{Isolation, LogLimits};

    use super::*;
    use crate::engine::local::{BootId, LocalEngine, LocalSettings};
    use crate::logs::SegmentLogs;

    fn engine(folder: &std::path::Path) -> LocalEngine {
        let datacenter: paddlecloud_core::names::DatacenterName = "local".parse().unwrap();
        let storage = Storage::open(&folder.join("storage"), datacenter.clone()).unwrap();
        let logs = SegmentLogs::open(folder, LogLimits::default()).unwrap();
        let settings = LocalSettings {
            data: folder.to_owned(),
            datacenter,
            nodes: Vec::new(),
            address_seed: 0,
            isolation: Isolation::default(),
            logs: LogLimits::default(),
            log_copy: true,
            boot: BootId::read().unwrap(),
            program: "/opt/paddlecloud".into(),
            programs: "/opt/bin".into(),
            path: "/opt/venv/bin:/usr/bin".to_owned(),
        };
        let secret = Secret::open(folder).unwrap();
        LocalEngine::new(settings, storage, logs, secret)
    }

    #[test]
    fn workers_of_this_machine_have_the_whole_environment() {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(folder.path());
        let mut spec = samples::spec("whole", 1, 2);
        spec.shell_env = [("PATH".into(), "/venv/bin".into())].into();
        spec.envs = [("POD_IP".into(), "the user's word".into())].into();
        let job = Arc::new(samples::starting(1, spec));
        for worker in samples::everybody(&job) {
            let assignment = samples::assignment(&job, worker, 1);
            let attempt = AttemptFolder::of(folder.path(), &assignment.key());
            let plan = worker_plan(&engine.inner, &assignment, &attempt).unwrap();
            let env: BTreeMap<String, String> = plan.env.into_iter().collect();
            let names = [worker_variables::PLANNED, worker_variables::FROM_ENGINE];
            for name in names.iter().flat_map(|names| names.split_whitespace()) {
                assert!(env.contains_key(name), "{worker} has no {name}");
            }
            assert_eq!(env["CUDA_VISIBLE_DEVICES"], "");
            assert_eq!(env["PATH"], "/opt/bin:/venv/bin");
            assert_eq!(env["POD_IP"], "the user's word", "a job's own variables win");
        }
        let job = Arc::new(samples::starting(1, samples::spec("pathless", 1, 0)));
        for worker in samples::everybody(&job) {
            let assignment = samples::assignment(&job, worker, 1);
            let attempt = AttemptFolder::of(folder.path(), &assignment.key());
            let plan = worker_plan(&engine.inner, &assignment, &attempt).unwrap();
            let env: BTreeMap<String, String> = plan.env.into_iter().collect();
            assert!(
                env["PATH"].starts_with("/opt/bin:/opt/venv/bin:/usr/bin"),
                "{}",
                env["PATH"]
            );
        }
    }
}
