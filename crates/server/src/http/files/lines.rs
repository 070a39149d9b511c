//! Replies of many lines, each sent before the next is produced.

use axum::body::Body as Stream;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use paddlecloud_core::names::UserName;
use paddlecloud_files::queue::{Class, KEEP_ALIVE_INTERVAL, Queue};
use tokio::task::{JoinError, JoinSet, spawn_blocking};

/// A blocking producer of lines.
pub(super) trait Lines: Send + 'static {
    /// The next lines; `None` after the last.
    fn next(&mut self) -> Option<Vec<u8>>;
}

/// Lines of JSON, and nothing at the end. A slow reader slows down the producer. While no line is ready, a space is sent now and
/// then, which means nothing at the start of a line.
///
/// Produced on other threads than the connection's own, even if that may block (see [`paddlecloud_files::lane`]): otherwise nothing would be
/// sent while lines take their time, and the client would give up. With `turns`, lines for which much is read wait for the
/// user's turn.
pub(super) fn reply(source: impl Lines, turns: Option<(Queue, UserName)>) -> Response {
    let at = At::Rest(source);
    let lines = stream::try_unfold(Waiting { turns, at }, Waiting::next);
    let headers = [(CONTENT_TYPE, "application/x-ndjson")];
    (headers, Stream::from_stream(lines)).into_response()
}

struct Waiting<T> {
    turns: Option<(Queue, UserName)>,
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
            At::Rest(source) => make(source, self.turns.clone()),
            At::Work(making) => making,
        };
        let Ok(made) = tokio::time::timeout(KEEP_ALIVE_INTERVAL, making.join_next()).await else {
            self.at = At::Work(making);
            return Ok(Some((Bytes::from_static(b" "), self)));
        };
        let (lines, source) = made.expect("it is one task")??;
        self.at = At::Rest(source);
        Ok(lines.map(|lines| (Bytes::from(lines), self)))
    }
}

fn make<T: Lines>(mut source: T, turns: Option<(Queue, UserName)>) -> Making<T> {
    let mut making = Making::new();
    let work = move || (source.next(), source);
    making.spawn(async move {
        match turns {
            Some((queue, user)) => queue.blocking(Class::Long, &user, work).await,
            None => spawn_blocking(work).await,
        }
    });
    making
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt;
    use paddlecloud_files::queue::Turn;

    use super::*;

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
    async fn a_request_waiting_for_a_turn_sends_keep_alive_bytes() {
        let queue = Queue::default();
        let others = all_turns(&queue).await;
        let reply = reply(Numbers(1..3), Some((queue.clone(), "me".parse().unwrap())));
        let mut pieces = reply.into_body().into_data_stream();
        for _ in 0..3 {
            assert_eq!(pieces.next().await.unwrap().unwrap(), " ");
        }
        drop(others);
        let rest: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
        assert_eq!(rest.concat(), b"1\n2\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_holds_no_turn() {
        let queue = Queue::default();
        let others = all_turns(&queue).await;
        let reply = reply(Numbers(1..3), Some((queue.clone(), "me".parse().unwrap())));
        let mut pieces = reply.into_body().into_data_stream();
        assert_eq!(pieces.next().await.unwrap().unwrap(), " ");
        drop(others);
        drop(all_turns(&queue).await);
        let rest: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
        assert_eq!(rest.concat(), b"1\n2\n", "and loses nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_disconnected_client_leaves_the_queue() {
        let queue = Queue::default();
        let others = all_turns(&queue).await;
        let reply = reply(Numbers(1..3), Some((queue.clone(), "me".parse().unwrap())));
        let mut pieces = reply.into_body().into_data_stream();
        assert_eq!(pieces.next().await.unwrap().unwrap(), " ");
        drop(pieces);
        drop(others);
        drop(all_turns(&queue).await);
    }
}
