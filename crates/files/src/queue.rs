//! The one queue for work that occupies a thread or much memory for long. A request has a class and a user, and waits until both
//! have a free slot. Short work, such as listing a folder, does not use it.
//!
//! A waiting request holds no thread. Locks ([`crate::locks`]) are taken before a turn; a request with a turn at a thread never
//! waits for a lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use paddlecloud_core::names::UserName;
use paddlecloud_core::quantity::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};

/// How often a waiting client receives a byte. Clients treat a connection as dead after a minute of silence.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The resource that a request occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A thread, perhaps for hours: copies, digests, checks, commits to another store.
    Long,
    /// A thread for minutes at most: the ends of uploads, measurements, and other bounded work. A client that has sent everything
    /// does not wait for copies.
    End,
    /// A thread to remove a tree. A user who frees space on a full disk does not wait for writers, and the end of an upload does
    /// not wait for a million removals.
    Removal,
    /// Memory for a package's long manifest, while it is received or compared, and for a range of the original's protocol.
    List,
    /// Memory for another large body, while its request is answered.
    Body,
}

/// How many requests of a class run at a time, and how many of one user: a user who copies many large files does not block all
/// others.
#[derive(Debug, Clone, Copy)]
pub struct ClassLimit {
    pub at_once: usize,
    pub of_one_user: usize,
}

const NO_LIMIT: usize = Semaphore::MAX_PERMITS;

const fn limit(at_once: usize, of_one_user: usize) -> ClassLimit {
    ClassLimit { at_once, of_one_user }
}

/// The limits of all classes, in their order.
const LIMITS: [ClassLimit; 5] = [
    limit(6, 4),
    limit(4, 3),
    limit(3, 2),
    limit(NO_LIMIT, 2),
    limit(64, 32),
];

/// The memory for one request of the classes that take memory; half of these requests may be one user's.
const MEMORY: u64 = 128 << 20;

/// The limits for a machine with this much memory.
fn limits_for(memory: Bytes) -> [ClassLimit; LIMITS.len()] {
    let fits = usize::try_from(memory.as_u64() / MEMORY)
        .unwrap_or(NO_LIMIT)
        .max(2);
    let mut limits = LIMITS;
    for class in [Class::List, Class::Body] {
        let limit = &mut limits[class as usize];
        limit.at_once = limit.at_once.min(fits);
        limit.of_one_user = limit.of_one_user.min(fits / 2);
    }
    limits
}

/// The most threads that all classes use together.
pub const THREADS: usize =
    Class::Long.limit().at_once + Class::End.limit().at_once + Class::Removal.limit().at_once;

impl Class {
    /// The limits of this class.
    pub const fn limit(self) -> ClassLimit {
        LIMITS[self as usize]
    }
}

/// The queue. Cheap to clone.
#[derive(Clone)]
pub struct Queue(Arc<Inner>);

struct Inner {
    limits: [ClassLimit; LIMITS.len()],
    all: [Arc<Semaphore>; LIMITS.len()],
    /// Unused entries are dropped.
    users: Mutex<HashMap<(Class, UserName), Weak<Semaphore>>>,
}

/// A slot in a class, while this value lives.
#[derive(Debug)]
pub struct Turn {
    _memory: Option<MuchMemory>,
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// Much memory, freed before this value is dropped. The memory that a large request has freed is between smaller blocks
/// that are still in use, and glibc keeps it; so it is returned to the system here.
#[derive(Debug)]
pub struct MuchMemory;

impl Drop for MuchMemory {
    fn drop(&mut self) {
        #[cfg(target_env = "gnu")]
        // SAFETY: the allocator takes its own locks.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::with(LIMITS)
    }
}

impl Queue {
    /// With limits for a machine with this much memory.
    pub fn for_memory(memory: Bytes) -> Queue {
        Queue::with(limits_for(memory))
    }

    fn with(limits: [ClassLimit; LIMITS.len()]) -> Queue {
        Queue(Arc::new(Inner {
            limits,
            all: limits.map(|limit| Arc::new(Semaphore::new(limit.at_once))),
            users: Mutex::default(),
        }))
    }

    /// Waits for a turn, in the order of requests.
    pub async fn turn(&self, class: Class, user: &UserName) -> Turn {
        let own = self.of_user(class, user);
        Turn {
            _own: acquired(own).await,
            _all: acquired(Arc::clone(&self.0.all[class as usize])).await,
            // `then_some(MuchMemory)` would create one for every class, and drop it.
            _memory: match class {
                Class::List => Some(MuchMemory),
                _ => None,
            },
        }
    }

