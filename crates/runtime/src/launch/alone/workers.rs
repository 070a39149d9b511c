//! Runs the workers of this pod: finds peers, starts supervisors, stops workers that are no longer needed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use paddlecloud_core::plan::Role;
use paddlecloud_worker::log::LogReader;
use paddlecloud_worker::protocol::{Command, Exit, Report, WorkerPlan};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::attendance::{self, Attendance, Host};
use super::plan::{self, Container};
use super::{Assembly, LaunchError, Team, peers};
use crate::launch::events::LaunchEvent;
use crate::launch::leaving::{self, MemoryKills};
use crate::launch::output::StdoutCopy;
use crate::launch::pod_files;
use crate::launch::worker::{SupervisorLink, start};

/// How long after the exit the copy on stdout may take.
const STDOUT_LAG: Duration = Duration::from_secs(5);

/// Runs the workers and returns the pod's exit code.
pub async fn run(assembly: Assembly) -> Result<u8, LaunchError> {
    let mut stop = watch_signals()?;
    tokio::select! {
        done = assemble_and_run(&assembly, stop.clone()) => done,
        () = stopped_early(&mut stop, assembly.grace) => Ok(leaving::STOPPED),
    }
}

/// A signal before any worker runs ends the launcher. Running workers are stopped, and their exit is awaited.
async fn stopped_early(stop: &mut watch::Receiver<bool>, grace: Duration) {
    asked_to_stop(stop).await;
    tokio::time::sleep(grace + STDOUT_LAG).await;
}

fn watch_signals() -> Result<watch::Receiver<bool>, LaunchError> {
    let (sender, stop) = watch::channel(false);
    let listen =
        |kind| signal(kind).map_err(|error| LaunchError::new(format!("cannot watch signals: {error}")));
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signals, sender) = (listen(kind)?, sender.clone());
        tokio::spawn(async move { while signals.recv().await.is_some() && sender.send(true).is_ok() {} });
    }
    let mut children = listen(SignalKind::child())?;
    tokio::spawn(async move {
        while children.recv().await.is_some() {
            leaving::reap();
        }
    });
    Ok(stop)
}

async fn assemble_and_run(assembly: &Assembly, mut stop: watch::Receiver<bool>) -> Result<u8, LaunchError> {
    let deadline = Instant::now() + assembly.start_limit;
    let has = |role: Role| assembly.workers.iter().any(|order| order.role == role);
    let host = match has(Role::Pserver) {
        true => Some(Host::open(assembly.trainers, assembly.launch_port).await?),
        false => None,
    };
    let team = tokio::select! {
        team = peers::find(assembly, deadline) => team?,
        () = asked_to_stop(&mut stop) => return Ok(leaving::STOPPED),
    };
    if let Some(copy) = &assembly.data {
        copy(team.index)?;
    }
    let pod = Pod {
        assembly,
        container: Container::here(),
        team,
        deadline,
        kills: MemoryKills::now(),
    };
    let end = match (host, has(Role::Trainer)) {
        (Some(host), false) => pod.run_pserver(&host, stop).await?,
        (Some(host), true) => pod.run_both(&host, stop).await?,
        (None, _) => pod.run_trainer(stop).await?,
    };
    Ok(match end {
        End::Done => 0,
        End::Stopped => leaving::STOPPED,
        End::Failed(mut exit) => {
            exit.oom |= pod.kills.happened_since();
            leaving::explain(&exit)
        }
    })
}

/// How this pod's work ended.
enum End {
    Done,
    /// A signal arrived before the program was started.
    Stopped,
    Failed(Exit),
}

impl End {
    fn of(exit: Exit) -> End {
        match exit.ending {
            paddlecloud_worker::protocol::Ending::Code(0) if !exit.oom => End::Done,
            _ => End::Failed(exit),
        }
    }
}

/// A pod whose peers are known.
struct Pod<'a> {
    assembly: &'a Assembly,
    container: Container,
    team: Team,
    deadline: Instant,
    kills: MemoryKills,
}

