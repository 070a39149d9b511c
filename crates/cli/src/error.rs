//! Every way a command can fail, and the one place that turns it into a message, hints and an exit code.

use paddlecloud_api::client::ClientError;
pub use paddlecloud_connect::chain;
use paddlecloud_connect::{ConnectError, client_hints};

use crate::config::ConfigError;
use crate::world::World;

/// Done.
pub const DONE: u8 = 0;
/// The request failed or was refused, or the job did.
pub const FAILED: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// The server was never reached.
pub const UNREACHED: u8 = 3;
/// Ctrl-C, as a shell reports it.
pub const INTERRUPTED: u8 = 130;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{message}")]
    Usage { message: String, hints: Vec<String> },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{message}")]
    Refused { message: String, hints: Vec<String> },
    #[error("{message}")]
    NoServer { message: String, hints: Vec<String> },
    #[error("`{0}` is not available yet")]
    NotThereYet(&'static str),
    #[error("cannot write the output")]
    Stdout(#[source] std::io::Error),
}

impl CliError {
    pub fn usage(message: impl Into<String>) -> CliError {
        CliError::Usage {
            message: message.into(),
            hints: Vec::new(),
        }
    }

    pub fn refused(message: impl Into<String>) -> CliError {
        CliError::Refused {
            message: message.into(),
            hints: Vec::new(),
        }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> CliError {
        if let CliError::Usage { hints, .. }
        | CliError::Refused { hints, .. }
        | CliError::NoServer { hints, .. } = &mut self
        {
            hints.push(hint.into());
        }
        self
    }

    fn hints(&self, program: &str) -> Vec<String> {
        match self {
            CliError::Usage { hints, .. }
            | CliError::Refused { hints, .. }
            | CliError::NoServer { hints, .. } => hints.clone(),
            CliError::Config(error) => error.hints(program),
            CliError::Client(error) => client_hints(program, error),
            CliError::NotThereYet(_) => {
                vec!["it is planned for a later version; nothing was changed".to_owned()]
            }
            CliError::Stdout(_) => Vec::new(),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage { .. } => USAGE,
            CliError::NoServer { .. } | CliError::Client(ClientError::Unreachable { .. }) => UNREACHED,
            _ => FAILED,
        }
    }
}

impl From<ConnectError> for CliError {
    fn from(error: ConnectError) -> CliError {
        match error {
            ConnectError::Config(error) => CliError::Config(error),
            ConnectError::Client(error) => CliError::Client(error),
            ConnectError::Refused { message, hints } => CliError::Refused { message, hints },
            ConnectError::NoServer { message, hints } => CliError::NoServer { message, hints },
        }
    }
}

/// Prints the error and returns the exit code. A closed pipe is not an error.
pub fn report(program: &str, error: &CliError, world: &mut World) -> u8 {
    if let CliError::Stdout(source) = error
        && source.kind() == std::io::ErrorKind::BrokenPipe
    {
        return DONE;
    }
    world.err.error(&chain(error));
    for hint in error.hints(program) {
        world.err.hint(&hint);
    }
    error.exit_code()
}
