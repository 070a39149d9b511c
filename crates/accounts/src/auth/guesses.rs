//! Slows down password guessing: counts wrong passwords by user and by address, and delays further attempts after a few.
//!
//! Guesses at one user from many addresses are counted too; then one attempt every few seconds is allowed, and the addresses take
//! turns: each has one place in a line, so that the one that asks most often is not the only one that is served. An address from
//! which the user has logged in before is exempt, and there guesses at other users do not delay this one. Only guesses at this
//! user from that same address do: who sits there cannot be told apart.
//!
//! The tables are bounded: a flood of names and addresses evicts the oldest entries. This module never sees passwords.

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
/// The time between two turns of addresses; short, because it may also delay the owner.
const BETWEEN_TURNS: Duration = Duration::from_secs(2);
/// How long an address may use its turn: a person has to type the password again.
const TURN: Duration = Duration::from_secs(60);
/// Limit on the line for one user, whose last one waits for a quarter of an hour.
const LONGEST_LINE: usize = 450;
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
            // Addresses take turns instead.
            Key::UserAnywhere(_) => Duration::ZERO,
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
    /// When it is the turn of an origin to try a password of a user.
    turns: Mutex<HashMap<(Origin, [u8; 16]), Instant>>,
}

impl Guesses {
    /// How long the next attempt has to wait; `None` if it may proceed.
    pub fn wait(&self, origin: Origin, user: &str, now: Instant) -> Option<Duration> {
        let is_known = self.is_known(origin, user);
        let counts = self.counts();
        let keys = keys(origin, user).into_iter();
        let concerns = |key: &Key| !(is_known && matches!(key, Key::AllUsersAt(_)));
        let waits = keys.filter(concerns).filter_map(|key| {
            let count = counts.get(&key)?;
            let until = count.latest + key.pause(count.wrong);
            until.checked_duration_since(now).filter(|wait| !wait.is_zero())
        });
        let wait = waits.max();
        let user_digest = digest(user);
        let guessed = counts.get(&Key::UserAnywhere(user_digest)).copied();
        drop(counts);
        let guessed = guessed.filter(|count| {
            count.wrong >= FREE_FROM_ANYWHERE && now.duration_since(count.latest) <= FORGIVEN
        });
        match guessed {
            Some(count) if wait.is_none() && !is_known => {
                self.wait_for_turn((origin, user_digest), count.latest, now)
            }
            _ => wait,
        }
    }

    /// How long it takes until it is this origin's turn, after the `latest` wrong password. The origin gets a place in the line if it
    /// has none; beyond the longest line, it gets none and may only try when nobody waits.
    fn wait_for_turn(&self, origin: (Origin, [u8; 16]), latest: Instant, now: Instant) -> Option<Duration> {
        let mut turns = self.turns();
        turns.retain(|_, at| now < *at + TURN);
        let at = turns.get(&origin).copied().unwrap_or_else(|| {
            let line = turns.iter().filter(|((_, user), _)| *user == origin.1);
            let (waiting, last) = line.fold((0, latest), |(waiting, last), (_, at)| {
                (waiting + 1, last.max(*at))
            });
            let at = now.max(last + BETWEEN_TURNS);
            if waiting < LONGEST_LINE && turns.len() < MOST {
                turns.insert(origin, at);
            }
            at
        });
        at.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    /// Whether this user has logged in from this origin before.
    pub fn is_known(&self, origin: Origin, user: &str) -> bool {
        self.known().contains_key(&(origin, digest(user)))
    }

    /// Counts a wrong password. Returns true when a burst begins, which is worth a line in the log.
    pub fn wrong(&self, origin: Origin, user: &str, now: Instant) -> bool {
        self.turns().remove(&(origin, digest(user)));
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
        self.turns().remove(&(origin, user));
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

    fn turns(&self) -> MutexGuard<'_, HashMap<(Origin, [u8; 16]), Instant>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
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
            guesses.wait(here, "eve", now).is_some(),
            "one right password opens no other account"
        );
    }

