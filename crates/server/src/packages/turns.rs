//! Who has to wait for whom in one user's home.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use paddlecloud_core::names::UserName;
use tokio::sync::RwLock;

/// The turns of one user.
#[derive(Debug, Default)]
pub struct Turn {
    /// Shared by those who check that a package is there and store a job that needs it; alone for who removes packages.
    /// The right goes along with the work, which may outlive the request.
    pub packages: Arc<RwLock<()>>,
    /// For who moves a link to the latest run.
    pub(super) latest: Mutex<()>,
    /// For who gives packages their places, or clears away what has one and no list.
    pub publishing: Mutex<()>,
}

/// Everybody's turns, as many as there are users.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<Mutex<HashMap<UserName, Arc<Turn>>>>);

impl Turns {
    pub(super) fn of(&self, user: &UserName) -> Arc<Turn> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(user.clone()).or_default())
    }
}
