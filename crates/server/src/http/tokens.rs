//! `/api-token-auth`.

use axum::extract::State;
use axum::{Extension, Json};
use paddlecloud_api::server::{TokenReply, TokenRequest};

use super::Shared;
use super::caller::refused;
use super::reply::Reply;
use super::request::Body;
use crate::auth::Peer;

/// A token for a user name and a password.
#[utoipa::path(
    post, path = "/api-token-auth", tag = "login", request_body = TokenRequest, security(()),
    responses((status = 200, body = TokenReply))
)]
pub(super) async fn token_create(
    State(app): Shared,
    peer: Option<Extension<Peer>>,
    Body(request): Body<TokenRequest>,
) -> Reply<TokenReply> {
    let peer = peer.map(|Extension(peer)| peer).unwrap_or_default();
    let token = app
        .auth
        .token_create(&peer, &request.username, &request.password)
        .await;
    Ok(Json(TokenReply {
        token: token.map_err(refused)?,
    }))
}
