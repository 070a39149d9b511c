//! Tokens and passwords of callers.

use std::sync::Arc;

use jiff::Timestamp;
use paddlecloud_accounts::auth::{Action, Caller, LOGIN, Login, NewToken, OldToken, RequestedToken};
use paddlecloud_accounts::users::Account;
use paddlecloud_api::admin::{NewTokenReply, NewTokenRequest, TokenView};
use paddlecloud_core::access::{Scopes, UnknownScope};
use paddlecloud_store::{Record, TokenRow};

use super::accounts::{audit, hashed, user_name};
use super::{AdminOnly, App, AppError, FieldRule, What};

/// Length limit of a token's name.
const MOST_NAME: usize = 100;

/// Why a token is not issued or renewed.
#[derive(Debug, thiserror::Error)]
pub enum TokenRefusal {
    #[error("`{LOGIN}` is reserved for tokens that logins create")]
    ReservedName,
    #[error("`scopes`: {0}")]
    Scopes(UnknownScope),
    #[error("a token cannot have more scopes than {0}")]
    TooManyScopes(Scopes),
    #[error("this login does not use a token, so there is nothing to renew")]
    NotAToken,
    #[error("the token has reached its maximum age and cannot be renewed")]
    TooOld,
}

impl App {
    pub async fn token_list(&self, caller: &Caller, user: Option<&str>) -> Result<Vec<TokenView>, AppError> {
        let account = self.account_for(caller, user)?;
        let rows = self.auth.token_list(&account).await?;
        Ok(rows.iter().map(view).collect())
    }

    /// Issues a token. It never grants more than the caller's login, and never for longer.
    pub async fn token_issue(
        &self,
        login: &Login,
        request: NewTokenRequest,
    ) -> Result<NewTokenReply, AppError> {
        let caller = &login.caller;
        let account = self.account_for(caller, request.user.as_deref())?;
        let name = request.name.trim();
        if name.is_empty() || name.chars().count() > MOST_NAME || name.chars().any(char::is_control) {
            return Err(AppError::BadField {
                field: "name",
                rule: FieldRule::Characters(MOST_NAME),
            });
        }
        if name == LOGIN {
            return Err(TokenRefusal::ReservedName.into());
        }
        let own = caller.scopes.within(account.scopes);
        let scopes = match request.scopes.as_deref() {
            None => own,
            Some(text) => text.parse::<Scopes>().map_err(TokenRefusal::Scopes)?,
        };
        if scopes.within(own) != scopes {
            return Err(TokenRefusal::TooManyScopes(own).into());
        }
        if request.lifetime_seconds.is_some_and(|seconds| seconds < 1) {
            return Err(AppError::BadField {
                field: "lifetime_seconds",
                rule: FieldRule::AtLeast(1),
            });
        }
        let requested = RequestedToken {
            name: name.to_owned(),
            scopes,
            lifetime: request.lifetime_seconds,
            address: None,
        };
        let issued = self.auth.token_issue(&account, login, "token.create", requested);
        Ok(reply(issued.await?))
    }

    pub async fn token_revoke(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        user: Option<&str>,
    ) -> Result<(), AppError> {
        let account = self.account_for(caller, user)?;
        let (app, actor, own) = (Arc::clone(self), caller.user.clone(), id.to_owned());
        let revoke = async move {
            let revoked = app.auth.token_revoke(&account, &actor, &own).await;
            Ok(revoked?)
        };
        match App::carry_out(revoke).await? {
            true => Ok(()),
            false => Err(AppError::NoSuch {
                what: What::Token,
                name: id.to_owned(),
            }),
        }
    }

    pub async fn token_renew(
        self: &Arc<Self>,
        login: &Login,
        old_token: OldToken,
    ) -> Result<NewTokenReply, AppError> {
        if !login.session.is_token() {
            return Err(TokenRefusal::NotAToken.into());
        }
        let (app, login) = (Arc::clone(self), login.clone());
        let renew = async move {
            app.provider_renew(&login).await?;
            Ok(app.auth.token_renew(&login, old_token).await?)
        };
        match App::carry_out(renew).await? {
            Some(new) => Ok(reply(new)),
            None => Err(TokenRefusal::TooOld.into()),
        }
    }

    /// Revokes the token of this login.
    pub async fn token_logout(self: &Arc<Self>, login: &Login) -> Result<&'static str, AppError> {
        let (app, login) = (Arc::clone(self), login.clone());
        let revoke = async move { Ok(app.auth.token_revoke_own(&login).await?) };
        let revoked = App::carry_out(revoke).await?;
        Ok(if revoked {
            "OK"
        } else {
            "this login does not use a token"
        })
    }

    pub async fn password_change(&self, caller: &Caller, new: String) -> Result<(), AppError> {
        let hash = hashed(Some(new)).await?;
        let entry = audit(caller, "user.password", caller.user.as_str(), "");
        let set = |record: &mut Record| {
            record.password_hash = hash;
            Ok(())
        };
        self.accounts.change(&caller.user, set, entry).await?;
        Ok(())
    }

    /// The caller's account, or for administrators that of any user.
    fn account_for(&self, caller: &Caller, user: Option<&str>) -> Result<Arc<Account>, AppError> {
        let name = match user {
            None => caller.user.clone(),
            Some(user) => user_name(user)?,
        };
        if !caller.may(Action::UseOf(&name)) {
            return Err(AdminOnly::TokensOfOthers.into());
        }
        let account = self.auth.users().enabled(&name);
        account.ok_or(AppError::NoEnabledUser(name))
    }
}

fn reply(new: NewToken) -> NewTokenReply {
    NewTokenReply {
        token: new.secret,
        view: view(&new.row),
    }
}

fn view(row: &TokenRow) -> TokenView {
    let time = |seconds| Timestamp::from_second(seconds).unwrap_or_default().to_string();
    TokenView {
        id: row.id.clone(),
        name: row.name.clone(),
        user: row.owner.clone(),
        scopes: row.scopes.clone(),
        created: time(row.created),
        expires: time(row.expires),
    }
}
