//! The program `paddlecloud-server`: arguments, start, ready, stop.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use paddlecloud_accounts::auth::hash_password;
use paddlecloud_core::error_chain::chain_of;
use paddlecloud_core::names::UserName;
use tracing_subscriber::EnvFilter;

use crate::backup::{self, BackupCommandError};
use crate::config::{self, Config, ConfigError};
use crate::data_folder::TakeError;
use crate::init;
use crate::ready::Ready;
use crate::reconcile;
use crate::start::{self, StartError};

/// Serves PaddleCloud: jobs, users, quotas, logs.
#[derive(Debug, Parser)]
#[command(name = "paddlecloud-server", version = crate::VERSION, args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    how: ServeArgs,
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", required_unless_present = "embedded")]
    config: Option<PathBuf>,
    /// Serve only the user who started it, on a private socket, as `paddlectl` does automatically
    #[arg(long, conflicts_with = "config", requires = "data")]
    embedded: bool,
    /// The folder of the embedded server
    #[arg(long, value_name = "DIR", requires = "embedded")]
    data: Option<PathBuf>,
    /// A file descriptor that gets one line when the server is ready, or why it is not
    #[arg(long, value_name = "N", hide = true)]
    ready_fd: Option<i32>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create the first administrator, before the server's first start
    ///
    /// The password is read from PADDLECLOUD_ADMIN_PASSWORD or from standard input. If that is a terminal, a password
    /// is generated and printed once.
    Init {
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The administrator's name
        #[arg(long, value_name = "NAME", default_value = "admin")]
        admin: UserName,
    },
    /// Write all jobs, accounts, tokens, secrets and the audit log to a file; the server may run
    ///
    /// Keys are not in the backup, and neither are logs and users' files.
    Backup {
        /// The backup to write; replaced if it exists
        file: PathBuf,
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Replace the database with a backup; the server must be stopped
    ///
    /// Runs, logs, packages, jobs and accounts that are newer than the backup stay.
    Restore {
        /// The backup to read
        file: PathBuf,
        /// The configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Read a password from standard input and print its hash for `password_hash`
    HashPassword,
    /// Create the objects listed on standard input in the cluster of the kubeconfig, and print its context
    #[command(hide = true)]
    CreateObjects {
        /// The namespace; default: that of the context
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
    },
    /// Print the OpenAPI document
    #[command(hide = true)]
    Openapi,
}

/// Runs the program; `args` are those after its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let name = OsString::from("paddlecloud-server");
    let line = match CommandLine::try_parse_from(std::iter::once(name).chain(args)) {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()) * 2);
        }
    };
    match line.command {
        Some(Command::Init { config, admin }) => initialize(&config, admin),
        Some(Command::Backup { file, config }) => report(&config, |config| backup::back_up(config, &file)),
        Some(Command::Restore { file, config }) => report(&config, |config| backup::restore(config, &file)),
        Some(Command::HashPassword) => print_hash(),
        Some(Command::CreateObjects { namespace }) => create_objects(namespace.as_deref()),
        Some(Command::Openapi) => {
            // A closed pipe is not an error: the reader has what it wanted.
            let _ = std::io::stdout().write_all(crate::http::openapi::document().as_bytes());
            ExitCode::SUCCESS
        }
        None => serve(line.how),
    }
}

/// The variable with the administrator's password for `init`.
const ADMIN_PASSWORD: &str = "PADDLECLOUD_ADMIN_PASSWORD";

fn initialize(file: &Path, admin: UserName) -> ExitCode {
    let config = match Config::read(file) {
        Ok(config) => config,
        Err(error) => return fail(&error.to_string(), error.hint()),
    };
    let mut password = std::env::var(ADMIN_PASSWORD).ok();
    if password.is_none() && !std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        let mut line = String::new();
        if let Err(error) = std::io::stdin().read_line(&mut line) {
            return fail(&format!("cannot read the password: {error}"), None);
        }
        password = Some(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    match init::init(&config, admin, password.filter(|password| !password.is_empty())) {
        Ok(made) => {
            println!("administrator {}", made.admin);
            if let Some(password) = made.password {
                println!("password {password}");
            }
            println!("authority {}", made.fingerprint);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&chain_of(&error), error.hint().as_deref()),
    }
}

fn report(file: &Path, work: impl FnOnce(&Config) -> Result<String, BackupCommandError>) -> ExitCode {
    let config = match Config::read(file) {
        Ok(config) => config,
        Err(error) => return fail(&error.to_string(), error.hint()),
    };
    match work(&config) {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&chain_of(&error), error.hint().as_deref()),
    }
}

