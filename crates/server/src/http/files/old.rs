//! The original's routes: `files`, `chunks` and `storage/chunks`, in its own envelope, so that an old client works.
//!
//! Every reply is 200 with `err` and `results`; a range is identified by MD5 and sent as one part of a form.

use std::sync::Arc;

use axum::body::{Body as Stream, BodyDataStream};
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::BytesMut;
use futures_util::StreamExt;
use paddlecloud_accounts::auth::Caller;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::FileMeta;
use paddlecloud_files::queue::Class;
use paddlecloud_files::{DigestMode, OLD_RANGES, StatOf};
use serde::Deserialize;
use serde_json::{Value, json};

use super::content::stream;
use crate::app::{App, AppError};
use crate::http::Shared;
use crate::http::request::Raw;
use crate::http::scope;

/// The original never used another one, and its client accepts no other.
const BOUNDARY: &str = "8d7b0e5709d756e21e971ff4d9ac3b20";
/// The head of a part is a few lines.
const LONGEST_HEAD: usize = 16 << 10;
/// The chunk does not have as many bytes as its head announces.
const WRONG_SIZE: &str = "chunksize error";

pub(in crate::http) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/pfs/files", get(look).post(change).delete(change))
        .route("/api/v1/pfs/chunks", get(range_sum))
        .route("/api/v1/pfs/storage/chunks", get(read).post(write))
}

type OldReply = Result<Json<Value>, OldError>;

/// An error in the original's envelope.
struct OldError(ErrorBody);

impl From<AppError> for OldError {
    fn from(error: AppError) -> Self {
        OldError(error.into())
    }
}

impl IntoResponse for OldError {
    fn into_response(self) -> Response {
        // Old clients look for exactly these words.
        let words = match self.0.error {
            ErrorName::NotFound => "no such file or directory",
            _ => self.0.msg.as_str(),
        };
        Json(json!({ "err": words, "results": null })).into_response()
    }
}

fn results(results: impl serde::Serialize) -> OldReply {
    Ok(Json(json!({ "err": "", "results": results })))
}

fn bad(words: &str) -> OldError {
    OldError(ErrorBody::new(ErrorName::BadRequest, words))
}

fn shown(path: &str, meta: &FileMeta) -> Value {
    json!({ "Path": path, "ModTime": meta.mtime, "Size": meta.size, "IsDir": meta.is_folder() })
}

/// `method=ls&r=…&arg=…` and `method=stat&path=…`.
async fn look(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Query(query): Query<Vec<(String, String)>>,
) -> OldReply {
    let all = |key: &'static str| {
        query
            .iter()
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    };
    let one = |key: &'static str| all(key).next();
    match one("method") {
        Some("ls") => {
            let recursive = matches!(one("r"), Some("true" | "1" | "t" | "T" | "TRUE" | "True"));
            let mut listed = Vec::new();
            for pattern in all("arg") {
                let found = app.old_list(&caller, pattern, recursive).await?;
                listed.extend(found.iter().map(|view| shown(&view.path.to_string(), &view.meta)));
            }
            results(listed)
        }
        Some("stat") => {
            let path = one("path").ok_or_else(|| bad("not enough arguments"))?;
            let of = StatOf::Target;
            let meta = app.file_stat(&caller, path, of, DigestMode::Never).await?;
            results(shown(path, &meta))
        }
        _ => Err(bad("Method Not Allowed")),
    }
}

#[derive(Deserialize)]
#[serde(tag = "method", rename_all = "lowercase")]
enum Change {
    Touch {
        path: String,
        filesize: u64,
    },
    Mkdir {
        path: Vec<String>,
    },
    Rm {
        path: Vec<String>,
        #[serde(default)]
        r: bool,
    },
}

/// `touch`, `mkdir` and `rm`, named in the body.
async fn change(State(app): Shared, scope::Files(caller): scope::Files, Raw(body): Raw) -> OldReply {
    let change = serde_json::from_slice(&body).map_err(|_| bad("parse json error"))?;
    match change {
        Change::Touch { path, filesize } => {
            app.old_touch(&caller, &path, filesize).await?;
            results(json!({ "path": path }))
        }
        Change::Mkdir { path } => {
            for path in &path {
                app.old_mkdir(&caller, path).await?;
            }
            results(
                path.iter()
                    .map(|path| json!({ "path": path }))
                    .collect::<Vec<_>>(),
            )
        }
        Change::Rm { path, r } => {
            let mut gone = Vec::new();
            for pattern in &path {
                let removed = app.old_remove(&caller, pattern, r).await?;
                gone.extend(removed.iter().map(|path| json!({ "path": path.to_string() })));
            }
            results(gone)
        }
    }
}

#[derive(Deserialize)]
struct Range {
    path: String,
    offset: u64,
    chunksize: u64,
}

/// The MD5 of a range.
async fn range_sum(State(app): Shared, scope::Files(caller): scope::Files, uri: Uri) -> OldReply {
    let Query(range): Query<Range> = Query::try_from_uri(&uri).map_err(|_| bad("parse json error"))?;
    let sum = app
        .old_range_sum(&caller, &range.path, range.offset, range.chunksize)
        .await?;
    results(json!({ "offset": sum.offset, "checksum": sum.checksum, "len": sum.len }))
}

