//! `/api/v1/pfs/content` and `signature`: downloads.

use std::io;

use axum::body::Body as Stream;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_RANGE, RANGE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::DIGEST_HEADER;
use paddlecloud_files::lane::{self, LaneRequest};
use paddlecloud_files::{ByteRange, Content, Opened, RequestedBytes};

use super::PathQuery;
use crate::http::Shared;
use crate::http::query::QueryParams;
use crate::http::reply::Refused;
use crate::http::scope;

const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Returns the bytes of a file. `Range` selects a part, `If-Match` a version; with `If-Range`, another version is
/// returned completely.
#[utoipa::path(
    get, path = "/api/v1/pfs/content", tag = "files", params(PathQuery),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 416, body = ErrorBody)
    )
)]
pub(in crate::http) async fn file_content(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    QueryParams(query): QueryParams<PathQuery>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let requested = RequestedBytes {
        version: version(&headers),
        ..requested(&headers)
    };
    Ok(reply(app.file_content(&caller, &query.path, requested).await?))
}

/// Returns checksums of a file's blocks, with which a client finds the parts that a new version shares with it.
#[utoipa::path(
    get, path = "/api/v1/pfs/signature", tag = "files", params(PathQuery),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"))
)]
pub(in crate::http) async fn file_signature(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    QueryParams(query): QueryParams<PathQuery>,
) -> Result<Response, Refused> {
    let signature = app.file_signature(&caller, &query.path).await?;
    Ok(([(CONTENT_TYPE, OCTETS)], signature).into_response())
}

/// A file's bytes with the HTTP headers for ranges.
pub(super) fn reply(opened: Opened) -> Response {
    match opened {
        Opened::Content(content) => reply_content(*content),
        Opened::Outside { size } => reply_outside(size),
    }
}

fn reply_outside(size: u64) -> Response {
    let problem = format!("the requested range is outside the file, which has {size} bytes");
    let refused = ErrorBody {
        code: StatusCode::RANGE_NOT_SATISFIABLE.as_u16(),
        ..ErrorBody::new(ErrorName::BadRequest, problem)
    };
    let range = HeaderValue::try_from(format!("bytes */{size}")).expect("digits and signs");
    ([(CONTENT_RANGE, range)], Refused(refused)).into_response()
}

fn reply_content(content: Content) -> Response {
    let mut headers = HeaderMap::from_iter([
        (CONTENT_TYPE, OCTETS),
        (CONTENT_LENGTH, content.len.into()),
        (ETAG, quoted(&content.version)),
        (ACCEPT_RANGES, HeaderValue::from_static("bytes")),
    ]);
    if let Some(digest) = content.digest {
        let digest = HeaderValue::try_from(digest.to_string()).expect("hex digits");
        headers.insert(HeaderName::from_static(DIGEST_HEADER), digest);
    }
    let mut status = StatusCode::OK;
    if content.range != ByteRange::All {
        status = StatusCode::PARTIAL_CONTENT;
        let end = content.offset + content.len.saturating_sub(1);
        let range = format!("bytes {}-{end}/{}", content.offset, content.meta.size);
        headers.insert(
            CONTENT_RANGE,
            HeaderValue::try_from(range).expect("digits and signs"),
        );
    }
    let pieces = stream(content, |content| content.next_piece());
    (status, headers, Stream::from_stream(pieces)).into_response()
}

/// Pieces that are produced by blocking work, one at a time: a slow reader slows it down.
pub(super) fn stream<T: Send + 'static>(
    source: T,
    next: fn(&mut T) -> io::Result<Option<Bytes>>,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold(Some((source, None)), move |state| async move {
        let (mut source, thread) = state?;
        let thread = thread.unwrap_or_else(LaneRequest::take);
        thread.reach().await;
        let made = lane::blocking(move || {
            let piece = next(&mut source);
            (source, piece)
        });
        match made.await {
            Ok((source, Ok(Some(piece)))) => Some((Ok(piece), Some((source, Some(thread))))),
            Ok((_, Ok(None))) => None,
            Ok((_, Err(error))) => Some((Err(error), None)),
            Err(error) => Some((Err(io::Error::other(error)), None)),
        }
    })
}

/// The requested bytes, of any version.
pub(super) fn requested(headers: &HeaderMap) -> RequestedBytes {
    let text = |name| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default().trim())
    };
    RequestedBytes {
        range: text(RANGE).map(ByteRange::parse).unwrap_or_default(),
        // A date, a weak tag or anything else is not a version of ours.
        range_of: text(IF_RANGE).map(|tag| unquoted(tag).unwrap_or_default().to_owned()),
        version: None,
    }
}

fn unquoted(tag: &str) -> Option<&str> {
    tag.strip_prefix('"')?.strip_suffix('"')
}

/// The version that a request requires.
fn version(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(IF_MATCH)?.to_str().ok()?.trim();
    (value != "*").then(|| value.trim_matches('"').to_owned())
}

fn quoted(version: &str) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("hex digits in quotes")
}
