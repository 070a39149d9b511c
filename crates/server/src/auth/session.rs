//! What a caller proved, and when that ends: the token is revoked or expires, the password changes, the account is
//! disabled or deleted. Whatever runs for the caller ends with it.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};
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
    /// The digest of the token, if it is one.
    pub(super) token: Option<String>,
    pub(super) expires: Option<Instant>,
}

impl Session {
    /// Whether it is a token of the user's.
    pub fn is_token(&self) -> bool {
        self.token.is_some()
    }
}

/// Tokens that were revoked since the server started. They are gone from the database; here they end what runs.
pub(super) struct Revoked {
    digests: RwLock<HashSet<String>>,
    changes: watch::Sender<u64>,
}

impl Default for Revoked {
    fn default() -> Revoked {
        Revoked {
            digests: RwLock::default(),
            changes: watch::Sender::new(0),
        }
    }
}

impl Revoked {
    pub fn contains(&self, digest: &str) -> bool {
        let digests = self.digests.read().unwrap_or_else(PoisonError::into_inner);
        digests.contains(digest)
    }

    pub fn add(&self, digest: String) {
        let mut digests = self.digests.write().unwrap_or_else(PoisonError::into_inner);
        digests.insert(digest);
        drop(digests);
        self.changes.send_modify(|version| *version += 1);
    }
}

impl Authenticator {
    /// Resolves when the session is not valid any longer.
    pub async fn ended(&self, session: &Session) {
        // Subscribed before the first look: nothing is missed.
        let mut accounts = self.users.changes();
        let mut revoked = self.revoked.changes.subscribe();
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
        let revoked = session
            .token
            .as_ref()
            .is_some_and(|token| self.revoked.contains(token));
        let account = self.users.enabled(&session.user);
        !revoked
            && account.is_some_and(|account| {
                account.id == session.account && self.fingerprint(&account) == session.credential
            })
    }
}
