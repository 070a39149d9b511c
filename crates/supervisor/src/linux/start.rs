//! Starts the supervisor of an attempt as a process of its own, for the server and for the launcher in a pod.
//!
//! The plan is in the attempt's folder already. `attempt` is what the started program does.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use paddlecloud_worker::protocol::{NO_ROOM, SECRETS_VARIABLE};

use super::is_shortage;

/// The name by which our program knows that it is to supervise.
const NAME: &str = "paddlecloud-supervise";

/// Why there is no supervisor: the end of a sentence about it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot be started: {0}")]
    Program(io::Error),
    #[error("did not start: {words}")]
    Refused {
        /// Its own words.
        words: String,
        /// It could not get a process or a file descriptor.
        is_shortage: bool,
    },
}

impl StartError {
    /// Whether the machine lacks something that it may have again soon.
    pub fn is_shortage(&self) -> bool {
        match self {
            StartError::Program(error) => is_shortage(error),
            StartError::Refused { is_shortage, .. } => *is_shortage,
        }
    }
}

/// Starts `program` as the supervisor of the attempt in `folder`, and returns when it accepts connections. From then on
/// it depends on nobody. Blocks until then.
pub fn start(program: &Path, folder: &Path, secrets: &BTreeMap<String, String>) -> Result<(), StartError> {
    let started = run(program, folder, secrets).map_err(StartError::Program)?;
    if started.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&started.stderr);
    Err(StartError::Refused {
        words: words.trim().trim_start_matches("error: ").to_owned(),
        is_shortage: started.status.code() == Some(NO_ROOM.into()),
    })
}

fn run(program: &Path, folder: &Path, secrets: &BTreeMap<String, String>) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.arg0(NAME).arg(folder).env_clear();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if !secrets.is_empty() {
        // Secrets go through a pipe: the plan is a file, and other processes can see arguments and variables.
        command.env(SECRETS_VARIABLE, "1").stdin(Stdio::piped());
    }
    let mut child = command.spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        // A supervisor that exits immediately reports why.
        let _ = pipe.write_all(&serde_json::to_vec(secrets)?);
    }
    child.wait_with_output()
}
