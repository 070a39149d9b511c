//! `/api-token-auth`.

use axum::Json;
use axum::extract::State;
use paddlecloud_api::server::{TokenReply, TokenRequest};

use super::Shared;
use super::caller::refused;
use super::reply::Reply;
use super::request::Body;

/// A token for a user name and a password.
#[utoipa::path(
    post, path = "/api-token-auth", tag = "login", request_body = TokenRequest, security(()),
    responses((status = 200, body = TokenReply))
)]
pub(super) async fn token_create(State(app): Shared, Body(request): Body<TokenRequest>) -> Reply<TokenReply> {
    let token = app.auth.token_create(&request.username, &request.password).await;
    Ok(Json(TokenReply {
        token: token.map_err(refused)?,
    }))
}
