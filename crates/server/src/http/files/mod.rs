//! `/api/v1/pfs`: metadata of files, and moving, copying and removing them.

pub(super) mod content;
pub(super) mod fsck;
mod lines;
pub(super) mod old;
pub(super) mod packs;
pub(super) mod shares;
pub(super) mod uploads;

use axum::Json;
use axum::extract::State;
use axum::middleware;
use axum::response::Response;
use paddlecloud_api::Envelope;
use paddlecloud_api::files::{
    CopyReply, FileMeta, FileView, ListLine, MkdirReply, MkdirRequest, MoveRequest, RemoveRequest, Removed,
    StatsRequest, StorageView, UnreadEntry, UsageView,
};
use paddlecloud_files::{DigestMode, Listed, Lister, RemovedPath, StatOf};
use paddlecloud_pfs::{Made, RelPath};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::query::QueryParams;
use super::refusal::{files_failed, mkdir_refused, removal_refused};
use super::reply::{Refused, Reply, envelope};
use super::request::{Body, flag};
use super::{Shared, alive, scope};
use crate::app::App;

/// Bytes of a listing that are buffered before they are sent.
const LINES: usize = 64 << 10;

/// Every route of the file service.
pub(super) fn routes() -> OpenApiRouter<std::sync::Arc<App>> {
    OpenApiRouter::new()
        .merge(lasting())
        .routes(routes!(file_list))
        .routes(routes!(file_glob))
        .routes(routes!(file_mkdir))
        .routes(routes!(fsck::file_fsck))
        .routes(routes!(content::file_content))
        .routes(routes!(packs::pack_receive, packs::pack_send))
        .routes(routes!(uploads::upload_chunk))
        .routes(routes!(uploads::upload_range))
        .routes(routes!(shares::share_list, shares::share_create))
        .routes(routes!(shares::share_revoke))
        .routes(routes!(shares::share_read))
}

/// Requests that may take long and end in one small reply. Nothing here transfers file contents: a reply that starts
/// early is sent completely at its end.
fn lasting() -> OpenApiRouter<std::sync::Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(file_stat))
        .routes(routes!(file_stats))
        .routes(routes!(file_remove))
        .routes(routes!(file_rename))
        .routes(routes!(file_copy))
        .routes(routes!(file_usage))
        .routes(routes!(file_storage))
        .routes(routes!(content::file_signature))
        .routes(routes!(uploads::upload_begin, uploads::upload_list))
        .routes(routes!(uploads::upload_show, uploads::upload_discard))
        .routes(routes!(uploads::upload_reuse))
        .routes(routes!(uploads::upload_commit))
        .layer(middleware::from_fn(alive::send_keep_alive))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct StatQuery {
    path: String,
    /// Describe a link itself, not its target.
    #[serde(default, deserialize_with = "flag")]
    link: bool,
    /// Include the digest of a file's content.
    #[serde(default, deserialize_with = "flag")]
    digest: bool,
    /// Include that digest only if it is known without reading.
    #[serde(default, deserialize_with = "flag")]
    known: bool,
}

/// Returns the metadata of a path.
#[utoipa::path(
    get, path = "/api/v1/pfs/stat", tag = "files", params(StatQuery),
    responses((status = 200, body = Envelope<FileMeta>))
)]
pub(super) async fn file_stat(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    QueryParams(query): QueryParams<StatQuery>,
) -> Reply<Envelope<FileMeta>> {
    let digest = match (query.digest, query.known) {
        (true, _) => DigestMode::Always,
        (false, true) => DigestMode::IfKnown,
        (false, false) => DigestMode::Never,
    };
    let of = match query.link {
        true => StatOf::Link,
        false => StatOf::Target,
    };
    let meta = app.file_stat(&caller, &query.path, of, digest).await?;
    Ok(envelope(meta))
}

