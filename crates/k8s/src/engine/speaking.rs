//! Handles the messages of launchers and determines the replies.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use paddlecloud_core::job::News;
use paddlecloud_core::ports::{self, AttemptKey};
use paddlecloud_supervisor::link::{FromLauncher, FromServer, Hello, Standing};
use paddlecloud_supervisor::log::{Chunk, Stream};
use paddlecloud_supervisor::protocol::{Phase, Report, State};
use tokio::sync::mpsc;

use super::Inner;
use super::orders;
use super::table::LinkHandle;
use super::worker_plan::addressed;

impl Inner {
    /// Accepts the launcher of an attempt and returns the messages for it, in the order in which they are sent.
    pub(crate) async fn greet(
        self: &Arc<Self>,
        attempt: &AttemptKey,
        number: u64,
        hello: &Hello,
        outgoing: mpsc::UnboundedSender<FromServer>,
    ) -> io::Result<Vec<FromServer>> {
        let owned = attempt.clone();
        let log_end = self
            .blocking(move |inner| inner.logs.begin(&owned))
            .await?
            .map_err(io::Error::other)?;
        let mut table = self.table();
        let gone = || io::Error::other("the attempt is over");
        let entry = table.get_mut(attempt).ok_or_else(gone)?;
        if entry.news.is_end() {
            return Ok(vec![match hello.standing {
                Standing::New => FromServer::Leave {
                    reason: "the attempt is over".into(),
                },
                _ => FromServer::Recorded,
            }]);
        }
        entry.link = Some(LinkHandle { number, outgoing });
        entry.silent_since = None;
        entry.address = Some(hello.address);
        let plan =
            matches!(hello.standing, Standing::New).then(|| Box::new(addressed(&entry.plan, hello.address)));
        let orders = entry.orders();
        let mut messages = vec![FromServer::Welcome { plan, log_end }];
        messages.extend(table.peers(attempt));
        messages.extend(orders);
        table.announce_peers(&attempt.job);
        Ok(messages)
    }

    /// Handles one message and returns the reply, if any.
    pub(crate) async fn heard(
        self: &Arc<Self>,
        attempt: &AttemptKey,
        message: FromLauncher,
    ) -> Option<FromServer> {
        match message {
            FromLauncher::Report(Report::State(state)) => self.report(attempt, news_of_state(&state)),
            FromLauncher::Report(Report::Started { .. }) => self.report(attempt, News::Started),
            FromLauncher::Report(Report::Ready) => self.report(attempt, News::Ready),
            FromLauncher::Report(Report::Exited(exit)) => {
                self.end_as_told(attempt, exit).await;
                return Some(FromServer::Recorded);
            }
            FromLauncher::Report(Report::Dropped { bytes }) => {
                tracing::warn!(?attempt, bytes, "output was lost because it could not be stored");
            }
            FromLauncher::Unable { reason } => {
                let end = News::Exited(paddlecloud_core::exit::Exit::unseen(reason));
                self.end(attempt, end, None).await;
                return Some(FromServer::Recorded);
            }
            FromLauncher::Evicted => {
                if let Some(entry) = self.table().get_mut(attempt) {
                    entry.evicted = true;
                }
            }
            FromLauncher::Report(Report::Grown { .. })
            | FromLauncher::Hello(_)
            | FromLauncher::Gap { .. }
            | FromLauncher::Alive => {}
        }
        None
    }

    /// Stores output and returns the new end of the log.
    pub(crate) async fn store_log(
        self: &Arc<Self>,
        attempt: &AttemptKey,
        chunks: Vec<Chunk>,
    ) -> io::Result<u64> {
        let owned = attempt.clone();
        self.blocking(move |inner| {
            let mut end = 0;
            for chunk in chunks {
                end = inner
                    .logs
                    .append(&owned, &stored(chunk))
                    .map_err(io::Error::other)?;
            }
            Ok(end)
        })
        .await?
    }

    /// A connection was closed. The attempt continues, unless it was ordered to stop: then its pod is deleted.
    pub(crate) fn link_closed(self: &Arc<Self>, attempt: &AttemptKey, number: u64) {
        let mut table = self.table();
        let Some(entry) = table.get_mut(attempt) else {
            return;
        };
        if entry.link.as_ref().is_none_or(|link| link.number != number) {
            return;
        }
        entry.link = None;
        entry.silent_since = Some(Instant::now());
        if let (Some(stop), false) = (entry.stop, entry.news.is_end()) {
            let (inner, attempt) = (Arc::clone(self), attempt.clone());
            tokio::spawn(async move { orders::stop(&inner, &attempt, stop.grace).await });
        }
    }
}

/// Converts a chunk to the log port's type.
pub fn stored(chunk: Chunk) -> ports::Chunk {
    ports::Chunk {
        offset: chunk.offset,
        stamp: chunk.stamp.0,
        stream: match chunk.stream {
            Stream::Launcher => ports::Stream::Launcher,
            Stream::Output => ports::Stream::Output,
        },
        bytes: chunk.bytes,
    }
}

fn news_of_state(state: &State) -> News {
    match state.phase {
        Phase::Waiting => News::Up,
        _ if state.ready => News::Ready,
        _ => News::Started,
    }
}
