//! The commands, one file each: the arguments (their doc comments are the help), then `run`.

mod admin;
mod cat;
mod cert;
mod check;
mod completion;
mod config;
mod cp;
mod data;
mod delete;
mod describe;
mod doctor;
mod du;
mod file;
mod flags;
mod fsck;
mod get;
pub mod help;
mod jobs;
mod kill;
mod login;
mod logout;
mod logs;
mod ls;
mod mkdir;
mod mv;
mod names;
mod output;
mod passwd;
mod pfs;
mod prune;
pub mod pserver;
mod publish;
mod registry;
mod rerun;
mod rm;
mod secret;
mod server;
mod stat;
pub mod submit;
mod sync;
mod token;
mod top;
mod uploads;
mod version;
mod wait;
mod whoami;
mod why;

use jiff::Timestamp;
use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_connect::Program;
use paddlecloud_core::names::JobRef;
use paddlecloud_pfs::Mtime;

use crate::args::{Cli, GlobalFlags};
use crate::error::{CliError, DONE};
use crate::session::{Host, Session};
use crate::time_text::rfc3339;
use crate::transfer::location::Remote;
use crate::world::World;

/// All commands.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Admin(admin::Args),
    Cat(cat::Args),
    Cert(cert::Args),
    Check(check::Args),
    Commands(names::Args),
    Completion(completion::Args),
    Config(config::Args),
    Cp(cp::Args),
    Data(data::Args),
    Delete(delete::Args),
    Describe(describe::Args),
    Doctor(doctor::Args),
    Du(du::Args),
    File(file::Args),
    Flags(flags::Args),
    Get(get::Args),
    Help(help::Args),
    Jobs(jobs::Args),
    Kill(kill::Args),
    Login(login::Args),
    Logout(logout::Args),
    Logs(logs::Args),
    Ls(ls::Args),
    Mkdir(mkdir::Args),
    Mv(mv::Args),
    Output(output::Args),
    Passwd(passwd::Args),
    Pfs(pfs::Args),
    Prune(prune::Args),
    Pserver(pserver::Args),
    Publish(publish::Args),
    Registry(registry::Args),
    Rerun(rerun::Args),
    Rm(rm::Args),
    Secret(secret::Args),
    Server(server::Args),
    Stat(stat::Args),
    Submit(Box<submit::Args>),
    Sync(sync::Args),
    Token(token::Args),
    #[command(hide = true)]
    Top(top::Args),
    Version(version::Args),
    Wait(wait::Args),
    Whoami(whoami::Args),
    Why(why::Args),
}

/// What every command receives.
pub struct Context<'a> {
    /// The name this program was called by, for hints that can be typed.
    pub program: &'a str,
    pub flags: &'a GlobalFlags,
    pub world: &'a mut World,
}

impl Context<'_> {
    pub async fn session(&mut self) -> Result<Session, CliError> {
        let program = Program::this_one()?;
        let (env, err) = (&self.world.env, &mut self.world.err);
        let host = Host {
            program: Some(&program),
            note: |text: &str| err.note(text),
        };
        Ok(Session::open(&self.flags.overrides(), env, host).await?)
    }
}

