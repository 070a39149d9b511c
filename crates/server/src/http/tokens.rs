//! `/api-token-auth`, `/api/v1/login`, `/api/v1/tokens` and `/api/v1/password`.

use axum::extract::State;
use axum::{Extension, Json};
use paddlecloud_accounts::auth::{OldToken, Peer};
use paddlecloud_api::Envelope;
use paddlecloud_api::admin::{NewTokenReply, NewTokenRequest, PasswordRequest, TokenView};
use paddlecloud_api::device_login::{DeviceLogin, DeviceLoginRequest, DeviceLoginState};
use paddlecloud_api::server::{TokenReply, TokenRequest};
use paddlecloud_core::access::Scopes;
use serde::Deserialize;
use utoipa::IntoParams;

use super::query::QueryParams;
use super::reply::{Reply, envelope};
use super::request::{Body, Named};
use super::scope::refused;
use super::{Shared, scope};

/// Exchanges a user name and a password for a token.
#[utoipa::path(
    post, path = "/api-token-auth", tag = "login", request_body = TokenRequest, security(()),
    responses((status = 200, body = TokenReply))
)]
pub(super) async fn token_create(
    State(app): Shared,
    _: scope::Public,
    peer: Option<Extension<Peer>>,
    Body(request): Body<TokenRequest>,
) -> Reply<TokenReply> {
    let peer = peer.map(|Extension(peer)| peer).unwrap_or_default();
    let token = app
        .auth
        .token_create(&peer, &request.username, &request.password, Scopes::all())
        .await;
    Ok(Json(TokenReply {
        token: token.map_err(refused)?,
    }))
}

/// Starts a login with the server's login provider: the user confirms the code in a browser.
#[utoipa::path(
    post, path = "/api/v1/login/device", tag = "login", security(()),
    responses((status = 200, body = Envelope<DeviceLogin>))
)]
pub(super) async fn device_login(
    State(app): Shared,
    _: scope::Public,
    peer: Option<Extension<Peer>>,
) -> Reply<Envelope<DeviceLogin>> {
    let peer = peer.map(|Extension(peer)| peer).unwrap_or_default();
    Ok(envelope(app.device_login(&peer).await?))
}

/// The token of a login that has been confirmed, or why there is none yet.
#[utoipa::path(
    post, path = "/api/v1/login/device/token", tag = "login", request_body = DeviceLoginRequest, security(()),
    responses((status = 200, body = Envelope<DeviceLoginState>))
)]
pub(super) async fn device_login_poll(
    State(app): Shared,
    _: scope::Public,
    peer: Option<Extension<Peer>>,
    Body(request): Body<DeviceLoginRequest>,
) -> Reply<Envelope<DeviceLoginState>> {
    let peer = peer.map(|Extension(peer)| peer).unwrap_or_default();
    Ok(envelope(app.device_login_poll(&peer, &request.id).await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct UserParams {
    /// Another user, for administrators.
    user: Option<String>,
}

/// The caller's tokens, without their secrets.
#[utoipa::path(
    get, path = "/api/v1/tokens", tag = "login", params(UserParams),
    responses((status = 200, body = Envelope<Vec<TokenView>>))
)]
pub(super) async fn token_list(
    State(app): Shared,
    scope::Any(caller): scope::Any,
    QueryParams(params): QueryParams<UserParams>,
) -> Reply<Envelope<Vec<TokenView>>> {
    Ok(envelope(app.token_list(&caller, params.user.as_deref()).await?))
}

/// Creates a token with the caller's scopes or fewer. Its secret is shown only once.
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "login", request_body = NewTokenRequest,
    responses((status = 200, body = Envelope<NewTokenReply>))
)]
pub(super) async fn token_issue(
    State(app): Shared,
    scope::AnyLogin(login): scope::AnyLogin,
    Body(request): Body<NewTokenRequest>,
) -> Reply<Envelope<NewTokenReply>> {
    Ok(envelope(app.token_issue(&login, request).await?))
}

/// Revokes a token; requests and streams that use it end.
#[utoipa::path(
    delete, path = "/api/v1/tokens/{id}", tag = "login", params(("id" = String, Path), UserParams),
    responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn token_revoke(
    State(app): Shared,
    scope::EndingLogin(login): scope::EndingLogin,
    Named(id): Named<String>,
    QueryParams(params): QueryParams<UserParams>,
) -> Reply<Envelope<String>> {
    app.token_revoke(&login.caller, &id, params.user.as_deref())
        .await?;
    Ok(envelope("OK".to_owned()))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct RenewParams {
    /// Keep the old token for at most a day. Omitted: it is revoked, with the other tokens of its login.
    keep_old: bool,
}

/// Exchanges the token of this request for a new one, up to the server's `tokens.max_age` after the login. A reply with
/// the header `paddlecloud-renew` says that the token is past half of its lifetime.
#[utoipa::path(
    post, path = "/api/v1/tokens/renew", tag = "login", params(RenewParams),
    responses((status = 200, body = Envelope<NewTokenReply>))
)]
pub(super) async fn token_renew(
    State(app): Shared,
    scope::EndingLogin(login): scope::EndingLogin,
    QueryParams(params): QueryParams<RenewParams>,
) -> Reply<Envelope<NewTokenReply>> {
    let old_token = match params.keep_old {
        true => OldToken::Kept,
        false => OldToken::Revoked,
    };
    Ok(envelope(app.token_renew(&login, old_token).await?))
}

/// Revokes the token of this request, and those that it was exchanged for or with.
#[utoipa::path(post, path = "/api/v1/logout", tag = "login", responses((status = 200, body = Envelope<String>)))]
pub(super) async fn token_logout(
    State(app): Shared,
    scope::EndingLogin(login): scope::EndingLogin,
) -> Reply<Envelope<String>> {
    Ok(envelope(app.token_logout(&login).await?.to_owned()))
}

/// Changes the caller's own password. Existing tokens are revoked.
#[utoipa::path(
    post, path = "/api/v1/password", tag = "login", request_body = PasswordRequest,
    responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn password_change(
    State(app): Shared,
    scope::EndingLogin(login): scope::EndingLogin,
    peer: Option<Extension<Peer>>,
    Body(request): Body<PasswordRequest>,
) -> Reply<Envelope<String>> {
    let caller = login.caller;
    let peer = peer.map(|Extension(peer)| peer).unwrap_or_default();
    // A wrong old password is counted like a wrong login.
    let checked = app.auth.password_check(&peer, &caller.user, &request.old).await;
    checked.map_err(refused)?;
    app.password_change(&caller, request.new).await?;
    Ok(envelope("OK".to_owned()))
}
