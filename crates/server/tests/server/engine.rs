//! The local engine with real supervisors: what it reports about attempts in every state that a crash can leave.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::SignedDuration;
use paddlecloud_accounts::auth::Secret;
use paddlecloud_core::job::{Boot, Job, News, WorkerKey};
use paddlecloud_core::names::JobId;
use paddlecloud_core::plan::Role;
use paddlecloud_core::ports::{Assignment, AttemptKey, Engine, EngineEvent, LogStore, RunPreparer};
use paddlecloud_core::spec::JobSpec;
use paddlecloud_core::testing::engine_suite::{Bench, Program, engine_suite};
use paddlecloud_core::testing::samples;
use paddlecloud_files::homes::Storage;
use paddlecloud_files::runs::HomeRuns;
use paddlecloud_server::engine::local::{BootId, LocalEngine, LocalSettings};
use paddlecloud_server::logs::SegmentLogs;
use paddlecloud_worker::attempts::attempt_folder;
use paddlecloud_worker::log::{LogReader, Piece};
use paddlecloud_worker::protocol::{LogLimits, files};
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::supervisor;

const TRAINER: WorkerKey = WorkerKey {
    role: Role::Trainer,
    index: 0,
};
/// A package that is there when its run is prepared, and gone when a worker starts.
const MISSING: &str = "nothing";
/// The file that says that the machine is full.
const FULL: &str = "full";
const LIMIT: Duration = Duration::from_secs(60);

/// A machine with one server's folders; engines come and go.
struct Machine {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("storage/home/ada");
        fs::create_dir_all(home.join("package")).unwrap();
        Machine {
            folder,
            program: supervisor(),
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn start(&self) -> LocalEngine {
        fs::create_dir_all(self.data()).unwrap();
        let settings = LocalSettings {
            data: self.data(),
            datacenter: "local".parse().unwrap(),
            nodes: Vec::new(),
            address_seed: 0,
            isolation: paddlecloud_supervisor::probe(),
            logs: LogLimits::default(),
            log_copy: true,
            boot: BootId::read().unwrap(),
            program: self.program.clone(),
            programs: self.data(),
            path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
        };
        let logs = SegmentLogs::open(&self.data(), LogLimits::default()).unwrap();
        let secret = Secret::open(&self.data()).unwrap();
        LocalEngine::new(settings, self.storage(), logs, secret)
    }

    fn storage(&self) -> Storage {
        Storage::open(&self.folder.path().join("storage"), "local".parse().unwrap()).unwrap()
    }

    /// The trainer's first attempt with its run prepared.
    fn first(&self, job: &Arc<Job>) -> Assignment {
        self.prepared(job, TRAINER, 1)
    }

    fn prepared(&self, job: &Arc<Job>, worker: WorkerKey, attempt: u32) -> Assignment {
        let runs = HomeRuns::new(self.storage(), "this boot".into());
        let gone = self.folder.path().join("storage/home/ada").join(MISSING);
        fs::create_dir_all(&gone).unwrap();
        let run = runs.prepare(job, worker).unwrap();
        fs::remove_dir_all(&gone).unwrap();
        Assignment {
            job: Arc::clone(job),
            run: Arc::new(run),
            worker,
            attempt,
            secrets: Default::default(),
        }
    }

    /// From now on supervisors find hardly a file descriptor while [`FULL`] is there.
    fn can_be_full(&mut self) {
        let (folder, program) = (self.folder.path().display(), self.program.display());
        let text = format!("#!/bin/sh\n[ -e '{folder}/{FULL}' ] && ulimit -n 4\nexec '{program}' \"$@\"\n");
        self.program = script(self.folder.path(), &text);
    }

    /// A job with one trainer.
    fn job_of(&self, entry: &str) -> Arc<Job> {
        let mut spec = samples::spec("suite", 0, 1);
        spec.entry = entry.into();
        admitted(spec)
    }

    fn attempt(&self, key: &AttemptKey) -> PathBuf {
        attempt_folder(&self.data(), key)
    }

    /// The number of an attempt's supervisor.
    fn supervisor_of(&self, key: &AttemptKey) -> Pid {
        let text = fs::read_to_string(self.attempt(key).join(files::PID)).unwrap();
        Pid::from_raw(text.split(' ').next().unwrap().parse().unwrap()).unwrap()
    }
}

impl Bench for Machine {
    type Engine = LocalEngine;

    async fn engine(&self) -> LocalEngine {
        self.start()
    }

