//! `/api/v1/pfs/pack`: many small files in one request, in both directions.

use std::io;

use axum::body::{Body as Stream, BodyDataStream};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use paddlecloud_api::Envelope;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::files::{PackFailure, PackReply, PackRequest};
use paddlecloud_files::lane::LaneRequest;
use paddlecloud_files::{PackStored, Takes};
use paddlecloud_pfs::pack::PackTotals;
use serde::Deserialize;

use super::content::stream;
use crate::app::Taking;
use crate::http::gather::Gathered;
use crate::http::query::QueryParams;
use crate::http::refusal::files_failed;
use crate::http::reply::{Refused, envelope};
use crate::http::request::{Body, flag};
use crate::http::scope;
use crate::http::{Shared, alive};

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct PackQuery {
    /// The folder of the entries; created if necessary.
    path: String,
    /// The most bytes of content in the pack.
    bytes: u64,
    /// The most entries in it.
    entries: u64,
    /// Keep existing files.
    #[serde(default, deserialize_with = "flag")]
    no_overwrite: bool,
}

/// Uploads a pack. Its files are complete and synced when the reply is sent.
#[utoipa::path(
    put, path = "/api/v1/pfs/pack", tag = "files", params(PackQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Envelope<PackReply>))
)]
pub(in crate::http) async fn pack_receive(
    State(app): Shared,
    scope::Upload(caller): scope::Upload,
    headers: HeaderMap,
    QueryParams(query): QueryParams<PackQuery>,
    body: Stream,
) -> Result<Response, Refused> {
    let announced = PackTotals {
        entries: query.entries,
        bytes: query.bytes,
    };
    let taking = app
        .pack_in(&caller, &query.path, announced, query.no_overwrite)
        .await?;
    let taken = take_in(taking, body).await?;
    let ending = async move {
        let ended = taken
            .finish()
            .await
            .map(|stored| envelope(reply(stored)))
            .map_err(Refused::from);
        ended.into_response()
    };
    // Not before all of it has arrived: a client that gets a reply may stop sending.
    Ok(match alive::is_requested(&headers) {
        true => alive::reply_to_blocking(ending).await,
        false => ending.await,
    })
}

fn reply(pack: PackStored) -> PackReply {
    let failed = pack.failed.into_iter().map(|(path, error)| PackFailure {
        path,
        error: files_failed(error),
    });
    PackReply {
        stored: pack.stored,
        kept: pack.kept,
        failed: failed.collect(),
    }
}

/// Downloads small files below a folder as a pack. Unreadable files are omitted.
#[utoipa::path(
    post, path = "/api/v1/pfs/pack", tag = "files", request_body = PackRequest,
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"))
)]
pub(in crate::http) async fn pack_send(
    State(app): Shared,
    scope::Files(caller): scope::Files,
    Body(request): Body<PackRequest>,
) -> Result<Response, Refused> {
    let pack = app.pack_out(&caller, request).await?;
    let pieces = stream(pack, |pack| pack.next_piece().map_err(io::Error::other));
    let body = Stream::from_stream(pieces);
    Ok(([(CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

/// Bytes that are passed to a blocking thread at once: passing them costs as much as hashing some ten kilobytes.
/// Hundreds of connections may hold this much at the same time.
const AT_ONCE: usize = 128 << 10;

/// What follows the pieces that arrived together.
enum After {
    More,
    End,
    Break,
}

/// Feeds a request's body to a receiver, and accepts it. Pieces received before a break are kept too.
pub(super) async fn take_all<T: Takes>(taking: Taking<T>, body: Stream) -> Result<T::Done, Refused> {
    Ok(take_in(taking, body).await?.finish().await?)
}

/// The same without accepting it.
async fn take_in<T: Takes>(mut taking: Taking<T>, body: Stream) -> Result<Taking<T>, Refused> {
    let mut stream = body.into_data_stream();
    let thread = LaneRequest::take();
    loop {
        // Without a handover, pieces are best processed while they are in the processor's cache.
        let enough = if thread.reach().await { 1 } else { AT_ONCE };
        let (pieces, after) = gather(&mut stream, enough).await;
        if !pieces.is_empty() {
            taking.feed(pieces).await?;
        }
        match after {
            After::More => {}
            After::End => return Ok(taking),
            After::Break => return Err(cut()),
        }
    }
}

async fn gather(stream: &mut BodyDataStream, enough: usize) -> (Vec<Bytes>, After) {
    let mut gathered = Gathered::default();
    while gathered.len() < enough {
        match stream.next().await {
            Some(Ok(frame)) => gathered.push(frame),
            Some(Err(_)) => return (gathered.into_pieces(), After::Break),
            None => return (gathered.into_pieces(), After::End),
        }
    }
    (gathered.into_pieces(), After::More)
}

fn cut() -> Refused {
    let refused = ErrorBody::new(ErrorName::BadRequest, "the bytes did not arrive completely");
    Refused(refused.with_hint("send it again"))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn pieces_of_one_byte_are_handed_over_together_and_keep_no_buffer() {
        let buffers: Vec<Bytes> = (0..1000).map(|_| Bytes::from(vec![b'x'; 4096])).collect();
        let frames: Vec<_> = buffers
            .iter()
            .map(|buffer| Ok::<_, io::Error>(buffer.slice(..1)))
            .collect();
        let mut body = Stream::from_stream(stream::iter(frames)).into_data_stream();
        let (pieces, _) = gather(&mut body, AT_ONCE).await;
        assert_eq!(pieces, [vec![b'x'; 1000]]);
        assert!(buffers.iter().all(Bytes::is_unique));
    }
}
