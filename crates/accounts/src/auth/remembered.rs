//! A cache of recently checked logins, so that the next request does not pay for the check again.
//!
//! Entries are found by a digest under a key that exists only in this process; the secret itself is not stored.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::session::TokenInUse;
use super::{Login, secret};

/// Limit on cached logins.
const MOST: usize = 4096;

type Key = [u8; 32];

struct Remember {
    login: Login,
    /// The version of the accounts at the time of the check; after a change, the login is checked again.
    version: u64,
    until: Instant,
}

pub(super) struct Remembered {
    key: Key,
    logins: Mutex<HashMap<Key, Remember>>,
}

impl Default for Remembered {
    fn default() -> Self {
        Remembered {
            key: secret::random(),
            logins: Mutex::default(),
        }
    }
}

impl Remembered {
    /// The key of a login. Each part is prefixed with its length.
    pub fn key(&self, parts: &[&str]) -> Key {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    pub fn get(&self, key: &Key, version: u64) -> Option<Login> {
        let logins = self.logins.lock().expect("nothing panics while it is held");
        let login = logins.get(key)?;
        let session = &login.login.session;
        let revoked = session.token.as_ref().is_some_and(TokenInUse::is_revoked);
        // The clock may have been set forward, or the machine suspended: `Instant` does not show that.
        let ended = revoked || session.has_expired();
        let holds = login.version == version && Instant::now() < login.until && !ended;
        holds.then(|| login.login.clone())
    }

    pub fn put(&self, key: Key, version: u64, login: Login, time: Duration) {
        let now = Instant::now();
        let mut logins = self.logins.lock().expect("nothing panics while it is held");
        if logins.len() >= MOST {
            logins.retain(|_, login| now < login.until);
        }
        if logins.len() < MOST {
            let until = now + time;
            logins.insert(
                key,
                Remember {
                    login,
                    version,
                    until,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use paddlecloud_core::access::Scopes;

    use super::super::{Caller, Session};

    use super::*;

    fn login() -> Login {
        Login {
            caller: Caller {
                user: "me".parse().unwrap(),
                scopes: Scopes::user(),
            },
            session: Session::of_user("me".parse().unwrap()),
        }
    }

    #[test]
    fn a_login_is_cached_until_it_expires() {
        let remembered = Remembered::default();
        let key = remembered.key(&["basic", "me", "secret"]);
        assert_eq!(remembered.get(&key, 0), None);
        remembered.put(key, 0, login(), Duration::from_secs(60));
        assert_eq!(remembered.get(&key, 0), Some(login()));
        assert_eq!(remembered.get(&key, 1), None, "an account changed");
        remembered.put(key, 0, login(), Duration::ZERO);
        assert_eq!(remembered.get(&key, 0), None);
    }

    #[test]
    fn a_cached_token_expires_by_the_clock_of_the_system() {
        let remembered = Remembered::default();
        let key = remembered.key(&["token", "secret"]);
        let now = jiff::Timestamp::now().as_second();
        for (expires, holds) in [(now + 3600, true), (now - 1, false)] {
            let mut token = login();
            token.session.expires = Some(expires);
            remembered.put(key, 0, token, Duration::from_secs(60));
            assert_eq!(remembered.get(&key, 0).is_some(), holds);
        }
    }

    #[test]
    fn keys_depend_on_where_their_parts_are_split() {
        let remembered = Remembered::default();
        assert_ne!(remembered.key(&["ab", "c"]), remembered.key(&["a", "bc"]));
    }

    #[test]
    fn a_flood_of_logins_does_not_grow_without_bound() {
        let remembered = Remembered::default();
        for number in 0..2 * MOST {
            let key = remembered.key(&[&number.to_string()]);
            remembered.put(key, 0, login(), Duration::from_secs(60));
        }
        assert_eq!(remembered.logins.lock().unwrap().len(), MOST);
    }
}
