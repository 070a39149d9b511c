//! Whether workers can access users' files.

use super::{App, AppError};

impl App {
    /// Refuses jobs whose `/pfs` would be empty: workers of this machine need a folder, not a remote store.
    pub(super) fn files_within_reach(&self) -> Result<(), AppError> {
        let backend = &self.config.backend;
        if self.config.engine.uses_own_machine() && backend.is_remote() {
            return Err(AppError::OutOfReach {
                datacenter: self.config.datacenter.clone(),
                backend: Box::new(backend.clone()),
            });
        }
        Ok(())
    }
}