impl Pod<'_> {
    /// Runs only a trainer; its parameter servers are in other pods.
    async fn run_trainer(&self, mut stop: watch::Receiver<bool>) -> Result<End, LaunchError> {
        let _attendance = tokio::select! {
            attendance = self.join_all() => attendance?,
            () = asked_to_stop(&mut stop) => return Ok(End::Stopped),
        };
        let worker = self.start(Role::Trainer, Copy::Yes).await?;
        Ok(End::of(worker.run(stop, || ()).await))
    }

    /// Runs only a parameter server, until the trainers are done.
    async fn run_pserver(&self, host: &Host, stop: watch::Receiver<bool>) -> Result<End, LaunchError> {
        let worker = self.start(Role::Pserver, Copy::Yes).await?;
        let (end, ended) = watch::channel(false);
        let mut running = std::pin::pin!(worker.run(either(stop, ended), || host.set_ready()));
        tokio::select! {
            exit = &mut running => Ok(End::of(exit)),
            over = self.trainers_over(host) => {
                end.send_replace(true);
                running.await;
                over.map(|()| End::Done)
            }
        }
    }

    /// Runs both in one pod, as in a Job from 2017. The trainer decides the result; other pods may still need the server.
    async fn run_both(&self, host: &Host, mut stop: watch::Receiver<bool>) -> Result<End, LaunchError> {
        let pserver = self.start(Role::Pserver, Copy::No).await?;
        let (end_pserver, pserver_ended) = watch::channel(false);
        let (end_trainer, mut trainer_ended) = watch::channel(false);
        let mut serving =
            std::pin::pin!(pserver.run(either(stop.clone(), pserver_ended), || host.set_ready()));
        let training = async {
            let attendance = tokio::select! {
                attendance = self.join_all() => attendance?,
                () = asked_to_stop(&mut stop) => return Ok(End::Stopped),
                () = asked_to_stop(&mut trainer_ended) => return Ok(End::Stopped),
            };
            let trainer = self.start(Role::Trainer, Copy::Yes).await?;
            let exit = trainer.run(either(stop, trainer_ended), || ()).await;
            drop(attendance);
            Ok(End::of(exit))
        };
        let mut training = std::pin::pin!(training);
        let end = tokio::select! {
            end = &mut training => end,
            exit = &mut serving => {
                // A server that exits successfully has served all trainers; one that fails ends its trainer too.
                let served = End::of(exit);
                if matches!(served, End::Failed(_)) {
                    end_trainer.send_replace(true);
                }
                return match (training.await, served) {
                    (Ok(End::Done), _) => Ok(End::Done),
                    (trained, End::Done) => trained,
                    (_, failed) => Ok(failed),
                };
            }
        };
        let mut over = Ok(());
        if matches!(end, Ok(End::Done)) {
            tokio::select! {
                _ = &mut serving => return end,
                done = self.trainers_over(host) => over = done,
            }
        }
        end_pserver.send_replace(true);
        serving.await;
        over.and(end)
    }

    async fn trainers_over(&self, host: &Host) -> Result<(), LaunchError> {
        let mut book = host.book.clone();
        book.all_joined(self.deadline, self.assembly.start_limit).await?;
        book.all_left(self.assembly.linger).await;
        Ok(())
    }

    async fn join_all(&self) -> Result<Attendance, LaunchError> {
        let (port, limit) = (self.assembly.launch_port, self.assembly.start_limit);
        let pservers = self.team.pservers.iter().map(|address| (*address, port).into());
        attendance::join_all(pservers.collect(), self.team.index, self.deadline, limit).await
    }

    async fn start(&self, role: Role, copy: Copy) -> Result<Worker, LaunchError> {
        let order = self.assembly.workers.iter().find(|order| order.role == role);
        let command = order.map(|order| (order.command)(&self.team)).unwrap_or_default();
        let plan = plan::of(self.assembly, &self.container, &self.team, role, &command);
        Worker::start(plan, copy).await.map_err(LaunchError::new)
    }
}

/// Returns when the value becomes true. If the sender is gone, never returns.
async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// True as soon as one of the two is.
fn either(mut first: watch::Receiver<bool>, mut second: watch::Receiver<bool>) -> watch::Receiver<bool> {
    let (sender, both) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            () = asked_to_stop(&mut first) => {}
            () = asked_to_stop(&mut second) => {}
        }
        sender.send_replace(true);
    });
    both
}

/// Whether output is copied to stdout. Two programs of one pod would mix their lines there.
#[derive(Clone, Copy)]
enum Copy {
    Yes,
    No,
}

/// A supervised program that waits for `go`.
struct Worker {
    supervisor: SupervisorLink,
    reports: mpsc::UnboundedReceiver<LaunchEvent>,
    folder: PathBuf,
    plan: WorkerPlan,
    stdout: Option<StdoutCopy>,
    /// The current end of the log.
    end: u64,
}

