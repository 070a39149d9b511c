//! Tokens: shown once, stored as digests, renewed by exchange, revoked immediately.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use paddlecloud_core::access::Scopes;
use paddlecloud_core::names::UserName;
use paddlecloud_store::{AuditEntry, Renewed, TokenRow};

use super::{AuthError, Authenticator, Login, Peer, TOKEN_PREFIX, digest, hex, request_id, secret};
use crate::refusals::Limit;
use crate::users::Account;

/// The name of tokens that logins create.
pub const LOGIN: &str = "login";

/// How long tokens are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenLimits {
    /// The lifetime of a token whose request does not specify one.
    pub lifetime: Duration,
    /// The time from a login to the expiry of its last renewed token; also the longest lifetime of one token.
    pub max_age: Duration,
    /// The most valid tokens of one account: those of logins, and the others.
    pub per_user: usize,
}

impl Default for TokenLimits {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        TokenLimits {
            lifetime: 30 * DAY,
            max_age: 365 * DAY,
            per_user: 1000,
        }
    }
}

/// A request for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedToken {
    pub name: String,
    /// The upper bound of its scopes.
    pub scopes: Scopes,
    /// Seconds; `None` for the default.
    pub lifetime: Option<i64>,
    /// The client's address, for the audit log.
    pub address: Option<IpAddr>,
}

/// What happens to a token that is exchanged for a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldToken {
    /// With the other tokens of its login.
    Revoked,
    /// It stays valid for up to [`OVERLAP`], for commands of the same user that are using it.
    Kept,
}

/// How long a kept token stays valid after its exchange, in seconds: longer than a transfer that does not read the new one, and
/// than a night after a command that did not get the reply.
const OVERLAP: i64 = 24 * 60 * 60;

/// The digests of tokens that end when a new one is stored.
#[derive(Default)]
struct Replaced {
    renewed: Vec<String>,
    oldest_logins: Vec<String>,
}

/// An issued token. The secret is shown only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub secret: String,
    pub row: TokenRow,
}

impl Authenticator {
    /// Issues a token for a password, with at most these scopes. It is stored when this returns.
    pub async fn token_create(
        &self,
        peer: &Peer,
        user: &str,
        password: &str,
        scopes: Scopes,
    ) -> Result<String, AuthError> {
        let account = match self.check_password(peer, user, password).await {
            Ok(account) => account,
            Err(error) => {
                if let AuthError::WrongPassword = error {
                    self.note_refused_login(peer, user).await;
                }
                return Err(error);
            }
        };
        let requested = RequestedToken {
            name: LOGIN.to_owned(),
            scopes: scopes.within(account.scopes),
            lifetime: None,
            address: peer.address,
        };
        let login = self.login_with(&account, account.scopes);
        let issued = self.token_issue(&account, &login, "login", requested).await?;
        Ok(issued.secret)
    }

    /// Records a refused login. An unknown name is omitted, because it may be a password typed into the wrong field.
    async fn note_refused_login(&self, peer: &Peer, user: &str) {
        let name: Option<UserName> = user.parse().ok();
        let known = name.and_then(|name| self.users.find(&name));
        let entry = AuditEntry {
            actor: known.map_or_else(String::new, |account| account.name.to_string()),
            action: "login.refuse".to_owned(),
            detail: from(peer.address),
            request: request_id::current(),
            ..AuditEntry::default()
        };
        if let Err(error) = self.store.audit(entry).await {
            tracing::warn!(%error, "a refused login is not in the audit log");
        }
    }

    /// Issues a token of this account to a logged-in caller. Like a renewed token, it does not outlive the caller's login.
    pub async fn token_issue(
        &self,
        account: &Account,
        login: &Login,
        action: &str,
        requested: RequestedToken,
    ) -> Result<NewToken, AuthError> {
        let now = Timestamp::now().as_second();
        let since = login
            .session
            .limit
            .map_or(now, |limit| now.min(limit - self.max_age()));
        // Otherwise tokens made with tokens would never ask the login provider again.
        let of_login = account.provider.as_ref().and(login.session.expires);
        let left = of_login.map_or(i64::MAX, |end| end - now);
        let most = (since + self.max_age() - now)
            .min(self.longest(account))
            .min(left);
        if most < 1 {
            return Err(AuthError::WrongToken);
        }
        let usual = seconds(self.token_limits.lifetime);
        let lifetime = requested.lifetime.unwrap_or(usual).clamp(1, most);
        let actor = &login.caller.user;
        let replaces = self.make_room(account, &requested.name, None).await?;
        self.store_token(
            account, actor, action, now, since, lifetime, requested, None, replaces,
        )
        .await
    }

