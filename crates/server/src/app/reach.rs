//! Whether workers can access users' files.

use paddlecloud_api::error::{ErrorBody, ErrorName};

use super::App;
use crate::config::EngineKind;

impl App {
    /// Refuses jobs whose `/pfs` would be empty: workers of this machine need a folder, not a remote store.
    pub(super) fn files_within_reach(&self) -> Result<(), ErrorBody> {
        let backend = &self.config.backend;
        match self.config.engine {
            EngineKind::Local if backend.is_remote() => {
                let problem = format!(
                    "no job can run here: `/pfs/{}` lies on {backend}, which is not mounted on this machine",
                    self.config.datacenter
                );
                Err(ErrorBody::new(ErrorName::Conflict, problem)
                    .with_hint("an administrator can mount it and set `storage` to the mounted folder"))
            }
            _ => Ok(()),
        }
    }
}
