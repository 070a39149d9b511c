//! Opens the store that a datacenter is configured with and checks it.

use std::io;
use std::sync::Arc;

use paddlecloud_backends::{OpenError, open_hdfs, open_s3};
use paddlecloud_pfs::store::{FileStore, LocalStore, StoreLimits};
use paddlecloud_pfs::{RelPath, Root, RootError};

use super::Files;
use super::shares::SharesError;
use crate::config::{Backend, Config};

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
pub(super) fn open(config: &Config, local: &LocalStore) -> Result<Arc<dyn FileStore>, FileStoreError> {
    match &config.backend {
        Backend::Folder => Ok(Arc::new(local.clone())),
        Backend::CephFs => {
            let root = Root::open(&config.storage).map_err(FileStoreError::Folder)?;
            let kept = root
                .kept_usage(&RelPath::root())
                .map_err(FileStoreError::Folder)?;
            kept.ok_or(FileStoreError::NotCephFs)?;
            Ok(Arc::new(local.clone()))
        }
        Backend::Hdfs(settings) => Ok(open_hdfs(settings)?),
        Backend::S3(settings) => Ok(open_s3(settings, &config.data.join("files/parts"))?),
    }
}

impl Files {
    /// The store's name and what it cannot store.
    pub fn store(&self) -> (String, StoreLimits) {
        (self.0.store.name(), self.0.store.limits())
    }
}
