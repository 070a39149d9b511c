//! `/api/v1/pfs/uploads`: large files in chunks.

use axum::body::Body as Stream;
use axum::extract::State;
use paddlecloud_api::Envelope;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::{
    CommitRequest, FileMeta, ReuseRequest, UnfinishedUpload, UploadReply, UploadRequest,
};
use serde::Deserialize;

use super::packs::take_all;
use crate::http::Shared;
use crate::http::query::QueryParams;
use crate::http::reply::{Refused, Reply, envelope};
use crate::http::request::{Body, Named};
use crate::http::scope;

/// Starts an upload, or resumes the one with the same key.
#[utoipa::path(
    post, path = "/api/v1/pfs/uploads", tag = "files", request_body = UploadRequest,
    responses((status = 200, body = Envelope<UploadReply>))
)]
pub(in crate::http) async fn upload_begin(
    State(app): Shared,
    scope::Upload(caller): scope::Upload,
    Body(request): Body<UploadRequest>,
) -> Reply<Envelope<UploadReply>> {
    Ok(envelope(app.upload_begin(&caller, request).await?))
}

/// Lists the caller's unfinished uploads, the least recently used first.
#[utoipa::path(
    get, path = "/api/v1/pfs/uploads", tag = "files",
    responses((status = 200, body = Envelope<Vec<UnfinishedUpload>>))
)]
pub(in crate::http) async fn upload_list(
    State(app): Shared,
    scope::Files(caller): scope::Files,
) -> Reply<Envelope<Vec<UnfinishedUpload>>> {
    Ok(envelope(app.upload_list(&caller).await?))
}

/// Returns the missing ranges of an upload.
#[utoipa::path(
    get, path = "/api/v1/pfs/uploads/{id}", tag = "files", params(("id" = String, Path)),
    responses((status = 200, body = Envelope<UploadReply>))
)]
pub(in crate::http) async fn upload_show(
    State(app): Shared,
    scope::Upload(caller): scope::Upload,
    Named(id): Named<String>,
) -> Reply<Envelope<UploadReply>> {
    Ok(envelope(app.upload_show(&caller, &id).await?))
}

/// Drops an upload and everything received.
#[utoipa::path(
    delete, path = "/api/v1/pfs/uploads/{id}", tag = "files", params(("id" = String, Path)),
    responses((status = 200, body = Envelope<String>))
)]
pub(in crate::http) async fn upload_discard(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Named(id): Named<String>,
) -> Reply<Envelope<String>> {
    app.upload_discard(&caller, &id).await?;
    Ok(envelope("OK".to_owned()))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ChunkQuery {
    /// The chunk's node in the file's BLAKE3 tree, in hex.
    name: String,
}

/// Uploads one chunk, which is verified before it counts.
#[utoipa::path(
    put, path = "/api/v1/pfs/uploads/{id}/chunks/{index}", tag = "files",
    params(("id" = String, Path), ("index" = u64, Path), ChunkQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Envelope<String>))
)]
pub(in crate::http) async fn upload_chunk(
    State(app): Shared,
    scope::Upload(caller): scope::Upload,
    Named((id, index)): Named<(String, u64)>,
    QueryParams(query): QueryParams<ChunkQuery>,
    body: Stream,
) -> Reply<Envelope<String>> {
    let name = query.name.parse().map_err(|_| bad_name())?;
    let taking = app.upload_chunk(&caller, &id, index, name).await?;
    take_all(taking, body).await?;
    Ok(envelope("OK".to_owned()))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct RangeQuery {
    offset: u64,
    len: u64,
}

/// Uploads bytes at any offset; every piece counts immediately, and is verified with the whole file.
#[utoipa::path(
    put, path = "/api/v1/pfs/uploads/{id}/ranges", tag = "files", params(("id" = String, Path), RangeQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Envelope<String>))
)]
pub(in crate::http) async fn upload_range(
    State(app): Shared,
    scope::Upload(caller): scope::Upload,
    Named(id): Named<String>,
    QueryParams(query): QueryParams<RangeQuery>,
    body: Stream,
) -> Reply<Envelope<String>> {
    let taking = app.upload_range(&caller, &id, query.offset, query.len).await?;
    take_all(taking, body).await?;
    Ok(envelope("OK".to_owned()))
}

/// Copies ranges of the replaced file to other positions of the new one.
#[utoipa::path(
    post, path = "/api/v1/pfs/uploads/{id}/reuse", tag = "files", params(("id" = String, Path)),
    request_body = ReuseRequest, responses((status = 200, body = Envelope<UploadReply>))
)]
pub(in crate::http) async fn upload_reuse(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Named(id): Named<String>,
    Body(request): Body<ReuseRequest>,
) -> Reply<Envelope<UploadReply>> {
    Ok(envelope(app.upload_reuse(&caller, &id, request).await?))
}

/// Finishes an upload: the file is complete, verified and synced when the reply is sent.
#[utoipa::path(
    post, path = "/api/v1/pfs/uploads/{id}/commit", tag = "files", params(("id" = String, Path)),
    request_body = CommitRequest, responses((status = 200, body = Envelope<FileMeta>))
)]
pub(in crate::http) async fn upload_commit(
    State(app): Shared,
    scope::Upload(caller): scope::Upload,
    Named(id): Named<String>,
    Body(request): Body<CommitRequest>,
) -> Reply<Envelope<FileMeta>> {
    Ok(envelope(app.upload_commit(&caller, &id, request).await?))
}

fn bad_name() -> Refused {
    Refused(ErrorBody::new(
        ErrorName::BadRequest,
        "the name of a chunk is 64 hex digits",
    ))
}