impl Worker {
    async fn start(mut plan: WorkerPlan, copy: Copy) -> Result<Worker, String> {
        let folder = own_folder(&plan)?;
        prepare_output(&mut plan);
        mounted_files(&mut plan)?;
        let (sender, reports) = mpsc::unbounded_channel();
        let supervisor = start(&folder, &plan, programs().as_deref(), sender).await?;
        let stdout = match copy {
            Copy::Yes => Some(StdoutCopy::start(&supervisor.log, std::io::stdout())),
            Copy::No => None,
        };
        Ok(Worker {
            supervisor,
            reports,
            folder,
            plan,
            stdout,
            end: 0,
        })
    }

    /// Starts the program and waits for its exit. Calls `ready` when it listens.
    async fn run(mut self, mut stop: watch::Receiver<bool>, ready: impl Fn()) -> Exit {
        let lines = self.plan.preamble.clone();
        self.supervisor.tell(&Command::Go { lines }).await;
        self.watch().await;
        let mut stopping = false;
        let exit = loop {
            let event = tokio::select! {
                event = self.reports.recv() => event,
                () = asked_to_stop(&mut stop), if !stopping => {
                    stopping = true;
                    self.supervisor.tell(&Command::Stop { grace_ms: None }).await;
                    continue;
                }
            };
            match event {
                Some(LaunchEvent::Report(Report::Grown { offset })) => {
                    self.grown(offset);
                    self.watch().await;
                }
                Some(LaunchEvent::Report(Report::Ready)) => ready(),
                Some(LaunchEvent::Report(Report::Exited(exit))) => break exit,
                Some(LaunchEvent::SupervisorGone) | None => break self.lost(),
                Some(_) => {}
            }
        };
        self.grown(exit.final_log_offset);
        if let Some(stdout) = &self.stdout {
            stdout.complete(self.end);
            stdout.wait(STDOUT_LAG);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        exit
    }

    async fn watch(&mut self) {
        self.supervisor.tell(&Command::Watch { offset: self.end }).await;
    }

    fn grown(&mut self, end: u64) {
        self.end = self.end.max(end);
        if let Some(stdout) = &self.stdout {
            stdout.grown(self.end);
        }
    }

    /// The exit may still be recorded in the folder: the last report of a supervisor can be cut off.
    fn lost(&self) -> Exit {
        let recorded = Exit::load(&self.folder).ok().flatten();
        recorded.unwrap_or_else(|| leaving::exit_of_lost(&LogReader::open(&self.supervisor.log), true))
    }
}

/// The folder for a worker's plan, socket and output: prepared by the init container, or where any user may write.
fn own_folder(plan: &WorkerPlan) -> Result<PathBuf, String> {
    let name = format!("paddle-launch-{}-{}", std::process::id(), plan.worker);
    let installed = programs().map(|programs| programs.with_file_name("attempt"));
    let places = [
        installed.filter(|place| place.is_dir()),
        Some(std::env::temp_dir()),
        Some("/dev/shm".into()),
    ];
    let mut problem = String::new();
    for place in places.into_iter().flatten() {
        let folder = place.join(&name);
        let _ = std::fs::remove_dir_all(&folder);
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => problem = format!("cannot create `{}`: {error}", folder.display()),
        }
    }
    Err(problem)
}

/// If the output folder is not writable, the job still runs; its log is on stdout.
fn prepare_output(plan: &mut WorkerPlan) {
    let Some(folder) = plan.plain_log.as_deref().and_then(Path::parent) else {
        return;
    };
    if let Err(error) = std::fs::create_dir_all(folder) {
        eprintln!(
            "paddle launch: the log is not copied to `{}`: {error}",
            folder.display()
        );
        plan.plain_log = None;
    }
}

/// Writes the small files that the pod mounts; leaves the others to the supervisor.
fn mounted_files(plan: &mut WorkerPlan) -> Result<(), String> {
    let is_mounted = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_file());
    let (mounted, others): (Vec<_>, Vec<_>) = plan.files.drain(..).partition(|file| is_mounted(&file.path));
    plan.files = others;
    pod_files::write_all(&mounted)
}

/// The folder of our own programs, if it contains `paddle`.
fn programs() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    folder.join("paddle").exists().then(|| folder.to_owned())
}
