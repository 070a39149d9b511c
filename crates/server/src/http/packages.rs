//! `/api/v1/packages`: announced by a list of files. The files themselves are uploaded to `/api/v1/pfs`.

use std::time::Duration;

use axum::body::{Body as Stream, BodyDataStream};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use paddlecloud_accounts::refusals::Limit;
use paddlecloud_api::Envelope;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::PackageReply;
use paddlecloud_core::names::UserName;
use paddlecloud_files::packages::SHORT_LIST;
use paddlecloud_files::queue::{Class, Queue, Turn};
use tokio::time::timeout;

use super::reply::{Refused, envelope};
use super::{Shared, alive, scope};

/// How long a long list waits for its turn, in silence: clients and proxies wait longer.
const TURN_WITHIN: Duration = Duration::from_secs(100);
/// How long the rest of a refused list is read.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Announces the list of a package's files. Returns which to upload into its folder, or that it is stored and synced.
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
    // Not before all of it has arrived: a client that gets a reply may stop sending, and proxies do.
    let (list, turn) = match list_of(&app.queue, &caller.user, app.list_limit, body).await {
        Ok(read) => read,
        Err(refused) => {
            if refused.0.error == ErrorName::Unavailable {
                app.metrics.refusals.count(Limit::LargeBodies);
            }
            return refused.into_response();
        }
    };
    let work = async move {
        let announced = app.package_announce(&caller, list, turn).await;
        announced.map(envelope).map_err(Refused::from).into_response()
    };
    // Whole packages are read and synced.
    match alive::is_requested(&headers) {
        true => alive::reply(work).await,
        false => work.await,
    }
}

/// The whole list, and the turn that a long one has as long as it is in memory: a user who sends slowly delays only their own.
async fn list_of(
    queue: &Queue,
    user: &UserName,
    most: usize,
    body: Stream,
) -> Result<(Bytes, Option<Turn>), Refused> {
    let short = SHORT_LIST.min(most / 16);
    let mut pieces = body.into_data_stream();
    let (mut list, mut turn) = (BytesMut::new(), None);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| cut())?;
        let len = list.len() + piece.len();
        if len > most {
            drop((list, turn));
            return Err(refused_at(pieces, too_long(most)).await);
        }
        if turn.is_none() && len > short {
            let Ok(free) = timeout(TURN_WITHIN, queue.turn(Class::List, user)).await else {
                drop(list);
                return Err(refused_at(pieces, busy()).await);
            };
            turn = Some(free);
        }
        list.extend_from_slice(&piece);
    }
    Ok((list.freeze(), turn))
}

fn busy() -> ErrorBody {
    let problem = "other packages of yours with very many files are being uploaded";
    ErrorBody::new(ErrorName::Unavailable, problem).with_hint("wait for those `submit`s, or stop them")
}

fn too_long(most: usize) -> ErrorBody {
    let mib = most >> 20;
    let problem = format!("the list of the package's files is longer than {mib} MiB");
    ErrorBody::new(ErrorName::PayloadTooLarge, problem)
        .with_hint("list what the job does not need in `.paddleignore`; upload data with `paddlectl cp`")
}

/// Reads the rest of a refused list and discards it: a client that is disconnected while it sends may never see the reply.
async fn refused_at(mut pieces: BodyDataStream, refused: ErrorBody) -> Refused {
    let rest = async { while let Some(Ok(_)) = pieces.next().await {} };
    let _ = timeout(DRAIN_TIME, rest).await;
    refused.into()
}

fn cut() -> Refused {
    let refused = ErrorBody::new(ErrorName::BadRequest, "the package did not arrive completely");
    Refused(refused.with_hint("submit again: files already received are not sent again"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt as _, stream};
    use paddlecloud_files::packages::MOST_LIST;

    use super::*;

    #[tokio::test]
    async fn a_slow_long_list_does_not_block_other_users() {
        let (queue, me, you) = (Queue::default(), "me".parse().unwrap(), "you".parse().unwrap());
        let first = stream::once(async { Bytes::from(vec![b' '; SHORT_LIST + 1]) });
        let slow = Stream::from_stream(first.chain(stream::pending()).map(Ok::<_, Infallible>));
        let mut mine = Box::pin(list_of(&queue, &me, MOST_LIST, slow));
        assert!((&mut mine).now_or_never().is_none(), "it never ends");
        let whole = Stream::from(vec![b' '; SHORT_LIST + 1]);
        let theirs = list_of(&queue, &you, MOST_LIST, whole).now_or_never();
        assert!(theirs.is_some_and(|theirs| theirs.is_ok()), "it waits for nobody");
        drop(mine);
        let turns = [(); 2].map(|()| queue.turn(Class::List, &me).now_or_never());
        assert!(turns.iter().all(Option::is_some), "it is free again");
    }

    #[tokio::test]
    async fn a_received_long_list_holds_a_turn() {
        let (queue, me) = (Queue::default(), "me".parse().unwrap());
        let whole = Stream::from(vec![b' '; SHORT_LIST + 1]);
        let (list, turn) = list_of(&queue, &me, MOST_LIST, whole).await.unwrap();
        assert_eq!(list.len(), SHORT_LIST + 1);
        let other = queue.turn(Class::List, &me).now_or_never();
        assert!(turn.is_some() && other.is_some());
        assert!(queue.turn(Class::List, &me).now_or_never().is_none());
    }
}
