//! The locks of each user's home.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use paddlecloud_core::names::UserName;
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
}

/// The locks of all users.
#[derive(Debug, Clone, Default)]
pub(super) struct AllLocks(Arc<Mutex<HashMap<UserName, Arc<UserLocks>>>>);

impl AllLocks {
    pub(super) fn of(&self, user: &UserName) -> Arc<UserLocks> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(users.entry(user.clone()).or_default())
    }
}
