//! Logins with the configured OpenID Connect provider: which account a subject has, and whether it may be renewed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paddlecloud_api::device_login::{DeviceLogin, DeviceLoginState};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::names::UserName;

use super::{App, internal, store_failed};
use crate::accounts::AccountError;
use crate::auth::{AuthError, Login, Peer, request_id};
use crate::error_chain::chain_of;
use crate::locks::Key;
use crate::oidc::{Identity, LoginId, Oidc, OidcError, Polled, TooManyLogins};
use crate::refusals::Limit;
use crate::secrets::Kind;
use crate::store::AuditEntry;
use crate::users::{Account, ProviderUser, Record};

/// The longest wait for the next poll within one request.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
impl App {
    /// Starts a login: the provider makes a code that the user confirms there.
    pub async fn device_login(&self, peer: &Peer) -> Result<DeviceLogin, ErrorBody> {
        let oidc = self.provider()?;
        let busy = |error: TooManyLogins| {
            self.metrics.refusals.count(Limit::PendingLogins);
            ErrorBody::new(ErrorName::TooManyRequests, error.to_string())
                .with_hint("try again in some minutes")
        };
        oidc.pending.check(peer.address).map_err(busy)?;
        let code = oidc.device_code().await.map_err(provider_failed)?;
        let id = oidc.pending.add(&code, peer.address).map_err(busy)?;
        Ok(DeviceLogin {
            id: id.as_str().to_owned(),
            issuer: oidc.config.issuer.clone(),
            verification_uri: code.verification_uri,
            verification_uri_complete: code.verification_uri_complete,
            user_code: code.user_code,
            expires_in: code.expires_in,
        })
    }

    /// Asks the provider, as soon as it may be asked, whether the user has confirmed.
    pub async fn device_login_poll(
        self: &Arc<Self>,
        peer: &Peer,
        id: &str,
    ) -> Result<DeviceLoginState, ErrorBody> {
        // The provider hands out its tokens once: a client that disconnects must not lose them half way.
        let (app, peer, id) = (Arc::clone(self), peer.clone(), LoginId::new(id));
        App::carry_out(async move { app.poll(&peer, &id).await }).await
    }

    async fn poll(&self, peer: &Peer, id: &LoginId) -> Result<DeviceLoginState, ErrorBody> {
        let oidc = self.provider()?;
        let login = oidc.pending.find(id).ok_or_else(expired)?;
        let mut turn = login.turn.lock().await;
        let until = turn.next.min(Instant::now() + LONGEST_WAIT);
        tokio::select! {
            () = tokio::time::sleep_until(until.into()) => {}
            () = self.stop.cancelled() => return Ok(waiting("the server is stopping")),
        }
        if oidc.pending.find(id).is_none() {
            return Err(expired());
        }
        if turn.next > Instant::now() {
            return Ok(waiting("the login has not been confirmed yet"));
        }
        turn.next = Instant::now() + turn.interval;
        match oidc.poll(&login.device_code, turn.interval).await {
            Ok(Polled::Waiting(interval)) => {
                turn.interval = interval;
                turn.next = Instant::now() + interval;
                Ok(waiting("the login has not been confirmed yet"))
            }
            Err(error @ OidcError::Unreachable { .. }) => Ok(waiting(&error.to_string())),
            ended => {
                oidc.pending.remove(id);
                match ended.map_err(provider_failed)? {
                    Polled::LoggedIn(identity) => self.provider_login(oidc, peer, &identity).await,
                    Polled::Denied => {
                        let problem = "the login was denied at the login provider";
                        Err(ErrorBody::new(ErrorName::Unauthorized, problem))
                    }
                    _ => Err(expired()),
                }
            }
        }
    }

    /// Issues a token to a user whom the provider has authenticated.
    async fn provider_login(
        &self,
        oidc: &Oidc,
        peer: &Peer,
        identity: &Identity,
    ) -> Result<DeviceLoginState, ErrorBody> {
        let logged_in = match self.provider_account(oidc, identity).await {
            Ok(account) => self.issue_to(oidc, peer, identity, &account).await,
            Err(refused) => Err(refused),
        };
        if let Err(refused) = &logged_in {
            let detail = format!("{}: {}", described(oidc, peer, identity), refused.msg);
            let entry = entry("", "login.refuse", "", detail);
            if let Err(error) = self.store.audit(entry).await {
                tracing::warn!(%error, "a refused login is not in the audit log");
            }
        }
        logged_in
    }

