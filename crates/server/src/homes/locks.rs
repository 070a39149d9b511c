//! The locks of one user's home, and the known contents of its staged packages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::Digest;
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::root::Stamp;
use tokio::sync::RwLock;

/// The locks of one user.
#[derive(Debug, Default)]
pub struct UserLocks {
    /// Shared while a job's package is checked and the job is stored; exclusive while packages are removed. The guard moves into
    /// the task, which may outlive the request.
    pub packages: Arc<RwLock<()>>,
    /// Held while a link to the latest run is changed.
    pub(crate) latest: Mutex<()>,
    /// Held while packages are published, or trees without a manifest are removed.
    pub publishing: Mutex<()>,
    /// Shared by all users.
    received: Arc<Mutex<HashMap<PackageId, Received>>>,
}

/// The digests of files by their stamps.
pub type Received = HashMap<Stamp, Digest>;

/// Beyond this many, all are forgotten: then those files are read again.
const MOST_RECEIVED: usize = 300_000;

impl UserLocks {
    /// Notes what this process wrote into a staged package: it need not be read again to publish it.
    pub fn receive(&self, package: PackageId, files: impl IntoIterator<Item = (Stamp, Digest)>) {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.entry(package).or_default().extend(files);
        if received.values().map(|files| 1 + files.len()).sum::<usize>() > MOST_RECEIVED {
            received.clear();
        }
    }

    pub fn take_received(&self, package: PackageId) -> Received {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.remove(&package).unwrap_or_default()
    }
}

/// The locks of all users.
#[derive(Debug, Clone, Default)]
pub(super) struct AllLocks {
    users: Arc<Mutex<HashMap<UserName, Arc<UserLocks>>>>,
    received: Arc<Mutex<HashMap<PackageId, Received>>>,
}

impl AllLocks {
    pub(super) fn of(&self, user: &UserName) -> Arc<UserLocks> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let locks = users.entry(user.clone()).or_insert_with(|| {
            Arc::new(UserLocks {
                received: Arc::clone(&self.received),
                ..UserLocks::default()
            })
        });
        Arc::clone(locks)
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_pfs::Mtime;

    use super::*;

    #[test]
    fn received_files_are_forgotten_before_they_fill_the_memory() {
        let all = AllLocks::default();
        let [ann, bob] = ["ann", "bob"].map(|user| all.of(&user.parse().unwrap()));
        let package: PackageId = "a".repeat(64).parse().unwrap();
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
        ann.receive(package, (0..half).map(file));
        ann.receive(package, (0..half).map(file));
        assert_eq!(ann.take_received(package).len() as u64, half);
        ann.receive(package, (0..half).map(file));
        bob.receive(package, (half..=2 * half).map(file));
        assert!(
            ann.take_received(package).is_empty(),
            "all users together had too many"
        );
    }
}
