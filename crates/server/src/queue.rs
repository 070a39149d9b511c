//! The one queue in front of work that keeps a thread or much memory for long: a request has a class and a user, and
//! waits until both have a place. What is short, such as a look at a folder, never comes here.
//!
//! Who waits here has no thread. A lock ([`crate::locks`]) is taken before a turn; who has a turn at a thread waits for no
//! lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use paddlecloud_core::names::UserName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};

/// How often a waiting client hears something. Clients take a connection for dead that is silent for a minute.
pub const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// What a request keeps while it is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A thread, perhaps for hours: copies, digests, checks, commits to another store.
    Long,
    /// A thread for minutes at most: the ends of uploads, measuring, and what is bounded in each request. Who has sent all
    /// there is does not wait for copies.
    End,
    /// A thread to remove a tree: who makes room on a full disk waits for nobody who fills it, and nobody who has sent all
    /// there is waits for a million files to go.
    Removal,
    /// Memory for a package's long list of files, while it comes, is compared, or its package is sent.
    List,
}

/// How many of a class are at work at a time, and how many of these are one user's: who copies many large files does not
/// keep everybody else waiting.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub at_once: usize,
    pub of_one_user: usize,
}

const NO_LIMIT: usize = Semaphore::MAX_PERMITS;

/// The limits of all classes, in their order.
const LIMITS: [Limit; 4] = [
    Limit {
        at_once: 6,
        of_one_user: 4,
    },
    Limit {
        at_once: 4,
        of_one_user: 3,
    },
    Limit {
        at_once: 3,
        of_one_user: 2,
    },
    Limit {
        at_once: NO_LIMIT,
        of_one_user: 2,
    },
];

/// Threads that all classes may have together.
pub const THREADS: usize =
    Class::Long.limit().at_once + Class::End.limit().at_once + Class::Removal.limit().at_once;

impl Class {
    /// How many of it there may be.
    pub const fn limit(self) -> Limit {
        LIMITS[self as usize]
    }
}

/// The queue. Cheap to clone.
#[derive(Clone)]
pub struct Queue(Arc<Inner>);

struct Inner {
    all: [Arc<Semaphore>; LIMITS.len()],
    /// What nobody has or waits for is forgotten.
    users: Mutex<HashMap<(Class, UserName), Weak<Semaphore>>>,
}

/// A place in a class, as long as it lives.
#[derive(Debug)]
pub struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue(Arc::new(Inner {
            all: LIMITS.map(|limit| Arc::new(Semaphore::new(limit.at_once))),
            users: Mutex::default(),
        }))
    }
}

impl Queue {
    /// Waits for a turn of a user's, in the order in which they were asked for.
    pub async fn turn(&self, class: Class, user: &UserName) -> Turn {
        let own = self.of_user(class, user);
        Turn {
            _own: acquired(own).await,
            _all: acquired(Arc::clone(&self.0.all[class as usize])).await,
        }
    }

    /// Does something on a thread that may block when it is the user's turn. It is done to its end, also when nobody
    /// waits for it any more, and has its turn until then.
    pub async fn blocking<T: Send + 'static>(
        &self,
        class: Class,
        user: &UserName,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.turn(class, user).await.blocking(work).await
    }

    /// How many more of a class could be at work now.
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
        let fresh = Arc::new(Semaphore::new(class.limit().of_one_user));
        users.insert(key, Arc::downgrade(&fresh));
        fresh
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
    async fn one_users_long_lists_keep_nobody_else_waiting() {
        let queue = Queue::default();
        let turn = |name: &str| queue.turn(Class::List, &user(name)).now_or_never();
        let _mine = [turn("me").unwrap(), turn("me").unwrap()];
        assert!(turn("me").is_none());
        assert!((0..10).all(|number| turn(&format!("user{number}")).is_some()));
    }

    #[tokio::test]
    async fn who_has_no_turn_any_more_is_forgotten() {
        let queue = Queue::default();
        drop(queue.turn(Class::End, &user("me")).await);
        let _mine = queue.turn(Class::End, &user("you")).await;
        let known: Vec<_> = queue.0.users.lock().unwrap().keys().cloned().collect();
        assert_eq!(known, [(Class::End, user("you"))]);
    }

    #[tokio::test]
    async fn work_has_its_turn_to_its_end_also_when_nobody_waits_for_it() {
        let queue = Queue::default();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (began, has_begun) = tokio::sync::oneshot::channel();
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
        has_begun.await.unwrap();
        working.abort();
        assert!(working.await.is_err());
        let at_once = Class::Long.limit().at_once;
        assert_eq!(queue.free(Class::Long), at_once - 1);
        drop(release);
        let all = Arc::clone(&queue.0.all[Class::Long as usize]).acquire_many_owned(at_once as u32);
        let limit = Duration::from_secs(20);
        drop(tokio::time::timeout(limit, all).await.unwrap().unwrap());
    }
}
