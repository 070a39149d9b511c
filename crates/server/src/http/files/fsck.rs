//! `/api/v1/pfs/fsck`: all known files against what is known of them.

use axum::extract::{Path, State};
use axum::response::Response;
use paddlecloud_api::Envelope;
use paddlecloud_api::files::FsckLine;

use super::lines;
use crate::auth::Caller;
use crate::files::Fsck;
use crate::http::Shared;
use crate::http::reply::{Refused, Reply, envelope};

/// Reads every file the server knows the digest of and says which are not as they were: a line of JSON for each, then one
/// that says it is the end. Spaces before a line say that it goes on. For administrators.
#[utoipa::path(
    post, path = "/api/v1/pfs/fsck", tag = "files",
    responses((status = 200, body = FsckLine, content_type = "application/x-ndjson"))
)]
pub(in crate::http) async fn file_fsck(State(app): Shared, caller: Caller) -> Result<Response, Refused> {
    let fsck = app.file_fsck(&caller).await?;
    Ok(lines::reply_at_length(fsck, &app.long, &caller.user))
}

impl lines::Lines for Fsck {
    fn next(&mut self) -> Option<Vec<u8>> {
        self.next_lines()
    }
}

/// What a check found was told to people: what changed or went past the service is not found again. For administrators.
#[utoipa::path(
    post, path = "/api/v1/pfs/fsck/{id}/told", tag = "files", params(("id" = String, Path)),
    responses((status = 200, body = Envelope<String>))
)]
pub(in crate::http) async fn file_fsck_told(
    State(app): Shared,
    caller: Caller,
    Path(id): Path<String>,
) -> Reply<Envelope<String>> {
    app.file_fsck_told(&caller, id).await?;
    Ok(envelope("OK".to_owned()))
}