    async fn issue_to(
        &self,
        oidc: &Oidc,
        peer: &Peer,
        identity: &Identity,
        account: &Account,
    ) -> Result<DeviceLoginState, ErrorBody> {
        let name = &account.name;
        self.set_groups(name, identity).await;
        let detail = described(oidc, peer, identity);
        let entry = entry(name.as_str(), "login.provider", name.as_str(), detail);
        match &identity.refresh_token {
            Some(token) => self.keep_refresh_token(account, token, entry).await?,
            None => {
                tracing::warn!(user = %name, "the login provider sent no refresh token: logins cannot be renewed");
                self.forget_refresh_token(account, entry).await?;
            }
        }
        let issued = self.auth.token_create_for(peer, account).await;
        let issued = issued.map_err(|error| match error {
            AuthError::Store(error) => store_failed(error),
            _ => internal(),
        })?;
        Ok(DeviceLoginState {
            token: Some(issued.secret),
            user: Some(name.to_string()),
            waiting: None,
        })
    }

    /// The account of a subject. It is found by issuer and subject only; a name or an e-mail address proves nothing.
    async fn provider_account(&self, oidc: &Oidc, identity: &Identity) -> Result<Arc<Account>, ErrorBody> {
        let (config, subject) = (&oidc.config, identity.subject.as_str());
        if !is_allowed(oidc, identity) {
            let problem = format!("`{subject}` is in none of the groups that may log in here");
            return Err(ErrorBody::new(ErrorName::Forbidden, problem));
        }
        let known = self.accounts.find_provider_user(&config.issuer, subject).await;
        let record = match known {
            Some(record) => record,
            None => self.provider_account_add(oidc, identity).await?,
        };
        let account = self.auth.users().enabled(&record.name);
        // A user of the configuration may hide the account.
        account
            .filter(|account| account.id == record.id)
            .ok_or_else(|| ErrorBody::new(ErrorName::Forbidden, "this account is disabled"))
    }

