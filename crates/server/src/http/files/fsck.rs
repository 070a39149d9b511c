//! `/api/v1/pfs/fsck`: compares all known files with their digests.

use axum::extract::State;
use axum::response::Response;
use paddlecloud_api::files::FsckLine;
use paddlecloud_files::Fsck;

use super::lines;
use crate::http::Shared;
use crate::http::reply::Refused;
use crate::http::scope;

/// Reads every file with a known digest and reports differences: one line of JSON each, then an end line. Spaces before
/// a line show that the check continues. For administrators.
#[utoipa::path(
    post, path = "/api/v1/pfs/fsck", tag = "files",
    responses((status = 200, body = FsckLine, content_type = "application/x-ndjson"))
)]
pub(in crate::http) async fn file_fsck(
    State(app): Shared,
    scope::Admin(caller): scope::Admin,
) -> Result<Response, Refused> {
    let fsck = app.file_fsck(&caller).await?;
    Ok(lines::reply(fsck, Some((app.queue.clone(), caller.user))))
}

impl lines::Lines for Fsck {
    fn next(&mut self) -> Option<Vec<u8>> {
        self.next_lines()
    }
}
