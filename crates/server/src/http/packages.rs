//! `/api/v1/packages`: announced by a list of files, sent as one stream.

use axum::Json;
use axum::body::Body as Stream;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use futures_util::StreamExt;
use paddlecloud_api::Envelope;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::PackageReply;

use super::Shared;
use super::reply::{Refused, Reply, envelope};
use super::request::Raw;
use crate::auth::Caller;

/// Whether a package is here: 200 or 404, without a body.
#[utoipa::path(
    head, path = "/api/v1/packages/{id}", tag = "packages", params(("id" = String, Path)),
    responses((status = 200), (status = 404))
)]
pub(super) async fn package_has(
    State(app): Shared,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Refused> {
    let here = app.package_has(&caller, &id).await?;
    Ok(if here {
        StatusCode::OK
    } else {
        StatusCode::NOT_FOUND
    })
}

/// Takes the list of a package's files and says which of them must be sent.
#[utoipa::path(
    post, path = "/api/v1/packages", tag = "packages", request_body(content = String, content_type = "application/json"),
    responses((status = 200, body = Envelope<PackageReply>))
)]
pub(super) async fn package_announce(
    State(app): Shared,
    caller: Caller,
    Raw(manifest): Raw,
) -> Reply<Envelope<PackageReply>> {
    Ok(envelope(app.package_announce(&caller, &manifest).await?))
}

/// Takes the files. The package is stored, whole and synced, when the reply comes.
#[utoipa::path(
    put, path = "/api/v1/packages/{id}", tag = "packages", params(("id" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Envelope<PackageReply>))
)]
pub(super) async fn package_receive(
    State(app): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: Stream,
) -> Result<Json<Envelope<PackageReply>>, Refused> {
    let mut upload = app.package_receive(&caller, &id).await?;
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        upload.feed(piece.map_err(|_| cut())?).await?;
    }
    Ok(envelope(upload.finish().await?))
}

fn cut() -> Refused {
    let refused = ErrorBody::new(ErrorName::BadRequest, "the package did not arrive whole");
    Refused(refused.with_hint("submit again"))
}
