//! A file whose name appears when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::WriteError;

/// Written under a temporary name beside its own; if it is dropped unpublished, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    file: File,
    path: PathBuf,
    temporary: Option<PathBuf>,
}

impl AtomicFile {
    pub(crate) fn create(path: &Path) -> Result<Self, WriteError> {
        check_replaceable(path).map_err(|e| WriteError::io(path, e))?;
        let (file, temporary) = create_temporary(path).map_err(|e| WriteError::io(path, e))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            temporary: Some(temporary),
        })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes contents and name durable, in this order.
    pub(crate) fn publish(&mut self) -> Result<(), WriteError> {
        self.try_publish().map_err(|e| WriteError::io(&self.path, e))
    }

    fn try_publish(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, &self.path)?;
        }
        self.temporary = None;
        sync_names(folder_of(&self.path))
    }
}

/// Makes the names in a folder durable.
#[cfg(unix)]
pub fn sync_names(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Folders cannot be opened here; the system writes names through by itself.
#[cfg(not(unix))]
pub fn sync_names(_: &Path) -> io::Result<()> {
    Ok(())
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // A failure cannot be handled here, and nobody sees the name.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Publishing replaces whatever has the name. For a device, a pipe or a folder that cannot be intended: `/dev/null`
/// would become an ordinary file.
fn check_replaceable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(about) if !about.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a device, a pipe or a socket, and would be replaced by a file",
        )),
        _ => Ok(()),
    }
}

fn create_temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))?;
    loop {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        hidden.push(format!(".{}-{number}.tmp", std::process::id()));
        let temporary = path.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => return Ok((other?, temporary)),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
