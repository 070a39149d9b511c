//! The digests of files that this process wrote into staged packages: they need not be read again to publish a package.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddlecloud_pfs::Digest;
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::root::Stamp;

/// Beyond this many, all are forgotten: then those files are read again.
const MOST_RECEIVED: usize = 300_000;

/// The received files of all users' staged packages. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ReceivedFiles(Arc<Mutex<HashMap<PackageId, Digests>>>);

/// The digests of files by their stamps.
type Digests = HashMap<Stamp, Digest>;

impl ReceivedFiles {
    /// Notes files that were written into a staged package.
    pub fn add(&self, package: PackageId, files: impl IntoIterator<Item = (Stamp, Digest)>) {
        let mut received = self.lock();
        received.entry(package).or_default().extend(files);
        if received.values().map(|files| 1 + files.len()).sum::<usize>() > MOST_RECEIVED {
            received.clear();
        }
    }

    /// Forgets the files of a package and returns their digests by their stamps.
    pub fn take(&self, package: PackageId) -> HashMap<Stamp, Digest> {
        self.lock().remove(&package).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PackageId, Digests>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_pfs::Mtime;

    use super::*;

    #[test]
    fn received_files_are_forgotten_before_they_fill_the_memory() {
        let received = ReceivedFiles::default();
        let [one, other]: [PackageId; 2] = ["a", "b"].map(|digit| digit.repeat(64).parse().unwrap());
        let file = |inode| {
            let (mtime, ctime) = (Mtime::from_nanos(1), Mtime::from_nanos(2));
            let stamp = Stamp {
                device: 1,
                inode,
                size: 1,
                mtime,
                ctime,
            };
            (stamp, Digest::of(b""))
        };
        let half = MOST_RECEIVED as u64 / 2;
        received.add(one, (0..half).map(file));
        received.add(one, (0..half).map(file));
        assert_eq!(received.take(one).len() as u64, half);
        received.add(one, (0..half).map(file));
        received.add(other, (half..=2 * half).map(file));
        assert!(
            received.take(one).is_empty(),
            "all packages together had too many"
        );
    }
}
