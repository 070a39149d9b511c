//! `/api/v1/pfs/pack`: many small files in one request, either way.

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
use paddlecloud_api::files::{PackReply, PackRequest};
use paddlecloud_pfs::pack::PackTotals;
use serde::Deserialize;

use super::content::stream;
use crate::app::{Takes, Taking};
use crate::auth::Caller;
use crate::http::query::Asked;
use crate::http::reply::{Refused, Reply, envelope};
use crate::http::request::{Body, flag};
use crate::http::{Shared, alive};
use crate::lane::Seat;

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct PackQuery {
    /// The folder the entries lie in; made if need be.
    path: String,
    /// Bytes of content the pack holds at most.
    bytes: u64,
    /// Entries it holds at most.
    entries: u64,
    /// Leave alone what is there.
    #[serde(default, deserialize_with = "flag")]
    no_overwrite: bool,
}

/// Takes a pack. Its files are in their places, whole and synced, when the reply comes.
#[utoipa::path(
    put, path = "/api/v1/pfs/pack", tag = "files", params(PackQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Envelope<PackReply>))
)]
pub(in crate::http) async fn pack_receive(
    State(app): Shared,
    caller: Caller,
    headers: HeaderMap,
    Asked(query): Asked<PackQuery>,
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
        let ended: Reply<Envelope<PackReply>> = taken.finish().await.map(envelope).map_err(Refused);
        ended.into_response()
    };
    // Not before all of it has come: who hears a reply may stop sending.
    Ok(match alive::is_asked(&headers) {
        true => alive::reply_beside(ending).await,
        false => ending.await,
    })
}

/// Sends small files below a folder as a pack. What cannot be read is left out.
#[utoipa::path(
    post, path = "/api/v1/pfs/pack", tag = "files", request_body = PackRequest,
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"))
)]
pub(in crate::http) async fn pack_send(
    State(app): Shared,
    caller: Caller,
    Body(request): Body<PackRequest>,
) -> Result<Response, Refused> {
    let pack = app.pack_out(&caller, request).await?;
    let pieces = stream(pack, |pack| pack.next_piece().map_err(io::Error::other));
    let body = Stream::from_stream(pieces);
    Ok(([(CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

/// Bytes that go to a thread that may block in one go: handing them over costs as much as hashing some ten
/// kilobytes. Hundreds of connections may hold as many at once.
const AT_ONCE: usize = 128 << 10;

/// What follows the pieces that came together.
enum After {
    More,
    End,
    Break,
}

/// Feeds a request's body to whoever takes it, and accepts it. What came before a break is taken too.
pub(super) async fn take_all<T: Takes>(taking: Taking<T>, body: Stream) -> Result<T::Done, Refused> {
    Ok(take_in(taking, body).await?.finish().await?)
}

/// The same, but for accepting it.
async fn take_in<T: Takes>(mut taking: Taking<T>, body: Stream) -> Result<Taking<T>, Refused> {
    let mut stream = body.into_data_stream();
    let seat = Seat::take();
    loop {
        // Where nothing is handed over, pieces are best taken while the processor has them at hand.
        let enough = if seat.reach().await { 1 } else { AT_ONCE };
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
    let mut pieces = Vec::new();
    let mut bytes = 0;
    while bytes < enough {
        match stream.next().await {
            Some(Ok(piece)) => {
                bytes += piece.len();
                pieces.push(piece);
            }
            Some(Err(_)) => return (pieces, After::Break),
            None => return (pieces, After::End),
        }
    }
    (pieces, After::More)
}

fn cut() -> Refused {
    let refused = ErrorBody::new(ErrorName::BadRequest, "the bytes did not arrive whole");
    Refused(refused.with_hint("send it again"))
}