    fn job(&self, _number: u32, pserver: Option<Program>, trainer: Program) -> Arc<Job> {
        let mut spec = samples::spec("suite", u32::from(pserver.is_some()), 1);
        let folder = match trainer {
            Program::CannotStart => MISSING,
            _ => "package",
        };
        spec.package = Some(format!("/pfs/local/home/ada/{folder}"));
        spec.entry = command(trainer);
        spec.ps_entry = LISTEN.to_owned();
        admitted(spec)
    }

    async fn assignment(&self, job: &Arc<Job>, worker: WorkerKey, attempt: u32) -> Assignment {
        self.prepared(job, worker, attempt)
    }

    fn logs(&self) -> Arc<dyn LogStore> {
        Arc::new(SegmentLogs::open(&self.data(), LogLimits::default()).unwrap())
    }

    fn crowd(&self, is_full: bool) {
        let full = self.folder.path().join(FULL);
        match is_full {
            true => fs::write(full, "").unwrap(),
            false => fs::remove_file(full).unwrap(),
        }
    }

    async fn settled(&self, attempt: &AttemptKey) {
        let log = self.attempt(attempt).join(files::LOG);
        let wrote = || {
            let pieces = LogReader::open(&log).read_at(0, usize::MAX).unwrap_or_default();
            let is_last_line =
                |piece: &Piece| matches!(piece, Piece::Chunk(chunk) if chunk.bytes.ends_with(b"settled\n"));
            pieces.iter().any(is_last_line)
        };
        wait_until("the program is where it should be", wrote).await;
    }
}

/// Processes and control groups of an attempt are found by its job's id, on the whole machine.
fn admitted(spec: JobSpec) -> Arc<Job> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut job = samples::starting(number, spec);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    job.id = JobId::new(since_1970.as_millis() as u64, (std::process::id() << 8) + number);
    Arc::new(job)
}

fn command(program: Program) -> String {
    match program {
        Program::EndsWith(code) => format!("exit {code}"),
        Program::Serves => "echo settled; exec sleep 1000".to_owned(),
        Program::IgnoresTerm => "trap '' TERM; echo settled; while :; do sleep 1; done".to_owned(),
        Program::CannotStart => "true".to_owned(),
        Program::Prints => "for i in $(seq 20000); do echo $i; done".to_owned(),
    }
}

/// A parameter server that does nothing but be there.
const LISTEN: &str = "exec python3 -c \"
import os, signal, socket
base, count = int(os.environ['PADDLE_INIT_PORT']), int(os.environ['PADDLE_INIT_PORTS_NUM'])
count += int(os.environ['PADDLE_INIT_PORTS_NUM_FOR_SPARSE'])
sockets = [socket.create_server((os.environ['POD_IP'], base + at)) for at in range(count)]
signal.pause()\"";

fn key(job: &Job) -> AttemptKey {
    AttemptKey {
        job: job.id.clone(),
        worker: TRAINER,
        attempt: 1,
    }
}

async fn listed(engine: &LocalEngine, key: &AttemptKey) -> Option<News> {
    let state = engine.state().await.unwrap();
    let mut attempts = state.attempts.into_iter();
    attempts
        .find(|report| report.attempt == *key)
        .map(|report| report.news)
}

async fn wait_until_reported(
    engine: &LocalEngine,
    key: &AttemptKey,
    is_expected: impl Fn(&News) -> bool,
) -> News {
    let reported = async {
        loop {
            for event in engine.next_events().await {
                if let EngineEvent::Worker(report) = event
                    && report.attempt == *key
                    && is_expected(&report.news)
                {
                    return report.news;
                }
            }
        }
    };
    tokio::time::timeout(LIMIT, reported)
        .await
        .expect("within the limit")
}

