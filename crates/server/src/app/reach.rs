//! Whether workers can see users' files at all.

use paddlecloud_api::error::{ErrorBody, ErrorName};

use super::App;
use crate::config::EngineKind;

impl App {
    /// Refuses jobs whose `/pfs` would be empty: a worker of this machine needs a folder, not a store elsewhere.
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
