//! The files of an attempt except its log: the plan, the socket, the recorded exit.

use std::path::{Path, PathBuf};

use paddlecloud_core::ports::AttemptKey;
use paddlecloud_worker::attempts::attempt_folder;

/// The folder of one attempt.
#[derive(Debug, Clone)]
pub struct AttemptFolder {
    pub path: PathBuf,
    /// Unique on this machine forever; identifies the attempt's processes and control groups.
    pub marker: String,
}

impl AttemptFolder {
    pub fn of(data: &Path, attempt: &AttemptKey) -> AttemptFolder {
        AttemptFolder {
            path: attempt_folder(data, attempt),
            marker: attempt.to_string(),
        }
    }
}
