//! Whether somebody is at an upload: in a request, or between two.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paddlecloud_pfs::staging::StagedId;

use super::{Live, Uploads};

/// Whoever is sending asks again sooner than this.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(10);

/// When the sender of an upload was last there.
pub(super) struct Presence(Mutex<Seen>);

struct Seen {
    last: Instant,
    /// A request ended before its time, and none came after it: the sender may be gone.
    broke_off: bool,
}

impl Presence {
    pub(super) fn new() -> Presence {
        Presence(Mutex::new(Seen {
            last: Instant::now(),
            broke_off: false,
        }))
    }

    /// A request came.
    pub(super) fn comes(&self) {
        *self.lock() = Seen {
            last: Instant::now(),
            broke_off: false,
        };
    }

    /// How long nobody was there.
    pub(super) fn age(&self) -> Duration {
        self.lock().last.elapsed()
    }

    fn is_between_requests(&self) -> bool {
        let seen = self.lock();
        !seen.broke_off && seen.last.elapsed() < BETWEEN_REQUESTS
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that brings bytes to an upload. Where it is dropped before it ends, its sender broke off.
pub(super) struct Visit {
    live: Arc<Live>,
    has_ended: bool,
}

impl Visit {
    pub(super) fn to(live: Arc<Live>) -> Visit {
        Visit {
            live,
            has_ended: false,
        }
    }

    /// Everything came; the sender is still there.
    pub(super) fn ends(&mut self) {
        self.has_ended = true;
        self.live.presence.lock().last = Instant::now();
    }
}

impl Deref for Visit {
    type Target = Live;

    fn deref(&self) -> &Live {
        &self.live
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if !self.has_ended {
            self.live.presence.lock().broke_off = true;
        }
    }
}

/// Whether somebody works at it, or did within that time. Each request that is under way holds it.
pub(super) fn is_used(live: &Arc<Live>, within: Duration) -> bool {
    Arc::strong_count(live) > 1 || live.presence.age() < within
}

/// Whether somebody sends to it, or seems to be between two requests.
fn is_busy(live: &Arc<Live>) -> bool {
    Arc::strong_count(live) > 1 || live.presence.is_between_requests()
}

impl Uploads {
    /// Whether somebody sends to an upload that another one made pointless. Such a one is left to expire.
    pub(in crate::files) fn is_sent_to(&self, id: &StagedId) -> bool {
        self.lock().get(id).is_some_and(is_busy)
    }
}
