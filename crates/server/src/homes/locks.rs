//! Locks of one user's home.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use paddlecloud_core::names::UserName;
use tokio::sync::RwLock;

/// The locks of one user.
#[derive(Debug, Default)]
pub struct UserLocks {
    /// Shared by those who check that a package is there and store a job that needs it; alone for who removes packages.
    /// The guard goes along with the work, which may outlive the request.
    pub packages: Arc<RwLock<()>>,
    /// For who moves a link to the latest run.
    pub(crate) latest: Mutex<()>,
    /// For who gives packages their places, or clears away what has one and no list.
    pub publishing: Mutex<()>,
}

/// Everybody's locks, as many as there are users.
#[derive(Debug, Clone, Default)]
pub(super) struct AllLocks(Arc<Mutex<HashMap<UserName, Arc<UserLocks>>>>);

impl AllLocks {
    pub(super) fn of(&self, user: &UserName) -> Arc<UserLocks> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(user.clone()).or_default())
    }
}
