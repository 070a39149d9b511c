//! A file that appears under its name when it is whole.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use paddlecloud_recordio::sync_names;
use tempfile::{Builder, TempPath};

use crate::error::DataError;

/// The place a file is written to before it gets its name. Dropped unpublished, it leaves nothing behind.
pub(crate) struct StagedFile {
    temporary: TempPath,
    path: PathBuf,
    folder: PathBuf,
}

impl StagedFile {
    /// Makes an empty file beside `path`, to be filled through the handle.
    pub(crate) fn create(path: &Path) -> Result<(Self, File), DataError> {
        if fs::metadata(path).is_ok_and(|about| !about.is_file()) {
            let problem = "is no regular file, and would be replaced by one: name a file";
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
            // What any new file gets: the umask takes its part away.
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

    /// Gives the file its name, in place of whatever had it. Its contents must be durable by now.
    pub(crate) fn publish(self) -> Result<(), DataError> {
        let path = self.path;
        self.temporary
            .persist(&path)
            .map_err(|e| DataError::write(&path, e.error))?;
        sync_names(&self.folder).map_err(|e| DataError::write(&path, e))
    }
}
