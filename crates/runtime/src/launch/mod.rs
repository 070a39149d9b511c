//! `paddle launch`: the first process of a pod. It runs one worker under a supervisor and keeps the link to the server.
//!
//! The server decides which workers exist and when they start. Without a server, the pods of a job assemble themselves
//! ([`alone`]). Under our supervisor on one machine nothing is left to do: `paddle launch CMD` becomes CMD.

mod alone;
mod events;
mod install;
mod leaving;
mod link;
mod linked;
mod output;
mod pod_files;
mod worker;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// What failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LaunchError(String);

impl LaunchError {
    fn new(words: impl Into<String>) -> LaunchError {
        LaunchError(words.into())
    }
}

/// Runs `paddle launch <args>`.
pub fn main(args: &[OsString]) -> ExitCode {
    let done = match args {
        [flag, folder] if flag == "--install" => {
            install::install(folder.as_ref()).map(|()| ExitCode::SUCCESS)
        }
        [] if std::env::var_os(link::ADDRESS_VARIABLE).is_some() => linked::run(),
        _ => alone::launch(args),
    };
    said(done)
}

/// Runs `paddle_k8s <args>`, the launcher's name in the images of 2017.
pub fn k8s_main(args: &[OsString]) -> ExitCode {
    said(alone::k8s(args))
}

/// Runs `start_paddle <args>`, the launcher of a hand-written Job.
pub fn start_paddle_main(args: &[OsString]) -> ExitCode {
    said(alone::start_paddle(args))
}

fn said(done: Result<ExitCode, LaunchError>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// Becomes the program, for which a supervisor has prepared everything.
fn become_program(program: &OsString, args: &[OsString]) -> Result<ExitCode, LaunchError> {
    let error = Command::new(program).args(args).exec();
    let program = program.to_string_lossy();
    Err(LaunchError::new(format!("cannot run `{program}`: {error}")))
}
