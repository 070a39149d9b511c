//! Digests from earlier submits of a folder, so that unchanged files are not read again.
//!
//! Only a cache: if it cannot be saved, the next submit reads everything again.

use std::path::{Path, PathBuf};

use paddlecloud_pfs::Digest;
use paddlecloud_pfs::content::StatCache;

use crate::environment::Environment;
use crate::private_file::create_private_folder;

/// This many removed files are kept in the cache before all of it is dropped.
const SPARE: usize = 10_000;

/// The digests of a folder's files by their stamps.
pub struct KnownFiles {
    pub stamps: StatCache,
    place: Option<PathBuf>,
    known: usize,
}

impl KnownFiles {
    /// What is known of a folder.
    pub fn of(folder: &Path, environment: &Environment) -> KnownFiles {
        let home = environment.paddle_home().filter(|home| home.is_dir());
        let name = Digest::of(folder.as_os_str().as_encoded_bytes()).to_string();
        let place = home.map(|home| home.join("known-files").join(&name[..32]));
        let stamps = place.as_deref().map(StatCache::load).unwrap_or_default();
        KnownFiles {
            known: stamps.len(),
            stamps,
            place,
        }
    }

    /// Saves the result of scanning this many files, of which `read` were read.
    pub fn keep(&self, files: usize, read: usize) {
        let Some(place) = self.place.as_deref().filter(|_| read > 0) else {
            return;
        };
        // Removed files are never dropped one by one.
        if self.known > files + SPARE {
            let _ = std::fs::remove_file(place);
            return;
        }
        if let Some(folder) = place.parent()
            && create_private_folder(folder).is_ok()
        {
            let _ = self.stamps.save(place);
        }
    }
}
