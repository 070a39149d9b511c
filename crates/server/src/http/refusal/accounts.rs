//! Errors about accounts, tokens, secrets, certificates and the login provider.

use paddlecloud_accounts::AccountError;
use paddlecloud_accounts::auth::AuthError;
use paddlecloud_accounts::authority::AuthorityError;
use paddlecloud_accounts::oidc::OidcError;
use paddlecloud_accounts::secrets::SecretsError;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::error_chain::chain_of;

use super::{internal, store_failed};
use crate::app::{ProviderRefusal, TokenRefusal, UserRefusal};

/// How to get a token in place of one that is not renewed.
const LOG_IN_AGAIN: &str = "log in again with `paddlectl login`";

/// Why an account or a group was not changed.
pub(super) fn account_failed(error: AccountError) -> ErrorBody {
    let problem = error.to_string();
    match error {
        AccountError::NotFound(_) => ErrorBody::new(ErrorName::NotFound, problem)
            .with_hint("`paddlectl admin user list` lists all of them"),
        AccountError::NoGroup(_) => ErrorBody::new(ErrorName::NotFound, problem)
            .with_hint("`paddlectl admin group set NAME` creates one"),
        AccountError::Taken(_) => ErrorBody::new(ErrorName::Conflict, problem)
            .with_hint("user names are case-insensitive"),
        AccountError::Configured(_) => ErrorBody::new(ErrorName::Conflict, problem)
            .with_hint("change `users` in the configuration and restart the server"),
        AccountError::LastAdministrator(_) => ErrorBody::new(ErrorName::Conflict, problem).with_hint(
            "make another user an administrator first: `paddlectl admin user set NAME --admin true`",
        ),
        AccountError::SubjectTaken(_) => ErrorBody::new(ErrorName::Conflict, problem)
            .with_hint("a subject of the login provider can have only one account"),
        AccountError::Guarantees { .. } => ErrorBody::new(ErrorName::Conflict, problem)
            .with_hint("`paddlectl admin user list` shows who is guaranteed what"),
        AccountError::SystemUser(error) => {
            let hint = error.hint();
            ErrorBody::new(ErrorName::Conflict, problem).with_hint(hint)
        }
        AccountError::Home(home) => ErrorBody::new(ErrorName::Conflict, problem).with_hint(format!(
            "when no job of `{}` is running, change its owner with `{}` on the server, then repeat the command",
            home.user,
            home.command()
        )),
        AccountError::Homes(_) => ErrorBody::new(ErrorName::Unavailable, problem)
            .with_hint("check the server's `storage` folder"),
        AccountError::Reserved | AccountError::GroupName(_) | AccountError::Limit(_) => {
            ErrorBody::new(ErrorName::BadRequest, problem)
        }
        AccountError::Store(error) => store_failed(error),
    }
}

impl From<UserRefusal> for ErrorBody {
    fn from(refusal: UserRefusal) -> ErrorBody {
        let problem = refusal.to_string();
        match refusal {
            UserRefusal::OwnAccount => {
                ErrorBody::new(ErrorName::Conflict, problem).with_hint("ask another administrator to do it")
            }
            UserRefusal::RemoteHome => {
                ErrorBody::new(ErrorName::Conflict, problem).with_hint("disable the account instead")
            }
            UserRefusal::Name(_)
            | UserRefusal::FixedField
            | UserRefusal::ShortPassword
            | UserRefusal::HasProvider
            | UserRefusal::PasswordAndProvider
            | UserRefusal::ServiceWithProvider
            | UserRefusal::NoProvider
            | UserRefusal::NoHeir
            | UserRefusal::HeirIsOwner => ErrorBody::new(ErrorName::BadRequest, problem),
        }
    }
}

