//! Sessions: what a login is based on, and when it ends. It ends when the token is revoked or expires, the password changes, or
//! the account is disabled or deleted. Work in progress for the caller ends with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use paddlecloud_core::names::UserName;
use tokio::sync::watch;

use super::{Authenticator, Caller};

/// How soon the end of a session is noticed if the clock was set forward or the machine was suspended: timers do not notice either.
const RECHECK: Duration = Duration::from_secs(10);

/// A caller and the session of the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub caller: Caller,
    pub session: Session,
}

/// What a login is based on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub user: UserName,
    /// The number of the account.
    pub account: u64,
    /// The fingerprint of the account's password.
    pub(super) credential: String,
    /// The token, if the login used one.
    pub(super) token: Option<TokenInUse>,
    /// The digest of the certificate, if the server's own authority issued it.
    pub(super) certificate: Option<String>,
    /// Unix seconds.
    pub(super) expires: Option<i64>,
    /// When a client should exchange the token: after half of its lifetime, if a new one would be valid for longer.
    pub(super) renew_from: Option<Instant>,
    /// Unix seconds: no token issued with this login outlives this. `None` if there is no limit, as for a password.
    pub(super) limit: Option<i64>,
}

impl Session {
    /// Whether the login used a token.
    pub fn is_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether the client should exchange its token for a new one. Not after this request has revoked it.
    pub fn is_due_for_renewal(&self) -> bool {
        let is_valid = self.token.as_ref().is_some_and(|token| !token.is_revoked());
        is_valid && self.renew_from.is_some_and(|from| from <= Instant::now())
    }

    /// Whether its token or certificate has expired, by the clock of the system.
    pub(super) fn has_expired(&self) -> bool {
        let now = Timestamp::now().as_second();
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// A session of this user that never ends.
    #[cfg(test)]
    pub(super) fn of_user(user: UserName) -> Session {
        Session {
            user,
            account: 0,
            credential: String::new(),
            token: None,
            certificate: None,
            expires: None,
            renew_from: None,
            limit: None,
        }
    }
}

/// Tokens that are being looked up or are in use, so that their sessions end on revocation.
///
/// A token is registered before the database lookup, and revoked in the database before it is revoked here. So a lookup that
/// still found it valid holds an entry that is marked as revoked.
pub(super) struct TokensInUse {
    flags: Mutex<HashMap<String, Weak<AtomicBool>>>,
    changes: watch::Sender<u64>,
}

/// Whether a token has been revoked since its lookup. Two values are equal if they come from the same lookup.
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
            flags: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }
}

impl TokensInUse {
    /// Registers a token before its lookup. Unused entries are evicted when the table would grow.
    pub fn register(&self, digest: String) -> TokenInUse {
        let mut flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        let known = flags.get(&digest).and_then(Weak::upgrade);
        let revoked = known.unwrap_or_else(|| {
            if flags.len() == flags.capacity() {
                flags.retain(|_, flag| flag.strong_count() > 0);
            }
            let fresh = Arc::default();
            flags.insert(digest.clone(), Arc::downgrade(&fresh));
            fresh
        });
        TokenInUse { digest, revoked }
    }

    /// Ends all sessions of a token that was removed from the database.
    pub fn revoke(&self, digest: &str) {
        let mut flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flag) = flags.remove(digest).and_then(|flag| flag.upgrade()) {
            flag.store(true, Ordering::Release);
        }
        drop(flags);
        self.changes.send_modify(|version| *version += 1);
    }
}

impl Authenticator {
    /// Resolves when the session is no longer valid.
    pub async fn ended(&self, session: &Session) {
        // Subscribe before the first check, so that no change is missed.
        let mut accounts = self.users.changes();
        let mut revoked = self.in_use.changes.subscribe();
        while self.is_valid(session) {
            let expiry = async {
                match session.expires {
                    Some(at) => tokio::time::sleep_until(recheck(at).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = accounts.changed() => if changed.is_err() { return std::future::pending().await },
                changed = revoked.changed() => if changed.is_err() { return std::future::pending().await },
                () = expiry => {}
            }
        }
    }

    fn is_valid(&self, session: &Session) -> bool {
        let revoked = session.token.as_ref().is_some_and(TokenInUse::is_revoked);
        let account = self.users.enabled(&session.user);
        !revoked
            && !session.has_expired()
            && account.is_some_and(|account| {
                let certificate = session.certificate.as_deref();
                account.id == session.account
                    && self.fingerprint(&account) == session.credential
                    && certificate.is_none_or(|digest| account.certificate(digest).is_some())
            })
    }
}

/// When to look at the clock again for something that ends at this moment, in Unix seconds.
fn recheck(end: i64) -> Instant {
    let left = end
        .saturating_mul(1000)
        .saturating_sub(Timestamp::now().as_millisecond());
    let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
    Instant::now() + left.min(RECHECK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lookups_before_the_revocation_are_notified() {
        let tokens = TokensInUse::default();
        let (first, second) = (tokens.register("a".into()), tokens.register("a".into()));
        let other = tokens.register("b".into());
        tokens.revoke("a");
        assert!(first.is_revoked() && second.is_revoked() && !other.is_revoked());
        assert!(!tokens.register("a".into()).is_revoked(), "the database knows");
    }

    #[test]
    fn unused_tokens_are_forgotten() {
        let tokens = TokensInUse::default();
        let used = tokens.register("used".into());
        for number in 0..100_000 {
            drop(tokens.register(number.to_string()));
        }
        let flags = tokens.flags.lock().unwrap();
        assert!(flags.len() < 1000, "{}", flags.len());
        assert!(flags.contains_key(&used.digest));
    }
}
