//! The server's data folder: locked by one server at a time. The server stops when the folder is removed.
//!
//! Without its folder, a server would answer from a database that no longer has a name, and keep running workers without an
//! owner. The kernel reports when the lock file is unlinked or moved; nothing is polled.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_core::names::JobId;
use paddlecloud_pfs::durable;
use paddlecloud_worker::attempts::ATTEMPTS;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FlockOperation, flock};
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

const LOCK: &str = "lock";

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    #[error("cannot use the data folder `{path}`", path = .path.display())]
    Unusable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("another server{} uses the data folder `{}`", .pid.as_ref().map(|pid| format!(" (process {pid})")).unwrap_or_default(), .path.display())]
    Locked { path: PathBuf, pid: Option<String> },
}

/// A data folder that this server holds while this value lives.
pub struct DataFolder {
    path: PathBuf,
    lock: File,
}

impl DataFolder {
    /// Makes the folder private and locks it.
    pub fn take(path: &Path) -> Result<DataFolder, TakeError> {
        let mut lock = open_lock(path).map_err(|source| unusable(path, source))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            let read = lock.read_to_string(&mut pid).is_ok();
            return Err(TakeError::Locked {
                path: path.to_owned(),
                pid: Some(pid.trim().to_owned()).filter(|pid| read && !pid.is_empty()),
            });
        }
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(|source| unusable(path, source))?;
        Ok(DataFolder {
            path: path.to_owned(),
            lock,
        })
    }

    /// Unlocks the folder for the next server now, even if a watching task or a forked child still holds this value.
    pub fn release(&self) {
        // On failure, the lock is released with its last holder.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }

    /// Whether the path still refers to the locked folder.
    fn is_ours(&self) -> bool {
        let number = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let named = std::fs::metadata(self.path.join(LOCK)).map(number);
        match (self.lock.metadata().map(number), named) {
            (Ok(taken), Ok(named)) => taken == named,
            (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
            (Err(_), _) => true,
        }
    }

    /// Stops the server when the folder was removed or replaced.
    pub async fn stop_when_removed(self: Arc<Self>, stop: CancellationToken) {
        match self.watch() {
            Ok(changes) => self.wait_until_removed(&changes, &stop).await,
            Err(error) if self.is_ours() => {
                return tracing::warn!(%error, "cannot watch the data folder; its removal would go unnoticed");
            }
            Err(_) => {}
        }
        if stop.is_cancelled() {
            return;
        }
        tracing::error!(folder = %self.path.display(), "the data folder was removed; stopping");
        stop.cancel();
    }

    async fn wait_until_removed(&self, changes: &AsyncFd<OwnedFd>, stop: &CancellationToken) {
        while self.is_ours() {
            let changed = stop.run_until_cancelled(changes.readable()).await;
            let Some(Ok(mut ready)) = changed else { return };
            drain(changes.get_ref());
            ready.clear_ready();
        }
    }

    fn watch(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // Unlinking an open file does not delete it: only its link count changes.
        let flags = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        inotify::add_watch(&changes, self.path.join(LOCK), flags)?;
        inotify::add_watch(&changes, &self.path, flags)?;
        // SAFETY: the descriptor is owned, so it stays valid while it is registered.
        Ok(unsafe { AsyncFd::register(changes) }?)
    }
}

fn unusable(path: &Path, source: io::Error) -> TakeError {
    TakeError::Unusable {
        path: path.to_owned(),
        source,
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    durable::make_folders(path, 0o700)?;
    // An existing folder may be accessible to everyone, and users' jobs run on this machine.
    std::fs::set_permissions(path, Permissions::from_mode(0o700))?;
    durable::sync_names(path);
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).open(path.join(LOCK))
}

/// Discards all events: only their arrival matters, and the caller checks what changed.
fn drain(changes: &OwnedFd) {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    while rustix::io::read(changes, &mut buffer).is_ok_and(|(read, _)| !read.is_empty()) {}
}

/// The number of jobs with folders in a data folder. If there are any, its database must not be empty.
pub fn jobs_below(data: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(data.join(ATTEMPTS)) else {
        return 0;
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .filter(|name| name.to_str().is_some_and(|name| name.parse::<JobId>().is_ok()))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_whose_data_folder_is_removed_or_replaced_stops() {
        for replace in [false, true] {
            let around = tempfile::tempdir().unwrap();
            let path = around.path().join("data");
            let data = Arc::new(DataFolder::take(&path).unwrap());
            let stop = CancellationToken::new();
            let watching = tokio::spawn(Arc::clone(&data).stop_when_removed(stop.clone()));
            match replace {
                true => std::fs::rename(&path, around.path().join("elsewhere")).unwrap(),
                false => std::fs::remove_dir_all(&path).unwrap(),
            }
            if replace {
                drop(DataFolder::take(&path).unwrap());
            }
            let limit = std::time::Duration::from_secs(60);
            tokio::time::timeout(limit, stop.cancelled()).await.unwrap();
            watching.await.unwrap();
        }
    }

    #[test]
    fn only_folders_named_like_jobs_count_as_jobs() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(jobs_below(data.path()), 0);
        for number in 0..3 {
            let job = JobId::new(5, number);
            std::fs::create_dir_all(data.path().join(ATTEMPTS).join(job.as_str())).unwrap();
        }
        std::fs::create_dir(data.path().join(ATTEMPTS).join("other")).unwrap();
        assert_eq!(jobs_below(data.path()), 3);
    }

    #[test]
    fn a_folder_in_use_is_refused_and_its_server_named() {
        let around = tempfile::tempdir().unwrap();
        let held = DataFolder::take(around.path()).unwrap();
        let error = DataFolder::take(around.path()).err().unwrap().to_string();
        assert!(
            error.contains(&format!("(process {})", std::process::id())),
            "{error}"
        );
        // The release works even if a forked child or a watcher still holds the lock.
        let copy = held.lock.try_clone().unwrap();
        held.release();
        DataFolder::take(around.path()).unwrap();
        drop(copy);
    }
}
