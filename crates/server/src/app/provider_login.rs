//! Logins with the configured OpenID Connect provider: which account a subject has, and whether it may be renewed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paddlecloud_accounts::AccountError;
use paddlecloud_accounts::auth::{AuthError, Login, Peer, request_id};
use paddlecloud_accounts::oidc::{Identity, LoginId, Oidc, OidcError, Polled, TooManyLogins};
use paddlecloud_accounts::refusals::Limit;
use paddlecloud_accounts::secrets::SecretKind;
use paddlecloud_accounts::users::Account;
use paddlecloud_api::device_login::{DeviceLogin, DeviceLoginState};
use paddlecloud_core::names::{NameError, UserName};
use paddlecloud_files::homes::StorageError;
use paddlecloud_files::locks::Key;
use paddlecloud_store::{AuditEntry, ProviderUser, Record};

use super::{App, AppError};

/// The longest wait for the next poll within one request.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Why a login with the login provider is refused, or not renewed.
#[derive(Debug, thiserror::Error)]
pub enum ProviderRefusal {
    #[error("this server has no login provider")]
    NotConfigured,
    #[error(transparent)]
    TooMany(#[from] TooManyLogins),
    #[error("there is no such login, or its code has expired")]
    Expired,
    #[error("the login was denied at the login provider")]
    Denied,
    #[error("`{0}` is in none of the groups that may log in here")]
    NotInGroup(String),
    #[error("this account is disabled")]
    Disabled,
    #[error("`{subject}` of {issuer} has no account here")]
    NoAccount { subject: String, issuer: String },
    #[error("the login provider has not verified the claim `{claim}`")]
    NoName { subject: String, claim: String },
    #[error("the claim `{claim}` is not a user name: {problem}")]
    BadName {
        subject: String,
        claim: String,
        problem: NameError,
    },
    #[error("the account `{name}` exists and does not belong to `{subject}` of {issuer}")]
    NameTaken {
        subject: String,
        issuer: String,
        name: UserName,
    },
    #[error("the login provider of this account is no longer configured")]
    OtherProvider,
    #[error("the login provider allows no renewal")]
    NoRenewal,
    #[error("the login provider has ended this login; all of its tokens are revoked")]
    Ended,
}

impl App {
    /// Starts a login: the provider issues a code that the user confirms there.
    pub async fn device_login(&self, peer: &Peer) -> Result<DeviceLogin, AppError> {
        let oidc = self.provider()?;
        let busy = |error: TooManyLogins| {
            self.metrics.refusals.count(Limit::PendingLogins);
            ProviderRefusal::from(error)
        };
        oidc.pending.check(peer.address).map_err(busy)?;
        let code = oidc.device_code().await?;
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
    ) -> Result<DeviceLoginState, AppError> {
        // The provider issues its tokens once: a client that disconnects must not lose them.
        let (app, peer, id) = (Arc::clone(self), peer.clone(), LoginId::new(id));
        App::carry_out(async move { app.poll(&peer, &id).await }).await
    }

