//! Numbers that a file system keeps about its folders by itself (CephFS: recursive sizes and quotas).

use std::ffi::CStr;

use super::{Root, RootError, STAGING, Usage};
use crate::relpath::RelPath;
use crate::sys;

impl Root {
    /// What a folder holds as the file system counts it, which costs nothing; `None` where it does not.
    ///
    /// CephFS lags behind by seconds.
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
        };
        match folder.is_root() {
            true => self.without_staging(usage).map(Some),
            false => Ok(Some(usage)),
        }
    }

    /// What is not published yet is counted by whoever set room aside for it.
    fn without_staging(&self, all: Usage) -> Result<Usage, RootError> {
        let staging: RelPath = STAGING.parse().expect("a plain name");
        let number = |name| match self.attribute_number(&staging, name) {
            Err(error) if error.is_not_found() => Ok(0),
            other => other.map(|number| number.unwrap_or(0)),
        };
        Ok(Usage {
            bytes: all.bytes.saturating_sub(number(c"ceph.dir.rbytes")?),
            files: all.files.saturating_sub(number(c"ceph.dir.rfiles")?),
            folders: all.folders.saturating_sub(number(c"ceph.dir.rsubdirs")?),
        })
    }

    /// An extended attribute that holds a decimal number; `None` when there is no such.
    pub(crate) fn attribute_number(&self, path: &RelPath, name: &CStr) -> Result<Option<u64>, RootError> {
        let folder = match self.open_dir(path) {
            Err(RootError::NotAFolder(_)) => return Ok(None),
            other => other?,
        };
        sys::number_attribute(&folder, name).map_err(|errno| RootError::errno("measure", path, errno))
    }
}
