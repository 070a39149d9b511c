//! Handles the messages of launchers and determines the replies.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paddlecloud_core::job::News;
use paddlecloud_core::ports::{AttemptKey, Chunk};
use paddlecloud_link::LauncherHandler;
use paddlecloud_worker::link::{FromLauncher, FromServer, Hello, Standing};
use paddlecloud_worker::news;
use paddlecloud_worker::protocol::{self, Report, UnixNanos};
use tokio::sync::mpsc;

use super::Inner;
use super::orders;
use super::pods::Disruption;
use super::table::LinkHandle;
use super::worker_plan::addressed;

/// A report may take this long to arrive.
const TOLERATED_SKEW: Duration = Duration::from_secs(30);

/// Output of this size is a few lines, and writing it takes microseconds.
const FEW_BYTES: usize = 4 << 10;

impl LauncherHandler for Inner {
    fn knows(&self, attempt: &AttemptKey) -> bool {
        self.table().contains(attempt)
    }

    /// Accepts the launcher of an attempt and returns the messages for it, in the order in which they are sent.
    async fn greet(
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
        let plan = self.plan(attempt).await?;
        let mut table = self.table();
        let gone = || io::Error::other("the attempt has ended");
        let entry = table.get_mut(attempt).ok_or_else(gone)?;
        if entry.news.is_end() {
            return Ok(vec![match hello.standing {
                Standing::New => FromServer::Leave {
                    reason: "the attempt has ended".into(),
                },
                _ => FromServer::Recorded,
            }]);
        }
        entry.link = Some(LinkHandle { number, outgoing });
        entry.silent_since = None;
        let has_moved = entry.address.replace(hello.address) != Some(hello.address);
        let lines = table.preamble(&attempt.job, &plan);
        let orders = table.get(attempt).ok_or_else(gone)?.orders(lines);
        let plan = matches!(hello.standing, Standing::New).then(|| Box::new(addressed(plan, hello.address)));
        let mut messages = vec![FromServer::Welcome { plan, log_end }];
        messages.extend(table.peers(attempt));
        messages.extend(orders);
        if has_moved {
            table.announce_peers(&attempt.job);
        }
        Ok(messages)
    }

    /// Handles one message and returns the reply, if any. After an error the launcher must report again: it keeps its own
    /// record of the end until this one is stored.
    async fn heard(
        self: &Arc<Self>,
        attempt: &AttemptKey,
        message: FromLauncher,
    ) -> io::Result<Option<FromServer>> {
        match message {
            FromLauncher::Report(Report::State(state)) => self.report(attempt, news::of_state(&state)),
            FromLauncher::Report(Report::Started { at }) => {
                self.check_clock(attempt, at);
                self.report(attempt, News::Started);
            }
            FromLauncher::Report(Report::Ready) => self.report(attempt, News::Ready),
            FromLauncher::Report(Report::Exited(exit)) => {
                if self.waits_for_reason(attempt, &exit) {
                    return Ok(None);
                }
                return self.record_exit(attempt, exit).await.map(Some);
            }
            FromLauncher::Report(Report::Dropped { bytes }) => {
                tracing::warn!(?attempt, bytes, "output was lost because it could not be stored");
            }
            FromLauncher::Unable { reason } => {
                let end = News::Exited(paddlecloud_core::exit::Exit::unseen(reason));
                self.end_or_retry(attempt, end, None).await?;
                return Ok(Some(FromServer::Recorded));
            }
            FromLauncher::Evicted => {
                if let Some(entry) = self.table().get_mut(attempt) {
                    entry.disruption.get_or_insert_with(Disruption::by_unknown);
                }
            }
            FromLauncher::Report(Report::Grown { .. })
            | FromLauncher::Hello(_)
            | FromLauncher::Gap { .. }
            | FromLauncher::Alive => {}
        }
        Ok(None)
    }

    /// Stores output and returns the new end of the log. After an error the launcher must send from the end of the log
    /// again: an acknowledgement of later output would cover the part that is missing.
    async fn store_log(self: &Arc<Self>, attempt: &AttemptKey, chunks: Vec<Chunk>) -> io::Result<u64> {
        let bytes: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        if bytes <= FEW_BYTES {
            // A thread for the disk would delay every line of a follower by two switches.
            return self.append(attempt, chunks);
        }
        let owned = attempt.clone();
        self.blocking(move |inner| inner.append(&owned, chunks)).await?
    }

    /// A connection was closed. The attempt continues, unless it was ordered to stop: then its pod is deleted.
    fn link_closed(self: &Arc<Self>, attempt: &AttemptKey, number: u64) {
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

impl Inner {
    /// Keeps an exit until the cluster has said why it ends the pod. The sweep records it then, or after a while.
    fn waits_for_reason(&self, attempt: &AttemptKey, exit: &protocol::Exit) -> bool {
        let mut table = self.table();
        let Some(entry) = table.get_mut(attempt) else {
            return false;
        };
        let waits = exit.stopped == Some(true) && !entry.is_over() && !entry.is_explained();
        if waits && entry.unexplained.is_none() {
            entry.unexplained = Some((exit.clone(), Instant::now()));
        }
        waits
    }

    /// Records the end that a launcher reported, and returns the answer to it.
    pub(super) async fn record_exit(
        self: &Arc<Self>,
        attempt: &AttemptKey,
        exit: protocol::Exit,
    ) -> io::Result<FromServer> {
        let log_end = exit.final_log_offset;
        let end = self.end_as_reported(attempt, exit);
        self.end_or_retry(attempt, end, Some(log_end)).await?;
        Ok(FromServer::Recorded)
    }

    /// Compares the clock of a worker's node with ours. Only the stamps in its log depend on it.
    fn check_clock(&self, attempt: &AttemptKey, theirs: UnixNanos) {
        if let Some(seconds) = skew(theirs, UnixNanos::now()) {
            let node = self.table().get(attempt).and_then(|entry| entry.node.clone());
            tracing::warn!(
                ?attempt,
                node,
                seconds,
                "the clock of a node is wrong, and so are the times in this worker's log"
            );
        }
    }

    fn append(&self, attempt: &AttemptKey, chunks: Vec<Chunk>) -> io::Result<u64> {
        let mut end = 0;
        for chunk in chunks {
            let whole = chunk.offset.saturating_add(chunk.bytes.len() as u64);
            let appended = self.logs.append(attempt, &chunk);
            end = appended.map_err(io::Error::other)?;
            if end < whole {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(end)
    }
}

/// How many seconds a clock is ahead of ours (negative: behind), if that matters.
fn skew(theirs: UnixNanos, ours: UnixNanos) -> Option<i64> {
    let seconds = |time: UnixNanos| i64::try_from(time.0 / 1_000_000_000).unwrap_or(i64::MAX);
    let ahead = seconds(theirs) - seconds(ours);
    (ahead.unsigned_abs() >= TOLERATED_SKEW.as_secs()).then_some(ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_distinguished_from_a_late_report() {
        let at = |seconds: u64| UnixNanos(seconds * 1_000_000_000);
        assert_eq!(skew(at(1000), at(1000)), None);
        assert_eq!(skew(at(1000), at(1029)), None);
        assert_eq!(skew(at(1000), at(4600)), Some(-3600));
        assert_eq!(skew(at(4600), at(1000)), Some(3600));
    }
}
