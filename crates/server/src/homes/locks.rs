//! Locks of one user's home, and what is known of its staged packages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::Digest;
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::root::Stamp;
use tokio::sync::RwLock;

/// The locks of one user.
#[derive(Debug, Default)]
pub struct UserLocks {
    /// Shared while a job's package is checked and the job is stored; exclusive while packages are removed. The guard moves into
    /// the task, which may outlive the request.
    pub packages: Arc<RwLock<()>>,
    /// Held while a link to the latest run is changed.
    pub(crate) latest: Mutex<()>,
    /// Held while packages are published, or trees without a manifest are removed.
    pub publishing: Mutex<()>,
    /// What this process wrote into staged packages: it need not be read again to publish them.
    received: Mutex<HashMap<PackageId, Received>>,
}

/// The digests of files by their stamps.
pub type Received = HashMap<Stamp, Digest>;

/// Files of more staged packages than these are read again.
const MOST_RECEIVED: usize = 8;

impl UserLocks {
    pub fn receive(&self, package: PackageId, files: impl IntoIterator<Item = (Stamp, Digest)>) {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        if received.len() >= MOST_RECEIVED && !received.contains_key(&package) {
            received.clear();
        }
        received.entry(package).or_default().extend(files);
    }

    pub fn take_received(&self, package: PackageId) -> Received {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.remove(&package).unwrap_or_default()
    }
}

/// The locks of all users.
#[derive(Debug, Clone, Default)]
pub(super) struct AllLocks(Arc<Mutex<HashMap<UserName, Arc<UserLocks>>>>);

impl AllLocks {
    pub(super) fn of(&self, user: &UserName) -> Arc<UserLocks> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(user.clone()).or_default())
    }
}
