//! Writes one file to the cluster: created locally, then uploaded, so that its name appears when it is complete.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddlecloud_pfs::{Existing, PfsPath};
use paddlecloud_recordio::index_path;
use tempfile::TempDir;

use super::cluster::Cluster;
use super::upload::already_there;
use crate::commands::Context;
use crate::error::CliError;
use crate::messages::Messages;
use crate::transfer::rules::Target;

/// A file on its way to the cluster. The local copy is removed on drop.
pub struct FileThere {
    cluster: Arc<Cluster>,
    place: PfsPath,
    existing: Existing,
    folder: TempDir,
    name: PathBuf,
}

impl FileThere {
    /// Refuses early what could not be published later.
    pub fn open(dest: &Path, existing: Existing, context: &mut Context<'_>) -> Result<Self, CliError> {
        let cluster = Cluster::open(context)?;
        let place = cluster.place(dest)?;
        match (cluster.target(&place)?, existing) {
            (Target::Folder, _) => return Err(CliError::refused(format!("`{place}` is a folder"))),
            (Target::File, Existing::Keep) => return Err(already_there(&place)),
            _ => {}
        }
        let name = dest.file_name().map(PathBuf::from);
        let name = name.ok_or_else(|| CliError::refused(format!("`{place}` does not name a file")))?;
        Ok(Self {
            cluster,
            place,
            existing,
            folder: temporary_folder()?,
            name,
        })
    }

    /// Where to write it locally. It has the same name, because the name determines the format.
    pub fn here(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Uploads the file, and its index if there is one. An old index is removed first: it describes another file.
    pub fn publish(self, messages: &mut Messages) -> Result<(), CliError> {
        let there = index_path(Path::new(&self.place.to_string()));
        let index_place = self.cluster.place(&there)?;
        self.cluster.make_parent(&self.place)?;
        self.cluster.remove(&index_place)?;
        self.cluster
            .send_file(&self.here(), &self.place, self.existing, messages)?;
        let index = index_path(&self.here());
        if index.exists() {
            self.cluster
                .send_file(&index, &index_place, Existing::Replace, messages)
                .map_err(|error| {
                    CliError::refused(format!(
                        "`{}` was written, but its index was not: {error}",
                        self.place
                    ))
                })?;
        }
        Ok(())
    }

    /// The error with the names the user knows.
    pub fn in_names(&self, error: CliError) -> CliError {
        match error {
            CliError::Refused { message, hints } => CliError::Refused {
                message: message.replace(&self.here().display().to_string(), &self.place.to_string()),
                hints,
            },
            other => other,
        }
    }
}

pub fn temporary_folder() -> Result<TempDir, CliError> {
    tempfile::Builder::new()
        .prefix("paddlectl-data-")
        .tempdir()
        .map_err(|error| CliError::refused(format!("cannot create a temporary folder: {error}")))
}
