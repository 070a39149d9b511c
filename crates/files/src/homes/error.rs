//! Errors of homes, packages and the folders of runs.

use std::io::ErrorKind;

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::{AccessError, RootError};

/// Why a home, a package or the folder of a run cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("`{0}` does not exist")]
    NotFound(String),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("`{0}` is not a folder")]
    NotAFolder(String),
    #[error("the package {0} was not uploaded")]
    NotUploaded(String),
    #[error("`{0}` cannot be the name of a package's folder")]
    BadName(String),
    #[error("the stored package was changed after its upload, the first difference is `{0}`")]
    Changed(String),
    #[error("the package has a file `output`, which must be free for the folder of results")]
    OutputIsAFile,
    #[error("`{0}` belongs to the server: name the package's own folder")]
    Ours(String),
    #[error("the home of `{0}` belongs to another system user of the server's machine")]
    Foreign(UserName),
    #[error(transparent)]
    Storage(#[from] RootError),
    #[error("disk error: {0}")]
    Disk(#[source] std::io::Error),
    #[error("a stored list of files is damaged")]
    Manifest(#[source] serde_json::Error),
}

impl StorageError {
    /// Whether the server's disk is full, for all users.
    pub(crate) fn is_out_of_space(&self) -> bool {
        matches!(self, Self::Storage(RootError::NoSpace(_)))
    }

    /// Whether the disk is full, or a quota of its file system is exhausted.
    pub fn is_full(&self) -> bool {
        if let Self::Storage(RootError::NoSpace(_) | RootError::FsQuota(_)) = self {
            return true;
        }
        let reasons = std::iter::successors(Some(self as &(dyn std::error::Error + 'static)), |error| {
            error.source()
        });
        reasons
            .filter_map(|error| error.downcast_ref::<std::io::Error>())
            .any(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
    }
}
