//! The server's own records of every attempt, in `<data>/attempts/<job>/<role>-<index>.<attempt>/`: the plan, the pod,
//! the latest news and the end. An attempt with a plan was launched and not cleaned.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use paddlecloud_core::job::News;
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::AttemptKey;
use paddlecloud_worker::attempts::{ATTEMPTS, attempt_folder, ignore_not_found};
use paddlecloud_worker::protocol::{FileError, WorkerPlan, files};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

const POD: &str = "pod.json";
const END: &str = "end.json";
/// The latest news of the attempt; absent at first.
const NEWS: &str = "news.json";

/// The pod of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRecord {
    pub namespace: String,
    pub name: String,
    /// The object that owns the pod.
    pub owner: String,
    /// The user's home as the server sees it, and the folder below it where output is spooled.
    pub home: PathBuf,
    pub spool: PathBuf,
    /// Whether the API server is known to have accepted the pod.
    pub created: bool,
    /// How often the worker was restarted so far without its own fault.
    #[serde(default)]
    pub disruptions: u32,
    /// The job already runs: this attempt replaces one that ended, and no other worker is withdrawn because of it.
    #[serde(default)]
    pub is_restart: bool,
    /// Whether our scheduler chose its node.
    #[serde(default)]
    pub pinned: bool,
}

/// An attempt as found on disk.
#[derive(Debug)]
pub struct Found {
    pub attempt: AttemptKey,
    /// The worker's name, and how many workers its job has.
    pub worker: String,
    pub gang: usize,
    pub pod: PodRecord,
    /// The latest news, or the end.
    pub news: Option<News>,
}

/// All records of one server.
#[derive(Debug, Clone)]
pub struct Records {
    data: PathBuf,
}

impl Records {
    pub fn open(data: &Path) -> io::Result<Records> {
        fs::create_dir_all(data.join(ATTEMPTS))?;
        Ok(Records {
            data: data.to_owned(),
        })
    }

    fn folder(&self, attempt: &AttemptKey) -> PathBuf {
        attempt_folder(&self.data, attempt)
    }

    /// Records that an attempt is about to be launched.
    pub fn begin(&self, attempt: &AttemptKey, plan: &WorkerPlan, pod: &PodRecord) -> Result<(), FileError> {
        let folder = self.folder(attempt);
        fs::create_dir_all(&folder).map_err(|source| FileError::Write {
            path: folder.clone(),
            source,
        })?;
        self.store_pod(attempt, pod)?;
        // Also syncs the folder.
        plan.store(&folder)
    }

    pub fn plan(&self, attempt: &AttemptKey) -> Result<WorkerPlan, FileError> {
        WorkerPlan::load(&self.folder(attempt))
    }

    /// Records the state of the attempt's pod. After a power failure the former record may be back, which is also true.
    pub fn store_pod(&self, attempt: &AttemptKey, pod: &PodRecord) -> Result<(), FileError> {
        store(&self.folder(attempt).join(POD), pod)
    }

    /// Records how the attempt ended; durable when this returns.
    pub fn store_end(&self, attempt: &AttemptKey, end: &News) -> Result<(), FileError> {
        let folder = self.folder(attempt);
        store(&folder.join(END), end)?;
        sync(&folder).map_err(|source| FileError::Write { path: folder, source })
    }

    /// Stores the latest news, for a server that starts before the launcher reconnects. Not synced: older news is also
    /// true.
    pub fn note_news(&self, attempt: &AttemptKey, news: &News) {
        let path = self.folder(attempt).join(NEWS);
        let text = serde_json::to_vec(news).expect("news hold only strings and numbers");
        let fresh = path.with_extension("new");
        if let Err(error) = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &path)) {
            tracing::debug!(?attempt, %error, "news could not be noted");
        }
    }

    /// Removes everything of an attempt except its log. Removes the plan last.
    pub fn forget(&self, attempt: &AttemptKey) -> io::Result<()> {
        let folder = self.folder(attempt);
        for name in [NEWS, END, POD, files::PLAN] {
            fs::remove_file(folder.join(name)).or_else(ignore_not_found)?;
        }
        Ok(())
    }

    /// All attempts that were launched and not cleaned.
    pub fn list(&self) -> Result<Vec<Found>, FileError> {
        let mut found = Vec::new();
        for (job, folder) in entries(&self.data.join(ATTEMPTS))? {
            let Ok(job) = job.parse::<JobId>() else { continue };
            for (name, folder) in entries(&folder)? {
                let Ok(attempt) = AttemptKey::of_job(&job, &name) else {
                    continue;
                };
                if !folder.join(files::PLAN).exists() {
                    continue;
                }
                match folder.join(POD).exists() {
                    true => found.push(load(attempt, &folder)?),
                    // An earlier server exited while it forgot this attempt: no objects of it are left in the cluster.
                    false => self.forget(&attempt).map_err(|source| FileError::Write {
                        path: folder.clone(),
                        source,
                    })?,
                }
            }
        }
        Ok(found)
    }
}

fn load(attempt: AttemptKey, folder: &Path) -> Result<Found, FileError> {
    let known = [END, NEWS].map(|name| folder.join(name));
    let known = known.into_iter().find(|path| path.exists());
    let plan = WorkerPlan::load(folder)?;
    Ok(Found {
        attempt,
        worker: plan.worker,
        gang: plan.hosts.len(),
        pod: read(&folder.join(POD))?,
        news: known.map(|path| read(&path)).transpose()?,
    })
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    let text = fs::read(path).map_err(|source| FileError::Read {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_slice(&text).map_err(|source| FileError::Invalid {
        path: path.to_owned(),
        source,
    })
}

/// Makes renames in a folder durable.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Replaces a file atomically: after a power failure it has the old contents or the new, never a mix.
fn store<T: Serialize>(path: &Path, value: &T) -> Result<(), FileError> {
    let text = serde_json::to_vec(value).expect("a record holds only strings and numbers");
    let fresh = path.with_extension("new");
    let written = || {
        let mut file = File::create(&fresh)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    written().map_err(|source| FileError::Write {
        path: path.to_owned(),
        source,
    })
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, FileError> {
    let read = || {
        fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())))
            .collect::<io::Result<Vec<_>>>()
    };
    read().map_err(|source| FileError::Read {
        path: folder.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::job::WorkerKey;

    use super::*;

    #[test]
    fn an_attempt_that_was_half_forgotten_is_forgotten() {
        let data = tempfile::tempdir().unwrap();
        let records = Records::open(data.path()).unwrap();
        let attempt = AttemptKey {
            job: JobId::new(1, 2),
            worker: WorkerKey::trainer(0),
            attempt: 1,
        };
        let folder = records.folder(&attempt);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(files::PLAN), "{}").unwrap();
        assert!(records.list().unwrap().is_empty());
        assert!(!folder.join(files::PLAN).exists());
    }
}
