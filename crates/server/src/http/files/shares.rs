//! `/api/v1/pfs/shares` and the links themselves.

use axum::extract::State;
use axum::http::header::CONTENT_DISPOSITION;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use paddlecloud_api::Envelope;
use paddlecloud_api::error::ErrorBody;
use paddlecloud_api::files::{ShareRequest, ShareView};

use super::content;
use crate::http::Shared;
use crate::http::reply::{Refused, Reply, envelope};
use crate::http::request::{Body, Named};
use crate::http::scope;

/// Lists the caller's active links.
#[utoipa::path(get, path = "/api/v1/pfs/shares", tag = "files", responses((status = 200, body = Envelope<Vec<ShareView>>)))]
pub(in crate::http) async fn share_list(
    State(app): Shared,
    scope::Files(caller): scope::Files,
) -> Reply<Envelope<Vec<ShareView>>> {
    Ok(envelope(app.share_list(&caller).await?))
}

/// Creates a link with which anyone can read one of the caller's files until it expires.
#[utoipa::path(
    post, path = "/api/v1/pfs/shares", tag = "files", request_body = ShareRequest,
    responses((status = 200, body = Envelope<ShareView>))
)]
pub(in crate::http) async fn share_create(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Body(request): Body<ShareRequest>,
) -> Reply<Envelope<ShareView>> {
    Ok(envelope(app.share_create(&caller, request).await?))
}

/// Revokes a link.
#[utoipa::path(
    delete, path = "/api/v1/pfs/shares/{id}", tag = "files", params(("id" = String, Path)),
    responses((status = 200, body = Envelope<String>))
)]
pub(in crate::http) async fn share_revoke(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Named(id): Named<String>,
) -> Reply<Envelope<String>> {
    app.share_revoke(&caller, id).await?;
    Ok(envelope("OK".to_owned()))
}

/// Returns the file of a link. Needs no login.
#[utoipa::path(
    get, path = "/api/v1/pfs/shared/{token}", tag = "files", params(("token" = String, Path)), security(()),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 416, body = ErrorBody)
    )
)]
pub(in crate::http) async fn share_read(
    State(app): Shared,
    _: scope::Public,
    Named(token): Named<String>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let (opened, name) = app.share_read(token, content::requested(&headers)).await?;
    let mut response = content::reply(opened);
    // Browsers save it under its name; characters with a meaning in a header are replaced.
    let plain: String = name
        .chars()
        .map(|c| match c {
            ' '..='~' if c != '"' && c != '\\' => c,
            _ => '_',
        })
        .collect();
    if let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{plain}\"")) {
        response.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    Ok(response)
}
