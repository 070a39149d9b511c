//! Locks on one upload, one package or one space: one holder at a time, the others wait without a thread.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::Space;
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::staging::StagedId;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// What is locked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// To end an upload, one way or the other. A repeated request waits for its result.
    Upload(StagedId),
    /// To read what came of a user's package, send it, end it, or give it up.
    Package(UserName, PackageId),
    /// To measure a space. The others find it measured.
    Space(Space),
}

/// Held as long as it lives. It goes along with the work, which may outlive the request.
pub type Lock = OwnedMutexGuard<()>;

/// All such locks. What nobody holds or waits for is forgotten. Cheap to clone.
#[derive(Clone, Default)]
pub struct Locks(Arc<std::sync::Mutex<HashMap<Key, Weak<Mutex<()>>>>>);

impl Locks {
    /// Waits until nobody else holds it, in the order in which it was asked for.
    pub async fn lock(&self, key: Key) -> Lock {
        self.of(key).lock_owned().await
    }

    fn of(&self, key: Key) -> Arc<Mutex<()>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = known.get(&key).and_then(Weak::upgrade) {
            return there;
        }
        known.retain(|_, other| other.strong_count() > 0);
        let fresh = Arc::default();
        known.insert(key, Arc::downgrade(&fresh));
        fresh
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn an_upload_is_ended_by_one_at_a_time_and_then_forgotten() {
        let locks = Locks::default();
        let [one, other] = ["1", "2"].map(|digit| Key::Upload(digit.repeat(32).parse().unwrap()));
        let first = locks.lock(one.clone()).await;
        let mut second = Box::pin(locks.lock(one));
        assert!((&mut second).now_or_never().is_none());
        assert!(locks.lock(other.clone()).now_or_never().is_some());
        drop(first);
        drop(second.await);
        drop(locks.lock(other.clone()).await);
        let known: Vec<Key> = locks.0.lock().unwrap().keys().cloned().collect();
        assert_eq!(known, [other], "the one that was looked at last");
    }
}
