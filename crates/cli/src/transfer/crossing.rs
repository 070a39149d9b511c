//! Copies on the cluster, several requests at a time, with progress like any other transfer.
//!
//! Carries out a plan that was made before.

use std::cell::Cell;

use futures_util::StreamExt;
use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::{FileMeta, ListEntry};
use paddlecloud_pfs::sync::{Compare, SyncOptions, plan};
use paddlecloud_pfs::{Entry, Existing, Node, PfsPath};
use paddlecloud_transfer::{Failure, FileClient, Outcome, Progress, Summary, TransferError};

use super::remote::{self, is_about_one_path};

/// How copies are made.
pub(super) struct Crossing<'a> {
    pub files: FileClient<'a>,
    pub existing: Existing,
    pub compare: Compare,
    /// The number of concurrent requests.
    pub transfers: usize,
    pub dry_run: bool,
}

/// One file or link to copy.
#[derive(Debug)]
pub(super) struct Step {
    pub from: PfsPath,
    pub to: PfsPath,
    /// Its type and size; the path is not used.
    pub entry: Entry,
    /// Whether it has already been compared with the destination.
    pub is_compared: bool,
}

/// The folders to create and files to copy for one source folder.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The destination folder. If it cannot be created, nothing else is tried.
    pub into: Option<PfsPath>,
    /// Folders to create, parents first.
    pub folders: Vec<PfsPath>,
    pub files: Vec<Step>,
}

impl Steps {
    fn plan(&self, watch: &dyn Progress) {
        let bytes = self.files.iter().map(|step| step.entry.size()).sum();
        watch.planned(self.files.len() as u64, bytes);
    }
}

impl Crossing<'_> {
    /// Copies a folder to a new path in one request: it appears when it is complete. If the server refuses because of an entry
    /// in the folder, the others are copied one by one.
    pub async fn whole(&self, from: &PfsPath, to: &PfsPath, steps: Steps, watch: &dyn Progress) -> Summary {
        steps.plan(watch);
        let error = match self.files.copy(from, to, self.existing).await {
            Ok(copied) => {
                return Summary {
                    transferred: copied.files,
                    bytes: copied.bytes,
                    moved: copied.bytes,
                    ..Summary::default()
                };
            }
            Err(error) => error,
        };
        let error = match may_go_in_parts(&error) {
            true => match remote::lies_within(&self.files, to, from).await {
                Ok(false) => return self.take(steps, watch).await,
                Ok(true) => error,
                Err(unknown) => unknown,
            },
            false => error,
        };
        let mut summary = Summary::default();
        summary.failures.push(Failure {
            path: from.to_string(),
            error: error.into(),
        });
        summary
    }

    /// Creates folders, then copies files; a failure does not stop the rest.
    pub async fn run(&self, steps: Steps, watch: &dyn Progress) -> Summary {
        steps.plan(watch);
        self.take(steps, watch).await
    }

    async fn take(&self, steps: Steps, watch: &dyn Progress) -> Summary {
        let is_over = Cell::new(false);
        let mut summary = Summary::default();
        let into = steps.into.into_iter().collect();
        if !self.make(into, &is_over, &mut summary).await.is_empty() {
            return summary;
        }
        let unmade = self.make(steps.folders, &is_over, &mut summary).await;
        let is_unmade = |path: &PfsPath| {
            let within = |folder: &PfsPath| path.place().path.is_within(&folder.place().path);
            unmade.iter().any(within)
        };
        let steps_to_copy = steps.files.into_iter().filter(|step| !is_unmade(&step.to));
        let is_over = &is_over;
        let copies = futures_util::stream::iter(steps_to_copy).map(async |step| {
            let copied = match is_over.get() {
                true => Err(TransferError::BrokenOff),
                false => self.copy(&step).await.map_err(TransferError::from),
            };
            end_after(&copied, is_over);
            (step, copied)
        });
        let mut copies = std::pin::pin!(copies.buffer_unordered(self.transfers));
        while let Some((step, copied)) = copies.next().await {
            count(&mut summary, &step, copied, watch);
        }
        summary
    }

    /// Returns the folders that could not be created.
    async fn make(&self, folders: Vec<PfsPath>, is_over: &Cell<bool>, summary: &mut Summary) -> Vec<PfsPath> {
        if self.dry_run {
            return Vec::new();
        }
        let folders = without_those_on_the_way(folders);
        let made = futures_util::stream::iter(folders).map(async |folder| {
            let made = match is_over.get() {
                true => return None,
                false => self.files.mkdir(&folder, true).await.map_err(TransferError::from),
            };
            end_after(&made, is_over);
            made.err().map(|error| (folder, error))
        });
        let mut made = std::pin::pin!(made.buffer_unordered(self.transfers));
        let mut unmade = Vec::new();
        while let Some(failed) = made.next().await {
            if let Some((folder, error)) = failed {
                let path = folder.to_string();
                summary.failures.push(Failure { path, error });
                unmade.push(folder);
            }
        }
        unmade
    }

    async fn copy(&self, step: &Step) -> Result<(Outcome, u64), ClientError> {
        if let Some(outcome) = self.judge(step).await? {
            return Ok((outcome, 0));
        }
        if self.dry_run {
            return Ok((Outcome::Transferred, 0));
        }
        let copied = match step.entry.node {
            // Inside a folder links stay links.
            Node::Symlink { .. } => self.files.copy_link(&step.from, &step.to, self.existing).await,
            _ => self.files.copy(&step.from, &step.to, self.existing).await,
        };
        match copied {
            Ok(copied) => Ok((Outcome::Transferred, copied.bytes)),
            Err(error) if self.is_kept(&error) => Ok((Outcome::Kept, 0)),
            Err(error) => Err(error),
        }
    }

    /// The outcome of a file that need not be copied.
    async fn judge(&self, step: &Step) -> Result<Option<Outcome>, ClientError> {
        if step.is_compared {
            return Ok(None);
        }
        let there = match self.files.stat(&step.to).await {
            Err(error) if error.refusal() == Some(ErrorName::NotFound) => return Ok(None),
            there => there?,
        };
        let Some(there) = at_the_same_path(&step.entry, there) else {
            return Ok(None);
        };
        if there.is_dir() && self.existing == Existing::Keep {
            let why = ErrorBody::new(ErrorName::Conflict, "a folder is in the way");
            return Err(ClientError::Refused(why));
        }
        let is_of_same_size = there.is_file() && there.size() == step.entry.size();
        if self.compare == Compare::Digest && is_of_same_size {
            return self.judge_contents(step).await;
        }
        let options = SyncOptions {
            existing: self.existing,
            compare: self.compare,
            ..SyncOptions::default()
        };
        let plan = plan(std::slice::from_ref(&step.entry), &[there], options);
        Ok(match (plan.unchanged, plan.kept.len()) {
            (0, 0) => None,
            (0, _) => Some(Outcome::Kept),
            _ => Some(Outcome::Unchanged),
        })
    }

    async fn judge_contents(&self, step: &Step) -> Result<Option<Outcome>, ClientError> {
        let from = self.files.stat_digest(&step.from).await?;
        let is_same = match self.files.stat_digest(&step.to).await {
            // A damaged file equals no other: a copy repairs it.
            Err(error) if error.refusal() == Some(ErrorName::Damaged) => false,
            to => {
                let to = to?;
                from.digest.is_some() && from.digest == to.digest && from.executable == to.executable
            }
        };
        Ok(match (is_same, self.existing) {
            (true, _) => Some(Outcome::Unchanged),
            (false, Existing::Keep) => Some(Outcome::Kept),
            (false, Existing::Replace) => None,
        })
    }

    fn is_kept(&self, error: &ClientError) -> bool {
        self.existing == Existing::Keep && error.refusal() == Some(ErrorName::Conflict)
    }
}