    async fn provider_account_add(&self, oidc: &Oidc, identity: &Identity) -> Result<Record, ErrorBody> {
        let (config, subject) = (&oidc.config, identity.subject.as_str());
        let ask =
            format!("ask an administrator for `paddlectl admin user add NAME --oidc-subject {subject}`");
        let refused = |problem: String| ErrorBody::new(ErrorName::Forbidden, problem).with_hint(&ask);
        if !config.create_accounts {
            return Err(refused(format!(
                "`{subject}` of {} has no account here",
                config.issuer
            )));
        }
        let claim = &config.name_claim;
        let Some(name) = identity.name.as_deref() else {
            return Err(refused(format!(
                "the login provider does not vouch for the claim `{claim}`"
            )));
        };
        let name: UserName = name
            .parse()
            .map_err(|error| refused(format!("the claim `{claim}` is not a user name: {error}")))?;
        let detail = format!("first login of `{subject}` of {}", config.issuer);
        let entry = entry(name.as_str(), "user.add", name.as_str(), detail);
        let provider = ProviderUser::new(&config.issuer, subject);
        let fill = |record: &mut Record| {
            record.provider = Some(provider);
            Ok(())
        };
        match self.accounts.add(name.clone(), fill, entry).await {
            Ok(record) => Ok(record),
            Err(AccountError::Taken(_)) => Err(refused(format!(
                "the account `{name}` exists and does not belong to `{subject}` of {}",
                config.issuer
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the user the groups that the provider names and this server has.
    async fn set_groups(&self, name: &UserName, identity: &Identity) {
        let Some(named) = &identity.groups else { return };
        let (_, groups) = self.accounts.list().await;
        let own: Vec<String> = groups
            .into_iter()
            .map(|group| group.name)
            .filter(|group| named.contains(group))
            .collect();
        let before = self.accounts.find(name).await;
        if before.is_none_or(|record| record.groups == own) {
            return;
        }
        let detail = format!("groups from the login provider: {}", own.join(" "));
        let entry = entry(name.as_str(), "user.set", name.as_str(), detail);
        let set = |record: &mut Record| {
            record.groups = own;
            Ok(())
        };
        if let Err(error) = self.accounts.change(name, set, entry).await {
            tracing::warn!(user = %name, %error, "the groups of the login provider are not set");
        }
    }

    /// Asks the provider whether a login may be renewed. Nothing is asked for accounts that do not log in there.
    pub(super) async fn provider_renew(&self, login: &Login) -> Result<(), ErrorBody> {
        let name = &login.caller.user;
        let Some(account) = self.auth.users().enabled(name) else {
            return Ok(());
        };
        let Some(provider) = &account.provider else {
            return Ok(());
        };
        // A refresh token may be good for one use only.
        let _turn = self.locks.lock(Key::ProviderLogin(name.clone())).await;
        let again = |problem: &str| {
            ErrorBody::new(ErrorName::Unauthorized, problem).with_hint("log in again with `paddlectl login`")
        };
        let oidc = self
            .oidc
            .as_ref()
            .filter(|oidc| oidc.config.issuer == provider.issuer);
        let oidc = oidc.ok_or_else(|| again("the login provider of this account is no longer configured"))?;
        let kept = self
            .secrets
            .reveal(name, Kind::RefreshToken, &refresh_name(&account))
            .await;
        let kept = kept.map_err(super::secrets::refused)?;
        let kept = kept.ok_or_else(|| again("the login provider allows no renewal"))?;
        match oidc.refresh(&provider.subject, &kept).await {
            Ok(identity) if is_allowed(oidc, &identity) => {
                if let Some(fresh) = identity.refresh_token.as_ref().filter(|fresh| **fresh != kept) {
                    let entry = entry(
                        name.as_str(),
                        "login.renew",
                        name.as_str(),
                        "at the login provider".to_owned(),
                    );
                    self.keep_refresh_token(&account, fresh, entry).await?;
                }
                self.set_groups(name, &identity).await;
                Ok(())
            }
            Ok(_) | Err(OidcError::Ended) => {
                self.end_provider_login(&account).await?;
                Err(again(
                    "the login provider has ended this login; all tokens of it are revoked",
                ))
            }
            Err(error) => Err(provider_failed(error)),
        }
    }

    /// Ends all tokens and sessions of a user whom the provider no longer lets in.
    async fn end_provider_login(&self, account: &Account) -> Result<(), ErrorBody> {
        let name = &account.name;
        let detail = "the login provider has ended it".to_owned();
        let ended = entry(name.as_str(), "login.end", name.as_str(), detail.clone());
        let end = |record: &mut Record| {
            if let Some(provider) = &mut record.provider {
                provider.ended += 1;
            }
            Ok(())
        };
        self.accounts.change(name, end, ended).await?;
        let forgotten = entry(name.as_str(), "login.forget", name.as_str(), detail);
        self.forget_refresh_token(account, forgotten).await
    }

    async fn keep_refresh_token(
        &self,
        account: &Account,
        token: &str,
        entry: AuditEntry,
    ) -> Result<(), ErrorBody> {
        let name = refresh_name(account);
        let kept = self
            .secrets
            .set(&account.name, Kind::RefreshToken, &name, token, entry)
            .await;
        kept.map_err(super::secrets::refused)
    }

    async fn forget_refresh_token(&self, account: &Account, entry: AuditEntry) -> Result<(), ErrorBody> {
        let name = refresh_name(account);
        let removed = self
            .secrets
            .remove(&account.name, Kind::RefreshToken, &name, entry)
            .await;
        removed.map(drop).map_err(super::secrets::refused)
    }

    fn provider(&self) -> Result<&Oidc, ErrorBody> {
        self.oidc.as_ref().ok_or_else(|| {
            ErrorBody::new(ErrorName::NotFound, "this server has no login provider")
                .with_hint("log in with a password: `paddlectl login -username NAME`")
        })
    }
}

/// The name under which a refresh token is sealed. It is never used for another subject that gets the account later.
fn refresh_name(account: &Account) -> String {
    let user = account.provider.as_ref();
    let words = user.map_or([""; 2], |user| [user.issuer.as_str(), &user.subject]);
    blake3::hash(words.join("\0").as_bytes()).to_hex()[..32].to_owned()
}

fn is_allowed(oidc: &Oidc, identity: &Identity) -> bool {
    let allowed = &oidc.config.allowed_groups;
    let groups = identity.groups.as_deref().unwrap_or_default();
    allowed.is_empty() || groups.iter().any(|group| allowed.contains(group))
}

fn described(oidc: &Oidc, peer: &Peer, identity: &Identity) -> String {
    let from = peer
        .address
        .map_or_else(String::new, |address| format!(", from {address}"));
    format!("`{}` of {}{from}", identity.subject, oidc.config.issuer)
}

/// An entry of the audit log for a change that no logged-in caller makes.
fn entry(actor: &str, action: &str, subject: &str, detail: String) -> AuditEntry {
    AuditEntry {
        actor: actor.to_owned(),
        action: action.to_owned(),
        subject: subject.to_owned(),
        detail,
        request: request_id::current(),
    }
}

fn waiting(why: &str) -> DeviceLoginState {
    DeviceLoginState {
        waiting: Some(why.to_owned()),
        ..DeviceLoginState::default()
    }
}

fn expired() -> ErrorBody {
    ErrorBody::new(
        ErrorName::NotFound,
        "there is no such login, or its code has expired",
    )
    .with_hint("begin again with `paddlectl login`")
}

fn provider_failed(error: OidcError) -> ErrorBody {
    let hint = match &error {
        OidcError::Unreachable { .. } => "try again later; tokens stay valid until they expire",
        _ => "ask the server's administrator",
    };
    tracing::warn!(error = chain_of(&error), "a login with the provider failed");
    ErrorBody::new(ErrorName::Unavailable, error.to_string()).with_hint(hint)
}