/// Runs the command; those that need no server need no runtime either.
pub fn run(program: &str, cli: Cli, world: &mut World) -> Result<u8, CliError> {
    let mut context = Context {
        program,
        flags: &cli.global,
        world,
    };
    let context = &mut context;
    if cli.global.version {
        return version::run(&version::Args::default(), context);
    }
    let Some(command) = cli.command else {
        return help::run(&help::Args::default(), context);
    };
    match command {
        Command::Admin(args) => on_runtime(admin::run(&args, context)),
        Command::Cat(args) => on_runtime(cat::run(&args, context)),
        Command::Check(args) => on_runtime(check::run(&args, context)),
        Command::Commands(args) => names::run(&args, context),
        Command::Completion(args) => completion::run(&args, context),
        Command::Cert(args) => cert::run(&args, context),
        Command::Config(args) => config::run(&args, context),
        Command::Cp(args) => on_runtime(cp::run(&args, context)),
        Command::Data(args) => data::run(&args, context),
        Command::Delete(args) => on_runtime(delete::run(&args, context)),
        Command::Describe(args) => on_runtime(describe::run(&args, context)),
        Command::Doctor(args) => doctor::run(&args, context),
        Command::Du(args) => on_runtime(du::run(&args, context)),
        Command::File(args) => on_runtime(file::run(&args, context)),
        Command::Flags(args) => flags::run(&args, context),
        Command::Get(args) => on_runtime(get::run(&args, context)),
        Command::Help(args) => help::run(&args, context),
        Command::Jobs(args) => on_runtime(jobs::run(&args, context)),
        Command::Kill(args) => on_runtime(kill::run(&args, context)),
        Command::Login(args) => on_runtime(login::run(&args, context)),
        Command::Logout(args) => on_runtime(logout::run(&args, context)),
        Command::Logs(args) => on_runtime(logs::run(&args, context)),
        Command::Ls(args) => on_runtime(ls::run(&args, context)),
        Command::Mkdir(args) => on_runtime(mkdir::run(&args, context)),
        Command::Mv(args) => on_runtime(mv::run(&args, context)),
        Command::Output(args) => on_runtime(output::run(&args, context)),
        Command::Passwd(args) => on_runtime(passwd::run(&args, context)),
        Command::Pfs(args) => on_runtime(pfs::run(&args, context)),
        Command::Prune(args) => on_runtime(prune::run(&args, context)),
        Command::Pserver(args) => pserver::run(&args, context),
        Command::Publish(args) => on_runtime(publish::run(&args, context)),
        Command::Registry(args) => on_runtime(registry::run(&args, context)),
        Command::Rerun(args) => on_runtime(rerun::run(&args, context)),
        Command::Rm(args) => on_runtime(rm::run(&args, context)),
        Command::Secret(args) => on_runtime(secret::run(&args, context)),
        Command::Server(args) => on_runtime(server::run(&args, context)),
        Command::Stat(args) => on_runtime(stat::run(&args, context)),
        Command::Submit(args) => on_runtime(submit::run(&args, context)),
        Command::Sync(args) => on_runtime(sync::run(&args, context)),
        Command::Token(args) => on_runtime(token::run(&args, context)),
        Command::Top(args) => top::run(&args),
        Command::Version(args) => version::run(&args, context),
        Command::Wait(args) => on_runtime(wait::run(&args, context)),
        Command::Whoami(args) => on_runtime(whoami::run(&args, context)),
        Command::Why(args) => on_runtime(why::run(&args, context)),
    }
}

/// One thread is enough for a client, and starts quickly.
fn on_runtime(work: impl Future<Output = Result<u8, CliError>>) -> Result<u8, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::refused(format!("cannot start: {error}")))?;
    let result = runtime.block_on(work);
    // An interrupted transfer may still be hashing a large file; do not wait for that.
    runtime.shutdown_background();
    result
}

/// Checks a reference to a job: a name, an id, `last` or `-`.
fn job_ref(text: &str) -> Result<String, CliError> {
    match text.parse::<JobRef>() {
        Ok(job) => Ok(job.to_string()),
        Err(error) => Err(
            CliError::usage(format!("`{}` does not name a job: {error}", text.escape_debug()))
                .with_hint("name a job, an id (`j_…`), or `last` for the latest one"),
        ),
    }
}

/// A job that existed a moment ago and is not found any more was removed by another command.
fn removed(name: &str, error: ClientError) -> CliError {
    match error.refusal() {
        Some(ErrorName::NotFound) => was_removed(name),
        _ => error.into(),
    }
}

fn was_removed(name: &str) -> CliError {
    CliError::refused(format!("{name} was killed and removed from the history"))
}

/// The caller's home on the cluster, for commands without a path.
async fn home(session: &Session) -> Result<Remote, CliError> {
    let who = session.client.whoami_get().await?;
    Remote::parse(who.home.as_ref())
}

/// A file's time as tables show it.
fn modified(mtime: Mtime) -> String {
    let (seconds, _) = mtime.parts();
    Timestamp::from_second(seconds).map_or_else(|_| "-".to_owned(), rfc3339)
}

/// Commands that belong to a later version.
fn not_there_yet(name: &'static str) -> Result<u8, CliError> {
    Err(CliError::NotThereYet(name))
}

/// A command that succeeded.
fn done() -> Result<u8, CliError> {
    Ok(DONE)
}
