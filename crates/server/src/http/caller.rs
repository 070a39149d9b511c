//! The caller of a request. A handler that takes one cannot be reached without a login.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use paddlecloud_api::error::{ErrorBody, ErrorName};

use super::reply::Refused;
use crate::app::{App, store_failed};
use crate::auth::{AuthError, Caller, Peer};

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Caller, Refused> {
        let peer = parts.extensions.get::<Peer>().cloned().unwrap_or_default();
        let header = parts.headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        app.auth.identify(&peer, header).await.map_err(refused)
    }
}

pub(super) fn refused(error: AuthError) -> Refused {
    let hint = match &error {
        AuthError::Missing | AuthError::Unreadable => {
            "send `Authorization: Token …` with a token of `POST /api-token-auth`, or a user name and password by HTTP Basic"
        }
        AuthError::WrongPassword => "check the user name and the password",
        AuthError::TooManyGuesses(_) => {
            "wait, then try with the right password; tokens go on working meanwhile"
        }
        AuthError::WrongToken => "get a new one, for example with `paddlectl login`",
        AuthError::UnknownCertificate(_) => "ask an administrator to add the user",
        AuthError::Store(_) => "try again",
    };
    match error {
        AuthError::Store(error) => Refused(store_failed(error)),
        AuthError::TooManyGuesses(_) => {
            Refused(ErrorBody::new(ErrorName::TooManyRequests, error.to_string()).with_hint(hint))
        }
        other => Refused(ErrorBody::new(ErrorName::Unauthorized, other.to_string()).with_hint(hint)),
    }
}