/// Orders the stop again and again, as a job does that waits for it.
async fn wait_until_stopped(engine: &LocalEngine, key: &AttemptKey) -> News {
    let order_again = async {
        loop {
            engine.stop(key, SignedDuration::ZERO).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        reported = wait_until_reported(engine, key, News::is_end) => reported,
        () = order_again => unreachable!("orders have no end"),
    }
}

pub async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started_at = Instant::now();
    while !condition() {
        assert!(started_at.elapsed() < LIMIT, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Lets the worker end and forgets it.
async fn end(engine: &LocalEngine, key: &AttemptKey) {
    engine.clean(key).await;
    assert_eq!(listed(engine, key).await, None);
}

/// A program in the place of the supervisor.
fn script(folder: &Path, text: &str) -> PathBuf {
    let script = folder.join("supervise");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

/// Supervisors that do not begin before the gate is opened.
struct Gate(PathBuf);

impl Gate {
    fn before(machine: &mut Machine) -> Gate {
        let folder = machine.folder.path();
        let gate = folder.join("gate");
        let text = format!(
            "#!/bin/sh\nfor i in $(seq 6000); do [ -e '{}' ] && exec '{}' \"$@\"; sleep 0.01; done\nexit 1\n",
            gate.display(),
            machine.program.display()
        );
        machine.program = script(folder, &text);
        Gate(gate)
    }

    fn open(&self) {
        fs::write(&self.0, "").unwrap();
    }
}

/// Begins a launch that does not end before the gate is opened.
async fn begin(engine: &LocalEngine, first: Assignment, folder: &Path) -> tokio::task::JoinHandle<()> {
    let launching = engine.clone();
    let launch = tokio::spawn(async move { launching.launch(&first).await });
    wait_until("the plan is written", || folder.join(files::PLAN).exists()).await;
    launch
}

#[tokio::test]
async fn the_local_engine_passes_the_suite_of_its_port() {
    let mut machine = Machine::new();
    machine.can_be_full();
    let suite = engine_suite(&machine);
    tokio::time::timeout(10 * LIMIT, suite)
        .await
        .expect("within the limit");
}

#[tokio::test]
async fn a_launch_in_flight_is_left_alone_when_the_server_reads_the_state() {
    let mut machine = Machine::new();
    let gate = Gate::before(&mut machine);
    let engine = machine.start();
    let job = machine.job_of("exec sleep 1000");
    let key = key(&job);
    let launch = begin(&engine, machine.first(&job), &machine.attempt(&key)).await;
    assert_eq!(listed(&engine, &key).await, Some(News::Launched));
    gate.open();
    launch.await.unwrap();
    wait_until_reported(&engine, &key, |news| *news == News::Up).await;
    assert_eq!(listed(&engine, &key).await, Some(News::Up));
    end(&engine, &key).await;
}

#[tokio::test]
async fn a_supervisor_that_starts_while_the_next_server_looks_is_adopted() {
    let mut machine = Machine::new();
    let gate = Gate::before(&mut machine);
    let job = machine.job_of("exec sleep 1000");
    let key = key(&job);
    let folder = machine.attempt(&key);
    begin(&machine.start(), machine.first(&job), &folder)
        .await
        .abort();
    let place = paddlecloud_supervisor::take_place(&folder).unwrap();
    let place = place.expect("no supervisor has come this far");
    let engine = machine.start();
    assert_eq!(
        listed(&engine, &key).await,
        Some(News::Launched),
        "it has its place, and has not said who it is"
    );
    assert!(folder.join(files::PLAN).exists());
    drop(place);
    let reported = wait_until_reported(&engine, &key, News::is_end).await;
    assert!(matches!(reported, News::Lost(_)), "{reported:?}");
    end(&engine, &key).await;
    gate.open();
}

#[tokio::test]
async fn a_supervisor_that_starts_too_late_does_not_run() {
    let mut machine = Machine::new();
    let gate = Gate::before(&mut machine);
    let job = machine.job_of("exec sleep 1000");
    let key = key(&job);
    let folder = machine.attempt(&key);
    begin(&machine.start(), machine.first(&job), &folder)
        .await
        .abort();
    let engine = machine.start();
    assert_eq!(
        listed(&engine, &key).await,
        None,
        "it may be launched as if never tried"
    );
    assert!(!folder.exists());
    gate.open();
    engine.launch(&machine.first(&job)).await;
    wait_until_reported(&engine, &key, |news| *news == News::Up).await;
    end(&engine, &key).await;
}

#[tokio::test]
async fn an_interrupted_clean_is_finished_and_keeps_the_log() {
    let machine = Machine::new();
    let engine = machine.start();
    let job = machine.job_of("echo precious");
    let key = key(&job);
    engine.launch(&machine.first(&job)).await;
    engine.go(&key).await;
    wait_until_reported(&engine, &key, News::is_end).await;
    let folder = machine.attempt(&key);
    fs::remove_file(folder.join(files::EXIT)).unwrap();
    let next = machine.start();
    assert!(
        listed(&next, &key).await.is_some(),
        "it is there to be cleaned again"
    );
    end(&next, &key).await;
    assert!(folder.join(files::LOG).is_dir());
    assert!(!folder.join(files::PLAN).exists());
}

#[tokio::test]
async fn an_order_for_a_silent_supervisor_reaches_it_when_it_listens_again() {
    let machine = Machine::new();
    let job = machine.job_of("exec sleep 1000");
    let key = key(&job);
    machine.start().launch(&machine.first(&job)).await;
    let supervisor = machine.supervisor_of(&key);
    kill_process(supervisor, Signal::STOP).unwrap();
    let engine = machine.start();
    for _ in 0..2 {
        assert_eq!(listed(&engine, &key).await, Some(News::Launched));
    }
    engine.go(&key).await;
    kill_process(supervisor, Signal::CONT).unwrap();
    wait_until_reported(&engine, &key, |news| *news == News::Started).await;
    end(&engine, &key).await;
}

#[tokio::test]
async fn a_live_but_unreachable_supervisor_keeps_its_worker() {
    let machine = Machine::new();
    let job = machine.job_of("exec sleep 1000");
    let key = key(&job);
    machine.start().launch(&machine.first(&job)).await;
    let (socket, aside) = (
        machine.attempt(&key).join(files::SOCKET),
        machine.folder.path().join("aside"),
    );
    fs::rename(&socket, &aside).unwrap();
    let engine = machine.start();
    assert_eq!(listed(&engine, &key).await, Some(News::Launched));
    fs::rename(&aside, &socket).unwrap();
    wait_until_reported(&engine, &key, |news| *news == News::Up).await;
    engine.go(&key).await;
    wait_until_reported(&engine, &key, |news| *news == News::Started).await;
    end(&engine, &key).await;
}

#[tokio::test]
async fn a_boot_id_that_could_not_be_stored_ends_no_attempt_of_that_boot() {
    let machine = Machine::new();
    let engine = machine.start();
    let (known, draft) = (machine.data().join("boot_id"), machine.data().join("boot_id.new"));
    fs::write(&known, "the boot before").unwrap();
    // Stands for a full disk: nothing can be written there.
    fs::create_dir(&draft).unwrap();
    assert_eq!(engine.state().await.unwrap().boot, Boot::Changed);
    let job = machine.job_of("exec sleep 1000");
    let key = key(&job);
    engine.launch(&machine.first(&job)).await;
    let next = machine.start();
    let state = next.state().await.unwrap();
    assert_eq!(state.boot, Boot::Same, "the attempt was planned in this boot");
    // A supervisor that does not answer immediately is adopted later.
    let news = &state.attempts[0].news;
    assert!(matches!(news, News::Up | News::Launched), "{news:?}");
    fs::remove_dir(&draft).unwrap();
    // The next order remembers what could not be written before.
    end(&engine, &key).await;
    assert_eq!(
        fs::read_to_string(&known).unwrap(),
        BootId::read().unwrap().as_str()
    );
}

#[tokio::test]
async fn a_supervisor_that_does_not_stop_its_worker_in_time_is_ended_with_it() {
    let machine = Machine::new();
    let engine = machine.start();
    let job = machine.job_of("exec sleep 1000");
    let key = key(&job);
    engine.launch(&machine.first(&job)).await;
    engine.go(&key).await;
    wait_until_reported(&engine, &key, |news| *news == News::Started).await;
    kill_process(machine.supervisor_of(&key), Signal::STOP).unwrap();
    let reported = wait_until_stopped(&engine, &key).await;
    let why = "its supervisor did not answer and was killed with its worker; captured output is kept";
    assert_eq!(reported, News::Lost(why.into()));
    end(&engine, &key).await;
}

#[tokio::test]
async fn an_attempt_whose_folder_is_removed_ends_and_is_lost() {
    let machine = Machine::new();
    let engine = machine.start();
    let job = machine.job_of("exec sleep 1000");
    let key = key(&job);
    engine.launch(&machine.first(&job)).await;
    engine.go(&key).await;
    wait_until_reported(&engine, &key, |news| *news == News::Started).await;
    fs::remove_dir_all(machine.attempt(&key)).unwrap();
    engine.stop(&key, SignedDuration::from_secs(1)).await;
    let reported = wait_until_reported(&engine, &key, News::is_end).await;
    let why = "its folder was removed together with its log, so it was killed";
    assert_eq!(reported, News::Lost(why.into()));
    end(&engine, &key).await;
}
