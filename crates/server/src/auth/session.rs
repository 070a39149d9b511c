//! What a caller proved, and when that ends: the token is revoked or expires, the password changes, the account is
//! disabled or deleted. Whatever runs for the caller ends with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use paddlecloud_core::names::UserName;
use tokio::sync::watch;

use super::{Authenticator, Caller};

/// A caller and what they proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub caller: Caller,
    pub session: Session,
}

/// What a login rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub user: UserName,
    /// The number of the account.
    pub account: u64,
    /// The fingerprint of the account's password.
    pub(super) credential: String,
    /// The token, if it is one.
    pub(super) token: Option<TokenInUse>,
    /// The digest of the certificate, if it is one of the server's own authority.
    pub(super) certificate: Option<String>,
    pub(super) expires: Option<Instant>,
    /// Unix seconds: nothing that is made with this login outlives it. `None`: a password, which ends with itself.
    pub(super) limit: Option<i64>,
}

impl Session {
    /// Whether it is a token of the user's.
    pub fn is_token(&self) -> bool {
        self.token.is_some()
    }
}

/// Tokens that are looked up or in use at this moment, to end what runs when one is revoked.
///
/// A token is noted before the database is asked for it, and revoked there before it is here: whoever found it valid has
/// a note that is marked.
pub(super) struct TokensInUse {
    notes: Mutex<HashMap<String, Weak<AtomicBool>>>,
    changes: watch::Sender<u64>,
}

/// Whether a token has been revoked since it was looked up. Two notes are equal if they are about the same lookup.
#[derive(Debug, Clone)]
pub(super) struct TokenInUse {
    pub digest: String,
    revoked: Arc<AtomicBool>,
}

impl PartialEq for TokenInUse {
    fn eq(&self, other: &TokenInUse) -> bool {
        Arc::ptr_eq(&self.revoked, &other.revoked)
    }
}

impl Eq for TokenInUse {}

impl TokenInUse {
    pub fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }
}

impl Default for TokensInUse {
    fn default() -> TokensInUse {
        TokensInUse {
            notes: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }
}

impl TokensInUse {
    /// Notes a token before it is looked up. What nobody uses any more is forgotten when the table would grow.
    pub fn note(&self, digest: String) -> TokenInUse {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = notes.get(&digest).and_then(Weak::upgrade);
        let revoked = known.unwrap_or_else(|| {
            if notes.len() == notes.capacity() {
                notes.retain(|_, note| note.strong_count() > 0);
            }
            let fresh = Arc::default();
            notes.insert(digest.clone(), Arc::downgrade(&fresh));
            fresh
        });
        TokenInUse { digest, revoked }
    }

    /// A token that is gone from the database ends wherever it is used.
    pub fn revoke(&self, digest: &str) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(note) = notes.remove(digest).and_then(|note| note.upgrade()) {
            note.store(true, Ordering::Release);
        }
        drop(notes);
        self.changes.send_modify(|version| *version += 1);
    }
}

impl Authenticator {
    /// Resolves when the session is not valid any longer.
    pub async fn ended(&self, session: &Session) {
        // Subscribed before the first look: nothing is missed.
        let mut accounts = self.users.changes();
        let mut revoked = self.in_use.changes.subscribe();
        while self.is_valid(session) {
            let expiry = async {
                match session.expires {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = accounts.changed() => if changed.is_err() { return std::future::pending().await },
                changed = revoked.changed() => if changed.is_err() { return std::future::pending().await },
                () = expiry => return,
            }
        }
    }

    fn is_valid(&self, session: &Session) -> bool {
        let revoked = session.token.as_ref().is_some_and(TokenInUse::is_revoked);
        let account = self.users.enabled(&session.user);
        !revoked
            && account.is_some_and(|account| {
                let certificate = session.certificate.as_deref();
                account.id == session.account
                    && self.fingerprint(&account) == session.credential
                    && certificate.is_none_or(|digest| account.certificate(digest).is_some())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_looked_a_token_up_before_it_was_revoked_is_told() {
        let tokens = TokensInUse::default();
        let (first, second) = (tokens.note("a".into()), tokens.note("a".into()));
        let other = tokens.note("b".into());
        tokens.revoke("a");
        assert!(first.is_revoked() && second.is_revoked() && !other.is_revoked());
        assert!(!tokens.note("a".into()).is_revoked(), "the database knows");
    }

    #[test]
    fn tokens_that_nobody_uses_are_forgotten() {
        let tokens = TokensInUse::default();
        let used = tokens.note("used".into());
        for number in 0..100_000 {
            drop(tokens.note(number.to_string()));
        }
        let notes = tokens.notes.lock().unwrap();
        assert!(notes.len() < 1000, "{}", notes.len());
        assert!(notes.contains_key(&used.digest));
    }
}
