//! The launcher without a server: the pods of a hand-written or printed manifest find each other and run.
//!
//! The steps: find every peer ([`peers`]), wait for the parameter servers ([`attendance`]), run this pod's workers
//! under supervisors ([`workers`]), report how they ended. As with a server, `core::plan` plans what each worker finds.

mod api;
mod attendance;
mod flags;
mod legacy;
mod peers;
mod plan;
mod team;
mod workers;

pub use legacy::{k8s, start_paddle};

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use paddlecloud_core::plan::Role;
use paddlecloud_worker::protocol::MARKER_VARIABLE;

use self::peers::Discovery;
pub use self::team::Team;
use super::{LaunchError, become_program, leaving};

/// Everything that must be known before peers are searched.
pub struct Assembly {
    pub job: String,
    pub trainers: u32,
    pub pservers: u32,
    pub discovery: Discovery,
    pub workers: Vec<WorkerOrder>,
    /// Where the program runs.
    pub package: String,
    /// The folder for logs and results; the same in every pod.
    pub output: String,
    pub ports: Ports,
    /// How long peers may take to appear.
    pub start_limit: Duration,
    /// How long after SIGTERM a program may take to exit.
    pub grace: Duration,
    /// How long all trainers must be gone before parameter servers exit.
    pub linger: Duration,
    /// The port at which trainers reach the launchers of parameter servers.
    pub launch_port: u16,
    /// Set in every worker; overrides the plan.
    pub env: Vec<(String, String)>,
    /// A node's part of the data set, copied to `data` in the package before the workers start.
    pub data: Option<DataCopy>,
}

/// One worker of this pod.
pub struct WorkerOrder {
    pub role: Role,
    pub command: CommandMaker,
}

/// Commands of 2017 name the peers, which are known only later.
pub type CommandMaker = Box<dyn Fn(&Team) -> String>;

/// Copies the part of the node with this index.
pub type DataCopy = Box<dyn Fn(u32) -> Result<(), LaunchError>>;

/// The ports of a parameter server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    pub first: u16,
    pub dense: u16,
    pub sparse: u16,
}

impl Ports {
    pub fn count(self) -> u16 {
        self.dense.saturating_add(self.sparse).max(1)
    }
}

/// Runs `paddle launch [flags] [--] CMD`.
pub fn launch(args: &[OsString]) -> Result<ExitCode, LaunchError> {
    let words = text_of(args)?;
    if words.first().is_some_and(|word| word == "--help" || word == "-h") {
        print!("{}", flags::HELP);
        return Ok(ExitCode::SUCCESS);
    }
    let (flags, command) = flags::parse(&words)?;
    if is_supervised() {
        return become_command(&command);
    }
    run(flags.assembly(&command, &|name| std::env::var(name).ok())?)
}

fn become_command(command: &[String]) -> Result<ExitCode, LaunchError> {
    let (program, rest) = command.split_first().ok_or_else(flags::no_command)?;
    if rest.is_empty() && program.contains(char::is_whitespace) {
        return become_program(&"sh".into(), &["-c".into(), program.into()]);
    }
    let rest: Vec<OsString> = rest.iter().map(OsString::from).collect();
    become_program(&program.into(), &rest)
}

/// Under one of our supervisors everything is prepared, and must not be prepared twice.
fn is_supervised() -> bool {
    std::env::var_os(MARKER_VARIABLE).is_some()
}

fn text_of(args: &[OsString]) -> Result<Vec<String>, LaunchError> {
    let text = |word: &OsString| {
        let word = word.to_str().map(str::to_owned);
        word.ok_or_else(|| LaunchError::new("an argument is not UTF-8"))
    };
    args.iter().map(text).collect()
}

fn run(assembly: Assembly) -> Result<ExitCode, LaunchError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LaunchError::new(format!("cannot start: {error}")))?;
    let done = runtime.block_on(workers::run(assembly));
    // Do not wait for a thread that still writes to stdout or resolves a name.
    runtime.shutdown_background();
    Ok(match done {
        Ok(code) => code.into(),
        Err(error) => leaving::complain(&error.to_string()).into(),
    })
}