    async fn poll(&self, peer: &Peer, id: &LoginId) -> Result<DeviceLoginState, AppError> {
        let oidc = self.provider()?;
        let login = oidc.pending.find(id).ok_or(ProviderRefusal::Expired)?;
        let mut turn = login.turn.lock().await;
        let until = turn.next.min(Instant::now() + LONGEST_WAIT);
        tokio::select! {
            () = tokio::time::sleep_until(until.into()) => {}
            () = self.stop.cancelled() => return Ok(waiting("the server is stopping")),
        }
        if oidc.pending.find(id).is_none() {
            return Err(ProviderRefusal::Expired.into());
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
                match ended? {
                    Polled::LoggedIn(identity) => self.provider_login(oidc, peer, &identity).await,
                    Polled::Denied => Err(ProviderRefusal::Denied.into()),
                    _ => Err(ProviderRefusal::Expired.into()),
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
    ) -> Result<DeviceLoginState, AppError> {
        let logged_in = match self.provider_account(oidc, identity).await {
            Ok(account) => self.issue_to(oidc, peer, identity, &account).await,
            Err(refused) => Err(refused),
        };
        if let Err(refused) = &logged_in {
            let detail = format!("{}: {refused}", described(oidc, peer, identity));
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
    ) -> Result<DeviceLoginState, AppError> {
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
            AuthError::Store(error) => AppError::Store(error),
            _ => AppError::Internal,
        })?;
        Ok(DeviceLoginState {
            token: Some(issued.secret),
            user: Some(name.to_string()),
            waiting: None,
        })
    }

    /// The account of a subject. It is found by issuer and subject only; a name or an e-mail address proves nothing.
    async fn provider_account(&self, oidc: &Oidc, identity: &Identity) -> Result<Arc<Account>, AppError> {
        let (config, subject) = (&oidc.config, identity.subject.as_str());
        if !is_allowed(oidc, identity) {
            return Err(ProviderRefusal::NotInGroup(subject.to_owned()).into());
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
            .ok_or(ProviderRefusal::Disabled.into())
    }

    async fn provider_account_add(&self, oidc: &Oidc, identity: &Identity) -> Result<Record, AppError> {
        let config = &oidc.config;
        let (subject, issuer) = (identity.subject.clone(), config.issuer.clone());
        if !config.create_accounts {
            return Err(ProviderRefusal::NoAccount { subject, issuer }.into());
        }
        let claim = config.name_claim.clone();
        let Some(name) = identity.name.as_deref() else {
            return Err(ProviderRefusal::NoName { subject, claim }.into());
        };
        let name: UserName = match name.parse() {
            Ok(name) => name,
            Err(problem) => {
                return Err(ProviderRefusal::BadName {
                    subject,
                    claim,
                    problem,
                }
                .into());
            }
        };
        let detail = format!("first login of `{subject}` of {issuer}");
        let entry = entry(name.as_str(), "user.add", name.as_str(), detail);
        let provider = ProviderUser::new(&issuer, &subject);
        let fill = |record: &mut Record| {
            record.provider = Some(provider);
            Ok(())
        };
        match self.accounts.add(name.clone(), fill, entry).await {
            Ok(record) => Ok(record),
            Err(AccountError::Taken(_)) => Err(ProviderRefusal::NameTaken {
                subject,
                issuer,
                name,
            }
            .into()),
            // The user must not see the path.
            Err(AccountError::Home(home)) => {
                tracing::error!(user = %name, problem = %home, command = home.command(), "an account cannot be created");
                Err(StorageError::Foreign(name).into())
            }
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
    pub(super) async fn provider_renew(&self, login: &Login) -> Result<(), AppError> {
        let name = &login.caller.user;
        let Some(account) = self.auth.users().enabled(name) else {
            return Ok(());
        };
        let Some(provider) = &account.provider else {
            return Ok(());
        };
        // A refresh token may be good for one use only.
        let _turn = self.locks.lock(Key::ProviderLogin(name.clone())).await;
        let oidc = self
            .oidc
            .as_ref()
            .filter(|oidc| oidc.config.issuer == provider.issuer);
        let oidc = oidc.ok_or(ProviderRefusal::OtherProvider)?;
        let kept = self
            .secrets
            .reveal(name, SecretKind::RefreshToken, &refresh_name(&account))
            .await?;
        let kept = kept.ok_or(ProviderRefusal::NoRenewal)?;
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
                Err(ProviderRefusal::Ended.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends all tokens and sessions of a user whom the provider no longer lets in.
    async fn end_provider_login(&self, account: &Account) -> Result<(), AppError> {
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
    ) -> Result<(), AppError> {
        let name = refresh_name(account);
        let kept = self
            .secrets
            .set(&account.name, SecretKind::RefreshToken, &name, token, entry);
        Ok(kept.await?)
    }

    async fn forget_refresh_token(&self, account: &Account, entry: AuditEntry) -> Result<(), AppError> {
        let name = refresh_name(account);
        let removed = self
            .secrets
            .remove(&account.name, SecretKind::RefreshToken, &name, entry);
        removed.await?;
        Ok(())
    }

    fn provider(&self) -> Result<&Oidc, ProviderRefusal> {
        self.oidc.as_ref().ok_or(ProviderRefusal::NotConfigured)
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
