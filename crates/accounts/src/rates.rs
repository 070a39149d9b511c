//! Limits the rate of requests: per user, and per address before a login.
//!
//! Each user and each address has a token bucket that holds [`BURST`] of requests. A bucket is one point in time, the moment at
//! which it is full again, so a request costs one lookup and no timer. Memory is bounded: buckets that were not used for a whole
//! generation are forgotten.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use paddlecloud_core::names::UserName;

use crate::connections::network;

/// A full bucket allows as many requests at once as otherwise in this time.
const BURST: Duration = Duration::from_secs(10);
/// The buckets of one generation; there are two.
const MOST: usize = 8192;

/// The most requests per second; `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// Of one user.
    pub per_user: Option<u32>,
    /// Of one address, for requests without a login and logins.
    pub before_login: Option<u32>,
}

impl RateLimits {
    pub const NONE: RateLimits = RateLimits {
        per_user: None,
        before_login: None,
    };
}

impl Default for RateLimits {
    fn default() -> Self {
        RateLimits {
            per_user: Some(2000),
            before_login: Some(100),
        }
    }
}

/// The rates of a server.
#[derive(Debug)]
pub struct Rates {
    per_user: Buckets<UserName>,
    before_login: Buckets<IpAddr>,
}

impl Default for Rates {
    fn default() -> Self {
        Rates::new(RateLimits::NONE)
    }
}

impl Rates {
    pub fn new(limits: RateLimits) -> Rates {
        Rates {
            per_user: Buckets::new(limits.per_user),
            before_login: Buckets::new(limits.before_login),
        }
    }

    /// Counts a request of this user. An error says when the next one is possible.
    pub fn of_user(&self, user: &UserName) -> Result<(), Duration> {
        self.per_user.take(user, Instant::now())
    }

    /// Counts a request without a login; `None` is this machine's own socket, which only the server's own user can reach.
    pub fn before_login(&self, address: Option<IpAddr>) -> Result<(), Duration> {
        match address {
            Some(address) => self.before_login.take(&network(address), Instant::now()),
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Buckets<K> {
    /// The time between two requests at the limit; `None`: no limit.
    interval: Option<Duration>,
    full_at: Mutex<Generations<K>>,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    fn new(per_second: Option<u32>) -> Buckets<K> {
        Buckets {
            interval: per_second.map(|rate| Duration::from_secs(1) / rate.max(1)),
            full_at: Mutex::default(),
        }
    }

    fn take(&self, key: &K, now: Instant) -> Result<(), Duration> {
        let Some(interval) = self.interval else {
            return Ok(());
        };
        let mut generations = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = generations.entry(key, now);
        let next = now.max(*full_at) + interval;
        // A bucket holds at least one request, however low the rate is.
        match (next - now).checked_sub(BURST.max(interval)) {
            Some(excess) if !excess.is_zero() => Err(excess),
            _ => {
                *full_at = next;
                Ok(())
            }
        }
    }
}

/// Recent buckets, and those before them. A bucket that is used moves to the recent ones.
#[derive(Debug)]
struct Generations<K> {
    recent: HashMap<K, Instant>,
    before: HashMap<K, Instant>,
}

impl<K> Default for Generations<K> {
    fn default() -> Self {
        Generations {
            recent: HashMap::new(),
            before: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq + Clone> Generations<K> {
    /// The bucket of this key; a full one if there is none.
    fn entry(&mut self, key: &K, now: Instant) -> &mut Instant {
        if !self.recent.contains_key(key) {
            let known = self.before.remove(key).unwrap_or(now);
            if self.recent.len() >= MOST {
                self.before = std::mem::take(&mut self.recent);
            }
            self.recent.insert(key.clone(), known);
        }
        self.recent.get_mut(key).expect("it was inserted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_counts() {
        let (buckets, now) = (Buckets::new(Some(100)), Instant::now());
        for _ in 0..1000 {
            buckets.take(&"ada", now).unwrap();
        }
        assert_eq!(buckets.take(&"ada", now), Err(Duration::from_millis(10)));
        assert_eq!(buckets.take(&"bob", now), Ok(()), "others have their own");
        let soon = now + Duration::from_millis(25);
        assert_eq!(buckets.take(&"ada", soon), Ok(()));
        assert_eq!(buckets.take(&"ada", soon), Ok(()));
        assert_eq!(buckets.take(&"ada", soon), Err(Duration::from_millis(5)));
        let later = now + Duration::from_secs(3600);
        let passed = (0..2000).filter(|_| buckets.take(&"ada", later).is_ok()).count();
        assert_eq!(passed, 1000, "a bucket does not get larger by waiting");
    }

    #[test]
    fn waiting_for_the_reported_time_is_enough() {
        let (buckets, mut now) = (Buckets::new(Some(7)), Instant::now());
        while buckets.take(&(), now).is_ok() {}
        for _ in 0..100 {
            now += buckets.take(&(), now).unwrap_err();
            assert_eq!(buckets.take(&(), now), Ok(()));
        }
    }

    #[test]
    fn a_flood_of_addresses_takes_bounded_memory_and_forgets_no_active_one() {
        let (buckets, now) = (Buckets::new(Some(1)), Instant::now());
        for _ in 0..10 {
            buckets.take(&u32::MAX, now).unwrap();
        }
        for number in 0..50_000_u32 {
            buckets.take(&number, now).unwrap();
            assert!(buckets.take(&u32::MAX, now).is_err(), "{number}");
        }
        let generations = buckets.full_at.lock().unwrap();
        assert!(generations.recent.len() + generations.before.len() <= 2 * MOST);
    }

    #[test]
    fn without_a_limit_nothing_is_kept() {
        let rates = Rates::default();
        let user = "ada".parse().unwrap();
        for _ in 0..100_000 {
            rates.of_user(&user).unwrap();
        }
        assert!(rates.per_user.full_at.lock().unwrap().recent.is_empty());
    }
}