/// Returns the metadata of paths below a folder, in the order asked; `null` for a missing one.
#[utoipa::path(
    post, path = "/api/v1/pfs/stats", tag = "files", request_body = StatsRequest,
    responses((status = 200, body = Envelope<Vec<Option<FileMeta>>>))
)]
pub(super) async fn file_stats(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Body(request): Body<StatsRequest>,
) -> Reply<Envelope<Vec<Option<FileMeta>>>> {
    Ok(envelope(app.file_stats(&caller, request).await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    path: String,
    /// Everything below, not only direct entries.
    #[serde(default, deserialize_with = "flag")]
    recursive: bool,
    /// Include the digests of files.
    #[serde(default, deserialize_with = "flag")]
    digest: bool,
    /// Only entries after this path: the last one of an interrupted listing.
    #[param(value_type = Option<String>)]
    after: Option<RelPath>,
}

/// Lists a folder: one line of JSON per entry, then an end line.
#[utoipa::path(
    get, path = "/api/v1/pfs/list", tag = "files", params(ListQuery),
    responses((status = 200, body = ListLine, content_type = "application/x-ndjson"))
)]
pub(super) async fn file_list(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Response, Refused> {
    let asked = paddlecloud_files::ListQuery {
        recursive: query.recursive,
        digests: query.digest,
        after: query.after,
    };
    let lister = app.file_list(&caller, &query.path, asked).await?;
    let turns = query.digest.then(|| (app.queue.clone(), caller.user));
    Ok(lines::reply(lister, turns))
}

impl lines::Lines for Lister {
    fn next(&mut self) -> Option<Vec<u8>> {
        let mut lines = Vec::with_capacity(LINES + 1024);
        let has_more = self.pass_on(|listed| {
            serde_json::to_writer(&mut lines, &line(listed)).expect("plain data becomes JSON");
            lines.push(b'\n');
            lines.len() < LINES
        });
        if lines.is_empty() {
            // Nothing for a while: JSON ignores a blank before a line.
            lines.push(b' ');
        }
        has_more.then_some(lines)
    }
}

fn line(listed: Listed) -> ListLine {
    match listed {
        Listed::Entry(entry) => ListLine::Entry(entry),
        Listed::Unread(path, error) => ListLine::Unread(UnreadEntry {
            path: path.into(),
            error: files_failed(error),
        }),
        Listed::End(count) => ListLine::End(count),
        Listed::Broken(error) => ListLine::Error(files_failed(error)),
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct GlobQuery {
    /// Such as `/pfs/dc/home/me/data/*.rio`.
    pattern: String,
}

/// Lists everything that matches a pattern.
#[utoipa::path(
    get, path = "/api/v1/pfs/glob", tag = "files", params(GlobQuery),
    responses((status = 200, body = Envelope<Vec<FileView>>))
)]
pub(super) async fn file_glob(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    QueryParams(query): QueryParams<GlobQuery>,
) -> Reply<Envelope<Vec<FileView>>> {
    Ok(envelope(app.file_glob(&caller, query.pattern).await?))
}

/// Creates a folder.
#[utoipa::path(
    post, path = "/api/v1/pfs/mkdir", tag = "files", request_body = MkdirRequest,
    responses((status = 200, body = MkdirReply))
)]
pub(super) async fn file_mkdir(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Body(request): Body<MkdirRequest>,
) -> Reply<MkdirReply> {
    let made = app.file_mkdir(&caller, request).await.map_err(mkdir_refused)?;
    Ok(Json(MkdirReply {
        code: 200,
        msg: "OK".to_owned(),
        created: made == Made::New,
    }))
}

/// Removes files, links and folders; a failure does not stop the others.
#[utoipa::path(
    post, path = "/api/v1/pfs/remove", tag = "files", request_body = RemoveRequest,
    responses((status = 200, body = Envelope<Vec<Removed>>))
)]
pub(super) async fn file_remove(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Body(request): Body<RemoveRequest>,
) -> Reply<Envelope<Vec<Removed>>> {
    let removed = app.file_remove(&caller, request).await?;
    Ok(envelope(removed.into_iter().map(removed_view).collect()))
}

fn removed_view(one: RemovedPath) -> Removed {
    let (usage, error) = match one.removed {
        Ok(usage) => (usage, None),
        Err(error) => (UsageView::default(), Some(removal_refused(error))),
    };
    Removed {
        path: one.path.into(),
        usage,
        error,
    }
}

/// Renames a file or folder atomically.
#[utoipa::path(
    post, path = "/api/v1/pfs/rename", tag = "files", request_body = MoveRequest,
    responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn file_rename(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Body(request): Body<MoveRequest>,
) -> Reply<Envelope<String>> {
    app.file_rename(&caller, request).await?;
    Ok(envelope("OK".to_owned()))
}

/// Copies a file or folder inside the storage.
#[utoipa::path(
    post, path = "/api/v1/pfs/copy", tag = "files", request_body = MoveRequest,
    responses((status = 200, body = Envelope<CopyReply>))
)]
pub(super) async fn file_copy(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Body(request): Body<MoveRequest>,
) -> Reply<Envelope<CopyReply>> {
    Ok(envelope(app.file_copy(&caller, request).await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PathQuery {
    pub(super) path: String,
}

/// Counts bytes and files below a path.
#[utoipa::path(
    get, path = "/api/v1/pfs/usage", tag = "files", params(PathQuery),
    responses((status = 200, body = Envelope<UsageView>))
)]
pub(super) async fn file_usage(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    QueryParams(query): QueryParams<PathQuery>,
) -> Reply<Envelope<UsageView>> {
    Ok(envelope(app.file_usage(&caller, &query.path).await?))
}

/// Returns the caller's storage limit and use.
#[utoipa::path(get, path = "/api/v1/pfs/quota", tag = "files", responses((status = 200, body = Envelope<StorageView>)))]
pub(super) async fn file_storage(
    State(app): Shared,
    scope::Files(caller): scope::Files,
) -> Reply<Envelope<StorageView>> {
    Ok(envelope(app.file_storage(&caller).await?))
}
