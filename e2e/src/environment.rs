//! A test's own user: an empty home, a cleared environment, the programs by their names.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::background::Background;
use crate::gate::Gate;
use crate::leftovers::{self, Process};
use crate::package::Package;
use crate::program;
use crate::ran::Ran;
use crate::wait::{LIMIT, wait_until};

/// The machine, shared by all tests of this program except those that need it alone.
static MACHINE: RwLock<()> = RwLock::new(());

#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
enum Share {
    WithOthers(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// One user on one machine. When dropped it stops its jobs and its server, and fails the test if anything is left: a
/// process, a mount, a control group, a socket.
#[derive(Debug)]
pub struct TestEnvironment {
    root: TempDir,
    home: PathBuf,
    /// The folder of the programs that are called by name.
    bin: PathBuf,
    /// Searched first, in this order.
    path: Vec<PathBuf>,
    variables: Vec<(String, String)>,
    _share: Share,
}

impl Default for TestEnvironment {
    fn default() -> Self {
        Self::new()
    }
}

impl TestEnvironment {
    pub fn new() -> Self {
        // A test that failed has not harmed the machine, so a poisoned lock is as good as any.
        Self::with(Share::WithOthers(
            MACHINE.read().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// For a test that needs something machine-wide, such as a port on all addresses.
    pub fn alone() -> Self {
        Self::with(Share::Alone(
            MACHINE.write().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    fn with(share: Share) -> Self {
        let root = tempfile::Builder::new()
            .prefix("paddlecloud-e2e-")
            .tempdir()
            .expect("a temporary folder");
        let (home, bin) = (root.path().join("home"), root.path().join("bin"));
        fs::create_dir(&home).expect("a folder in a fresh one");
        fs::create_dir(&bin).expect("a folder in a fresh one");
        program::link_names(&bin);
        Self {
            root,
            home,
            path: vec![bin.clone()],
            bin,
            variables: Vec::new(),
            _share: share,
        }
    }

    /// Sets a variable for all commands from now on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Puts a folder before all others of `PATH`, as activating a virtual environment does.
    pub fn search_first(&mut self, folder: PathBuf) {
        self.path.insert(0, folder);
    }

    /// Uses the programs of another folder from now on; returns the previous folder.
    pub fn use_programs_of(&mut self, bin: PathBuf) -> PathBuf {
        std::mem::replace(&mut self.bin, bin)
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Writes the user's configuration.
    pub fn configure(&self, text: &str) {
        let config = self.home.join(".paddle/config");
        fs::create_dir_all(config.parent().expect("it lies in a folder")).expect("a home can be written");
        fs::write(config, text).expect("a home can be written");
    }

    /// A folder beside the home, for other files of a test.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.root.path().join(name);
        fs::create_dir_all(&folder).expect("a folder in the test's own one");
        folder
    }

    /// An empty package of this name, beside the home.
    pub fn package(&self, name: &str) -> Package {
        Package::new(self.root.path().join("packages").join(name))
    }

    /// A gate that a worker waits at; see [`Gate`].
    pub fn gate(&self, name: &str) -> Gate {
        Gate::new(self.folder("gates").join(name))
    }

    /// Runs `paddlectl` to its end.
    #[must_use = "check how it ended"]
    pub fn paddlectl(&self, args: &[&str]) -> Ran {
        self.run("paddlectl", args)
    }

    /// Runs the program under one of its names to its end, within the limit.
    #[must_use = "check how it ended"]
    pub fn run(&self, name: &str, args: &[&str]) -> Ran {
        let line = shown(name, args);
        let mut command = self.command(name, args);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start `{line}`: {error}"));
        let pid = child.id();
        let (sender, receiver) = channel();
        thread::spawn(move || sender.send(child.wait_with_output()));
        match receiver.recv_timeout(LIMIT) {
            Ok(output) => Ran::new(line, output.expect("a child can be waited for")),
            Err(_) => {
                Process {
                    pid,
                    arguments: line.clone(),
                }
                .end();
                panic!("`{line}` did not end within {LIMIT:?}\n{}", self.server_log());
            }
        }
    }

    /// Starts `paddlectl` in the background.
    pub fn start(&self, args: &[&str]) -> Background {
        self.start_as("paddlectl", args)
    }

    /// Starts the program under one of its names in the background.
    pub fn start_as(&self, name: &str, args: &[&str]) -> Background {
        Background::start(shown(name, args), &mut self.command(name, args))
    }

    /// Starts another program in the background.
    pub fn start_program(&self, program: &str, args: &[&str]) -> Background {
        let mut command = self.in_environment(Command::new(program), args);
        Background::start(shown(program, args), &mut command)
    }

    /// Starts the program under one of its names with a tool that watches it, such as `strace -o FILE`.
    pub fn start_under(&self, tool: &[&str], name: &str, args: &[&str]) -> Background {
        let program = self.bin.join(name);
        let program = program.to_str().expect("temporary folders have plain names");
        let words = [&tool[1..], &[program], args].concat();
        let mut command = self.in_environment(Command::new(tool[0]), &words);
        Background::start(shown(tool[0], &words), &mut command)
    }

    /// A command in only this user's environment.
    pub fn command(&self, name: &str, args: &[&str]) -> Command {
        self.in_environment(Command::new(self.bin.join(name)), args)
    }

    fn in_environment(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).current_dir(self.root.path()).env_clear();
        command
            .env("HOME", &self.home)
            .env("PATH", self.search_path())
            .env("LANG", "C.UTF-8");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn search_path(&self) -> std::ffi::OsString {
        let inherited = env::var_os("PATH").unwrap_or_default();
        let folders = self.path.iter().cloned().chain(env::split_paths(&inherited));
        env::join_paths(folders).expect("folders of PATH can be joined again")
    }

    /// Submits a package with small workers and no parameter servers, unless the flags say otherwise.
    #[track_caller]
    pub fn submit(&self, name: &str, package: &Package, flags: &[&str]) {
        let usual = [["-cpu", "20m"], ["-memory", "32Mi"], ["-pservers", "0"]];
        let missing = usual
            .iter()
            .filter(|[flag, _]| !flags.contains(flag))
            .flatten()
            .copied();
        let args: Vec<&str> = ["submit", "-jobname", name].into_iter().chain(missing).collect();
        self.paddlectl(&[&args[..], flags, &[package.arg()]].concat())
            .ok();
    }

    /// Every run, old and new, as the API reports it.
    #[track_caller]
    pub fn jobs(&self) -> Vec<Value> {
        let listed = self.paddlectl(&["get", "jobs", "-a", "-o", "json"]).ok().json();
        listed.as_array().expect("a list of jobs").clone()
    }

    /// The latest run of a name, or the run of an id: the job, its workers, its events.
    #[track_caller]
    pub fn describe(&self, job: &str) -> Value {
        self.paddlectl(&["describe", job, "-o", "json"]).ok().json()
    }

    #[track_caller]
    pub fn status(&self, job: &str) -> String {
        self.describe(job)["job"]["status"]
            .as_str()
            .expect("a job has a status")
            .to_owned()
    }

    #[track_caller]
    pub fn wait_for_status(&self, job: &str, status: &str) {
        wait_until(&format!("`{job}` must become {status}"), || {
            (self.status(job) == status).then_some(())
        });
    }

    /// What all workers printed, one line per element, prefixed by worker where there are several.
    #[track_caller]
    pub fn logs(&self, job: &str) -> Vec<String> {
        self.paddlectl(&["logs", job])
            .ok()
            .stdout
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// The embedded server's process.
    #[track_caller]
    pub fn server_pid(&self) -> u32 {
        let status = self.paddlectl(&["server", "status", "-o", "json"]).ok().json();
        let pid = status["pid"].as_u64().expect("a server has a pid");
        u32::try_from(pid).expect("a pid is small")
    }

    /// Kills the server, as a crash would.
    #[track_caller]
    pub fn crash_server(&self) {
        let pid = self.server_pid();
        Process {
            pid,
            arguments: String::new(),
        }
        .end();
        wait_until("a killed server must be gone", || {
            leftovers::has_ended(pid).then_some(())
        });
    }

    /// Everything that runs for this user now.
    pub fn processes(&self) -> Vec<Process> {
        leftovers::processes(self.root.path())
    }

    /// Everything that is not the server itself.
    pub fn workers(&self) -> Vec<Process> {
        let is_server = |process: &Process| process.arguments.contains("--embedded");
        self.processes()
            .into_iter()
            .filter(|process| !is_server(process))
            .collect()
    }

    fn server_log(&self) -> String {
        let path = self.home.join(".paddle/local/server.log");
        let log = fs::read_to_string(path).unwrap_or_default();
        let from = log.lines().count().saturating_sub(40);
        let last: Vec<&str> = log.lines().skip(from).collect();
        format!("--- the server's last lines\n{}", last.join("\n"))
    }

    /// Stops the jobs as a user would, then the server; returns the ids of all jobs.
    fn shut_down(&self) -> Vec<String> {
        // With a configuration there is no embedded server; a test that starts another one ends its jobs itself.
        let configured = self.home.join(".paddle/config").exists();
        if configured || self.processes().is_empty() {
            return Vec::new();
        }
        let jobs = self.jobs();
        let text = |job: &Value, key: &str| job[key].as_str().unwrap_or_default().to_owned();
        let is_final =
            |job: &Value| ["Succeeded", "Failed", "Killed", "Lost"].contains(&text(job, "status").as_str());
        for job in jobs.iter().filter(|job| !is_final(job)) {
            // It may end by itself in the meantime.
            let _ = self.paddlectl(&["kill", &text(job, "id")]);
        }
        wait_until("all jobs must end when killed", || {
            self.jobs().iter().all(is_final).then_some(())
        });
        self.paddlectl(&["server", "stop"]).ok();
        jobs.iter().map(|job| text(job, "id")).collect()
    }

    fn check_nothing_is_left(&self, job_ids: &[String]) {
        wait_until("no process may be left", || {
            self.processes().is_empty().then_some(())
        });
        let traces = leftovers::traces(self.root.path(), job_ids);
        assert!(traces.is_empty(), "left behind:\n{}", traces.join("\n"));
    }

    /// Kills everything at the same time, as a power cut does.
    pub fn end_all_processes(&self) {
        for process in self.processes() {
            process.end();
        }
    }
}

impl Drop for TestEnvironment {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.server_log());
            self.end_all_processes();
            return;
        }
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let job_ids = self.shut_down();
            self.check_nothing_is_left(&job_ids);
        }));
        if let Err(failure) = checked {
            eprintln!("{}\nstill there: {:#?}", self.server_log(), self.processes());
            self.end_all_processes();
            std::panic::resume_unwind(failure);
        }
    }
}

fn shown(name: &str, args: &[&str]) -> String {
    std::iter::once(name)
        .chain(args.iter().copied())
        .collect::<Vec<_>>()
        .join(" ")
}
