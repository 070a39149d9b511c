//! What downloads leave that are killed, and who clears it away: the next one into the same folder.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use paddlecloud_pfs::{Mtime, Root, staging};

/// As long as the server keeps an upload that nobody touches.
const KEEP_UNFINISHED: Duration = Duration::from_secs(3 * 86_400);

/// Removes what nobody can go on with, and what nobody came back for.
pub(super) fn clear_up(folders: &BTreeSet<PathBuf>) {
    for root in folders.iter().filter_map(|folder| Root::open(folder).ok()) {
        // It is in nobody's way: another time will do.
        let _ = staging::clear_abandoned(&root);
        let _ = staging::expire(&root, KEEP_UNFINISHED, Mtime::from(SystemTime::now()));
    }
}
