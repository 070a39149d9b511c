//! Who is calling: by token, by HTTP Basic, by client certificate, or by being the server's own system
//! user on its unix socket.
//!
//! What a caller may do is decided where it is done. No secret is printed or kept in plain form.

mod certificate;
mod guesses;
mod header;
mod password;
mod remembered;
mod secret;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::StoreError;

pub use certificate::common_name;
pub use password::hash_password;
pub use secret::{Secret, SecretError};

use crate::config::{Config, User};
use crate::store::{Store, TokenRow};
use guesses::{Guesses, Place};
use header::Proof;
use password::Passwords;
use remembered::Remembered;

/// How long a token opens the door.
const TOKEN_DAYS: i64 = 30;
/// How long a login that was checked is not checked again.
const REMEMBER: Duration = Duration::from_secs(60);
/// What a token begins with, so that people and scanners recognise a leaked one.
const TOKEN_PREFIX: &str = "pct_";

/// Somebody who has proved who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub user: UserName,
    pub admin: bool,
}

/// What the connection itself says about the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// The system user at the other end of a unix socket.
    pub uid: Option<u32>,
    /// The common name of a certificate that was verified.
    pub certificate: Option<String>,
    /// Where it comes from, unless that is this machine's own socket.
    pub address: Option<IpAddr>,
}

/// Why a caller is not let in.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("this needs a login")]
    Missing,
    #[error("the `Authorization` header cannot be understood")]
    Unreadable,
    #[error("the user name or the password is wrong")]
    WrongPassword,
    #[error("too many wrong passwords: the next try is possible in {}", seconds(*.0))]
    TooManyGuesses(Duration),
    #[error("the token is not valid, or not any more")]
    WrongToken,
    #[error("the certificate belongs to `{0}`, who is no user of this server")]
    UnknownCertificate(String),
    #[error("the login cannot be checked now")]
    Store(#[from] StoreError),
}

/// Checks logins.
pub struct Authenticator {
    users: HashMap<UserName, User>,
    socket_user: Option<UserName>,
    own_uid: u32,
    store: Store,
    secret: Secret,
    passwords: Passwords,
    remembered: Remembered,
    guesses: Guesses,
}

impl Authenticator {
    pub fn new(config: &Config, store: Store, secret: Secret) -> Authenticator {
        let users = config.users.iter().map(|user| (user.name.clone(), user.clone()));
        Authenticator {
            users: users.collect(),
            socket_user: config.socket_user.clone(),
            own_uid: rustix::process::geteuid().as_raw(),
            store,
            secret,
            passwords: Passwords::default(),
            remembered: Remembered::default(),
            guesses: Guesses::default(),
        }
    }

    /// Who is calling. What the request says counts more than what the connection says.
    pub async fn identify(&self, peer: &Peer, authorization: Option<&[u8]>) -> Result<Caller, AuthError> {
        if let Some(header) = authorization {
            return match Proof::parse(header).ok_or(AuthError::Unreadable)? {
                Proof::Token(token) => self.check_token(&token).await,
                Proof::Basic { user, password } => self.check_basic(peer, &user, &password).await,
            };
        }
        if let Some(name) = &peer.certificate {
            let user = name.parse().ok().and_then(|name| self.caller(&name));
            return user.ok_or_else(|| AuthError::UnknownCertificate(name.clone()));
        }
        let at_home = peer.uid == Some(self.own_uid);
        let user = self.socket_user.as_ref().filter(|_| at_home);
        user.and_then(|user| self.caller(user)).ok_or(AuthError::Missing)
    }

    /// Hands out a token for a password. It is stored before this returns.
    pub async fn token_create(&self, peer: &Peer, user: &str, password: &str) -> Result<String, AuthError> {
        let user = self.check_password(peer, user, password).await?;
        let token = format!("{TOKEN_PREFIX}{}", hex(&secret::random()));
        let now = Timestamp::now().as_second();
        let row = TokenRow {
            digest: digest(&token),
            owner: user.name.to_string(),
            credential: self.fingerprint(user),
            expires: now + TOKEN_DAYS * 24 * 60 * 60,
        };
        self.store.token_save(row, now).await?;
        Ok(token)
    }

