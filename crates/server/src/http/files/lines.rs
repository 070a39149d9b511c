//! Replies of many lines, each on its way before the next is looked for.

use axum::body::Body as Stream;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;

/// Lines of JSON from something that blocks while it makes them; nothing more at its end. A slow reader slows it down.
///
/// Made on other threads than the connection's own, also where that may block (see [`crate::lane`]): there it would not
/// send the little that is there while the rest takes its time, and whoever waits would give up.
pub(super) fn reply<T: Send + 'static>(source: T, next: fn(&mut T) -> Option<Vec<u8>>) -> Response {
    let lines = stream::try_unfold(source, move |mut source| async move {
        let made = tokio::task::spawn_blocking(move || {
            let lines = next(&mut source);
            (source, lines)
        });
        let (source, lines) = made.await?;
        Ok::<_, tokio::task::JoinError>(lines.map(|lines| (Bytes::from(lines), source)))
    });
    (
        [(CONTENT_TYPE, "application/x-ndjson")],
        Stream::from_stream(lines),
    )
        .into_response()
}
