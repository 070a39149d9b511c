//! The supervisor's loop: one worker, one poll(2), from the start to the recorded exit.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::cgroup::{Groups, OomWatch};
use super::clients::Clients;
use super::home::Home;
use super::init::{Note, Order};
use super::plain::PlainCopy;
use super::worker::{Worker, read_pipe};
use super::{Refused, listeners, tree};
use paddlecloud_worker::log::{LogWriter, REMARK, Stream};
use paddlecloud_worker::protocol::{
    Clash, Command, Ending, Exit, Phase, Report, State, UnixNanos, WorkerPlan,
};

const READ_BYTES: usize = 256 << 10;
/// Ports are checked again after an eighth of the time since the start, within these bounds: nobody notices such a delay.
const READY_FASTEST: Duration = Duration::from_millis(1);
const READY_SLOWEST: Duration = Duration::from_millis(50);
const MEMORY_INTERVAL: Duration = Duration::from_millis(250);
const DROPPED_INTERVAL: Duration = Duration::from_secs(1);
/// The kernel reports out of memory a moment before it counts the kill.
const OOM_RECHECK: Duration = Duration::from_millis(5);
const OOM_RECHECKS: u32 = 200;
/// Time from SIGKILL for all processes until init itself is killed from outside.
const FORCE_AFTER: Duration = Duration::from_secs(5);
/// Limits how often output makes us check our own folder.
const HOME_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the worker to its end. When this returns, its processes and control groups are gone.
///
/// # Safety
/// The process must have one thread.
pub unsafe fn supervise(plan: &WorkerPlan, home: &Home, clients: &mut Clients, output: Output) -> Exit {
    let mut supervisor = Supervisor {
        plan,
        home,
        looked_at_home: Instant::now(),
        clients,
        output,
        groups: Groups::default(),
        phase: Phase::Waiting,
        started: None,
        ready: false,
        timers: Timers::default(),
        dropped_reported: 0,
        end: End::default(),
    };
    // SAFETY: the caller vouches for the single thread.
    match unsafe { supervisor.start() } {
        Ok((worker, oom)) => supervisor.run(worker, oom),
        Err(error) => supervisor.end.failure = Some((None, error.to_string())),
    }
    supervisor.finish()
}

/// Where the worker's output is written.
pub struct Output {
    pub log: LogWriter,
    pub plain: Option<PlainCopy>,
}

impl Output {
    fn append(&mut self, stream: Stream, bytes: &[u8]) {
        self.log.append(stream, bytes, UnixNanos::now());
        if let Some(plain) = &mut self.plain {
            plain.append(bytes);
        }
    }
}

struct Supervisor<'a> {
    plan: &'a WorkerPlan,
    home: &'a Home,
    looked_at_home: Instant,
    clients: &'a mut Clients,
    output: Output,
    groups: Groups,
    phase: Phase,
    started: Option<(UnixNanos, Instant)>,
    ready: bool,
    timers: Timers,
    dropped_reported: u64,
    end: End,
}

#[derive(Default)]
struct Timers {
    kill: Option<Instant>,
    force: Option<Instant>,
    ready: Option<Instant>,
    memory: Option<Instant>,
    /// When to check for a kill, and how many checks remain.
    oom: Option<(Instant, u32)>,
    dropped: Option<Instant>,
}

impl Timers {
    fn next(&self) -> Option<Instant> {
        let oom = self.oom.map(|(at, _)| at);
        [self.kill, self.force, self.ready, self.memory, oom, self.dropped]
            .into_iter()
            .flatten()
            .min()
    }
}

/// What is known about the exit so far.
#[derive(Default)]
struct End {
    program: Option<Ending>,
    /// Whether the program exited without having been asked to stop; absent while it runs.
    ended_by_itself: Option<bool>,
    failure: Option<(Option<i32>, String)>,
    oom: bool,
    /// The worker was asked to stop.
    stopped: bool,
    /// The shortest grace period of all stops.
    grace: Option<Duration>,
    /// The worker was killed because the grace period was over.
    outstayed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PollSource {
    End,
    Notes,
    Output,
    Oom,
    Clients,
}

impl Supervisor<'_> {
    unsafe fn start(&mut self) -> Result<(Worker, Option<OomWatch>), Refused> {
        self.groups = Groups::create(&self.plan.isolation, self.plan.limits, &self.plan.marker)?;
        let oom = self.groups.watch_oom()?;
        // SAFETY: the caller vouches for the single thread.
        let worker = unsafe { Worker::start(self.plan, &self.home.path) }?;
        // Joining takes the kernel milliseconds, in which init builds the worker's view; it is done here, before the
        // program can start.
        if let Err(error) = self.groups.join(worker.init) {
            worker.abandon();
            return Err(error);
        }
        if !self.plan.wait_for_go {
            self.go(&worker, &[]);
        }
        Ok((worker, oom))
    }

