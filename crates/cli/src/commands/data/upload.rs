//! Uploads local results to the cluster, with a progress bar.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paddlecloud_api::files::{below, split_last};
use paddlecloud_pfs::{Existing, PfsPath, RelPath};
use paddlecloud_transfer::{FileService, RemoveOptions, Summary, TransferOptions, Upload};

use super::cluster::Cluster;
use super::progress::Progress;
use crate::error::{CliError, chain};
use crate::messages::Messages;
use crate::transfer::location::{Remote, translate_datacenter};
use crate::transfer::remote::{self, Listed};
use crate::transfer::rules::Target;

/// How often the bar is redrawn.
const REFRESH: Duration = Duration::from_millis(100);

impl Cluster {
    /// The remote path that an argument names.
    pub fn place(&self, named: &Path) -> Result<PfsPath, CliError> {
        let mut argument = Remote::parse(named.as_os_str())?;
        self.runtime
            .block_on(translate_datacenter(&self.session, [&mut argument]))?;
        Ok(argument.path)
    }

    pub fn target(&self, path: &PfsPath) -> Result<Target, CliError> {
        let files = self.session.client.files();
        Ok(self.runtime.block_on(remote::target(&files, path))?)
    }

    /// Creates a folder and its parents.
    pub fn make_folder(&self, folder: &PfsPath) -> Result<(), CliError> {
        let files = self.session.client.files();
        self.runtime.block_on(files.mkdir(folder, true))?;
        Ok(())
    }

    pub fn make_parent(&self, path: &PfsPath) -> Result<(), CliError> {
        match split_last(path) {
            Some((parent, _)) => self.make_folder(&parent),
            None => Ok(()),
        }
    }

    /// Creates a folder that must not exist.
    pub fn make_new_folder(&self, folder: &PfsPath) -> Result<(), CliError> {
        let files = self.session.client.files();
        self.runtime.block_on(files.mkdir(folder, false))?;
        Ok(())
    }

    /// Everything below a folder.
    pub fn entries(&self, folder: &PfsPath) -> Result<Listed, CliError> {
        let files = self.session.client.files();
        Ok(self.runtime.block_on(remote::entries(&files, folder))?)
    }

    /// Removes an empty folder.
    pub fn remove_if_empty(&self, folder: &PfsPath) -> Result<(), CliError> {
        let listed = self.entries(folder)?;
        match listed.entries.is_empty() && listed.special.is_empty() {
            true => self.remove(folder),
            false => Ok(()),
        }
    }

    /// Renames a file or folder; the destination must not exist.
    pub fn rename(&self, from: &PfsPath, to: &PfsPath) -> Result<(), CliError> {
        let files = self.session.client.files();
        Ok(self.runtime.block_on(files.rename(from, to, Existing::Keep))?)
    }

    /// Removes a file, or a folder with its contents; it is fine if nothing exists.
    pub fn remove(&self, path: &PfsPath) -> Result<(), CliError> {
        if self.target(path)? == Target::Missing {
            return Ok(());
        }
        let options = RemoveOptions {
            recursive: true,
            ..RemoveOptions::default()
        };
        let files = self.session.client.files();
        let removed = self
            .runtime
            .block_on(files.remove(std::slice::from_ref(path), options))?;
        match removed.into_iter().find_map(|removed| removed.error) {
            None => Ok(()),
            Some(error) => Err(CliError::refused(format!(
                "cannot remove `{path}`: {}",
                error.msg
            ))),
        }
    }

    /// The whole content of a small file.
    pub fn content(&self, path: &PfsPath) -> Result<Vec<u8>, CliError> {
        let files = self.session.client.files();
        Ok(self.runtime.block_on(async {
            let mut content = files.cat(path).await?;
            let mut bytes = Vec::new();
            while let Some(piece) = content.next().await? {
                bytes.extend_from_slice(&piece);
            }
            Ok::<_, paddlecloud_api::client::ClientError>(bytes)
        })?)
    }

    /// Uploads one file. Its name appears when it is complete.
    pub fn send_file(
        &self,
        local: &Path,
        remote: &PfsPath,
        existing: Existing,
        messages: &mut Messages,
    ) -> Result<(), CliError> {
        let upload = Upload::File {
            local: local.to_owned(),
            remote: remote.clone(),
        };
        let options = TransferOptions {
            no_overwrite: existing == Existing::Keep,
            ..TransferOptions::default()
        };
        let summary = self.send(remote, upload, &options, messages)?;
        match summary.kept {
            0 => Ok(()),
            _ => Err(already_there(remote)),
        }
    }

    /// Uploads a folder, which becomes `remote`.
    pub fn send_folder(
        &self,
        local: &Path,
        remote: &PfsPath,
        shown: &PfsPath,
        messages: &mut Messages,
    ) -> Result<(), CliError> {
        let walked = paddlecloud_transfer::walk(local).map_err(|error| CliError::refused(chain(&error)))?;
        self.make_folder(remote)?;
        let upload = Upload::Tree {
            local: local.to_owned(),
            remote: remote.clone(),
            entries: walked.entries,
        };
        self.send(shown, upload, &TransferOptions::default(), messages)
            .map(drop)
    }

    /// Ctrl-C is reported as an error, so that the caller can clean up.
    fn send(
        &self,
        shown: &PfsPath,
        upload: Upload,
        options: &TransferOptions,
        messages: &mut Messages,
    ) -> Result<Summary, CliError> {
        let counts = Counts::default();
        let files = self.session.client.files();
        let mut progress = Progress::new(messages, format!("Uploading {shown}"));
        let summary = self.runtime.block_on(async {
            let mut work = std::pin::pin!(files.upload(vec![upload], options, &counts));
            let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
            let mut tick = tokio::time::interval(REFRESH);
            loop {
                tokio::select! {
                    summary = &mut work => return Ok(summary),
                    _ = tick.tick() => counts.tell(&mut progress),
                    _ = &mut interrupt => return Err(CliError::refused("interrupted")),
                }
            }
        })?;
        match summary.failures.first() {
            None => {
                progress.done();
                Ok(summary)
            }
            Some(failure) => Err(CliError::refused(format!(
                "cannot write to `{shown}`: {}",
                chain(&failure.error)
            ))),
        }
    }
}

/// The path of a name in a folder.
pub fn inside(folder: &PfsPath, name: &str) -> Result<PfsPath, CliError> {
    let refused = |error: String| CliError::refused(format!("`{folder}/{name}`: {error}"));
    let name = RelPath::from_bytes(name.as_bytes()).map_err(|error| refused(error.to_string()))?;
    below(folder, &name).map_err(|error| refused(error.to_string()))
}

pub fn already_there(path: &PfsPath) -> CliError {
    CliError::refused(format!("`{path}` already exists")).with_hint("`--force` replaces it")
}

/// Counts bytes of an upload; upload threads write, the bar reads.
#[derive(Debug, Default)]
struct Counts {
    planned: AtomicU64,
    done: AtomicU64,
}

impl Counts {
    fn tell(&self, progress: &mut Progress<'_>) {
        let planned = self.planned.load(Ordering::Relaxed);
        progress.tell(self.done.load(Ordering::Relaxed), planned);
    }
}

impl paddlecloud_transfer::Progress for Counts {
    fn planned(&self, _: u64, bytes: u64) {
        self.planned.fetch_add(bytes, Ordering::Relaxed);
    }

    fn moved(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn again(&self, bytes: u64) {
        self.done.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn reused(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}
