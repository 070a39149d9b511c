//! Authentication: by token, HTTP Basic, client certificate, or as the server's own system user on its unix socket.
//!
//! What a caller may do is decided in `policy`. No secret is printed or kept in plain text.

mod certificate;
mod guesses;
mod header;
mod password;
mod pending;
mod policy;
mod remembered;
pub mod request_id;
mod secret;
mod session;
mod tokens;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use paddlecloud_core::access::Scopes;
use paddlecloud_core::names::UserName;
use paddlecloud_core::ports::StoreError;
use paddlecloud_store::Store;

pub use certificate::ClientCertificate;
pub use password::hash_password;
pub use policy::{Action, allows};
pub use secret::{Secret, SecretError};
pub use session::{Login, Session};
pub use tokens::{LOGIN, NewToken, OldToken, RequestedToken, TokenLimits};

use crate::connections::Connection;
use crate::rates::{RateLimits, Rates};
use crate::refusals::{Limit, Refusals};
use crate::users::{Account, Users};
use guesses::{Guesses, Origin};
use header::Proof;
use password::Passwords;
use pending::Pending;
use remembered::Remembered;
use session::TokensInUse;

/// How long a checked login is cached.
const REMEMBER: Duration = Duration::from_secs(60);
/// The prefix of tokens, so that people and scanners recognise a leaked one.
const TOKEN_PREFIX: &str = "pct_";

/// An authenticated user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub user: UserName,
    /// What the credential grants.
    pub scopes: Scopes,
}

impl Caller {
    /// Whether the policy allows this action to the caller.
    pub fn may(&self, action: Action<'_>) -> bool {
        allows(self, action)
    }
}

/// What the connection itself proves about the caller.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// The system user at the other end of a unix socket.
    pub uid: Option<u32>,
    /// A verified client certificate.
    pub certificate: Option<ClientCertificate>,
    /// The remote address; `None` for this machine's own socket.
    pub address: Option<IpAddr>,
    /// The connection, which counts against its user's limit.
    pub connection: Option<Arc<Connection>>,
}

/// Why a caller is rejected.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("this needs a login")]
    Missing,
    #[error("the `Authorization` header is malformed")]
    Unreadable,
    #[error("the user name or the password is wrong")]
    WrongPassword,
    #[error("this account logs in with the login provider and has no password")]
    NoPassword,
    #[error("too many wrong passwords: try again in {}", seconds(*.0))]
    TooManyGuesses(Duration),
    #[error("too many logins are waiting: try again in {}", seconds(*.0))]
    TooManyLogins(Duration),
    #[error("too many requests: try again in {}", seconds(*.0))]
    TooManyRequests(Duration),
    #[error("`{0}` has too many connections")]
    TooManyConnections(UserName),
    #[error("`{user}` already has {most} tokens")]
    TooManyTokens { user: UserName, most: usize },
    #[error("the token is invalid, expired or revoked")]
    WrongToken,
    #[error("the certificate names `{0}`, which is not a user of this server")]
    UnknownCertificate(String),
    #[error("the certificate has been revoked")]
    RevokedCertificate,
    #[error("this access has been revoked")]
    Revoked,
    #[error("the login cannot be checked now")]
    Store(#[from] StoreError),
}

/// Checks logins.
pub struct Authenticator {
    users: Users,
    socket_user: Option<UserName>,
    own_uid: u32,
    store: Store,
    secret: Secret,
    passwords: Passwords,
    remembered: Remembered,
    guesses: Guesses,
    in_use: TokensInUse,
    token_limits: TokenLimits,
    rates: Rates,
    pending: Arc<Pending>,
    refusals: Arc<Refusals>,
    /// The longest lifetime of tokens of the login provider's users.
    provider_lifetime: Option<Duration>,
}

impl Authenticator {
    /// A caller on a unix socket that runs as the server's own system user is authenticated as `socket_user`.
    pub fn new(users: Users, socket_user: Option<UserName>, store: Store, secret: Secret) -> Authenticator {
        Authenticator {
            users,
            socket_user,
            own_uid: rustix::process::geteuid().as_raw(),
            store,
            secret,
            passwords: Passwords::default(),
            remembered: Remembered::default(),
            guesses: Guesses::default(),
            in_use: TokensInUse::default(),
            token_limits: TokenLimits::default(),
            rates: Rates::default(),
            pending: Arc::default(),
            refusals: Arc::default(),
            provider_lifetime: None,
        }
    }

    pub fn with_token_limits(mut self, limits: TokenLimits) -> Authenticator {
        self.token_limits = limits;
        self
    }

    /// Limits the rates of requests, and counts what the limits refuse.
    pub fn with_rates(mut self, rates: RateLimits, refusals: Arc<Refusals>) -> Authenticator {
        (self.rates, self.refusals) = (Rates::new(rates), refusals);
        self
    }