fn print_hash() -> ExitCode {
    let mut password = String::new();
    if let Err(error) = std::io::stdin().read_line(&mut password) {
        return fail(&format!("cannot read the password: {error}"), None);
    }
    let password = password.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return fail(
            "the password is empty",
            Some("write it on one line of standard input"),
        );
    }
    match hash_password(password) {
        Ok(hash) => {
            println!("{hash}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&format!("cannot hash the password: {error}"), None),
    }
}

/// Creates objects in a cluster for the Python package, which plans jobs without a server.
fn create_objects(namespace: Option<&str>) -> ExitCode {
    let objects: Vec<serde_json::Value> = match serde_json::from_reader(std::io::stdin().lock()) {
        Ok(objects) => objects,
        Err(error) => return fail(&format!("standard input is not a list of objects: {error}"), None),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}"), None),
    };
    match runtime.block_on(paddlecloud_k8s::create_objects(&objects, namespace)) {
        Ok((context, namespace)) => {
            println!("{context}\n{namespace}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error.to_string(), error.hint().as_deref()),
    }
}

fn serve(how: ServeArgs) -> ExitCode {
    start_tracing();
    let ready = Ready::new(how.ready_fd);
    let config = match configuration(&how) {
        Ok(config) => config,
        Err(error) => {
            let hint = error.hint().map(str::to_owned);
            ready.failed(&error.to_string(), hint.as_deref());
            return fail(&error.to_string(), hint.as_deref());
        }
    };
    match start::run(config, ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&chain_of(&error), error.hint().as_deref()),
    }
}

fn configuration(how: &ServeArgs) -> Result<Config, ConfigError> {
    match (&how.config, &how.data) {
        (Some(file), _) => Config::read(file),
        (None, Some(data)) => Ok(config::embedded(
            &std::path::absolute(data).unwrap_or_else(|_| data.clone()),
        )),
        (None, None) => unreachable!("the parser asks for one of them"),
    }
}

/// Sends events to standard error, which is the log of the embedded server.
fn start_tracing() {
    let filter =
        EnvFilter::try_from_env("PADDLECLOUD_LOG").unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let colours =
        std::io::IsTerminal::is_terminal(&std::io::stderr()) && std::env::var_os("NO_COLOR").is_none();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Otherwise it prints to standard error that it cannot write there, which panics.
        .log_internal_errors(false)
        .with_ansi(colours);
    // A second start in one process, as in tests, keeps the first subscriber.
    let _ = subscriber.try_init();
}

fn fail(problem: &str, hint: Option<&str>) -> ExitCode {
    eprintln!("error: {problem}");
    if let Some(hint) = hint {
        eprintln!("hint: {hint}");
    }
    ExitCode::FAILURE
}

/// The hint for a failed start.
impl StartError {
    pub(crate) fn hint(&self) -> Option<String> {
        let plain = match self {
            StartError::Store(error) => return error.hint(),
            StartError::Secret(error) => return error.hint(),
            StartError::Jobs(reconcile::LoadError::Store(error)) => {
                return paddlecloud_store::hint(error);
            }
            StartError::Files { source, .. } => return source.hint(),
            StartError::StorageMissing(_) => {
                "mount its disk, or correct `storage` in the configuration; if the files are really lost, create the \
                 folder yourself: packages and outputs will be empty"
            }
            StartError::Data(TakeError::Locked { .. }) | StartError::StorageInUse(_) => {
                "stop the other server first, or give this one its own folder"
            }
            StartError::SystemUsers(error) => error.hint(),
            StartError::Kubernetes(error) => return error.hint().map(str::to_owned),
            StartError::Homes(error) => return error.hint(),
            StartError::PlainHttp(_) => {
                "set `tls`, listen on 127.0.0.1 behind a proxy, or set `plain_http: true` in a network you trust"
            }
            StartError::Listen(_) => "choose another `listen` address, or stop what uses it",
            _ => return None,
        };
        Some(plain.to_owned())
    }
}
