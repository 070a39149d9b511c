//! A file that appears under its name when it is complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use paddlecloud_recordio::sync_names;
use tempfile::{Builder, TempPath};

use crate::error::DataError;

/// A temporary file that is renamed later. If it is dropped unpublished, it leaves nothing behind.
pub(crate) struct StagedFile {
    temporary: TempPath,
    path: PathBuf,
    folder: PathBuf,
}

impl StagedFile {
    /// Creates an empty file beside `path`, to be written through the handle.
    pub(crate) fn create(path: &Path) -> Result<(Self, File), DataError> {
        if fs::metadata(path).is_ok_and(|about| !about.is_file()) {
            let problem = "is not a regular file and would be replaced by one: name a file";
            return Err(DataError::file(path, problem));
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = Builder::new();
        builder.prefix(".paddle-data-").suffix(".tmp");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The mode of any new file, subject to the umask.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let made = builder
            .tempfile_in(folder)
            .map_err(|e| DataError::write(path, e))?;
        let (file, temporary) = made.into_parts();
        let staged = Self {
            temporary,
            path: path.to_owned(),
            folder: folder.to_owned(),
        };
        Ok((staged, file))
    }

    /// Renames the file, replacing an existing one. Its contents must be durable by now.
    pub(crate) fn publish(self) -> Result<(), DataError> {
        let path = self.path;
        self.temporary
            .persist(&path)
            .map_err(|e| DataError::write(&path, e.error))?;
        sync_names(&self.folder).map_err(|e| DataError::write(&path, e))
    }
}
