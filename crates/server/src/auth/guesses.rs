//! Wrong passwords are counted by user and by address, and after a few of them the next try has to wait.
//!
//! The table is bounded: a flood of names and addresses forgets the oldest, never grows. Passwords are not seen here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Wrong passwords of one user from one place that are nobody's business.
const FREE: u32 = 5;
/// The same for all users together: many people may share an address.
const FREE_FOR_ALL: u32 = 50;
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(60);
/// After this time without a wrong password everything is forgiven.
const FORGIVEN: Duration = Duration::from_secs(900);
/// Most users and places that are counted at once.
const MOST: usize = 4096;

/// Where tries come from: an address, the network of one for IPv6 (one person has many), or the machine itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place(Option<IpAddr>);

impl Place {
    pub fn of(address: Option<IpAddr>) -> Place {
        Place(address.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                IpAddr::V6(network.into())
            }
            plain => plain,
        }))
    }
}

/// What is counted: a user at a place, or everybody there. A user is kept as a digest, so that every entry is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    place: Place,
    user: Option<[u8; 16]>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    wrong: u32,
    latest: Instant,
}

/// The counts.
#[derive(Default)]
pub(super) struct Guesses {
    counts: Mutex<HashMap<Key, Count>>,
}

impl Guesses {
    /// How long the next try has to wait; `None` when it need not.
    pub fn wait(&self, place: Place, user: &str, now: Instant) -> Option<Duration> {
        let counts = self.counts();
        let waits = keys(place, user).into_iter().filter_map(|(key, free)| {
            let count = counts.get(&key)?;
            let until = count.latest + pause(count.wrong, free);
            until.checked_duration_since(now).filter(|wait| !wait.is_zero())
        });
        waits.max()
    }

    /// Counts a wrong password. True when a burst begins: that is worth a line in the log.
    pub fn wrong(&self, place: Place, user: &str, now: Instant) -> bool {
        let mut counts = self.counts();
        let mut begins = false;
        for (key, free) in keys(place, user) {
            make_room(&mut counts, now);
            let count = counts.entry(key).or_insert(Count {
                wrong: 0,
                latest: now,
            });
            if now.duration_since(count.latest) > FORGIVEN {
                count.wrong = 0;
            }
            count.wrong = count.wrong.saturating_add(1);
            count.latest = now;
            begins |= count.wrong == free;
        }
        begins
    }

    /// A right password forgives the wrong ones of this user here. Those of the place stay: somebody who has one account
    /// could otherwise guess at all others.
    pub fn right(&self, place: Place, user: &str) {
        let [(key, _), _] = keys(place, user);
        self.counts().remove(&key);
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Key, Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keys(place: Place, user: &str) -> [(Key, u32); 2] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(user.as_bytes()).as_bytes()[..16]);
    let of_user = Key {
        place,
        user: Some(digest),
    };
    [(of_user, FREE), (Key { place, user: None }, FREE_FOR_ALL)]
}

/// One second, then twice as long each time.
fn pause(wrong: u32, free: u32) -> Duration {
    match wrong.checked_sub(free) {
        None => Duration::ZERO,
        Some(more) => LONGEST.min(Duration::from_secs(1 << more.min(10))),
    }
}

fn make_room(counts: &mut HashMap<Key, Count>, now: Instant) {
    if counts.len() < MOST {
        return;
    }
    counts.retain(|_, count| now.duration_since(count.latest) <= FORGIVEN);
    while counts.len() >= MOST {
        let oldest = counts.iter().min_by_key(|(_, count)| count.latest);
        let Some(oldest) = oldest.map(|(key, _)| *key) else {
            return;
        };
        counts.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Place {
        Place::of(Some(text.parse().unwrap()))
    }

    #[test]
    fn after_a_few_wrong_passwords_each_try_waits_longer() {
        let (guesses, here, now) = (Guesses::default(), place("192.0.2.1"), Instant::now());
        let begins: Vec<bool> = (0..6).map(|_| guesses.wrong(here, "ada", now)).collect();
        assert_eq!(begins, [false, false, false, false, true, false], "told once");
        assert_eq!(guesses.wait(here, "ada", now), Some(Duration::from_secs(2)));
        assert_eq!(guesses.wait(here, "ada", now + Duration::from_secs(2)), None);
        for _ in 0..20 {
            guesses.wrong(here, "ada", now);
        }
        assert_eq!(guesses.wait(here, "ada", now), Some(LONGEST));
    }

    #[test]
    fn others_need_not_wait_until_a_place_has_guessed_at_many() {
        let (guesses, here, now) = (Guesses::default(), place("192.0.2.1"), Instant::now());
        for _ in 0..10 {
            guesses.wrong(here, "ada", now);
        }
        assert_eq!(guesses.wait(here, "bob", now), None);
        assert_eq!(guesses.wait(place("192.0.2.2"), "ada", now), None);
        for user in 0..100 {
            guesses.wrong(here, &user.to_string(), now);
        }
        assert!(guesses.wait(here, "bob", now).is_some());
        guesses.right(here, "bob");
        assert!(
            guesses.wait(here, "bob", now).is_some(),
            "one right password opens no other account"
        );
    }

    #[test]
    fn a_right_password_and_time_forgive() {
        let (guesses, here, now) = (Guesses::default(), place("2001:db8::1"), Instant::now());
        for _ in 0..10 {
            guesses.wrong(here, "ada", now);
        }
        assert!(
            guesses.wait(place("2001:db8::2"), "ada", now).is_some(),
            "the same network"
        );
        guesses.right(here, "ada");
        assert_eq!(guesses.wait(here, "ada", now), None);
        for _ in 0..10 {
            guesses.wrong(here, "ada", now);
        }
        let later = now + FORGIVEN + Duration::from_secs(1);
        guesses.wrong(here, "ada", later);
        assert_eq!(guesses.wait(here, "ada", later), None, "it begins anew");
    }

    #[test]
    fn a_flood_does_not_grow_without_bound() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for number in 0..u32::try_from(MOST).unwrap() {
            let address = std::net::Ipv4Addr::from_bits(number);
            guesses.wrong(Place::of(Some(address.into())), "ada", now);
        }
        assert!(guesses.counts().len() <= MOST);
    }
}