    /// As when a job guesses from the address of its machine, where others log in too.
    #[test]
    fn guesses_at_others_do_not_keep_a_user_out_at_a_known_address_and_those_at_the_user_stay_slow() {
        let (guesses, here, start) = (Guesses::default(), origin("127.0.0.1"), Instant::now());
        guesses.right(here, "ada", start);
        let (mut at_ada, mut logins) = (0, 0);
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            for user in 0..100 {
                let user = user.to_string();
                if guesses.wait(here, &user, now).is_none() {
                    guesses.wrong(here, &user, now);
                }
            }
            if guesses.wait(here, "ada", now).is_none() {
                logins += 1;
            }
        }
        assert_eq!(logins, 600, "ada is not the one who is guessed at");
        for second in 600..1200 {
            let now = start + Duration::from_secs(second);
            if guesses.wait(here, "ada", now).is_none() {
                at_ada += 1;
                guesses.wrong(here, "ada", now);
            }
        }
        assert!(at_ada <= FREE + 16, "{at_ada} guesses in ten minutes");
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
        let later = now + FORGIVEN + Duration::from_secs(1);
        assert_eq!(guesses.wait(elsewhere, "ada", later), None, "it starts over");
    }

    /// Forty addresses guess as fast as they may; the owner, at a new address, comes back when told, after them.
    #[test]
    fn while_many_addresses_guess_each_gets_a_turn() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        let attackers: Vec<Origin> = (0..40)
            .map(|number| Origin::of(Some(std::net::Ipv4Addr::from_bits(number).into())))
            .collect();
        let owner = origin("203.0.113.1");
        let (mut tries, mut told) = (0, Duration::ZERO);
        for step in 0..6000 {
            let passed = Duration::from_millis(100) * step;
            let now = start + passed;
            for from in &attackers {
                if guesses.wait(*from, "ada", now).is_none() {
                    tries += 1;
                    guesses.wrong(*from, "ada", now);
                }
            }
            if step < 100 || passed < told {
                continue;
            }
            match guesses.wait(owner, "ada", now) {
                Some(wait) => told = passed + wait,
                None => {
                    let most = FREE_FROM_ANYWHERE + 1 + u32::try_from(passed.as_secs() / 2).unwrap();
                    assert!(tries <= most, "{tries} guesses in {passed:?}");
                    guesses.right(owner, "ada", now);
                    return;
                }
            }
        }
        panic!("the owner could not try once, among {tries} guesses");
    }

    #[test]
    fn an_address_has_one_place_in_the_line_and_its_turn_passes() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for number in 0..FREE_FROM_ANYWHERE {
            let from = Origin::of(Some(std::net::Ipv4Addr::from_bits(number).into()));
            guesses.wrong(from, "ada", now);
        }
        let (first, second) = (origin("203.0.113.1"), origin("203.0.113.2"));
        for _ in 0..100 {
            assert_eq!(guesses.wait(first, "ada", now), Some(BETWEEN_TURNS));
        }
        assert_eq!(guesses.wait(second, "ada", now), Some(2 * BETWEEN_TURNS));
        let turn = now + 2 * BETWEEN_TURNS;
        assert_eq!(guesses.wait(second, "ada", turn), None);
        assert_eq!(guesses.wait(second, "ada", turn), None, "checked twice");
        guesses.wrong(second, "ada", turn);
        let missed = turn + TURN;
        assert_eq!(guesses.wait(first, "ada", missed), None, "nobody else waits");
        assert_eq!(guesses.wait(second, "ada", missed), Some(BETWEEN_TURNS));
    }

    #[test]
    fn a_line_does_not_grow_without_bound() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for user in ["ada", "bob"] {
            for number in 0..10_000 {
                let from = Origin::of(Some(std::net::Ipv4Addr::from_bits(number).into()));
                if guesses.wait(from, user, now).is_none() {
                    guesses.wrong(from, user, now);
                }
            }
        }
        assert_eq!(guesses.turns().len(), 2 * LONGEST_LINE);
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
