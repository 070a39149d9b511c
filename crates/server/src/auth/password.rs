//! Password hashing and verification with argon2id, on a few blocking threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Argon2, PasswordHash};
use tokio::sync::Semaphore;

use crate::config::Credential;

/// Concurrent hashes. Each takes 19 MiB and a core.
const AT_ONCE: usize = 2;

/// A hash that matches no password, so that an unknown user takes as long as a known one.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Hashes a password for the configuration file.
pub fn hash_password(password: &str) -> Result<String, argon2::password_hash::Error> {
    Ok(Argon2::default().hash_password(password.as_bytes())?.to_string())
}

/// Verifies passwords, a few at a time.
pub(super) struct Passwords {
    permits: Arc<Semaphore>,
    hashes: AtomicU64,
}

impl Default for Passwords {
    fn default() -> Self {
        Passwords {
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            hashes: AtomicU64::new(0),
        }
    }
}

impl Passwords {
    /// Whether the password is right. Unknown users and plain-text credentials take as long as hashed ones, so that the time does
    /// not reveal which users exist.
    pub async fn verify(&self, credential: Option<&Credential>, password: &str) -> bool {
        let hash = match credential {
            Some(Credential::Hash(hash)) => hash.as_str(),
            Some(Credential::Plain(_)) | None => NOBODY,
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
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            verify_hash(&hash, &password)
        });
        work.await.unwrap_or(false)
    }

    pub fn hashes(&self) -> u64 {
        self.hashes.load(Ordering::Relaxed)
    }
}

fn verify_hash(hash: &str, password: &str) -> bool {
    let Ok(parsed) = PasswordHash::new(hash) else {
        return false;
    };
    Argon2::default()
        .verify_password(password.as_bytes(), &parsed)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_fits_its_password_and_no_other() {
        let hash = hash_password("a secret").unwrap();
        assert!(hash.starts_with("$argon2id$"), "{hash}");
        assert!(verify_hash(&hash, "a secret"));
        assert!(!verify_hash(&hash, "another"));
    }

    #[test]
    fn nobodys_hash_is_a_real_one_that_nothing_fits() {
        assert!(PasswordHash::new(NOBODY).is_ok());
        assert!(!verify_hash(NOBODY, ""));
    }
}
