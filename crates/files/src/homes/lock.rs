//! Locks the storage folder: two servers with separate databases would remove each other's runs.
//!
//! The lock ends with the process. It also covers other machines that share the folder, if their file system supports that.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::Storage;

const LOCK: &str = ".lock";

/// Another server uses the folder.
#[derive(Debug, thiserror::Error)]
#[error(
    "another server{} uses the storage folder `{}`",
    .by.as_ref().map(|by| format!(" ({by})")).unwrap_or_default(),
    .path.display()
)]
pub struct InUse {
    path: PathBuf,
    /// Its process and machine, if known.
    by: Option<String>,
}

/// Exclusive use of a storage folder while this value lives.
#[derive(Debug)]
pub struct StorageLock(Option<File>);

impl Drop for StorageLock {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // Unlock explicitly: a forked child that has not yet called exec shares the lock.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

impl Storage {
    /// Locks the folder for this server. On a file system without locks, other servers are not kept out, and a warning is logged.
    pub fn take(&self) -> Result<StorageLock, InUse> {
        let path = self.root.join(LOCK);
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let locked = opened.and_then(|file| {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(file)
        });
        match locked {
            Ok(file) => {
                note_owner(&file);
                Ok(StorageLock(Some(file)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(InUse {
                path: self.root.clone(),
                by: owner(&path),
            }),
            Err(error) => {
                let folder = self.root.display();
                tracing::warn!(%error, %folder, "cannot lock the storage folder; a second server would go unnoticed");
                Ok(StorageLock(None))
            }
        }
    }
}

/// Records the owner for the error message of a second server; the lock works without it.
fn note_owner(mut lock: &File) {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let noted = lock
        .set_len(0)
        .and_then(|()| writeln!(lock, "process {} on {machine}", std::process::id()));
    if let Err(error) = noted {
        tracing::debug!(%error, "cannot record who uses the storage folder");
    }
}

fn owner(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|by| !by.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_folder_has_one_server_at_a_time_and_says_which() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Storage::open(folder.path(), "local".parse().unwrap()).unwrap();
        let held = open().take().unwrap();
        let error = open().take().unwrap_err().to_string();
        let own = format!("another server (process {} on ", std::process::id());
        assert!(error.starts_with(&own), "{error}");
        drop(held);
        open().take().unwrap();
    }
}
