//! Whether workers can access users' files.

use super::{App, AppError};
use crate::config::EngineKind;

impl App {
    /// Refuses jobs whose `/pfs` would be empty: workers of this machine need a folder, not a remote store.
    pub(super) fn files_within_reach(&self) -> Result<(), AppError> {
        let backend = &self.config.backend;
        match self.config.engine {
            EngineKind::Local if backend.is_remote() => Err(AppError::OutOfReach {
                datacenter: self.config.datacenter.clone(),
                backend: Box::new(backend.clone()),
            }),
            _ => Ok(()),
        }
    }
}
