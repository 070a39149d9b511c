//! File stores other than a folder: HDFS and S3, behind the file service's port.
//!
//! Each is a cargo feature, because it adds a client library. A server that was built without one refuses its configuration.
//! Rights, quotas and uploads are not decided here.

#[cfg(any(feature = "hdfs", feature = "s3"))]
mod copy_through;
#[cfg(feature = "hdfs")]
mod hdfs;
#[cfg(any(feature = "hdfs", feature = "s3"))]
mod read_ahead;
#[cfg(feature = "s3")]
mod s3;
mod settings;
#[cfg(any(feature = "hdfs", feature = "s3"))]
mod tree;
#[cfg(any(feature = "hdfs", feature = "s3"))]
mod waiting;

use std::path::Path;
use std::sync::Arc;

use paddlecloud_pfs::store::FileStore;

pub use settings::{HdfsSettings, HdfsUrl, S3Settings, SecretText, SettingsError};

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("this program was built without `{0}`")]
    NotBuilt(&'static str),
    #[error("`{store}` cannot be used: {problem}")]
    Settings { store: String, problem: String },
    #[error("`{store}` cannot be reached")]
    Unreachable {
        store: String,
        source: paddlecloud_pfs::RootError,
    },
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
    #[error("cannot store the records of uploads")]
    Notes(#[source] std::io::Error),
}

/// Connects to HDFS and creates the service's folder.
#[cfg(feature = "hdfs")]
pub fn open_hdfs(settings: &HdfsSettings) -> Result<Arc<dyn FileStore>, OpenError> {
    hdfs::HdfsStore::open(settings).map(|store| Arc::new(store) as Arc<dyn FileStore>)
}

/// Without the feature there is nothing to connect with.
#[cfg(not(feature = "hdfs"))]
pub fn open_hdfs(_: &HdfsSettings) -> Result<Arc<dyn FileStore>, OpenError> {
    Err(OpenError::NotBuilt("hdfs"))
}

/// Connects to an S3-compatible service and checks that the bucket is readable. Multipart uploads are recorded in a local
/// folder, so that [`FileStore::sweep`] finds them after a crash.
#[cfg(feature = "s3")]
pub fn open_s3(settings: &S3Settings, notes: &Path) -> Result<Arc<dyn FileStore>, OpenError> {
    s3::S3Store::open(settings, notes).map(|store| Arc::new(store) as Arc<dyn FileStore>)
}

/// Without the feature there is nothing to connect with.
#[cfg(not(feature = "s3"))]
pub fn open_s3(_: &S3Settings, _: &Path) -> Result<Arc<dyn FileStore>, OpenError> {
    Err(OpenError::NotBuilt("s3"))
}