/// After some failures nothing more can succeed.
fn end_after<T>(result: &Result<T, TransferError>, is_over: &Cell<bool>) {
    if let Err(TransferError::Server(error)) = result
        && !is_about_one_path(error)
    {
        is_over.set(true);
    }
}

/// Whether the server may have refused because of an entry in the folder, not because of the folder itself.
fn may_go_in_parts(error: &ClientError) -> bool {
    is_about_one_path(error)
        && !matches!(
            error.refusal(),
            Some(
                ErrorName::NotFound
                    | ErrorName::QuotaExceeded
                    | ErrorName::StorageFull
                    | ErrorName::PayloadTooLarge
            )
        )
}

fn at_the_same_path(entry: &Entry, meta: FileMeta) -> Option<Entry> {
    let path = entry.path.clone();
    ListEntry { path, meta }.entry()
}

/// Creating a folder creates its parents.
fn without_those_on_the_way(folders: Vec<PfsPath>) -> Vec<PfsPath> {
    let mut kept: Vec<PfsPath> = Vec::with_capacity(folders.len());
    for folder in folders {
        let is_on_the_way = |above: &PfsPath| folder.place().path.is_within(&above.place().path);
        if kept.last().is_some_and(is_on_the_way) {
            kept.pop();
        }
        kept.push(folder);
    }
    kept
}

fn count(
    summary: &mut Summary,
    step: &Step,
    copied: Result<(Outcome, u64), TransferError>,
    watch: &dyn Progress,
) {
    let path = step.from.to_string();
    let (outcome, bytes) = match copied {
        Ok(done) => done,
        Err(error) => {
            let failure = Failure { path, error };
            watch.failed(&failure);
            return summary.failures.push(failure);
        }
    };
    match outcome {
        Outcome::Transferred => {
            summary.transferred += 1;
            summary.bytes += bytes;
            summary.moved += bytes;
            watch.moved(bytes);
        }
        Outcome::Unchanged => {
            summary.unchanged += 1;
            watch.reused(step.entry.size());
        }
        Outcome::Kept => {
            summary.kept += 1;
            watch.reused(step.entry.size());
        }
    }
    watch.finished(&path, outcome);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_with_those_above_it() {
        let folders = ["a", "a/b", "a/b/c", "a/d", "e"].map(|path| format!("/pfs/dc/home/me/{path}"));
        let folders = folders.iter().map(|path| path.parse().unwrap()).collect();
        let made: Vec<String> = without_those_on_the_way(folders)
            .iter()
            .map(|path| path.place().path.to_string())
            .collect();
        assert_eq!(made, ["a/b/c", "a/d", "e"]);
    }
}
