//! A bound on work that keeps a thread for long: so many at a time, so that threads are left for what is short.
//!
//! A commit may stream a whole file to another store, a check reads whatever it checks. Whoever has to wait here waits
//! without a thread. What is short, such as a look at a folder, never comes here.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use paddlecloud_core::names::UserName;
use paddlecloud_pfs::Space;
use paddlecloud_pfs::package::PackageId;
use paddlecloud_pfs::staging::StagedId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};

/// Threads that long work may have at a time.
pub const AT_ONCE: usize = 6;
/// Of these one user's: who copies many large files does not keep everybody else waiting.
const OF_ONE_USER: usize = 4;
/// Threads for the ends of uploads, for measuring and for what is bounded in each request: what somebody waits for who
/// has sent all there is, and what takes minutes at most, does not wait for copies and checks that take hours.
pub const ENDS_AT_ONCE: usize = 4;
const ENDS_OF_ONE_USER: usize = 3;
/// Threads for removing whole trees: who makes room on a full disk waits for nobody who fills it, and nobody who has sent
/// all there is waits for a million files to go.
pub const REMOVALS_AT_ONCE: usize = 3;
const REMOVALS_OF_ONE_USER: usize = 2;
/// Long lists of packages' files that are read and compared at a time, and of these one user's: they are in memory.
const LISTS_AT_ONCE: usize = 2;
const LISTS_OF_ONE_USER: usize = 1;
const LONG_PACKAGES_OF_ONE_USER: usize = 2;
/// Bytes of a list that is short: it waits for nobody.
pub const SHORT_LIST: usize = 4 << 20;

/// So often whoever waits for it hears something. Clients take a connection for dead that is silent for a minute.
pub const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// How long something keeps its thread, as far as that can be told before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// It has a thread at once.
    Short,
    /// Minutes at most: it waits for a turn at the end of an upload.
    End,
    /// It waits for a turn of long work.
    Long,
    /// It waits for a turn of those who remove trees.
    Removal,
}

impl Length {
    /// This, or short.
    pub fn if_so(self, is_so: bool) -> Length {
        match is_so {
            true => self,
            false => Length::Short,
        }
    }
}

/// The turns of long work. Cheap to clone.
#[derive(Clone)]
pub struct Long(Arc<Inner>);

struct Inner {
    work: Turns,
    ends: Turns,
    removals: Turns,
    lists: Turns,
    /// One long list of a user's comes at a time, however slowly.
    coming_lists: Keyed<UserName>,
    /// So many packages of a user's with long lists are sent at a time: the lists are in memory until their end.
    long_packages: Keyed<UserName>,
    /// One at a time ends an upload; whoever repeats the request waits for what becomes of it.
    ending: Keyed<StagedId>,
    /// One at a time is at a user's package: reads what came of it, sends it, ends it, or gives it up.
    packages: Keyed<(UserName, PackageId)>,
    /// One at a time measures a space; the others find it measured.
    measuring: Keyed<Space>,
}

/// So many at a time, and so many of one user's.
struct Turns {
    all: Arc<Semaphore>,
    users: Keyed<UserName>,
}

impl Turns {
    fn new(all: usize, of_one_user: usize) -> Turns {
        Turns {
            all: Arc::new(Semaphore::new(all)),
            users: Keyed::new(of_one_user),
        }
    }

    async fn turn(&self, user: &UserName) -> Turn {
        let own = self.users.turn(user).await;
        Turn {
            _own: own,
            _all: acquired(&self.all).await,
        }
    }
}

/// A turn at long work, as long as it lives.
#[derive(Debug)]
pub struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for Long {
    fn default() -> Long {
        Long(Arc::new(Inner {
            work: Turns::new(AT_ONCE, OF_ONE_USER),
            ends: Turns::new(ENDS_AT_ONCE, ENDS_OF_ONE_USER),
            removals: Turns::new(REMOVALS_AT_ONCE, REMOVALS_OF_ONE_USER),
            lists: Turns::new(LISTS_AT_ONCE, LISTS_OF_ONE_USER),
            coming_lists: Keyed::new(1),
            long_packages: Keyed::new(LONG_PACKAGES_OF_ONE_USER),
            ending: Keyed::new(1),
            packages: Keyed::new(1),
            measuring: Keyed::new(1),
        }))
    }
}

impl Long {
    /// Waits for a turn of a user's, in the order in which they were asked for.
    pub async fn turn(&self, user: &UserName) -> Turn {
        self.0.work.turn(user).await
    }

    /// The same at the end of an upload.
    pub async fn end_turn(&self, user: &UserName) -> Turn {
        self.0.ends.turn(user).await
    }

    /// The same to remove a tree.
    pub async fn removal_turn(&self, user: &UserName) -> Turn {
        self.0.removals.turn(user).await
    }

    /// The right to send a long list, which may take hours: it keeps nobody else from sending theirs.
    pub async fn coming_list(&self, user: &UserName) -> OwnedSemaphorePermit {
        self.0.coming_lists.turn(user).await
    }

    /// The same as the others to compare a long list, which has come, with what is here.
    pub async fn list_turn(&self, user: &UserName) -> Turn {
        self.0.lists.turn(user).await
    }

    /// The right to send a package whose list is long.
    pub async fn long_package(&self, user: &UserName) -> OwnedSemaphorePermit {
        self.0.long_packages.turn(user).await
    }

