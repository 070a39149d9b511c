//! `/api/v1/packages`: announced by a list of files, sent as one stream.

use std::time::Duration;

use axum::body::{Body as Stream, BodyDataStream};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use paddlecloud_api::Envelope;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::PackageReply;
use paddlecloud_core::names::UserName;
use tokio::time::{Instant, timeout, timeout_at};

use super::Shared;
use super::alive;
use super::reply::{Refused, envelope};
use crate::app::{App, Upload};
use crate::auth::Caller;
use crate::long::{Long, SHORT_LIST, Turn};
use crate::packages::MOST_LIST;

/// How long one that is not short waits for its turn, in silence: clients wait longer, and so do proxies.
const TURN_WITHIN: Duration = Duration::from_secs(100);
/// How long a list may take to come, and bytes a millisecond that give it more.
const LIST_WITHIN: Duration = Duration::from_secs(600);
const SLOWEST: u64 = 8;
/// How much of a refused upload is taken, and for how long.
const DRAIN_BYTES: usize = 1 << 30;
const DRAIN_TIME: Duration = Duration::from_secs(10);

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
    headers: HeaderMap,
    body: Stream,
) -> Response {
    // Not before all of it has come: who hears a reply may stop sending, proxies do.
    let (list, turn) = match list_of(&app.long, &caller.user, body).await {
        Ok(read) => read,
        Err(refused) => return refused.into_response(),
    };
    let announce = async move { Ok(app.package_announce(&caller, list, turn).await?) };
    lasting(&headers, announce).await
}

/// The reply to what may last: whole packages are read, synced or waited for.
async fn lasting(
    headers: &HeaderMap,
    work: impl Future<Output = Result<PackageReply, Refused>> + Send + 'static,
) -> Response {
    let work = async move { work.await.map(envelope).into_response() };
    match alive::is_asked(headers) {
        true => alive::reply(work).await,
        false => work.await,
    }
}

/// The whole list, and the turn that a long one has when it has come: whoever sends slowly keeps only their own from that.
async fn list_of(long: &Long, user: &UserName, body: Stream) -> Result<(Bytes, Option<Turn>), Refused> {
    let mut pieces = body.into_data_stream();
    let (mut list, mut coming) = (BytesMut::new(), None);
    let mut until = Instant::now() + LIST_WITHIN;
    while let Some(piece) = timeout_at(until, pieces.next()).await.map_err(|_| late())? {
        let piece = piece.map_err(|_| cut())?;
        if list.len() + piece.len() > MOST_LIST {
            drop((list, coming));
            let _ = timeout(DRAIN_TIME, drain(pieces)).await;
            return Err(too_long());
        }
        if coming.is_none() && list.len() + piece.len() > SHORT_LIST {
            let waited = Instant::now();
            let Ok(free) = timeout(TURN_WITHIN, long.coming_list(user)).await else {
                drop(list);
                return Err(refused_at(pieces, busy()).await);
            };
            coming = Some(free);
            until += waited.elapsed();
        }
        until += Duration::from_millis(piece.len() as u64 / SLOWEST);
        list.extend_from_slice(&piece);
    }
    if coming.is_none() {
        return Ok((list.freeze(), None));
    }
    let turn = timeout(TURN_WITHIN, long.list_turn(user)).await;
    let turn = turn.map_err(|_| Refused(busy()))?;
    Ok((list.freeze(), Some(turn)))
}

fn busy() -> ErrorBody {
    let problem = "the server is busy with other long lists of files";
    ErrorBody::new(ErrorName::Unavailable, problem).with_hint("submit again in a moment")
}

fn late() -> Refused {
    let problem = "the list of files did not come in time";
    Refused(ErrorBody::new(ErrorName::RequestTimeout, problem).with_hint("submit again"))
}

fn too_long() -> Refused {
    let problem = format!(
        "the list of the package's files is longer than {} MiB",
        MOST_LIST >> 20
    );
    let refused = ErrorBody::new(ErrorName::PayloadTooLarge, problem);
    Refused(
        refused
            .with_hint("name what is not needed there in `.paddleignore`; bring data up with `paddlectl cp`"),
    )
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
    headers: HeaderMap,
    body: Stream,
) -> Response {
    match taken_in(&app, &caller, &id, body).await {
        Ok(upload) => lasting(&headers, async move { Ok(upload.finish().await?) }).await,
        Err(refused) => refused.into_response(),
    }
}

/// The upload with all its pieces.
async fn taken_in(app: &App, caller: &Caller, id: &str, body: Stream) -> Result<Upload, Refused> {
    let mut pieces = body.into_data_stream();
    let mut upload = match app.package_receive(caller, id).await {
        Ok(upload) => upload,
        Err(refused) => return Err(refused_at(pieces, refused).await),
    };
    while let Some(piece) = pieces.next().await {
        if let Err(refused) = upload.feed(piece.map_err(|_| cut())?).await {
            drop(upload);
            return Err(refused_at(pieces, refused).await);
        }
    }
    Ok(upload)
}

async fn refused_at(pieces: BodyDataStream, refused: ErrorBody) -> Refused {
    let _ = timeout(DRAIN_TIME, drain(pieces)).await;
    refused.into()
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
    Refused(refused.with_hint("submit again: what arrived is not sent again"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt as _, stream};

    use super::*;

    /// A list that is long and of which the rest never comes.
    fn slow_list() -> Stream {
        let first = stream::once(async { Bytes::from(vec![b' '; SHORT_LIST + 1]) });
        Stream::from_stream(first.chain(stream::pending()).map(Ok::<_, Infallible>))
    }

    /// The time is not real.
    #[tokio::test(start_paused = true)]
    async fn who_sends_a_long_list_slowly_keeps_nobody_else_from_comparing_theirs() {
        let (long, me) = (Long::default(), "me".parse().unwrap());
        let began = Instant::now();
        let (list, turns) = tokio::join!(list_of(&long, &me, slow_list()), async {
            timeout(Duration::from_secs(1), long.list_turn(&me)).await
        });
        assert!(turns.is_ok(), "the turn is for lists that have come");
        let Err(Refused(refused)) = list else {
            panic!("it never ends");
        };
        assert_eq!(refused.error, ErrorName::RequestTimeout);
        assert!(began.elapsed() >= LIST_WITHIN, "{:?}", began.elapsed());
        assert!(long.coming_list(&me).now_or_never().is_some(), "it is free again");
    }

    #[tokio::test]
    async fn a_long_list_that_has_come_has_its_turn() {
        let (long, me) = (Long::default(), "me".parse().unwrap());
        let whole = Stream::from(vec![b' '; SHORT_LIST + 1]);
        let (list, turn) = list_of(&long, &me, whole).await.unwrap();
        assert_eq!(list.len(), SHORT_LIST + 1);
        assert!(turn.is_some() && long.list_turn(&me).now_or_never().is_none());
    }
}
