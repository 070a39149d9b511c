//! Password hashing and verification with argon2id, on a few blocking threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use argon2::password_hash::PasswordHasher;
use argon2::{Algorithm, Argon2, Params, PasswordHash, Version};
use tokio::sync::Semaphore;

use crate::users::Credential;

/// Concurrent hashes. Each takes 19 MiB and a core.
const AT_ONCE: usize = 2;

/// A hash that matches no password, so that an unknown user takes as long as a known one.
const PLACEHOLDER_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Hashes a password for the configuration file.
pub fn hash_password(password: &str) -> Result<String, argon2::password_hash::Error> {
    Ok(Argon2::default().hash_password(password.as_bytes())?.to_string())
}

/// Verifies passwords, a few at a time.
pub(super) struct Passwords {
    permits: Arc<Semaphore>,
    hashes: AtomicU64,
    /// How long the latest hash took, in microseconds.
    latest: Arc<AtomicU64>,
}

impl Default for Passwords {
    fn default() -> Self {
        Passwords {
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            hashes: AtomicU64::new(0),
            latest: Arc::default(),
        }
    }
}

impl Passwords {
    /// Whether the password is right. Unknown users and plain-text credentials take as long as hashed ones, so that the time does
    /// not reveal which users exist.
    pub async fn verify(&self, credential: Option<&Credential>, password: &str) -> bool {
        let hash = match credential {
            Some(Credential::Hash(hash)) => hash.as_str(),
            Some(Credential::Plain(_)) | None => PLACEHOLDER_HASH,
        };
        let fits_hash = self.verify_hash(hash, password).await;
        match credential {
            // Comparing digests takes constant time.
            Some(Credential::Plain(right)) => {
                blake3::hash(right.as_bytes()) == blake3::hash(password.as_bytes())
            }
            Some(Credential::Hash(_)) | None => fits_hash,
        }
    }

    async fn verify_hash(&self, hash: &str, password: &str) -> bool {
        let hash = hash.to_owned();
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let password = password.to_owned();
        self.hashes.fetch_add(1, Ordering::Relaxed);
        let latest = Arc::clone(&self.latest);
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let began = Instant::now();
            let fits = fits(&hash, &password).unwrap_or(false);
            let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            latest.store(took, Ordering::Relaxed);
            fits
        });
        work.await.unwrap_or(false)
    }

    /// How long this many hashes will take.
    pub fn time_for(&self, count: usize) -> Duration {
        let one = Duration::from_micros(self.latest.load(Ordering::Relaxed));
        let rounds = u32::try_from(count.div_ceil(AT_ONCE)).unwrap_or(u32::MAX);
        one.saturating_mul(rounds)
    }

    pub fn hashes(&self) -> u64 {
        self.hashes.load(Ordering::Relaxed)
    }
}

/// Whether the password has this hash; `None` if it is not a hash.
fn fits(hash: &str, password: &str) -> Option<bool> {
    let parsed = PasswordHash::new(hash).ok()?;
    let algorithm = Algorithm::try_from(parsed.algorithm.as_str()).ok()?;
    let version = parsed.version.map(Version::try_from).transpose().ok()?;
    let params = Params::try_from(&parsed).ok()?;
    let (salt, expected) = (parsed.salt?, parsed.hash?);
    let mut output = vec![0; expected.as_bytes().len()];
    let argon = Argon2::new(algorithm, version.unwrap_or_default(), params);
    let hashed = argon.hash_password_into(password.as_bytes(), &salt, &mut output);
    // Comparing digests takes constant time.
    let is_same = blake3::hash(&output) == blake3::hash(expected.as_bytes());
    hashed.ok().map(|()| is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_matches_its_password_and_no_other() {
        let hash = hash_password("a secret").unwrap();
        assert!(hash.starts_with("$argon2id$"), "{hash}");
        assert_eq!(fits(&hash, "a secret"), Some(true));
        assert_eq!(fits(&hash, "another"), Some(false));
        assert_eq!(fits("no hash", "a secret"), None);
    }

    #[test]
    fn the_placeholder_hash_is_valid_and_matches_no_password() {
        assert!(PasswordHash::new(PLACEHOLDER_HASH).is_ok());
        assert_eq!(fits(PLACEHOLDER_HASH, ""), Some(false));
    }
}
