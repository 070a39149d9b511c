//! Logins that were checked a moment ago, so that the next request does not pay for it again.
//!
//! Kept by a digest under a key that dies with the process; the secret itself is not kept.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{Caller, secret};

/// Most logins remembered at once.
const MOST: usize = 4096;

type Key = [u8; 32];

pub(super) struct Remembered {
    key: Key,
    logins: Mutex<HashMap<Key, (Caller, Instant)>>,
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
    /// The place of a login. Parts are told apart by their lengths.
    pub fn key(&self, parts: &[&str]) -> Key {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    pub fn get(&self, key: &Key) -> Option<Caller> {
        let logins = self.logins.lock().expect("nothing panics while it is held");
        let (caller, until) = logins.get(key)?;
        (Instant::now() < *until).then(|| caller.clone())
    }

    pub fn put(&self, key: Key, caller: Caller, time: Duration) {
        let now = Instant::now();
        let mut logins = self.logins.lock().expect("nothing panics while it is held");
        if logins.len() >= MOST {
            logins.retain(|_, (_, until)| now < *until);
        }
        if logins.len() < MOST {
            logins.insert(key, (caller, now + time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        Caller {
            user: "me".parse().unwrap(),
            admin: false,
        }
    }

    #[test]
    fn a_login_is_remembered_until_its_time_is_over() {
        let remembered = Remembered::default();
        let key = remembered.key(&["basic", "me", "secret"]);
        assert_eq!(remembered.get(&key), None);
        remembered.put(key, caller(), Duration::from_secs(60));
        assert_eq!(remembered.get(&key), Some(caller()));
        remembered.put(key, caller(), Duration::ZERO);
        assert_eq!(remembered.get(&key), None);
    }

    #[test]
    fn parts_cannot_be_shifted_into_each_other() {
        let remembered = Remembered::default();
        assert_ne!(remembered.key(&["ab", "c"]), remembered.key(&["a", "bc"]));
    }

    #[test]
    fn a_flood_of_logins_does_not_grow_without_bound() {
        let remembered = Remembered::default();
        for login in 0..2 * MOST {
            let key = remembered.key(&[&login.to_string()]);
            remembered.put(key, caller(), Duration::from_secs(60));
        }
        assert_eq!(remembered.logins.lock().unwrap().len(), MOST);
    }
}
