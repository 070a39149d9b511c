//! Removes unneeded files, or computes their size only.

use paddlecloud_pfs::{RelPath, Root};

use super::StorageError;

/// What a clean-up removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub bytes: u64,
}

/// Whether a clean-up removes files or only reports their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Real,
    Foreseen,
}

/// Removes a node with everything below it and adds its size. A missing node is not an error.
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
