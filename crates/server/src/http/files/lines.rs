//! Replies of many lines, each sent before the next is produced.

use axum::body::Body as Stream;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use paddlecloud_core::names::UserName;
use tokio::task::{JoinError, JoinSet, spawn_blocking};

use crate::queue::{Class, Queue, SIGN_OF_LIFE};

/// A blocking producer of lines.
pub(super) trait Lines: Send + 'static {
    /// The next lines, or a space if none is ready, which means nothing at the start of a line; `None` after the last.
    /// Returns within seconds.
    fn next(&mut self) -> Option<Vec<u8>>;
}

/// Lines of JSON, and nothing at the end. A slow reader slows down the producer.
///
/// Produced on other threads than the connection's own, even if that may block (see [`crate::lane`]): otherwise lines
/// that are ready would not be sent while the rest takes its time, and the client would give up.
pub(super) fn reply(source: impl Lines) -> Response {
    respond(stream::try_unfold(source, |mut source| async move {
        let made = spawn_blocking(move || (source.next(), source));
        let (lines, source) = made.await?;
        Ok::<_, JoinError>(lines.map(|lines| (Bytes::from(lines), source)))
    }))
}

/// The same for lines for which much is read: every few of them wait for a turn of the user's.
pub(super) fn reply_at_length(source: impl Lines, queue: &Queue, user: &UserName) -> Response {
    let waiting = Waiting {
        queue: queue.clone(),
        user: user.clone(),
        at: At::Rest(source),
    };
    respond(stream::try_unfold(waiting, Waiting::next))
}

fn respond(lines: impl futures_util::Stream<Item = Result<Bytes, JoinError>> + Send + 'static) -> Response {
    let headers = [(CONTENT_TYPE, "application/x-ndjson")];
    (headers, Stream::from_stream(lines)).into_response()
}

struct Waiting<T> {
    queue: Queue,
    user: UserName,
    at: At<T>,
}

enum At<T> {
    Rest(T),
    Work(Making<T>),
}

/// A task that waits for its turn and produces the next lines. It continues whether anyone reads or not: a reader that
/// stopped while queued would otherwise get a turn and keep it. Dropping it leaves the queue.
type Making<T> = JoinSet<Result<(Option<Vec<u8>>, T), JoinError>>;

impl<T: Lines> Waiting<T> {
    async fn next(mut self) -> Result<Option<(Bytes, Waiting<T>)>, JoinError> {
        let mut making = match self.at {
            At::Rest(source) => make(source, self.queue.clone(), self.user.clone()),
            At::Work(making) => making,
        };
        let Ok(made) = tokio::time::timeout(SIGN_OF_LIFE, making.join_next()).await else {
            self.at = At::Work(making);
            return Ok(Some((Bytes::from_static(b" "), self)));
        };
        let (lines, source) = made.expect("it is one task")??;
        self.at = At::Rest(source);
        Ok(lines.map(|lines| (Bytes::from(lines), self)))
    }
}

fn make<T: Lines>(mut source: T, queue: Queue, user: UserName) -> Making<T> {
    let mut making = Making::new();
    making.spawn(async move {
        let made = queue.blocking(Class::Long, &user, move || (source.next(), source));
        made.await
    });
    making
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt;

    use super::*;
    use crate::queue::Turn;

    struct Numbers(std::ops::Range<u8>);

    impl Lines for Numbers {
        fn next(&mut self) -> Option<Vec<u8>> {
            self.0.next().map(|number| format!("{number}\n").into_bytes())
        }
    }

    /// All turns there are, as soon as nobody else has one.
    async fn all_turns(queue: &Queue) -> Vec<Turn> {
        let mut turns = Vec::new();
        for index in 0..Class::Long.limit().at_once {
            let user = format!("user{index}").parse().unwrap();
            let turn = tokio::time::timeout(Duration::from_secs(60), queue.turn(Class::Long, &user)).await;
            turns.push(turn.expect("somebody keeps a turn"));
        }
        turns
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_turn_hears_something_meanwhile() {
        let queue = Queue::default();
        let others = all_turns(&queue).await;
        let reply = reply_at_length(Numbers(1..3), &queue, &"me".parse().unwrap());
        let mut pieces = reply.into_body().into_data_stream();
        for _ in 0..3 {
            assert_eq!(pieces.next().await.unwrap().unwrap(), " ");
        }
        drop(others);
        let rest: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
        assert_eq!(rest.concat(), b"1\n2\n");
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_reading_keeps_no_turn() {
        let queue = Queue::default();
        let others = all_turns(&queue).await;
        let reply = reply_at_length(Numbers(1..3), &queue, &"me".parse().unwrap());
        let mut pieces = reply.into_body().into_data_stream();
        assert_eq!(pieces.next().await.unwrap().unwrap(), " ");
        drop(others);
        drop(all_turns(&queue).await);
        let rest: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
        assert_eq!(rest.concat(), b"1\n2\n", "and loses nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_leaves_the_queue() {
        let queue = Queue::default();
        let others = all_turns(&queue).await;
        let reply = reply_at_length(Numbers(1..3), &queue, &"me".parse().unwrap());
        let mut pieces = reply.into_body().into_data_stream();
        assert_eq!(pieces.next().await.unwrap().unwrap(), " ");
        drop(pieces);
        drop(others);
        drop(all_turns(&queue).await);
    }
}
