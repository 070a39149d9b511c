//! An attempt's folder, held open: checks whether it still exists, and records the exit in it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use paddlecloud_worker::protocol::{Exit, FileError};

const RECORD_PAUSE: Duration = Duration::from_millis(200);

pub struct Home {
    pub path: PathBuf,
    folder: File,
}

/// Whether others can find the recorded exit.
#[derive(Debug, PartialEq, Eq)]
pub enum Recorded {
    Durable,
    /// The folder was removed with everything in it.
    Nowhere,
}

impl Home {
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = File::open(path)?;
        Ok(Self {
            path: path.to_owned(),
            folder,
        })
    }

    /// Whether the folder was removed. A folder that was moved, or whose disk is temporarily unavailable, is not gone.
    pub fn is_gone(&self) -> bool {
        self.folder.metadata().is_ok_and(|meta| meta.nlink() == 0)
    }

    /// Stores the exit durably. Retries until the disk accepts it or the folder is gone.
    pub fn record(&self, exit: &Exit) -> Recorded {
        // Use the open folder: its path may have changed.
        let folder = PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()));
        let mut complained = false;
        while let Err(error) = exit.store(&folder) {
            if self.is_gone() {
                return Recorded::Nowhere;
            }
            if !complained {
                crate::trouble!("retrying: {}", words(&error));
            }
            complained = true;
            std::thread::sleep(RECORD_PAUSE);
        }
        Recorded::Durable
    }
}

/// An error with its cause.
pub fn words(error: &FileError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