    fn caller(&self, user: &UserName) -> Option<Caller> {
        let user = self.users.get(user)?;
        Some(Caller {
            user: user.name.clone(),
            admin: user.admin,
        })
    }

    async fn check_token(&self, token: &str) -> Result<Caller, AuthError> {
        let seen = self.remembered.key(&["token", token]);
        if let Some(caller) = self.remembered.get(&seen) {
            return Ok(caller);
        }
        let row = self
            .store
            .token_find(&digest(token))
            .await?
            .ok_or(AuthError::WrongToken)?;
        let left = row.expires - Timestamp::now().as_second();
        let user = row
            .user()
            .and_then(|name| self.users.get(&name))
            .ok_or(AuthError::WrongToken)?;
        if left <= 0 || !same(&row.credential, &self.fingerprint(user)) {
            return Err(AuthError::WrongToken);
        }
        let caller = self.caller(&user.name).ok_or(AuthError::WrongToken)?;
        let rest = Duration::from_secs(left.unsigned_abs());
        self.remembered.put(seen, caller.clone(), rest.min(REMEMBER));
        Ok(caller)
    }

    async fn check_basic(&self, peer: &Peer, user: &str, password: &str) -> Result<Caller, AuthError> {
        let seen = self.remembered.key(&["basic", user, password]);
        if let Some(caller) = self.remembered.get(&seen) {
            return Ok(caller);
        }
        let user = self.check_password(peer, user, password).await?;
        let caller = self.caller(&user.name).ok_or(AuthError::WrongPassword)?;
        self.remembered.put(seen, caller.clone(), REMEMBER);
        Ok(caller)
    }

    /// Takes as long for a user who is not there as for one who is, and longer for whoever guesses.
    async fn check_password(&self, peer: &Peer, name: &str, password: &str) -> Result<&User, AuthError> {
        let place = Place::of(peer.address);
        if let Some(wait) = self.guesses.wait(place, name, Instant::now()) {
            return Err(AuthError::TooManyGuesses(wait));
        }
        let user = name.parse().ok().and_then(|name: UserName| self.users.get(&name));
        let credential = user.and_then(|user| user.credential.as_ref());
        let right = self.passwords.verify(credential, password).await;
        // Of many tries at once only a few may learn whether they were right.
        if let Some(wait) = self.guesses.wait(place, name, Instant::now()) {
            return Err(AuthError::TooManyGuesses(wait));
        }
        match user.filter(|_| right) {
            Some(user) => {
                self.guesses.right(place, name);
                Ok(user)
            }
            None => {
                if self.guesses.wrong(place, name, Instant::now()) {
                    // A name nobody has may be a password that was typed in the wrong place.
                    let user = user.map_or("nobody known", |user| user.name.as_str());
                    tracing::warn!(user, address = ?peer.address, "many wrong passwords; further tries have to wait");
                }
                Err(AuthError::WrongPassword)
            }
        }
    }

    /// Changes when the user's password changes, and tells nothing about it without the server's secret.
    fn fingerprint(&self, user: &User) -> String {
        let credential = user
            .credential
            .as_ref()
            .map_or(&[][..], |credential| credential.bytes());
        self.secret.keyed_digest(credential)
    }

    /// How often a password had to be hashed, for the benchmark and the tests.
    pub fn hashes(&self) -> u64 {
        self.passwords.hashes()
    }
}

/// Whole seconds, never none.
fn seconds(wait: Duration) -> String {
    match wait.as_secs_f64().ceil().max(1.0) {
        1.0 => "1 second".to_owned(),
        seconds => format!("{seconds} seconds"),
    }
}

/// A token has 256 random bits: a plain digest cannot be turned round.
fn digest(token: &str) -> String {
    blake3::hash(token.as_bytes()).to_hex().to_string()
}

fn hex(bytes: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*bytes).to_hex().to_string()
}

/// Compares digests in constant time.
fn same(left: &str, right: &str) -> bool {
    blake3::hash(left.as_bytes()) == blake3::hash(right.as_bytes())
}