    /// Checks the number of the account's tokens. Returns the tokens that a new one replaces: a login is never refused, it ends the
    /// oldest logins. `kept`, the digest of the token that is exchanged for it, does not count. Requests that run at the same time may
    /// exceed the number by one each.
    async fn make_room(
        &self,
        account: &Account,
        name: &str,
        kept: Option<&str>,
    ) -> Result<Replaced, AuthError> {
        let mut rows = self.token_list(account).await?;
        rows.retain(|row| (row.name == LOGIN) == (name == LOGIN) && Some(row.digest.as_str()) != kept);
        let most = self.token_limits.per_user;
        if name != LOGIN && rows.len() >= most {
            self.refusals.count(Limit::Tokens);
            let user = account.name.clone();
            return Err(AuthError::TooManyTokens { user, most });
        }
        // The latest are first.
        let oldest = rows.into_iter().skip(most - 1);
        Ok(Replaced {
            oldest_logins: oldest.map(|row| row.digest).collect(),
            ..Replaced::default()
        })
    }

    /// Issues a token to a user whom the login provider has authenticated.
    pub async fn token_create_for(&self, peer: &Peer, account: &Account) -> Result<NewToken, AuthError> {
        let requested = RequestedToken {
            name: LOGIN.to_owned(),
            scopes: account.scopes,
            lifetime: None,
            address: peer.address,
        };
        let login = self.login_with(account, account.scopes);
        self.token_issue(account, &login, "login", requested).await
    }

    /// The longest lifetime of one token of this account, in seconds. The login provider is asked at renewals, so tokens of its users
    /// are short.
    fn longest(&self, account: &Account) -> i64 {
        let provider = account.provider.as_ref().and(self.provider_lifetime);
        provider.map_or(i64::MAX, seconds)
    }

    /// The longest total lifetime of a token and its renewals, in seconds.
    pub(super) fn max_age(&self) -> i64 {
        seconds(self.token_limits.max_age)
    }

    /// Exchanges the session's token for a new one with the same name and scopes. The old one is revoked, or stays valid for a
    /// while. Returns `None` if the login did not use a token, or if its chain of renewals has reached the maximum age.
    pub async fn token_renew(
        &self,
        login: &Login,
        old_token: OldToken,
    ) -> Result<Option<NewToken>, AuthError> {
        let Some(old) = &login.session.token else {
            return Ok(None);
        };
        let row = self.store.token_find(&old.digest).await?;
        let row = row.ok_or(AuthError::WrongToken)?;
        let account = self
            .users
            .enabled(&login.caller.user)
            .ok_or(AuthError::WrongToken)?;
        let now = Timestamp::now().as_second();
        let left = row.since + self.max_age() - now;
        if left <= 0 {
            return Ok(None);
        }
        let lifetime = (row.expires - row.created).clamp(1, left.min(self.longest(&account)).max(1));
        let requested = RequestedToken {
            name: row.name.clone(),
            scopes: row.scopes().within(account.scopes),
            lifetime: None,
            address: None,
        };
        let actor = account.name.clone();
        let replaces = match old_token {
            OldToken::Revoked => {
                let chain = self.chain(&account, &row).await?;
                Replaced {
                    renewed: chain.into_iter().map(|row| row.digest).collect(),
                    ..Replaced::default()
                }
            }
            OldToken::Kept => self.make_room(&account, &row.name, Some(&old.digest)).await?,
        };
        let old = Renewed {
            digest: old.digest.clone(),
            expires: now + OVERLAP,
        };
        let new = self.store_token(
            &account,
            &actor,
            "token.renew",
            now,
            row.since,
            lifetime,
            requested,
            Some(old),
            replaces,
        );
        Ok(Some(new.await?))
    }