/// The bytes of a range, as the one part of a form.
async fn read(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    uri: Uri,
) -> Result<Response, OldError> {
    let Query(range): Query<Range> = Query::try_from_uri(&uri).map_err(|_| bad("parse json error"))?;
    let content = app
        .old_read(&caller, &range.path, range.offset, range.chunksize)
        .await?;
    // The name of the part contains the real number of bytes.
    let name = uri.query().unwrap_or_default().replace(
        &format!("chunksize={}", range.chunksize),
        &format!("chunksize={}", content.len),
    );
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"chunk\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let end = format!("\r\n--{BOUNDARY}--\r\n");
    let once = |text: String| futures_util::stream::once(async move { Ok(text.into()) });
    let pieces = stream(content, |content| content.next_piece());
    let body = Stream::from_stream(once(head).chain(pieces).chain(once(end)));
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    Ok(([(CONTENT_TYPE, kind)], body).into_response())
}

/// How much of a refused range is read: an old client reads the reply only after it sent everything.
const READ_AFTER_REFUSAL: usize = 33 << 20;

/// Receives a range: the first part called `chunk`, whose file name contains its position.
async fn write(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    headers: HeaderMap,
    body: Stream,
) -> OldReply {
    let mut pieces = body.into_data_stream();
    let taken = take_range(&app, &caller, &headers, &mut pieces).await;
    if taken.is_err() {
        let mut left = READ_AFTER_REFUSAL;
        while let Some(Ok(piece)) = pieces.next().await
            && piece.len() < left
        {
            left -= piece.len();
        }
    }
    taken
}

async fn take_range(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    pieces: &mut BodyDataStream,
) -> OldReply {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = kind
        .and_then(|kind| kind.split_once("boundary="))
        .map(|(_, rest)| rest);
    let boundary = boundary
        .ok_or_else(|| bad("parse json error"))?
        .trim_matches('"')
        .to_owned();
    let mut buffer = BytesMut::new();
    let mut searched = 0;
    let range = loop {
        let found = buffer[searched..]
            .windows(4)
            .position(|window| window == b"\r\n\r\n");
        if let Some(end) = found {
            let head = buffer.split_to(searched + end + 4);
            break part_range(&head, &boundary).ok_or_else(|| bad("parse json error"))?;
        }
        if buffer.len() > LONGEST_HEAD + (1 << 20) {
            return Err(bad("parse json error"));
        }
        searched = buffer.len().saturating_sub(3);
        if !read_more(pieces, &mut buffer).await? {
            return Err(bad("parse json error"));
        }
    };
    if range.chunksize > *OLD_RANGES.end() {
        return Err(bad(WRONG_SIZE));
    }
    // The range is in memory until all of it has come: one of another size must not be stored.
    let _turn = app.queue.turn(Class::List, &caller.user).await;
    let len = usize::try_from(range.chunksize).map_err(|_| bad(WRONG_SIZE))?;
    let end = format!("\r\n--{boundary}");
    while buffer.len() < len + end.len() {
        if !read_more(pieces, &mut buffer).await? {
            return Err(bad(WRONG_SIZE));
        }
    }
    // A chunk of another size than announced contains the boundary, or a part of it.
    if !buffer[len..].starts_with(end.as_bytes()) {
        return Err(bad(WRONG_SIZE));
    }
    buffer.truncate(len);
    app.old_post(caller, &range.path, range.offset, buffer.into())
        .await?;
    results(Value::Null)
}

/// Appends the next frame of the body; false at its end.
async fn read_more(pieces: &mut BodyDataStream, buffer: &mut BytesMut) -> Result<bool, OldError> {
    let Some(piece) = pieces.next().await else {
        return Ok(false);
    };
    buffer.extend_from_slice(&piece.map_err(|_| bad("the bytes did not arrive completely"))?);
    Ok(true)
}

/// Parses the head of a part.
fn part_range(head: &[u8], boundary: &str) -> Option<Range> {
    let head = std::str::from_utf8(head).ok()?;
    let head = head
        .trim_start_matches("\r\n")
        .strip_prefix("--")?
        .strip_prefix(boundary)?;
    let (_, rest) = head.split_once("filename=\"")?;
    let (name, _) = rest.split_once('"')?;
    if !head.contains("name=\"chunk\"") {
        return None;
    }
    let uri: Uri = format!("/?{name}").parse().ok()?;
    let Query(range) = Query::try_from_uri(&uri).ok()?;
    Some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parts_head_says_where_its_bytes_belong() {
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"chunk\"; \
             filename=\"chunksize=5&offset=7&path=%2Fpfs%2Fdc%2Fhome%2Fme%2Fa\"\r\n\r\n"
        );
        let range = part_range(head.as_bytes(), BOUNDARY).unwrap();
        assert_eq!(
            (range.path.as_str(), range.offset, range.chunksize),
            ("/pfs/dc/home/me/a", 7, 5)
        );
        assert!(part_range(head.as_bytes(), "other").is_none());
    }
}
