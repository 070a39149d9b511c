//! Numbers that a file system maintains about its folders (CephFS: recursive sizes).

use std::ffi::CStr;

use super::{Root, RootError, STAGING, Usage};
use crate::relpath::RelPath;
use crate::sys;

impl Root {
    /// The usage of a folder as the file system reports it, which is free; `None` if it does not.
    ///
    /// CephFS lags by seconds.
    pub fn kept_usage(&self, folder: &RelPath) -> Result<Option<Usage>, RootError> {
        let number = |name| self.attribute_number(folder, name);
        let (Some(bytes), Some(files)) = (number(c"ceph.dir.rbytes")?, number(c"ceph.dir.rfiles")?) else {
            return Ok(None);
        };
        let folders = number(c"ceph.dir.rsubdirs")?.unwrap_or(0);
        let usage = Usage {
            bytes,
            files,
            folders,
            ..Usage::default()
        };
        match folder.is_root() {
            true => self.without_staging(usage).map(Some),
            false => Ok(Some(usage)),
        }
    }

    /// The usage of the staging folder as the file system reports it; `None` if it does not.
    pub fn kept_staged_usage(&self) -> Result<Option<Usage>, RootError> {
        let staging: RelPath = STAGING.parse().expect("a plain name");
        match self.stat_link(&staging) {
            // The target of a link that a job planted is counted at its own path.
            Ok(found) if found.is_dir() => self.kept_usage(&staging),
            Ok(_) => Ok(None),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Subtracts unpublished files, which are counted separately.
    fn without_staging(&self, all: Usage) -> Result<Usage, RootError> {
        let staged = self.kept_staged_usage()?.unwrap_or_default();
        Ok(Usage {
            bytes: all.bytes.saturating_sub(staged.bytes),
            files: all.files.saturating_sub(staged.files),
            folders: all.folders.saturating_sub(staged.folders),
            ..Usage::default()
        })
    }

    /// An extended attribute with a decimal number; `None` if it does not exist.
    pub(crate) fn attribute_number(&self, path: &RelPath, name: &CStr) -> Result<Option<u64>, RootError> {
        let folder = match self.open_dir(path) {
            Err(RootError::NotAFolder(_)) => return Ok(None),
            other => other?,
        };
        sys::number_attribute(&folder, name).map_err(|errno| RootError::errno("measure", path, errno))
    }
}
