//! `/api/v1/packages`: announced by a list of files, sent as one stream.

use axum::Json;
use axum::body::{Body as Stream, BodyDataStream};
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

/// How much of a refused upload is taken, and for how long.
const DRAIN_BYTES: usize = 1 << 30;
const DRAIN_TIME: std::time::Duration = std::time::Duration::from_secs(10);

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
        if let Err(refused) = upload.feed(piece.map_err(|_| cut())?).await {
            drop(upload);
            let _ = tokio::time::timeout(DRAIN_TIME, drain(pieces)).await;
            return Err(refused.into());
        }
    }
    Ok(envelope(upload.finish().await?))
}

/// Takes the rest and throws it away: a client that is cut off while it sends may never see the reply.
async fn drain(mut pieces: BodyDataStream) {
    let mut left = DRAIN_BYTES;
    while let Some(Ok(piece)) = pieces.next().await {
        match left.checked_sub(piece.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

fn cut() -> Refused {
    let refused = ErrorBody::new(ErrorName::BadRequest, "the package did not arrive whole");
    Refused(refused.with_hint("submit again"))
}
