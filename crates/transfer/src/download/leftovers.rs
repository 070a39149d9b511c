//! What downloads leave that are killed, and who clears it away: the next one into the same folder.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use paddlecloud_pfs::{Mtime, Root, staging};

/// Removes what nobody can go on with, and what nobody came back for.
pub(super) fn clear_up(folders: &BTreeSet<PathBuf>) {
    for root in folders.iter().filter_map(|folder| Root::open(folder).ok()) {
        // It is in nobody's way: another time will do.
        let _ = staging::clear_abandoned(&root);
        let _ = staging::expire(&root, staging::KEEP_UNFINISHED, Mtime::from(SystemTime::now()));
    }
}
