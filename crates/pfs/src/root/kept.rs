//! Numbers that a file system maintains about its folders (CephFS: recursive sizes and quotas).

use std::ffi::CStr;
use std::fmt;

use super::{FOLDER, Root, RootError, STAGING, Usage};
use crate::relpath::RelPath;
use crate::sys::{self, Mode, OFlags, OwnedFd};

/// How many levels above a root to look for quotas.
const MOST_ABOVE: usize = 64;

/// A quota that a file system or a store enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnQuota {
    pub used: u64,
    pub limit: u64,
    pub counted: Counted,
    /// What takes space in addition to `used`, as text that follows the numbers; may be empty.
    pub beside: &'static str,
}

/// The unit of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Bytes,
    /// Files and folders.
    Names,
}

impl OwnQuota {
    /// The remaining amount.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

impl fmt::Display for OwnQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.counted {
            Counted::Bytes => "bytes",
            Counted::Names => "files and folders",
        };
        write!(
            f,
            "{} of {} {what} are used{}",
            self.used, self.limit, self.beside
        )
    }
}

/// The quota that a refused write ran into: exhausted names first, else the fewest remaining bytes.
pub fn in_the_way(quotas: impl IntoIterator<Item = OwnQuota>) -> Option<OwnQuota> {
    let stops = |quota: &OwnQuota| quota.counted == Counted::Bytes || quota.room() == 0;
    let order = |quota: &OwnQuota| (quota.counted == Counted::Bytes, quota.room());
    quotas.into_iter().filter(stops).min_by_key(order)
}

impl Root {
    /// Adds limit and usage to an error, if it comes from a quota of the file system that reports them.
    pub fn explain(&self, error: RootError) -> RootError {
        match error {
            RootError::FsQuota { path, kept: None } => RootError::FsQuota {
                path,
                kept: in_the_way(self.kept_quotas()),
            },
            other => other,
        }
    }

    /// The file system's quotas for this folder and those above it. Only reads numbers there.
    fn kept_quotas(&self) -> Vec<OwnQuota> {
        let flags = FOLDER | OFlags::CLOEXEC;
        let mut quotas = Vec::new();
        let mut folder = sys::openat(self.fd(), ".", flags, Mode::empty());
        for _ in 0..MOST_ABOVE {
            let Ok(here) = &folder else { break };
            // Above the mount point is another file system.
            if number(here, c"ceph.dir.rbytes").is_none() {
                break;
            }
            quotas.extend(quotas_of(here));
            folder = sys::openat(here, "..", flags, Mode::empty());
        }
        quotas
    }

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

fn number(folder: &OwnedFd, name: &CStr) -> Option<u64> {
    sys::number_attribute(folder, name).ok().flatten()
}

/// CephFS quotas of a folder; 0 means no limit.
fn quotas_of(folder: &OwnedFd) -> impl Iterator<Item = OwnQuota> {
    let kinds = [
        (Counted::Bytes, c"ceph.quota.max_bytes", c"ceph.dir.rbytes"),
        (Counted::Names, c"ceph.quota.max_files", c"ceph.dir.rentries"),
    ];
    kinds.into_iter().filter_map(|(counted, limit, used)| {
        Some(OwnQuota {
            limit: number(folder, limit).filter(|limit| *limit > 0)?,
            used: number(folder, used)?,
            counted,
            beside: "",
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(counted: Counted, used: u64, limit: u64) -> OwnQuota {
        OwnQuota {
            used,
            limit,
            counted,
            beside: "",
        }
    }

    #[test]
    fn a_refused_write_ran_into_the_quota_that_has_the_least_room() {
        use Counted::{Bytes, Names};
        let (home, above) = (quota(Bytes, 0, 1000), quota(Bytes, 500_000, 1_000_000));
        let free = quota(Names, 1, 10);
        assert_eq!(in_the_way([above, free, home]), Some(home));
        let full = quota(Names, 10, 10);
        assert_eq!(in_the_way([above, full, home]), Some(full));
        assert_eq!(in_the_way([free]), None);
        assert_eq!(in_the_way([]), None);
    }

    #[test]
    fn a_quota_is_told_with_limit_and_use() {
        let path: RelPath = "d/f".parse().unwrap();
        let told = |kept| {
            let path = path.clone();
            RootError::FsQuota { path, kept }.to_string()
        };
        assert_eq!(
            told(Some(quota(Counted::Bytes, 7, 10))),
            "the file system's own quota leaves no room for `d/f`: 7 of 10 bytes are used"
        );
        assert_eq!(
            told(Some(quota(Counted::Names, 10, 10))),
            "the file system's own quota leaves no room for `d/f`: 10 of 10 files and folders are used"
        );
        assert_eq!(told(None), "the file system's own quota leaves no room for `d/f`");
    }

    #[test]
    fn a_folder_without_quotas_adds_nothing_to_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let path: RelPath = "f".parse().unwrap();
        let explained = root.explain(RootError::FsQuota { path, kept: None });
        assert!(matches!(explained, RootError::FsQuota { kept: None, .. }));
        let other = root.explain(RootError::NoSpace("f".parse().unwrap()));
        assert!(matches!(other, RootError::NoSpace(_)));
    }
}
