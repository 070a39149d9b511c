//! Opens the store that a datacenter is configured with and checks it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use paddlecloud_backends::{HdfsSettings, OpenError, S3Settings, open_hdfs, open_s3};
use paddlecloud_core::names::DatacenterName;
use paddlecloud_pfs::store::{FileStore, LocalStore, StoreLimits};
use paddlecloud_pfs::{RelPath, Root, RootError};

use super::Files;
use super::shares::SharesError;

/// The store behind the file service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Backend {
    /// A folder of this machine, or of a file system mounted on it.
    #[default]
    Folder,
    /// The same, but the folder must be on CephFS, which tracks sizes and quotas itself.
    CephFs,
    Hdfs(HdfsSettings),
    S3(S3Settings),
}

impl Backend {
    /// Whether users' files are not in a folder of this machine.
    pub fn is_remote(&self) -> bool {
        matches!(self, Backend::Hdfs(_) | Backend::S3(_))
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Folder => f.write_str("a folder"),
            Backend::CephFs => f.write_str("CephFS"),
            Backend::Hdfs(settings) => write!(f, "HDFS ({})", settings.url),
            Backend::S3(settings) => write!(f, "S3 ({settings})"),
        }
    }
}

/// What the configuration says about users' files.
#[derive(Debug, Clone, Copy)]
pub struct FileSettings<'a> {
    pub backend: &'a Backend,
    /// The users' files or, for a remote store, its spool folder.
    pub storage: &'a Path,
    /// The server's own folder.
    pub data: &'a Path,
    pub datacenter: &'a DatacenterName,
}

/// Why users' files cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    #[error("the folder cannot be opened")]
    Folder(#[source] RootError),
    #[error("the folder is not on CephFS: mount it there, or set `kind: folder`")]
    NotCephFs,
    #[error(transparent)]
    Remote(#[from] OpenError),
    #[error("the file index cannot be opened")]
    Index(#[from] io::Error),
    #[error(transparent)]
    Shares(#[from] SharesError),
}

impl FileStoreError {
    /// A hint for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            FileStoreError::Shares(error) => error.hint(),
            _ => None,
        }
    }
}

/// Connects to the configured store.
pub(super) fn open(
    settings: &FileSettings<'_>,
    local: &LocalStore,
) -> Result<Arc<dyn FileStore>, FileStoreError> {
    match settings.backend {
        Backend::Folder => Ok(Arc::new(local.clone())),
        Backend::CephFs => {
            let root = Root::open(settings.storage).map_err(FileStoreError::Folder)?;
            let kept = root
                .kept_usage(&RelPath::root())
                .map_err(FileStoreError::Folder)?;
            kept.ok_or(FileStoreError::NotCephFs)?;
            Ok(Arc::new(local.clone()))
        }
        Backend::Hdfs(hdfs) => Ok(open_hdfs(hdfs)?),
        Backend::S3(s3) => Ok(open_s3(s3, &settings.data.join("files/parts"))?),
    }
}

impl Files {
    /// The store's name and what it cannot store.
    pub fn store(&self) -> (String, StoreLimits) {
        (self.0.store.name(), self.0.store.limits())
    }
}
