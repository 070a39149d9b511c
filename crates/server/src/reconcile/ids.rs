//! Ids of new jobs: each greater than all before it, even if the clock is set back.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use paddlecloud_core::names::JobId;

use super::Clock;

/// Generates ids. Lists and "the latest run" sort by them.
pub struct Ids {
    latest: Mutex<Option<JobId>>,
    clock: Clock,
}

impl Ids {
    /// Continues after the latest id in the store.
    pub fn after(latest: Option<JobId>, clock: Clock) -> Ids {
        Ids {
            latest: Mutex::new(latest),
            clock,
        }
    }

    pub fn fresh(&self) -> JobId {
        self.next(self.clock.now(), random())
    }

    fn next(&self, now: Timestamp, random: u32) -> JobId {
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        let by_clock = JobId::new(millis, random);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let id = match latest.as_ref() {
            Some(latest) if *latest >= by_clock => latest.successor(),
            _ => by_clock,
        };
        *latest = Some(id.clone());
        id
    }
}

fn random() -> u32 {
    let mut random = [0u8; 4];
    // The id is not a secret: without randomness, the clock must suffice, and duplicates are refused.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    u32::from_le_bytes(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_ascend_when_the_clock_stands_still_or_goes_back() {
        let ids = Ids::after(None, Clock::machine());
        let at = |second| Timestamp::from_second(second).unwrap();
        let made = [
            ids.next(at(100), 5),
            ids.next(at(100), 4),
            ids.next(at(50), 9),
            ids.next(at(101), 0),
        ];
        assert!(made.is_sorted_by(|left, right| left < right), "{made:?}");
    }

    #[test]
    fn ids_of_a_restarted_server_continue_after_the_latest() {
        let latest = JobId::new(u64::MAX >> 24, 7);
        assert!(Ids::after(Some(latest.clone()), Clock::machine()).fresh() > latest);
    }
}
