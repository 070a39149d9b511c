//! The scope of a route, which its handler declares by the extractor it takes: `scope::Read`, `scope::Submit`,
//! `scope::Files`, `scope::Upload`, `scope::Admin`; `scope::Any`, `scope::AnyLogin` and `scope::EndingLogin` for what every
//! login may ask, regardless of its scopes; `scope::EndingAdmin` and `scope::EndingLogin` for what may end the request's own
//! login; `scope::Public` for routes without a login, and `scope::Metrics`, which can be one. Only the probes `/healthz` and `/readyz` take none, because they must not
//! be counted.
//!
//! There is no other way to get a [`Caller`]: a handler that has one was called with a login of that scope. `auth::policy` decides
//! what the caller may do with whose resources.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use paddlecloud_accounts::auth::{Action, AuthError, Caller, Login, Peer};
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::access::Scope;

use super::refusal::store_failed;
use super::reply::Refused;
use super::session::SessionSlot;
use crate::app::App;

/// When to ask again with too many connections: how long the others stay open is not known.
const CONNECTIONS_END: Duration = Duration::from_secs(5);

/// A caller whose login has the scope of this name.
macro_rules! scopes {
    ($($name:ident)*) => {$(
        pub(super) struct $name(pub Caller);

        impl FromRequestParts<Arc<App>> for $name {
            type Rejection = Refused;

            async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
                authorize(parts, app, Scope::$name).await.map($name)
            }
        }
    )*};
}

scopes!(Read Submit Files Admin);

/// A caller who may upload something: with the scope `files`, or files of a package with the scope `submit`. Which of them the
/// upload needs is checked with its path.
pub(super) struct Upload(pub Caller);

impl FromRequestParts<Arc<App>> for Upload {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        let caller = log_in(parts, app).await?.caller;
        match [Scope::Files, Scope::Submit].map(|scope| caller.may(Action::Call(scope))) {
            [false, false] => Err(too_narrow(Scope::Files)),
            _ => Ok(Upload(caller)),
        }
    }
}

/// A caller with any login.
pub(super) struct Any(pub Caller);

impl FromRequestParts<Arc<App>> for Any {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        log_in(parts, app).await.map(|login| Any(login.caller))
    }
}

/// A route without a login. The request counts against the rate of its address.
pub(super) struct Public;

impl FromRequestParts<Arc<App>> for Public {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        let peer = parts.extensions.get::<Peer>().cloned().unwrap_or_default();
        app.auth.count_unauthenticated(&peer).map_err(refused)?;
        Ok(Public)
    }
}

/// A caller of `/metrics`: anyone, or a login with the scope `read` where the configuration demands one.
pub(super) struct Metrics;

impl FromRequestParts<Arc<App>> for Metrics {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        match app.config.metrics_login {
            true => authorize(parts, app, Scope::Read).await.map(|_| Metrics),
            false => Public::from_request_parts(parts, app).await.map(|_| Metrics),
        }
    }
}

/// Any login, with the session it is based on.
pub(super) struct AnyLogin(pub Login);

impl FromRequestParts<Arc<App>> for AnyLogin {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        log_in(parts, app).await.map(AnyLogin)
    }
}

/// Any login, for a request that may end it: the reply says why, so the end of the session does not cut it off.
pub(super) struct EndingLogin(pub Login);

impl FromRequestParts<Arc<App>> for EndingLogin {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        log_in_ending(parts, app).await.map(EndingLogin)
    }
}

/// The scope `admin`, for a request that may end its own login, as [`EndingLogin`].
pub(super) struct EndingAdmin(pub Caller);

impl FromRequestParts<Arc<App>> for EndingAdmin {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        let login = log_in_ending(parts, app).await?;
        authorize_caller(login.caller, Scope::Admin).map(EndingAdmin)
    }
}

async fn log_in(parts: &Parts, app: &App) -> Result<Login, Refused> {
    let login = checked(parts, app).await?;
    if let Some(slot) = parts.extensions.get::<SessionSlot>() {
        slot.fill(login.session.clone());
    }
    Ok(login)
}

async fn log_in_ending(parts: &Parts, app: &App) -> Result<Login, Refused> {
    let login = checked(parts, app).await?;
    if let Some(slot) = parts.extensions.get::<SessionSlot>() {
        slot.fill_ending(login.session.clone());
    }
    Ok(login)
}

async fn checked(parts: &Parts, app: &App) -> Result<Login, Refused> {
    let peer = parts.extensions.get::<Peer>().cloned().unwrap_or_default();
    let header = parts.headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    app.auth.log_in(&peer, header).await.map_err(refused)
}

async fn authorize(parts: &Parts, app: &App, scope: Scope) -> Result<Caller, Refused> {
    authorize_caller(log_in(parts, app).await?.caller, scope)
}

fn authorize_caller(caller: Caller, scope: Scope) -> Result<Caller, Refused> {
    match caller.may(Action::Call(scope)) {
        true => Ok(caller),
        false => Err(too_narrow(scope)),
    }
}

fn too_narrow(scope: Scope) -> Refused {
    let problem = match scope {
        Scope::Admin => "this is for administrators".to_owned(),
        scope => format!("this needs the scope `{scope}`, which the token does not have"),
    };
    Refused(ErrorBody::new(ErrorName::Forbidden, problem))
}

fn too_many(error: &AuthError, hint: &str) -> ErrorBody {
    ErrorBody::new(ErrorName::TooManyRequests, error.to_string()).with_hint(hint)
}

pub(super) fn refused(error: AuthError) -> Refused {
    let hint = match &error {
        AuthError::Missing | AuthError::Unreadable => {
            "send `Authorization: Token …` with a token of `POST /api-token-auth`, or a user name and password by HTTP Basic"
        }
        AuthError::NoPassword => "change the password at the login provider",
        AuthError::WrongPassword => "check the user name and the password",
        AuthError::TooManyGuesses(_) => "wait, then try with the right password; tokens keep working",
        AuthError::TooManyRequests(_) => "send fewer requests at a time",
        AuthError::TooManyLogins(_) => "wait, then try again; tokens keep working",
        AuthError::TooManyConnections(_) => "close some of them, for example commands that follow logs",
        AuthError::Revoked => "log in again, or ask an administrator",
        AuthError::TooManyTokens { .. } => "revoke some with `paddlectl token revoke ID`",
        AuthError::WrongToken => "get a new one, for example with `paddlectl login`",
        AuthError::UnknownCertificate(_) => "ask an administrator to add the user",
        AuthError::RevokedCertificate => {
            "create a new one with `paddlectl cert request`, and remove this one from the configuration"
        }
        AuthError::Store(_) => "try again",
    };
    match error {
        AuthError::Store(error) => Refused(store_failed(error)),
        AuthError::TooManyGuesses(wait)
        | AuthError::TooManyLogins(wait)
        | AuthError::TooManyRequests(wait) => Refused(too_many(&error, hint).after(wait)),
        AuthError::TooManyConnections(_) => Refused(too_many(&error, hint).after(CONNECTIONS_END)),
        AuthError::NoPassword => {
            Refused(ErrorBody::new(ErrorName::Conflict, error.to_string()).with_hint(hint))
        }
        other => Refused(ErrorBody::new(ErrorName::Unauthorized, other.to_string()).with_hint(hint)),
    }
}
