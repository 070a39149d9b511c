//! Removing what nobody needs, or saying how much that would be.

use paddlecloud_pfs::{RelPath, Root};

use super::StorageError;

/// What a clean-up removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub bytes: u64,
}

/// Whether a clean-up removes or only says how much it would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Real,
    Foreseen,
}

/// Removes a node with all it holds, and counts it. What is not there is no error.
pub(crate) fn remove(
    home: &Root,
    path: &RelPath,
    removal: Removal,
    pruned: &mut Pruned,
) -> Result<(), StorageError> {
    if !home.exists(path)? {
        return Ok(());
    }
    let meta = home.stat_link(path)?;
    pruned.bytes += match meta.is_dir() {
        true => home.usage(path)?.bytes,
        false => meta.size,
    };
    match removal {
        Removal::Real => Ok(home.remove_all(path)?),
        Removal::Foreseen => Ok(()),
    }
}
