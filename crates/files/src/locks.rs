//! Locks on an upload, a space or a login: one holder at a time; others wait without occupying a thread.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::Space;
use paddlecloud_pfs::staging::StagedId;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// What is locked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// For committing or discarding an upload. A repeated request waits for the result.
    Upload(StagedId),
    /// For renewing a user's login at the provider.
    ProviderLogin(UserName),
    /// For measuring a space. Waiting callers then find it measured.
    Space(Space),
}

/// Held while this value lives. It moves along with the work, which may outlive the request.
pub type Lock = OwnedMutexGuard<()>;

/// All these locks. Unused ones are evicted. Cheap to clone.
#[derive(Clone, Default)]
pub struct Locks(Arc<std::sync::Mutex<HashMap<Key, Weak<Mutex<()>>>>>);

impl Locks {
    /// Waits for the lock, in the order of the calls.
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
