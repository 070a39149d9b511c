//! Slows down password guessing: counts wrong passwords by user and by address, and delays further attempts after a few.
//!
//! Guesses at one user from many addresses are counted too; then one attempt every few seconds is allowed. An address from which
//! the user has logged in before is exempt from this count, so that others cannot lock the user out.
//!
//! The table is bounded: a flood of names and addresses evicts the oldest entries. This module never sees passwords.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Wrong passwords for one user from one address without a delay.
const FREE: u32 = 5;
/// The same for all users together: many people may share an address.
const FREE_FOR_ALL: u32 = 50;
/// The same for one user from all addresses together.
const FREE_FROM_ANYWHERE: u32 = 20;
/// The longest delay for one user from all addresses; short, because it may also delay the owner.
const LONGEST_FROM_ANYWHERE: Duration = Duration::from_secs(2);
/// The longest delay.
const LONGEST: Duration = Duration::from_secs(60);
/// Wrong passwords are forgotten after this time without another one.
const FORGIVEN: Duration = Duration::from_secs(900);
/// Limit on the entries of each table.
const MOST: usize = 4096;

/// The origin of attempts: an address, the /64 network of an IPv6 address (one person has many), or this machine's own socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Origin(Option<IpAddr>);

impl Origin {
    pub fn of(address: Option<IpAddr>) -> Origin {
        Origin(address.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                IpAddr::V6(network.into())
            }
            plain => plain,
        }))
    }
}

/// What is counted. A user is stored as a digest, so that every entry is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    UserAt(Origin, [u8; 16]),
    AllUsersAt(Origin),
    UserAnywhere([u8; 16]),
}

impl Key {
    /// The delay before the next attempt after this many wrong ones.
    fn pause(&self, wrong: u32) -> Duration {
        match self {
            Key::UserAt(..) => pause(wrong, FREE),
            Key::AllUsersAt(_) => pause(wrong, FREE_FOR_ALL),
            Key::UserAnywhere(_) => pause(wrong, FREE_FROM_ANYWHERE).min(LONGEST_FROM_ANYWHERE),
        }
    }

    fn free(&self) -> u32 {
        match self {
            Key::UserAt(..) => FREE,
            Key::AllUsersAt(_) => FREE_FOR_ALL,
            Key::UserAnywhere(_) => FREE_FROM_ANYWHERE,
        }
    }
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
    /// The origins of users' successful logins, and when.
    known: Mutex<HashMap<(Origin, [u8; 16]), Instant>>,
}

impl Guesses {
    /// How long the next attempt has to wait; `None` if it may proceed.
    pub fn wait(&self, origin: Origin, user: &str, now: Instant) -> Option<Duration> {
        let is_known = self.is_known(origin, user);
        let counts = self.counts();
        let keys = keys(origin, user).into_iter();
        let keys = keys.filter(|key| !(is_known && matches!(key, Key::UserAnywhere(_))));
        let waits = keys.filter_map(|key| {
            let count = counts.get(&key)?;
            let until = count.latest + key.pause(count.wrong);
            until.checked_duration_since(now).filter(|wait| !wait.is_zero())
        });
        waits.max()
    }

    /// Whether this user has logged in from this origin before.
    pub fn is_known(&self, origin: Origin, user: &str) -> bool {
        self.known().contains_key(&(origin, digest(user)))
    }

    /// Counts a wrong password. Returns true when a burst begins, which is worth a line in the log.
    pub fn wrong(&self, origin: Origin, user: &str, now: Instant) -> bool {
        let mut counts = self.counts();
        let mut begins = false;
        for key in keys(origin, user) {
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
            begins |= count.wrong == key.free();
        }
        begins
    }