    #[expect(clippy::too_many_arguments, reason = "one row has this many columns")]
    async fn store_token(
        &self,
        account: &Account,
        actor: &UserName,
        action: &str,
        now: i64,
        since: i64,
        lifetime: i64,
        requested: RequestedToken,
        old: Option<Renewed>,
        replaces: Replaced,
    ) -> Result<NewToken, AuthError> {
        let mut more = requested
            .address
            .map_or_else(String::new, |_| format!(", {}", from(requested.address)));
        if !replaces.oldest_logins.is_empty() {
            more.push_str(&format!(
                ", ends the {} oldest logins",
                replaces.oldest_logins.len()
            ));
        }
        let token = format!("{TOKEN_PREFIX}{}", hex(&secret::random()));
        let id: String = hex(&secret::random()).chars().take(12).collect();
        let row = TokenRow {
            digest: digest(&token),
            id: id.clone(),
            name: requested.name,
            owner: account.name.to_string(),
            account: i64::try_from(account.id).unwrap_or(i64::MAX),
            credential: self.fingerprint(account),
            scopes: requested.scopes.to_string(),
            created: now,
            since,
            expires: now + lifetime,
        };
        let entry = AuditEntry {
            actor: actor.to_string(),
            action: action.to_owned(),
            subject: account.name.to_string(),
            detail: format!("token {id} `{}`, scopes {}{more}", row.name, row.scopes),
            request: request_id::current(),
        };
        let ended: Vec<String> = replaces
            .renewed
            .into_iter()
            .chain(replaces.oldest_logins)
            .collect();
        let (new, replaced) = (row.clone(), ended.clone());
        match old {
            None => self.store.token_save(new, now, replaced, entry).await?,
            Some(old) => {
                if !self.store.token_renew(new, now, old, replaced, entry).await? {
                    return Err(AuthError::WrongToken);
                }
            }
        }
        ended.iter().for_each(|digest| self.in_use.revoke(digest));
        Ok(NewToken { secret: token, row })
    }

    /// The valid tokens of a user, latest first.
    pub async fn token_list(&self, account: &Account) -> Result<Vec<TokenRow>, AuthError> {
        let now = Timestamp::now().as_second();
        let mut rows = self.store.tokens_of(&account.name).await?;
        let number = i64::try_from(account.id).unwrap_or(i64::MAX);
        let credential = self.fingerprint(account);
        rows.retain(|row| row.expires > now && row.account == number && row.credential == credential);
        Ok(rows)
    }

    /// Revokes a token by its id. Returns `false` if the user has no such token.
    pub async fn token_revoke(
        &self,
        account: &Account,
        actor: &UserName,
        id: &str,
    ) -> Result<bool, AuthError> {
        let rows = self.token_list(account).await?;
        match rows.into_iter().find(|row| row.id == id) {
            Some(row) => self.revoke(account, actor, row).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// The valid tokens of the login that this token comes from: those it was exchanged for or that were exchanged for
    /// it. A token that no login created has only itself.
    async fn chain(&self, account: &Account, of: &TokenRow) -> Result<Vec<TokenRow>, AuthError> {
        let is_first = |row: &TokenRow| row.created == row.since;
        let mut rows = self.token_list(account).await?;
        rows.retain(|row| {
            let is_renewal = row.name == LOGIN && of.name == LOGIN && row.since == of.since;
            // The first tokens of two logins in the same second differ.
            row.digest == of.digest || is_renewal && !(is_first(row) && is_first(of))
        });
        Ok(rows)
    }

    /// Revokes the token of a session, and those that it was exchanged for or with. Returns `false` if the login did not use a token.
    pub async fn token_revoke_own(&self, login: &Login) -> Result<bool, AuthError> {
        let Some(token) = &login.session.token else {
            return Ok(false);
        };
        let found = self.store.token_find(&token.digest).await?;
        let account = self.users.find(&login.caller.user);
        if let (Some(row), Some(account)) = (found, account) {
            // A token may be exchanged meanwhile; it cannot once it is revoked.
            loop {
                let rows = self.chain(&account, &row).await?;
                if rows.is_empty() {
                    break;
                }
                for row in rows {
                    self.revoke(&account, &login.caller.user, row).await?;
                }
            }
        }
        Ok(true)
    }

    async fn revoke(&self, account: &Account, actor: &UserName, row: TokenRow) -> Result<(), AuthError> {
        let entry = AuditEntry {
            actor: actor.to_string(),
            action: "token.revoke".to_owned(),
            subject: account.name.to_string(),
            detail: format!("token {} `{}`", row.id, row.name),
            request: request_id::current(),
        };
        self.store.token_remove(row.digest.clone(), entry).await?;
        self.in_use.revoke(&row.digest);
        Ok(())
    }
}

/// Where a login came from, in the words of the audit log.
fn from(address: Option<IpAddr>) -> String {
    address.map_or_else(String::new, |address| format!("from {address}"))
}

fn seconds(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_secs()).unwrap_or(i64::MAX)
}
