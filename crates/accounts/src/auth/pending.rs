//! Limits the logins whose passwords wait to be checked: in total, and from one origin.
//!
//! A check takes a core and 19 MiB for a moment, so only a few run at a time. A flood of logins must neither fill the memory with
//! waiting ones nor keep users out: some places are reserved for origins from which the user has logged in before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::guesses::Origin;

/// Waiting logins in total.
const MOST: usize = 64;
/// Those that are left to users at their known origins.
const RESERVED: usize = 16;
/// Waiting logins of one origin: many people may share one.
const MOST_OF_ONE: usize = 16;

/// The logins that wait.
#[derive(Debug, Default)]
pub(super) struct Pending(Mutex<HashMap<Origin, usize>>);

impl Pending {
    /// Registers a login. Returns the number of waiting ones if there are too many.
    pub fn begin(self: &Arc<Self>, origin: Origin, is_known: bool) -> Result<WaitingLogin, usize> {
        let mut logins = self.logins();
        let all: usize = logins.values().sum();
        let own = logins.get(&origin).copied().unwrap_or(0);
        let most = if is_known { MOST } else { MOST - RESERVED };
        if all >= most || own >= MOST_OF_ONE {
            return Err(own.max(1));
        }
        *logins.entry(origin).or_default() += 1;
        Ok(WaitingLogin {
            pending: Arc::clone(self),
            origin,
        })
    }

    fn logins(&self) -> MutexGuard<'_, HashMap<Origin, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A login that waits, counted until this is dropped.
#[derive(Debug)]
pub(super) struct WaitingLogin {
    pending: Arc<Pending>,
    origin: Origin,
}

impl Drop for WaitingLogin {
    fn drop(&mut self) {
        let mut logins = self.pending.logins();
        if let Some(count) = logins.get_mut(&self.origin) {
            *count -= 1;
            if *count == 0 {
                logins.remove(&self.origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(number: u8) -> Origin {
        Origin::of(Some(std::net::Ipv4Addr::new(192, 0, 2, number).into()))
    }

    #[test]
    fn a_flood_of_logins_is_bounded_and_leaves_places_to_known_users() {
        let pending = Arc::new(Pending::default());
        let flood = |number| -> Vec<WaitingLogin> {
            (0..100)
                .map_while(|_| pending.begin(origin(number), false).ok())
                .collect()
        };
        let held: Vec<Vec<WaitingLogin>> = (0..10).map(flood).collect();
        let lengths: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(lengths[..4], [16, 16, 16, 0]);
        assert!(pending.begin(origin(200), false).is_err());
        assert!(
            pending.begin(origin(200), true).is_ok(),
            "the owner at a known address"
        );
        drop(held);
        assert!(pending.logins().is_empty(), "nothing is kept");
    }
}
