//! Removes what interrupted downloads left in a folder, when the next download uses it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use paddlecloud_pfs::{Mtime, Root, staging};

/// Removes staged files that cannot be resumed or have expired.
pub(super) fn clear_up(folders: &BTreeSet<PathBuf>) {
    for root in folders.iter().filter_map(|folder| Root::open(folder).ok()) {
        // Leftovers do no harm, so errors are ignored.
        let _ = staging::clear_abandoned(&root);
        let _ = staging::expire(&root, staging::KEEP_UNFINISHED, Mtime::from(SystemTime::now()));
    }
}