    /// Runs `work` on a thread that may block, at the user's turn. The work always runs to its end, even if the caller is gone,
    /// and keeps its turn until then.
    pub async fn blocking<T: Send + 'static>(
        &self,
        class: Class,
        user: &UserName,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.turn(class, user).await.blocking(work).await
    }

    /// The number of free slots of a class.
    pub fn free(&self, class: Class) -> usize {
        self.0.all[class as usize].available_permits()
    }

    fn of_user(&self, class: Class, user: &UserName) -> Arc<Semaphore> {
        let mut users = self.0.users.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (class, user.clone());
        if let Some(there) = users.get(&key).and_then(Weak::upgrade) {
            return there;
        }
        users.retain(|_, other| other.strong_count() > 0);
        let fresh = Arc::new(Semaphore::new(self.0.limits[class as usize].of_one_user));
        users.insert(key, Arc::downgrade(&fresh));
        fresh
    }
}

impl Turn {
    /// Runs `work` on a thread that may block, and releases the turn at its end.
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

async fn acquired(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("nobody closes it")
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn user(name: &str) -> UserName {
        name.parse().unwrap()
    }

    #[test]
    fn a_small_machine_reads_few_large_bodies_at_a_time() {
        let limit = |mib, class: Class| {
            let limit = limits_for(Bytes::mib(mib))[class as usize];
            (limit.at_once, limit.of_one_user)
        };
        assert_eq!(limit(64, Class::Body), (2, 1));
        assert_eq!(limit(256, Class::Body), (2, 1));
        assert_eq!(limit(256, Class::List), (2, 1));
        assert_eq!(limit(1 << 20, Class::Body), (64, 32));
        assert_eq!(limit(1 << 20, Class::List).1, 2);
        assert_eq!(limit(256, Class::Long), (6, 4), "threads are few already");
    }

    #[tokio::test]
    async fn one_user_leaves_turns_to_others() {
        let queue = Queue::default();
        let (me, you) = (user("me"), user("you"));
        let turn = |user| queue.turn(Class::Long, user).now_or_never();
        let limit = Class::Long.limit();
        let mine: Vec<Turn> = (0..limit.of_one_user).map(|_| turn(&me).unwrap()).collect();
        assert!(turn(&me).is_none(), "these are all of one user's");
        let theirs: Vec<Turn> = (limit.of_one_user..limit.at_once)
            .map(|_| turn(&you).unwrap())
            .collect();
        assert_eq!(queue.free(Class::Long), 0);
        assert!(turn(&you).is_none(), "these are all");
        let end = queue.turn(Class::End, &you).now_or_never();
        assert!(end.is_some(), "what is sent can be ended");
        drop(mine);
        assert!(turn(&me).is_some());
        drop(theirs);
        assert_eq!(queue.free(Class::Long), limit.at_once);
    }

    #[tokio::test]
    async fn one_users_long_lists_do_not_make_others_wait() {
        let queue = Queue::default();
        let turn = |name: &str| queue.turn(Class::List, &user(name)).now_or_never();
        let _mine = [turn("me").unwrap(), turn("me").unwrap()];
        assert!(turn("me").is_none());
        assert!((0..10).all(|number| turn(&format!("user{number}")).is_some()));
    }

    #[tokio::test]
    async fn users_without_a_turn_are_forgotten() {
        let queue = Queue::default();
        drop(queue.turn(Class::End, &user("me")).await);
        let _mine = queue.turn(Class::End, &user("you")).await;
        let known: Vec<_> = queue.0.users.lock().unwrap().keys().cloned().collect();
        assert_eq!(known, [(Class::End, user("you"))]);
    }

    #[tokio::test]
    async fn work_keeps_its_turn_after_its_caller_is_gone() {
        let queue = Queue::default();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (began, has_started) = tokio::sync::oneshot::channel();
        let working = tokio::spawn({
            let queue = queue.clone();
            async move {
                let work = move || {
                    began.send(()).unwrap();
                    held.recv().unwrap_err();
                };
                queue.blocking(Class::Long, &user("me"), work).await
            }
        });
        has_started.await.unwrap();
        working.abort();
        assert!(working.await.is_err());
        let at_once = Class::Long.limit().at_once;
        assert_eq!(queue.free(Class::Long), at_once - 1);
        drop(release);
        let all = Arc::clone(&queue.0.all[Class::Long as usize]).acquire_many_owned(at_once as u32);
        let limit = Duration::from_secs(60);
        drop(tokio::time::timeout(limit, all).await.unwrap().unwrap());
    }
}