    fn run(&mut self, mut worker: Worker, oom: Option<OomWatch>) {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let ready = self.wait(&worker, oom.as_ref());
            if ready.contains(&PollSource::Notes) {
                worker.hear().into_iter().for_each(|note| self.on_note(note));
            }
            if ready.contains(&PollSource::Output) {
                self.read_once(&mut worker.output, &mut buffer);
            }
            if ready.contains(&PollSource::Oom) {
                oom.iter().for_each(OomWatch::acknowledge);
                self.timers.oom = Some((Instant::now(), OOM_RECHECKS));
            }
            if ready.contains(&PollSource::End) {
                break;
            }
            if ready.contains(&PollSource::Clients) {
                self.clients.accept(&Report::State(self.state(&worker)));
                self.clients
                    .commands()
                    .into_iter()
                    .for_each(|command| self.obey(&worker, command));
            }
            self.look_at_home(&worker, &ready);
            self.on_time(&worker);
            self.clients.grown(self.output.log.len());
            self.clients.flush();
        }
        self.drain_output(worker, &mut buffer);
    }

    /// If the folder, or the server's whole data folder, was removed, this worker is no longer wanted, and its exit
    /// could not be recorded. Checked only on other activity: output, or a connection that was opened or closed.
    fn look_at_home(&mut self, worker: &Worker, ready: &[PollSource]) {
        let had_clients = ready.contains(&PollSource::Clients);
        if ready.is_empty() || !(had_clients || self.looked_at_home.elapsed() >= HOME_INTERVAL) {
            return;
        }
        self.looked_at_home = Instant::now();
        if self.timers.force.is_none() && self.home.is_gone() {
            self.kill(worker);
        }
    }

    /// Reads the last output. All processes are gone, so the pipe has all their output, even if others hold it.
    fn drain_output(&mut self, mut worker: Worker, buffer: &mut [u8]) {
        self.phase = Phase::Ending;
        worker.reap();
        // Without a process namespace, the children of a killed init are reparented to us.
        tree::end_descendants(|_, _| {});
        worker.hear().into_iter().for_each(|note| self.on_note(note));
        while self.read_once(&mut worker.output, buffer) {}
    }

    /// The sources that are ready, or none when a timer is due.
    fn wait(&self, worker: &Worker, oom: Option<&OomWatch>) -> Vec<PollSource> {
        let mut watched = vec![
            (PollSource::End, PollFd::new(&worker.end, PollFlags::IN)),
            (
                PollSource::Clients,
                PollFd::new(&self.clients.listener, PollFlags::IN),
            ),
        ];
        let pipes = [
            (PollSource::Notes, &worker.notes),
            (PollSource::Output, &worker.output),
        ];
        for (source, pipe) in pipes {
            watched.extend(
                pipe.as_ref()
                    .map(|pipe| (source, PollFd::new(pipe, PollFlags::IN))),
            );
        }
        watched.extend(oom.map(|oom| {
            (
                PollSource::Oom,
                PollFd::from_borrowed_fd(oom.as_fd(), oom.interest()),
            )
        }));
        watched.extend(self.clients.streams().map(|(stream, has_output)| {
            let flags = if has_output {
                PollFlags::IN | PollFlags::OUT
            } else {
                PollFlags::IN
            };
            (PollSource::Clients, PollFd::new(stream, flags))
        }));
        let (sources, mut fds): (Vec<_>, Vec<_>) = watched.into_iter().unzip();
        if poll(&mut fds, self.timeout().as_ref()).is_err() {
            return Vec::new();
        }
        let ready = sources
            .into_iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(source, _)| source).collect()
    }

    fn timeout(&self) -> Option<Timespec> {
        let left = self.timers.next()?.saturating_duration_since(Instant::now());
        Some(Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        }))
    }

    /// Returns false if nothing was available or the pipe has ended.
    fn read_once(&mut self, fd: &mut Option<std::os::fd::OwnedFd>, buffer: &mut [u8]) -> bool {
        let Some(len) = fd.as_ref().and_then(|fd| read_pipe(fd, buffer)) else {
            return false;
        };
        if len == 0 {
            *fd = None;
            return false;
        }
        let dropped = self.output.log.dropped();
        self.output.append(Stream::Output, &buffer[..len]);
        if self.output.log.dropped() != dropped && self.timers.dropped.is_none() {
            self.timers.dropped = Some(Instant::now());
        }
        true
    }

    /// Reports immediately, then at most once per interval: a flood onto a full disk must not become a flood of reports.
    fn report_dropped(&mut self, now: Instant) {
        let bytes = self.output.log.dropped();
        self.timers.dropped = (bytes != self.dropped_reported).then(|| now + DROPPED_INTERVAL);
        if bytes != self.dropped_reported {
            self.dropped_reported = bytes;
            self.clients.broadcast(&Report::Dropped { bytes });
        }
    }

    fn state(&self, worker: &Worker) -> State {
        State {
            marker: self.plan.marker.clone(),
            phase: self.phase,
            pid: Some(worker.init.as_raw_pid().unsigned_abs()),
            started_at: self.started.map(|(at, _)| at),
            ready: self.ready,
            log_offset: self.output.log.len(),
            dropped_bytes: self.output.log.dropped(),
        }
    }

    fn obey(&mut self, worker: &Worker, command: Command) {
        match command {
            Command::Go { lines } => self.go(worker, &lines),
            Command::Stop { grace_ms } => self.stop(worker, grace_ms),
            Command::Watch { .. } => {}
        }
    }

    fn go(&mut self, worker: &Worker, lines: &[String]) {
        if self.phase != Phase::Waiting {
            return;
        }
        for line in lines {
            self.output
                .append(Stream::Launcher, format!("{line}\n").as_bytes());
        }
        self.phase = Phase::Running;
        worker.order(Order::Go);
    }

    fn stop(&mut self, worker: &Worker, grace_ms: Option<u64>) {
        let grace = Duration::from_millis(grace_ms.unwrap_or(self.plan.grace_ms));
        let deadline = Instant::now().checked_add(grace);
        self.end.grace = Some(self.end.grace.map_or(grace, |earlier| earlier.min(grace)));
        let is_first = self.phase != Phase::Stopping;
        self.timers.kill = match self.timers.kill {
            Some(earlier) => deadline.map(|deadline| deadline.min(earlier)).or(Some(earlier)),
            None if is_first => deadline,
            None => None,
        };
        if is_first {
            self.phase = Phase::Stopping;
            self.end.stopped = true;
            worker.order(Order::Terminate);
        }
    }

    fn kill(&mut self, worker: &Worker) {
        self.phase = Phase::Stopping;
        self.timers.kill = None;
        self.timers.force = Some(Instant::now() + FORCE_AFTER);
        worker.order(Order::Kill);
        self.groups.hasten_exit(worker.init);
    }

    fn on_note(&mut self, note: Note) {
        match note {
            Note::Started => self.on_started(),
            Note::Ended(ending) => {
                self.end.ended_by_itself.get_or_insert(!self.end.stopped);
                self.end.program = Some(ending);
            }
            Note::Failed { code, message } => self.end.failure = Some((code, message)),
        }
    }

    fn on_started(&mut self) {
        let at = UnixNanos::now();
        self.started = Some((at, Instant::now()));
        self.clients.broadcast(&Report::Started { at });
        self.timers.ready = Some(Instant::now());
        let watches_memory = self.plan.limits.memory_bytes.is_some() && !self.groups.limits_memory();
        self.timers.memory = watches_memory.then(|| Instant::now() + MEMORY_INTERVAL);
    }

    fn on_time(&mut self, worker: &Worker) {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.timers.oom.map(|(at, _)| at)) {
            self.check_oom(worker, now);
        }
        if due(self.timers.memory) {
            self.check_memory(worker, now);
        }
        if due(self.timers.ready) {
            self.check_ready(worker, now);
        }
        if due(self.timers.dropped) {
            self.report_dropped(now);
        }
        if due(self.timers.force) {
            self.timers.force = None;
            worker.force_end();
        }
        if due(self.timers.kill) {
            self.end.outstayed = true;
            self.kill(worker);
        }
    }

    fn check_oom(&mut self, worker: &Worker, now: Instant) {
        let left = self.timers.oom.take().map_or(0, |(_, left)| left);
        if self.groups.oom_kills() == 0 {
            self.timers.oom = left.checked_sub(1).map(|left| (now + OOM_RECHECK, left));
        } else if !self.end.oom {
            self.end.oom = true;
            self.kill(worker);
        }
    }

    fn check_memory(&mut self, worker: &Worker, now: Instant) {
        let limit = self.plan.limits.memory_bytes.unwrap_or(u64::MAX);
        self.timers.memory = Some(now + MEMORY_INTERVAL);
        if tree::exceeds_memory(&tree::descendants(worker.init), limit) {
            self.timers.memory = None;
            self.end.oom = true;
            self.kill(worker);
        }
    }

    fn check_ready(&mut self, worker: &Worker, now: Instant) {
        self.timers.ready = None;
        if listeners::all_listen(self.plan.address, &self.plan.ready_ports, worker.init) {
            self.ready = true;
            self.clients.broadcast(&Report::Ready);
        } else {
            let since_start = self.started.map_or(Duration::ZERO, |(_, at)| now - at);
            self.timers.ready = Some(now + (since_start / 8).clamp(READY_FASTEST, READY_SLOWEST));
        }
    }

    fn finish(mut self) -> Exit {
        let ending = self.ending();
        self.end.oom |= self.groups.oom_kills() > 0;
        let message = self.message(ending);
        if let Some(message) = &message
            && self.end.failure.is_some()
        {
            self.output
                .append(Stream::Launcher, format!("{REMARK}{message}\n").as_bytes());
        }
        self.groups.remove();
        let clash = self.clash(ending);
        let dropped_bytes = self.output.log.dropped();
        let stored = self.output.log.len();
        let final_log_offset = self.output.log.close().unwrap_or_else(|error| {
            crate::trouble!("cannot make the log durable: {error}");
            stored
        });
        self.clients.ended(final_log_offset);
        Exit {
            ending,
            oom: self.end.oom,
            started_at: self.started.map(|(at, _)| at),
            finished_at: UnixNanos::now(),
            duration_ms: self.started.map_or(0, |(_, at)| millis(at.elapsed())),
            final_log_offset,
            dropped_bytes,
            clash,
            message,
            stopped: Some(self.end.ended_by_itself.map_or(self.end.stopped, |own| !own)),
        }
    }

    /// Only a program that failed by itself can have failed because of its ports.
    fn clash(&self, ending: Ending) -> Option<Clash> {
        let is_own_failure = ending != Ending::Code(0) && self.started.is_some();
        if !is_own_failure || self.end.stopped || self.end.oom {
            return None;
        }
        listeners::find_clash(self.plan.address, &self.plan.ready_ports)
    }

    fn ending(&self) -> Ending {
        if let Some((code, _)) = &self.end.failure {
            return code.map_or(Ending::NeverStarted, Ending::Code);
        }
        let lost = if self.started.is_some() {
            Ending::Signal(libc::SIGKILL)
        } else {
            Ending::NeverStarted
        };
        self.end.program.unwrap_or(lost)
    }

    fn message(&self, ending: Ending) -> Option<String> {
        if let Some((_, message)) = &self.end.failure {
            return Some(message.clone());
        }
        if self.end.oom {
            let limit = self.plan.limits.memory_bytes.unwrap_or_default();
            return Some(format!(
                "out of memory: the worker needed more than its {limit} bytes"
            ));
        }
        match (ending, self.end.program) {
            (Ending::NeverStarted, _) if self.end.stopped => Some("stopped before it was started".into()),
            (Ending::Signal(libc::SIGKILL), _) if self.end.outstayed => Some(self.after_grace()),
            (_, None) => Some("the worker's first process was killed".into()),
            _ => None,
        }
    }

    fn after_grace(&self) -> String {
        let grace = self.end.grace.unwrap_or_default();
        match millis(grace) {
            0 => "killed immediately, as requested".to_owned(),
            part if part % 1000 != 0 => format!("killed after its grace period of {part}ms"),
            _ => format!("killed after its grace period of {}s", grace.as_secs()),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