    /// Forgets the wrong passwords of this user from this origin. Those of other users stay: otherwise the owner of one account
    /// could guess the passwords of all others.
    pub fn right(&self, origin: Origin, user: &str, now: Instant) {
        let user = digest(user);
        self.counts().remove(&Key::UserAt(origin, user));
        let mut known = self.known();
        if known.len() >= MOST
            && let Some(oldest) = known.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key)
        {
            known.remove(&oldest);
        }
        known.insert((origin, user), now);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(Origin, [u8; 16]), Instant>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Key, Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keys(origin: Origin, user: &str) -> [Key; 3] {
    let user = digest(user);
    [
        Key::UserAt(origin, user),
        Key::AllUsersAt(origin),
        Key::UserAnywhere(user),
    ]
}

fn digest(user: &str) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(user.as_bytes()).as_bytes()[..16]);
    digest
}

/// One second, doubled with each further wrong password.
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

    fn origin(text: &str) -> Origin {
        Origin::of(Some(text.parse().unwrap()))
    }

    #[test]
    fn after_a_few_wrong_passwords_each_try_waits_longer() {
        let (guesses, here, now) = (Guesses::default(), origin("192.0.2.1"), Instant::now());
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
    fn other_users_wait_only_after_an_address_has_guessed_at_many_accounts() {
        let (guesses, here, now) = (Guesses::default(), origin("192.0.2.1"), Instant::now());
        for _ in 0..10 {
            guesses.wrong(here, "ada", now);
        }
        assert_eq!(guesses.wait(here, "bob", now), None);
        assert_eq!(guesses.wait(origin("192.0.2.2"), "ada", now), None);
        for user in 0..100 {
            guesses.wrong(here, &user.to_string(), now);
        }
        assert!(guesses.wait(here, "bob", now).is_some());
        guesses.right(here, "bob", now);
        assert!(
            guesses.wait(here, "bob", now).is_some(),
            "one right password opens no other account"
        );
    }

    #[test]
    fn a_right_password_or_enough_time_resets_the_delay() {
        let (guesses, here, now) = (Guesses::default(), origin("2001:db8::1"), Instant::now());
        for _ in 0..10 {
            guesses.wrong(here, "ada", now);
        }
        assert!(
            guesses.wait(origin("2001:db8::2"), "ada", now).is_some(),
            "the same network"
        );
        guesses.right(here, "ada", now);
        assert_eq!(guesses.wait(here, "ada", now), None);
        for _ in 0..10 {
            guesses.wrong(here, "ada", now);
        }
        let later = now + FORGIVEN + Duration::from_secs(1);
        guesses.wrong(here, "ada", later);
        assert_eq!(guesses.wait(here, "ada", later), None, "it starts over");
    }

    #[test]
    fn guesses_at_one_user_from_many_addresses_wait_but_the_owners_address_does_not() {
        let (guesses, home, now) = (Guesses::default(), origin("198.51.100.1"), Instant::now());
        guesses.right(home, "ada", now);
        let mut let_through = 0;
        for number in 0..400 {
            let from = Origin::of(Some(std::net::Ipv4Addr::from_bits(number).into()));
            if guesses.wait(from, "ada", now).is_none() {
                let_through += 1;
                guesses.wrong(from, "ada", now);
            }
        }
        assert_eq!(let_through, FREE_FROM_ANYWHERE);
        let elsewhere = origin("203.0.113.1");
        assert!(guesses.wait(elsewhere, "ada", now).is_some());
        assert_eq!(guesses.wait(home, "ada", now), None, "the owner goes in");
        assert_eq!(guesses.wait(elsewhere, "bob", now), None, "others are not meant");
        assert_eq!(
            guesses.wait(elsewhere, "ada", now + LONGEST_FROM_ANYWHERE),
            None,
            "nobody waits long"
        );
    }

    #[test]
    fn a_flood_does_not_grow_without_bound() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for number in 0..u32::try_from(MOST).unwrap() {
            let address = std::net::Ipv4Addr::from_bits(number);
            guesses.wrong(Origin::of(Some(address.into())), "ada", now);
        }
        assert!(guesses.counts().len() <= MOST);
    }
}