    pub fn with_provider_lifetime(mut self, lifetime: Option<Duration>) -> Authenticator {
        self.provider_lifetime = lifetime;
        self
    }

    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Authenticates the caller. Credentials in the request take precedence over those of the connection. By the session, the
    /// end of the login can be noticed.
    pub async fn log_in(&self, peer: &Peer, authorization: Option<&[u8]>) -> Result<Login, AuthError> {
        let known = self.known(peer, authorization);
        if known.is_none() {
            self.count_unauthenticated(peer)?;
        }
        let unchecked = peer.connection.as_ref().filter(|_| known.is_none());
        let _checking = unchecked.map(|connection| connection.check());
        let login = match known {
            Some(login) => login,
            None => self.recognise(peer, authorization).await?,
        };
        let user = &login.caller.user;
        if let Err(wait) = self.rates.of_user(user) {
            self.refusals.count(Limit::RequestsPerUser);
            return Err(AuthError::TooManyRequests(wait));
        }
        match &peer.connection {
            Some(connection) if !connection.is_for(user) => {
                self.refusals.count(Limit::ConnectionsPerUser);
                Err(AuthError::TooManyConnections(login.caller.user))
            }
            _ => Ok(login),
        }
    }

    /// Counts a request whose caller is not known yet against the rate of its address.
    pub fn count_unauthenticated(&self, peer: &Peer) -> Result<(), AuthError> {
        self.rates.before_login(peer.address).map_err(|wait| {
            self.refusals.count(Limit::RequestsBeforeLogin);
            AuthError::TooManyRequests(wait)
        })
    }

    /// The login if it takes no work: one that was checked before, a certificate, the server's own system user.
    fn known(&self, peer: &Peer, authorization: Option<&[u8]>) -> Option<Login> {
        let Some(header) = authorization else {
            return self.check_connection(peer).ok();
        };
        let seen = match Proof::parse(header)? {
            Proof::Token(token) => self.remembered.key(&["token", &token]),
            Proof::Basic { user, password } => self.remembered.key(&["basic", &user, &password]),
        };
        self.remembered.get(&seen, self.users.version())
    }

    async fn recognise(&self, peer: &Peer, authorization: Option<&[u8]>) -> Result<Login, AuthError> {
        let Some(header) = authorization else {
            return self.check_connection(peer);
        };
        match Proof::parse(header).ok_or(AuthError::Unreadable)? {
            Proof::Token(token) => self.check_token(&token).await,
            Proof::Basic { user, password } => self.check_basic(peer, &user, &password).await,
        }
    }

    fn check_connection(&self, peer: &Peer) -> Result<Login, AuthError> {
        if let Some(certificate) = &peer.certificate {
            return self.check_certificate(certificate);
        }
        let at_home = peer.uid == Some(self.own_uid);
        let user = self.socket_user.as_ref().filter(|_| at_home);
        user.and_then(|user| self.login_of(user))
            .ok_or(AuthError::Missing)
    }

    fn check_certificate(&self, shown: &ClientCertificate) -> Result<Login, AuthError> {
        let user = shown.name.parse().ok();
        let account = user.and_then(|user| self.users.enabled(&user));
        let account = account.ok_or_else(|| AuthError::UnknownCertificate(shown.name.clone()))?;
        let mut login = self.login_with(&account, account.scopes);
        if shown.configured {
            return Ok(login);
        }
        let own = account.certificate(&shown.digest);
        let own = own.ok_or(AuthError::RevokedCertificate)?;
        if own.expires <= Timestamp::now().as_second() {
            return Err(AuthError::RevokedCertificate);
        }
        login.session.certificate = Some(own.digest.clone());
        login.session.expires = Some(own.expires);
        login.session.limit = Some(own.expires);
        Ok(login)
    }

    /// The login of a user with all of the account's scopes.
    fn login_of(&self, user: &UserName) -> Option<Login> {
        let account = self.users.enabled(user)?;
        Some(self.login_with(&account, account.scopes))
    }

    fn login_with(&self, account: &Account, scopes: Scopes) -> Login {
        let caller = Caller {
            user: account.name.clone(),
            scopes,
        };
        let session = Session {
            user: account.name.clone(),
            account: account.id,
            credential: self.fingerprint(account),
            token: None,
            certificate: None,
            expires: None,
            renew_from: None,
            limit: None,
        };
        Login { caller, session }
    }

    async fn check_token(&self, token: &str) -> Result<Login, AuthError> {
        let seen = self.remembered.key(&["token", token]);
        let version = self.users.version();
        let note = self.in_use.register(digest(token));
        let row = self.store.token_find(&note.digest).await?;
        let row = row.ok_or(AuthError::WrongToken)?;
        let left = row.expires - Timestamp::now().as_second();
        let user = row
            .user()
            .and_then(|name| self.users.enabled(&name))
            .ok_or(AuthError::WrongToken)?;
        let is_its_account = i64::try_from(user.id) == Ok(row.account);
        if left <= 0 || !is_its_account || !same(&row.credential, &self.fingerprint(&user)) {
            return Err(AuthError::WrongToken);
        }
        let mut login = self.login_with(&user, row.scopes().within(user.scopes));
        let rest = Duration::from_secs(left.unsigned_abs());
        login.session.token = Some(note.clone());
        login.session.expires = Some(row.expires);
        let limit = row.since.saturating_add(self.max_age());
        login.session.limit = Some(limit);
        login.session.renew_from = (limit > row.expires).then(|| {
            let early = left.saturating_sub((row.expires - row.created) / 2).max(0);
            Instant::now() + Duration::from_secs(early.unsigned_abs())
        });
        self.remembered
            .put(seen, version, login.clone(), rest.min(REMEMBER));
        // The token may have been revoked during the lookup.
        match note.is_revoked() {
            true => Err(AuthError::WrongToken),
            false => Ok(login),
        }
    }

