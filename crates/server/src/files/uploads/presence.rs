//! Whether an upload is active: in a request, or between two.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paddlecloud_pfs::staging::StagedId;

use super::{Live, Uploads};

/// An active sender sends its next request within this time.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(10);

/// When the sender of an upload was last seen.
pub(super) struct Presence(Mutex<Seen>);

struct Seen {
    last: Instant,
    /// The last request was aborted: the sender may be gone.
    broke_off: bool,
}

impl Presence {
    pub(super) fn new() -> Presence {
        Presence(Mutex::new(Seen {
            last: Instant::now(),
            broke_off: false,
        }))
    }

    /// A request arrived.
    pub(super) fn comes(&self) {
        *self.lock() = Seen {
            last: Instant::now(),
            broke_off: false,
        };
    }

    /// The time since the sender was last seen.
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

/// A request that sends bytes to an upload. If it is dropped before `ends`, it was aborted.
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

    /// Everything arrived; the sender is still active.
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

/// Whether a request is in flight, or was within this time. Each request in flight holds a reference.
pub(super) fn is_used(live: &Arc<Live>, within: Duration) -> bool {
    Arc::strong_count(live) > 1 || live.presence.age() < within
}

/// Whether a request is in flight, or the sender seems to be between two.
fn is_busy(live: &Arc<Live>) -> bool {
    Arc::strong_count(live) > 1 || live.presence.is_between_requests()
}

impl Uploads {
    /// Whether a superseded upload still seems active. Such an upload is left to expire.
    pub(in crate::files) fn is_sent_to(&self, id: &StagedId) -> bool {
        self.lock().get(id).is_some_and(is_busy)
    }
}
