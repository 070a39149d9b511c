//! Tokens and passwords of callers.

use std::sync::Arc;

use jiff::Timestamp;
use paddlecloud_api::admin::{NewTokenReply, NewTokenRequest, TokenView};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::access::Scopes;

use super::accounts::{audit, hashed, user_name};
use super::{App, internal, store_failed};
use crate::auth::{Action, AuthError, Caller, LOGIN, Login, NewToken, OldToken, TokenAsked};
use crate::store::TokenRow;
use crate::users::{Account, Record};

/// Length limit of a token's name.
const MOST_NAME: usize = 100;

impl App {
    pub async fn token_list(&self, caller: &Caller, user: Option<&str>) -> Result<Vec<TokenView>, ErrorBody> {
        let account = self.account_for(caller, user)?;
        let rows = self.auth.token_list(&account).await.map_err(token_failed)?;
        Ok(rows.iter().map(view).collect())
    }

    /// Issues a token. It never grants more than the caller's login, and never for longer.
    pub async fn token_issue(
        &self,
        login: &Login,
        request: NewTokenRequest,
    ) -> Result<NewTokenReply, ErrorBody> {
        let caller = &login.caller;
        let account = self.account_for(caller, request.user.as_deref())?;
        let name = request.name.trim();
        if name.is_empty() || name.chars().count() > MOST_NAME || name.chars().any(char::is_control) {
            let problem = format!("`name` must have 1 to {MOST_NAME} characters");
            return Err(ErrorBody::new(ErrorName::BadRequest, problem));
        }
        if name == LOGIN {
            let problem = format!("`{LOGIN}` is the name of tokens that logins make");
            return Err(ErrorBody::new(ErrorName::BadRequest, problem).with_hint("choose another name"));
        }
        let own = caller.scopes.within(account.scopes);
        let scopes = match request.scopes.as_deref() {
            None => own,
            Some(text) => text
                .parse::<Scopes>()
                .map_err(|error| ErrorBody::new(ErrorName::BadRequest, format!("`scopes`: {error}")))?,
        };
        if scopes.within(own) != scopes {
            let problem = format!("a token cannot have more scopes than {own}");
            return Err(ErrorBody::new(ErrorName::Forbidden, problem)
                .with_hint("a token has at most the scopes of the login it is made with and of its user"));
        }
        if request.lifetime_seconds.is_some_and(|seconds| seconds < 1) {
            let problem = "`lifetime_seconds` must be at least 1";
            return Err(ErrorBody::new(ErrorName::BadRequest, problem));
        }
        let asked = TokenAsked {
            name: name.to_owned(),
            scopes,
            lifetime: request.lifetime_seconds,
            address: None,
        };
        let issued = self.auth.token_issue(&account, login, "token.create", asked);
        Ok(reply(issued.await.map_err(token_failed)?))
    }

    pub async fn token_revoke(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        user: Option<&str>,
    ) -> Result<(), ErrorBody> {
        let account = self.account_for(caller, user)?;
        let (app, actor, own) = (Arc::clone(self), caller.user.clone(), id.to_owned());
        let revoke = async move {
            let revoked = app.auth.token_revoke(&account, &actor, &own).await;
            revoked.map_err(token_failed)
        };
        match App::carry_out(revoke).await? {
            true => Ok(()),
            false => {
                let problem = format!("there is no token `{}`", id.escape_default());
                Err(ErrorBody::new(ErrorName::NotFound, problem)
                    .with_hint("`paddlectl token list` lists all of them"))
            }
        }
    }

    pub async fn token_renew(
        self: &Arc<Self>,
        login: &Login,
        old_token: OldToken,
    ) -> Result<NewTokenReply, ErrorBody> {
        if !login.session.is_token() {
            let problem = "this login is no token, so there is nothing to renew";
            return Err(ErrorBody::new(ErrorName::BadRequest, problem));
        }
        let (app, login) = (Arc::clone(self), login.clone());
        let renew = async move {
            app.provider_renew(&login).await?;
            app.auth
                .token_renew(&login, old_token)
                .await
                .map_err(token_failed)
        };
        match App::carry_out(renew).await? {
            Some(new) => Ok(reply(new)),
            None => Err(ErrorBody::new(
                ErrorName::Unauthorized,
                "the token is as old as a token may become",
            )
            .with_hint("log in again with `paddlectl login`")),
        }
    }

    /// Revokes the token of this login.
    pub async fn token_logout(self: &Arc<Self>, login: &Login) -> Result<&'static str, ErrorBody> {
        let (app, login) = (Arc::clone(self), login.clone());
        let revoke = async move { app.auth.token_revoke_own(&login).await.map_err(token_failed) };
        let revoked = App::carry_out(revoke).await?;
        Ok(if revoked { "OK" } else { "this login is no token" })
    }

    pub async fn password_change(&self, caller: &Caller, new: String) -> Result<(), ErrorBody> {
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
    fn account_for(&self, caller: &Caller, user: Option<&str>) -> Result<Arc<Account>, ErrorBody> {
        let name = match user {
            None => caller.user.clone(),
            Some(user) => user_name(user)?,
        };
        if !caller.may(Action::UseOf(&name)) {
            return Err(ErrorBody::new(
                ErrorName::Forbidden,
                "tokens of other users are for administrators",
            ));
        }
        let account = self.auth.users().enabled(&name);
        account.ok_or_else(|| {
            let problem = format!("there is no user `{name}`, or they are disabled");
            ErrorBody::new(ErrorName::NotFound, problem)
        })
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

fn token_failed(error: AuthError) -> ErrorBody {
    match error {
        AuthError::Store(error) => store_failed(error),
        AuthError::WrongToken => ErrorBody::new(ErrorName::Unauthorized, error.to_string()),
        AuthError::TooManyTokens { .. } => ErrorBody::new(ErrorName::QuotaExceeded, error.to_string())
            .with_hint("`paddlectl token list` lists them; end some with `paddlectl token revoke ID`"),
        other => {
            tracing::error!(error = %other, "a token was not handed out");
            internal()
        }
    }
}