impl From<TokenRefusal> for ErrorBody {
    fn from(refusal: TokenRefusal) -> ErrorBody {
        let problem = refusal.to_string();
        match refusal {
            TokenRefusal::ReservedName => {
                ErrorBody::new(ErrorName::BadRequest, problem).with_hint("choose another name")
            }
            TokenRefusal::Scopes(_) | TokenRefusal::NotAToken => {
                ErrorBody::new(ErrorName::BadRequest, problem)
            }
            TokenRefusal::TooManyScopes(_) => ErrorBody::new(ErrorName::Forbidden, problem)
                .with_hint("a token has at most the scopes of the login it is made with and of its user"),
            TokenRefusal::TooOld => ErrorBody::new(ErrorName::Unauthorized, problem).with_hint(LOG_IN_AGAIN),
        }
    }
}

/// Why a token was not listed, issued, renewed or revoked. `scope` answers what goes wrong at a login.
pub(super) fn token_failed(error: AuthError) -> ErrorBody {
    match error {
        AuthError::Store(error) => store_failed(error),
        AuthError::WrongToken => ErrorBody::new(ErrorName::Unauthorized, error.to_string()),
        AuthError::TooManyTokens { .. } => ErrorBody::new(ErrorName::QuotaExceeded, error.to_string())
            .with_hint("`paddlectl token list` lists them; revoke some with `paddlectl token revoke ID`"),
        other => {
            tracing::error!(error = %other, "a token was not handed out");
            internal()
        }
    }
}

/// Why a secret was not stored or opened.
pub(super) fn secrets_failed(error: SecretsError) -> ErrorBody {
    match error {
        SecretsError::Store(error) => store_failed(error),
        other => {
            tracing::error!(error = %other, "secrets cannot be used");
            ErrorBody::new(ErrorName::Unavailable, other.to_string())
                .with_hint("ask an administrator to check `secrets` in the server's configuration")
        }
    }
}

/// Why a certificate was not signed.
pub(super) fn authority_failed(error: AuthorityError) -> ErrorBody {
    match error {
        AuthorityError::Request => ErrorBody::new(ErrorName::BadRequest, format!("`request`: {error}"))
            .with_hint("`paddlectl cert request` creates one"),
        other => {
            tracing::error!(error = chain_of(&other), "a certificate was not signed");
            internal()
        }
    }
}

/// Why the login provider did not do what was asked.
pub(super) fn provider_failed(error: OidcError) -> ErrorBody {
    let hint = match &error {
        OidcError::Unreachable { .. } => "try again later; tokens stay valid until they expire",
        _ => "ask the server's administrator",
    };
    tracing::warn!(error = chain_of(&error), "a login with the provider failed");
    ErrorBody::new(ErrorName::Unavailable, error.to_string()).with_hint(hint)
}

impl From<ProviderRefusal> for ErrorBody {
    fn from(refusal: ProviderRefusal) -> ErrorBody {
        let problem = refusal.to_string();
        match refusal {
            ProviderRefusal::NotConfigured => ErrorBody::new(ErrorName::NotFound, problem)
                .with_hint("log in with a password: `paddlectl login -username NAME`"),
            ProviderRefusal::TooMany(_) => {
                ErrorBody::new(ErrorName::TooManyRequests, problem).with_hint("try again in a few minutes")
            }
            ProviderRefusal::Expired => {
                ErrorBody::new(ErrorName::NotFound, problem).with_hint("start again with `paddlectl login`")
            }
            ProviderRefusal::Denied => ErrorBody::new(ErrorName::Unauthorized, problem),
            ProviderRefusal::NotInGroup(_) | ProviderRefusal::Disabled => {
                ErrorBody::new(ErrorName::Forbidden, problem)
            }
            ProviderRefusal::NoAccount { subject, .. }
            | ProviderRefusal::NoName { subject, .. }
            | ProviderRefusal::BadName { subject, .. }
            | ProviderRefusal::NameTaken { subject, .. } => ErrorBody::new(ErrorName::Forbidden, problem)
                .with_hint(format!(
                    "ask an administrator for `paddlectl admin user add NAME --oidc-subject {subject}`"
                )),
            ProviderRefusal::OtherProvider | ProviderRefusal::NoRenewal | ProviderRefusal::Ended => {
                ErrorBody::new(ErrorName::Unauthorized, problem).with_hint(LOG_IN_AGAIN)
            }
        }
    }
}