    /// Does something on a thread that may block when it is the user's turn. It is done to its end, also when nobody
    /// waits for it any more, and has its turn until then.
    pub async fn blocking<T: Send + 'static>(
        &self,
        user: &UserName,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.turn(user).await.blocking(work).await
    }

    /// The right to end an upload, one way or the other.
    pub async fn ending(&self, upload: &StagedId) -> OwnedSemaphorePermit {
        self.0.ending.turn(upload).await
    }

    /// The right to be at a user's package.
    pub async fn package(&self, user: &UserName, id: PackageId) -> OwnedSemaphorePermit {
        self.0.packages.turn(&(user.clone(), id)).await
    }

    /// The right to measure a space.
    pub async fn measuring(&self, space: &Space) -> OwnedSemaphorePermit {
        self.0.measuring.turn(space).await
    }

    /// How many more could be at work now.
    pub fn free(&self) -> usize {
        self.0.work.all.available_permits()
    }

    /// The same of ends.
    pub fn free_ends(&self) -> usize {
        self.0.ends.all.available_permits()
    }
}

impl Turn {
    /// Uses the turn for something on a thread that may block.
    pub async fn blocking<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        spawn_blocking(move || {
            let done = work();
            drop(self);
            done
        })
        .await
    }
}

/// So many turns at a time for each key. What nobody has or waits for is forgotten.
struct Keyed<K> {
    most: usize,
    known: Mutex<HashMap<K, Weak<Semaphore>>>,
}

impl<K: Clone + Eq + Hash> Keyed<K> {
    fn new(most: usize) -> Keyed<K> {
        Keyed {
            most,
            known: Mutex::default(),
        }
    }

    async fn turn(&self, key: &K) -> OwnedSemaphorePermit {
        let semaphore = self.semaphore(key);
        acquired(&semaphore).await
    }

    fn semaphore(&self, key: &K) -> Arc<Semaphore> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = known.get(key).and_then(Weak::upgrade) {
            return there;
        }
        known.retain(|_, other| other.strong_count() > 0);
        let fresh = Arc::new(Semaphore::new(self.most));
        known.insert(key.clone(), Arc::downgrade(&fresh));
        fresh
    }
}

async fn acquired(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let permit = Arc::clone(semaphore).acquire_owned().await;
    permit.expect("nobody closes it")
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn user(name: &str) -> UserName {
        name.parse().unwrap()
    }

    #[tokio::test]
    async fn one_user_leaves_turns_to_others() {
        let long = Long::default();
        let (me, you) = (user("me"), user("you"));
        let mut mine = Vec::new();
        for _ in 0..OF_ONE_USER {
            mine.push(long.turn(&me).await);
        }
        assert!(
            long.turn(&me).now_or_never().is_none(),
            "these are all of one user's"
        );
        let theirs: Vec<Turn> = (OF_ONE_USER..AT_ONCE)
            .map(|_| long.turn(&you).now_or_never().unwrap())
            .collect();
        assert_eq!(long.free(), 0);
        assert!(long.turn(&you).now_or_never().is_none(), "these are all");
        assert!(
            long.end_turn(&you).now_or_never().is_some(),
            "what is sent can be ended"
        );
        drop(mine);
        assert!(long.turn(&me).now_or_never().is_some());
        drop(theirs);
        assert_eq!(long.free(), AT_ONCE);
    }

    #[tokio::test]
    async fn one_users_long_lists_come_one_after_the_other_and_keep_nobody_else_waiting() {
        let long = Long::default();
        let (me, you) = (user("me"), user("you"));
        let mine = long.list_turn(&me).await;
        assert!(long.list_turn(&me).now_or_never().is_none());
        let theirs = long.list_turn(&you).now_or_never();
        assert!(theirs.is_some(), "one user has one at a time");
        drop(mine);
        assert!(long.list_turn(&me).now_or_never().is_some());
        let _coming = long.coming_list(&me).await;
        assert!(long.coming_list(&me).now_or_never().is_none());
        assert!(long.coming_list(&you).now_or_never().is_some());
        let _sending = [long.long_package(&me).await, long.long_package(&me).await];
        assert!(long.long_package(&me).now_or_never().is_none());
        assert!(long.long_package(&you).now_or_never().is_some());
    }

    #[tokio::test]
    async fn work_has_its_turn_to_its_end_also_when_nobody_waits_for_it() {
        let long = Long::default();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (began, has_begun) = tokio::sync::oneshot::channel();
        let working = tokio::spawn({
            let long = long.clone();
            async move {
                let work = move || {
                    began.send(()).unwrap();
                    held.recv().unwrap_err();
                };
                long.blocking(&user("me"), work).await
            }
        });
        has_begun.await.unwrap();
        working.abort();
        assert!(working.await.is_err());
        assert_eq!(long.free(), AT_ONCE - 1);
        drop(release);
        drop(acquired_all(&long).await);
    }

    async fn acquired_all(long: &Long) -> OwnedSemaphorePermit {
        let all = Arc::clone(&long.0.work.all).acquire_many_owned(AT_ONCE as u32);
        let limit = std::time::Duration::from_secs(20);
        tokio::time::timeout(limit, all).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn an_upload_is_ended_by_one_at_a_time_and_then_forgotten() {
        let long = Long::default();
        let (one, other): (StagedId, StagedId) =
            ("1".repeat(32).parse().unwrap(), "2".repeat(32).parse().unwrap());
        let first = long.ending(&one).await;
        let mut second = Box::pin(long.ending(&one));
        assert!((&mut second).now_or_never().is_none());
        assert!(long.ending(&other).now_or_never().is_some());
        drop(first);
        drop(second.await);
        drop(long.ending(&other).await);
        let known = long.0.ending.known.lock().unwrap();
        assert_eq!(known.len(), 1, "the one that was looked at last");
    }
}
