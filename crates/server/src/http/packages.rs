//! `/api/v1/packages`: announced by a list of files, sent as one stream.

use std::time::Duration;

use axum::body::{Body as Stream, BodyDataStream};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use paddlecloud_api::Envelope;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::PackageReply;
use paddlecloud_core::names::UserName;
use tokio::time::{Instant, timeout, timeout_at};

use super::reply::{Refused, envelope};
use super::request::Named;
use super::{Shared, alive, scope};
use crate::app::{App, Upload};
use crate::auth::Caller;
use crate::packages::SHORT_LIST;
use crate::queue::{Class, Queue, Turn};

/// How long a long list waits for its turn, in silence: clients and proxies wait longer.
const TURN_WITHIN: Duration = Duration::from_secs(100);
/// How long a list may take to arrive, and bytes per millisecond that extend it.
const LIST_WITHIN: Duration = Duration::from_secs(600);
const SLOWEST: u64 = 8;
/// How much of a refused upload is read, and for how long.
const DRAIN_BYTES: usize = 1 << 30;
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Returns whether the server has a package: 200 or 404, without a body.
#[utoipa::path(
    head, path = "/api/v1/packages/{id}", tag = "packages", params(("id" = String, Path)),
    responses((status = 200), (status = 404))
)]
pub(super) async fn package_has(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    Named(id): Named<String>,
) -> Result<StatusCode, Refused> {
    let here = app.package_has(&caller, &id).await?;
    Ok(if here {
        StatusCode::OK
    } else {
        StatusCode::NOT_FOUND
    })
}

/// Announces the list of a package's files and returns which of them must be sent.
#[utoipa::path(
    post, path = "/api/v1/packages", tag = "packages", request_body(content = Object, content_type = "application/json"),
    responses((status = 200, body = Envelope<PackageReply>))
)]
pub(super) async fn package_announce(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    headers: HeaderMap,
    body: Stream,
) -> Response {
    // Not before all of it has come: who hears a reply may stop sending, proxies do.
    let (list, turn) = match list_of(&app.queue, &caller.user, app.list_limit, body).await {
        Ok(read) => read,
        Err(refused) => return refused.into_response(),
    };
    let announce = async move { Ok(app.package_announce(&caller, list, turn).await?) };
    lasting(&headers, announce).await
}

/// The reply to long work: whole packages are read, synced or waited for.
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

/// The whole list, and the turn that a long one has as long as it is in memory: whoever sends slowly keeps only their own
/// waiting.
async fn list_of(
    queue: &Queue,
    user: &UserName,
    most: usize,
    body: Stream,
) -> Result<(Bytes, Option<Turn>), Refused> {
    let mut pieces = body.into_data_stream();
    let (mut list, mut turn) = (BytesMut::new(), None);
    let short = SHORT_LIST.min(most / 16);
    let mut until = Instant::now() + LIST_WITHIN;
    while let Some(piece) = timeout_at(until, pieces.next()).await.map_err(|_| late())? {
        let piece = piece.map_err(|_| cut())?;
        if list.len() + piece.len() > most {
            drop((list, turn));
            let _ = timeout(DRAIN_TIME, drain(pieces)).await;
            return Err(too_long(most));
        }
        if turn.is_none() && list.len() + piece.len() > short {
            let waited = Instant::now();
            let Ok(free) = timeout(TURN_WITHIN, queue.turn(Class::List, user)).await else {
                drop(list);
                return Err(refused_at(pieces, busy()).await);
            };
            turn = Some(free);
            until += waited.elapsed();
        }
        until += Duration::from_millis(piece.len() as u64 / SLOWEST);
        list.extend_from_slice(&piece);
    }
    Ok((list.freeze(), turn))
}

fn busy() -> ErrorBody {
    let problem = "other packages of yours that have very many files are just being sent";
    ErrorBody::new(ErrorName::Unavailable, problem).with_hint("wait for those `submit`s, or end them")
}

fn late() -> Refused {
    let problem = "the list of files did not arrive in time";
    Refused(ErrorBody::new(ErrorName::RequestTimeout, problem).with_hint("submit again"))
}

fn too_long(most: usize) -> Refused {
    let problem = format!(
        "the list of the package's files is longer than {} MiB",
        most >> 20
    );
    let refused = ErrorBody::new(ErrorName::PayloadTooLarge, problem);
    Refused(
        refused
            .with_hint("list what the job does not need in `.paddleignore`; upload data with `paddlectl cp`"),
    )
}

/// Uploads the files. The package is complete and synced when the reply is sent.
#[utoipa::path(
    put, path = "/api/v1/packages/{id}", tag = "packages", params(("id" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Envelope<PackageReply>))
)]
pub(super) async fn package_receive(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    Named(id): Named<String>,
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

/// Reads the rest and discards it: a client that is disconnected while it sends may never see the reply.
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
    let refused = ErrorBody::new(ErrorName::BadRequest, "the package did not arrive completely");
    Refused(refused.with_hint("submit again: files already received are not sent again"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt as _, stream};

    use super::*;
    use crate::packages::MOST_LIST;

    /// A long list whose rest never arrives.
    fn slow_list() -> Stream {
        let first = stream::once(async { Bytes::from(vec![b' '; SHORT_LIST + 1]) });
        Stream::from_stream(first.chain(stream::pending()).map(Ok::<_, Infallible>))
    }

    /// The time is virtual.
    #[tokio::test(start_paused = true)]
    async fn who_sends_a_long_list_slowly_keeps_nobody_else_from_sending_theirs() {
        let (queue, me, you) = (Queue::default(), "me".parse().unwrap(), "you".parse().unwrap());
        let began = Instant::now();
        let whole = || Stream::from(vec![b' '; SHORT_LIST + 1]);
        let (list, theirs) = tokio::join!(list_of(&queue, &me, MOST_LIST, slow_list()), async {
            timeout(Duration::from_secs(1), list_of(&queue, &you, MOST_LIST, whole())).await
        });
        assert!(theirs.is_ok(), "it waits for nobody");
        let Err(Refused(refused)) = list else {
            panic!("it never ends");
        };
        assert_eq!(refused.error, ErrorName::RequestTimeout);
        assert!(began.elapsed() >= LIST_WITHIN, "{:?}", began.elapsed());
        let turns = [(); 2].map(|()| queue.turn(Class::List, &me).now_or_never());
        assert!(turns.iter().all(Option::is_some), "it is free again");
    }

    #[tokio::test]
    async fn a_long_list_that_has_come_has_its_turn() {
        let (queue, me) = (Queue::default(), "me".parse().unwrap());
        let whole = Stream::from(vec![b' '; SHORT_LIST + 1]);
        let (list, turn) = list_of(&queue, &me, MOST_LIST, whole).await.unwrap();
        assert_eq!(list.len(), SHORT_LIST + 1);
        let other = queue.turn(Class::List, &me).now_or_never();
        assert!(turn.is_some() && other.is_some());
        assert!(queue.turn(Class::List, &me).now_or_never().is_none());
    }
}
