//! Replies of many lines, each on its way before the next is looked for.

use std::time::Duration;

use axum::body::Body as Stream;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use paddlecloud_core::names::UserName;
use tokio::task::{JoinError, spawn_blocking};

use crate::long::{Long, Turn};

/// So often whoever waits for a turn hears something. Clients take a connection for dead that is silent for a minute.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Something that makes lines, blocking meanwhile.
pub(super) trait Lines: Send + 'static {
    /// What means nothing where a line begins.
    const NOTHING: &'static [u8];

    /// The next lines; `None` after the last. Ends within seconds, whatever it is at.
    fn next(&mut self) -> Option<Vec<u8>>;
}

/// Lines of JSON; nothing more at the end. A slow reader slows down who makes them.
///
/// Made on other threads than the connection's own, also where that may block (see [`crate::lane`]): there it would not
/// send the little that is there while the rest takes its time, and whoever waits would give up.
pub(super) fn reply(source: impl Lines) -> Response {
    respond(stream::try_unfold(source, |mut source| async move {
        let made = spawn_blocking(move || (source.next(), source));
        let (lines, source) = made.await?;
        Ok::<_, JoinError>(lines.map(|lines| (Bytes::from(lines), source)))
    }))
}

/// The same for lines for which much is read: every few of them wait for a turn of the user's.
pub(super) fn reply_at_length(source: impl Lines, long: &Long, user: &UserName) -> Response {
    let waiting = Waiting {
        source,
        long: long.clone(),
        user: user.clone(),
        turn: None,
    };
    respond(stream::try_unfold(waiting, Waiting::next))
}

fn respond(lines: impl futures_util::Stream<Item = Result<Bytes, JoinError>> + Send + 'static) -> Response {
    let headers = [(CONTENT_TYPE, "application/x-ndjson")];
    (headers, Stream::from_stream(lines)).into_response()
}

struct Waiting<T> {
    source: T,
    long: Long,
    user: UserName,
    /// A place in the queue, which is kept while signs of life are sent.
    turn: Option<BoxFuture<'static, Turn>>,
}

impl<T: Lines> Waiting<T> {
    async fn next(mut self) -> Result<Option<(Bytes, Waiting<T>)>, JoinError> {
        let mut turn = self.turn.take().unwrap_or_else(|| {
            let (long, user) = (self.long.clone(), self.user.clone());
            Box::pin(async move { long.turn(&user).await })
        });
        let Ok(turn) = tokio::time::timeout(SIGN_OF_LIFE, &mut turn).await else {
            self.turn = Some(turn);
            return Ok(Some((Bytes::from_static(T::NOTHING), self)));
        };
        let made = turn.blocking(move || (self.source.next(), self));
        let (lines, waiting) = made.await?;
        Ok(lines.map(|lines| (Bytes::from(lines), waiting)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;
    use crate::long::AT_ONCE;

    struct Numbers(std::ops::Range<u8>);

    impl Lines for Numbers {
        const NOTHING: &'static [u8] = b" ";

        fn next(&mut self) -> Option<Vec<u8>> {
            self.0.next().map(|number| format!("{number}\n").into_bytes())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_turn_hears_something_meanwhile() {
        let long = Long::default();
        let mut others = Vec::new();
        for index in 0..AT_ONCE {
            others.push(long.turn(&format!("user{index}").parse().unwrap()).await);
        }
        let reply = reply_at_length(Numbers(1..3), &long, &"me".parse().unwrap());
        let mut pieces = reply.into_body().into_data_stream();
        for _ in 0..3 {
            assert_eq!(pieces.next().await.unwrap().unwrap(), " ");
        }
        drop(others);
        let rest: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
        assert_eq!(rest.concat(), b"1\n2\n");
    }
}
