//! Removes abandoned uploads.

use std::collections::HashSet;
use std::time::SystemTime;

pub use paddlecloud_pfs::staging::KEEP_UNFINISHED;
use paddlecloud_pfs::staging::{self, Cleared, StagedId};
use paddlecloud_pfs::{Mtime, Space};

use super::{Files, FilesError};

impl Files {
    /// Removes what was not touched for long, and the keys of uploads that are gone. Safe while requests run. Returns how many
    /// uploads expired.
    pub fn sweep(&self, users: &[Space]) -> u64 {
        self.sweep_at(users, Mtime::from(SystemTime::now()))
    }

    /// A sweep at a given time, for tests.
    pub fn sweep_at(&self, spaces: &[Space], now: Mtime) -> u64 {
        let age = KEEP_UNFINISHED;
        self.0.uploads.close_idle(now);
        // Read the keys first: uploads that begin later are not among them.
        let mut gone = self.index().uploads().unwrap_or_default();
        let mut swept = 0;
        let mut alive: HashSet<StagedId> = HashSet::new();
        let mut all_seen = true;
        for space in spaces {
            let expired = self.space(space).and_then(|root| {
                let _acting = self.act(space)?;
                let cleared = staging::clear_abandoned(root.staging()).map_err(FilesError::of_space(space))?;
                log_stuck(space, &cleared);
                let abandoned = cleared.gone;
                if !abandoned.is_empty() {
                    tracing::info!(%space, count = abandoned.len(), "removed unfinished work of a killed server");
                }
                let cleared = staging::expire(root.staging(), age, now).map_err(FilesError::of_space(space))?;
                log_stuck(space, &cleared);
                if cleared.strange > 0 {
                    tracing::info!(%space, count = cleared.strange, "removed files in the staging folder that belong to no upload");
                }
                let expired = cleared.gone;
                for gone in abandoned.iter().chain(&expired) {
                    drop(self.0.uploads.rooms.take(gone));
                }
                let drafts = match self.0.remote {
                    true => self.0.store.sweep(space, age).map_err(FilesError::of_space(space))?,
                    false => 0,
                };
                alive.extend(
                    staging::unfinished(root.staging())
                        .map_err(FilesError::of_space(space))?
                        .into_iter()
                        .map(|one| one.id),
                );
                Ok(expired.len() as u64 + drafts)
            });
            match expired {
                Ok(expired) => swept += expired,
                Err(error) => {
                    all_seen = false;
                    tracing::warn!(%space, error = paddlecloud_core::error_chain::chain_of(&error), "unfinished uploads were not swept");
                }
            }
        }
        gone.retain(|id| !alive.contains(id));
        if all_seen && let Err(error) = self.index().forget_uploads(&gone) {
            tracing::warn!(%error, "keys of uploads that are gone were not removed");
        }
        swept
    }
}

/// Logs what could not be removed. The next sweep tries again, and the rest is removed regardless.
fn log_stuck(space: &Space, cleared: &Cleared) {
    for (name, error) in &cleared.stuck {
        tracing::warn!(%space, %name, error = paddlecloud_core::error_chain::chain_of(error), "an unfinished upload cannot be removed");
    }
}