    async fn check_basic(&self, peer: &Peer, user: &str, password: &str) -> Result<Login, AuthError> {
        let seen = self.remembered.key(&["basic", user, password]);
        let version = self.users.version();
        let user = self.check_password(peer, user, password).await?;
        let login = self.login_of(&user.name).ok_or(AuthError::WrongPassword)?;
        self.remembered.put(seen, version, login.clone(), REMEMBER);
        Ok(login)
    }

    /// Checks the user's password; a wrong one counts as a guess.
    pub async fn password_check(
        &self,
        peer: &Peer,
        user: &UserName,
        password: &str,
    ) -> Result<(), AuthError> {
        if self
            .users
            .find(user)
            .is_some_and(|account| account.provider.is_some())
        {
            return Err(AuthError::NoPassword);
        }
        self.check_password(peer, user.as_str(), password).await.map(drop)
    }

    /// Takes equally long for unknown and known users, and longer for a client that guesses.
    async fn check_password(
        &self,
        peer: &Peer,
        name: &str,
        password: &str,
    ) -> Result<Arc<Account>, AuthError> {
        let origin = Origin::of(peer.address);
        // Names that differ only in case share their guesses.
        let name = &name.to_lowercase();
        self.await_guesses(origin, name)?;
        let is_known = self.guesses.is_known(origin, name);
        let _checking = peer.connection.as_ref().map(|connection| connection.check());
        let waiting = self.pending.begin(origin, is_known).map_err(|before| {
            self.refusals.count(Limit::PendingLogins);
            AuthError::TooManyLogins(self.passwords.time_for(before))
        })?;
        let user = name
            .parse()
            .ok()
            .and_then(|name: UserName| self.users.enabled(&name));
        let credential = user.as_ref().and_then(|user| user.credential.as_ref());
        let right = self.passwords.verify(credential, password).await;
        drop(waiting);
        // Of many concurrent tries, only a few may learn whether they were right.
        self.await_guesses(origin, name)?;
        match user {
            Some(user) if right => {
                self.guesses.right(origin, name, Instant::now());
                Ok(user)
            }
            user => {
                if self.guesses.wrong(origin, name, Instant::now()) {
                    // The name is not logged: an unknown name may be a password typed into the wrong field.
                    let user = user.as_ref().map_or("nobody known", |user| user.name.as_str());
                    tracing::warn!(user, address = ?peer.address, "many wrong passwords; further tries have to wait");
                }
                Err(AuthError::WrongPassword)
            }
        }
    }

    /// Refuses a try that comes too soon after wrong passwords.
    fn await_guesses(&self, origin: Origin, name: &str) -> Result<(), AuthError> {
        match self.guesses.wait(origin, name, Instant::now()) {
            None => Ok(()),
            Some(wait) => {
                self.refusals.count(Limit::WrongPasswords);
                Err(AuthError::TooManyGuesses(wait))
            }
        }
    }

    /// A fingerprint that changes with the user's password and reveals nothing about it without the server's secret.
    ///
    /// It also changes when another user of the login provider gets the account, and when the provider ends the login.
    fn fingerprint(&self, user: &Account) -> String {
        if let Some(provider) = &user.provider {
            let ended = provider.ended.to_string();
            let parts = ["provider", &provider.issuer, &provider.subject, &ended];
            return self.secret.keyed_digest(parts.join("\0").as_bytes());
        }
        let credential = user
            .credential
            .as_ref()
            .map_or(&[][..], |credential| credential.bytes());
        self.secret.keyed_digest(credential)
    }

    /// The key of the audit log's digests, derived from the server's secret.
    pub fn audit_key(secret: &Secret) -> [u8; 32] {
        secret.derive("paddlecloud audit log")
    }

    /// The number of password hashes computed so far, for the benchmark and the tests.
    pub fn hashes(&self) -> u64 {
        self.passwords.hashes()
    }
}

/// A random password: twenty letters and digits.
pub fn random_password() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let random = secret::random();
    random[..20]
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
        .collect()
}

/// Parses an `Authorization` header, for the fuzzer.
#[doc(hidden)]
pub fn parse_header(header: &[u8]) {
    let _ = Proof::parse(header);
}

/// Random bytes from the system.
pub(crate) fn random_bytes() -> [u8; 32] {
    secret::random()
}

/// The duration in whole seconds, at least 1.
fn seconds(wait: Duration) -> String {
    match wait.as_secs_f64().ceil().max(1.0) {
        1.0 => "1 second".to_owned(),
        seconds => format!("{seconds} seconds"),
    }
}

/// The digest of a token. A token has 256 random bits, so a plain digest cannot be reversed.
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
