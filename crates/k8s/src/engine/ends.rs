//! Ends of attempts: what a recorded exit means if the cluster ended the attempt, and the order of steps.

use std::io;
use std::sync::Arc;

use paddlecloud_core::job::{News, Role, WorkerKey};
use paddlecloud_core::names::JobId;
use paddlecloud_core::ports::AttemptKey;
use paddlecloud_worker::{news, protocol};

use super::Inner;
use super::pods::Disruption;

impl Inner {
    /// Ends an attempt permanently: closes its log (at `log_end`, if known), stores its end, and then reports it, even if
    /// something could not be stored.
    pub(super) async fn end(self: &Arc<Self>, attempt: &AttemptKey, end: News, log_end: Option<u64>) {
        if let Err(error) = self.close_log(attempt, log_end).await {
            tracing::warn!(?attempt, %error, "a log could not be closed");
        }
        if let Err(error) = self.store_end(attempt, &end).await {
            tracing::warn!(?attempt, %error, "an end could not be recorded");
        }
        self.report(attempt, end);
    }

    /// The same for an attempt whose launcher is there: after an error nothing is reported, because the launcher has
    /// everything and reports it again.
    pub(super) async fn end_or_retry(
        self: &Arc<Self>,
        attempt: &AttemptKey,
        end: News,
        log_end: Option<u64>,
    ) -> io::Result<()> {
        self.close_log(attempt, log_end).await?;
        self.store_end(attempt, &end).await?;
        self.report(attempt, end);
        Ok(())
    }

    async fn close_log(self: &Arc<Self>, attempt: &AttemptKey, end: Option<u64>) -> io::Result<()> {
        let attempt = attempt.clone();
        self.blocking(move |inner| {
            let end = match end {
                Some(end) => end,
                None => inner.logs.reader(&attempt).length()?,
            };
            inner.logs.close(&attempt, end)
        })
        .await?
        .map_err(io::Error::other)
    }

    async fn store_end(self: &Arc<Self>, attempt: &AttemptKey, end: &News) -> io::Result<()> {
        let (attempt, end) = (attempt.clone(), end.clone());
        self.blocking(move |inner| inner.records.store_end(&attempt, &end))
            .await?
            .map_err(io::Error::other)
    }

    /// The end that a launcher reported. If the cluster ended the attempt, it counts as a disruption: a program that exits
    /// with 0 because it was told to stop has not done its work.
    pub(super) fn end_as_reported(&self, attempt: &AttemptKey, exit: protocol::Exit) -> News {
        // Recorded beside the program, so it is also known of a pod that was deleted while no server ran.
        let stop_requested = exit.stopped == Some(true);
        let end = news::of_exit(exit);
        let disruption = match self.table().get(attempt) {
            Some(entry) if entry.stop.is_some() => None,
            Some(entry) => entry
                .disruption
                .clone()
                .or_else(|| stop_requested.then(Disruption::by_unknown)),
            None => None,
        };
        // Only a trainer can have done its work when the cluster ended it.
        let succeeded = attempt.worker.role == Role::Trainer
            && !stop_requested
            && matches!(&end, News::Exited(exit) if exit.is_success());
        match disruption {
            Some(disruption) if !succeeded => self.disrupted_by(attempt, &disruption),
            _ => end,
        }
    }

    /// The end of an attempt that the cluster ended.
    pub(super) fn disrupted_by(&self, attempt: &AttemptKey, disruption: &Disruption) -> News {
        if disruption.node_is_to_blame {
            let node = self.table().get(attempt).and_then(|entry| entry.node.clone());
            self.blame(attempt, node);
        }
        self.disrupted(attempt, format!("its pod was terminated: {}", disruption.words))
    }

    /// The end of an attempt that did not fail by itself. The worker is restarted, up to a limit.
    pub(super) fn disrupted(&self, attempt: &AttemptKey, words: String) -> News {
        let before = self.table().get(attempt).map_or(0, |entry| entry.pod.disruptions);
        match before < self.limits.disruptions {
            true => News::Disrupted(words),
            false => News::Lost(format!(
                "{words}; disruptions have restarted it {before} times, which is the limit"
            )),
        }
    }

    /// Keeps the worker's next attempts off this node.
    pub(super) fn blame(&self, attempt: &AttemptKey, node: Option<String>) {
        let worker = (attempt.job.clone(), attempt.worker);
        if let Some(node) = node {
            self.blamed_nodes().entry(worker).or_default().insert(node);
        }
    }

    /// The nodes blamed for ends of a worker's attempts; none if there are no other nodes.
    pub(super) fn blamed(&self, job: &JobId, worker: WorkerKey) -> Vec<String> {
        let blamed = self.blamed_nodes().get(&(job.clone(), worker)).cloned();
        let blamed = blamed.unwrap_or_default();
        let has_others = self.room().has_other_node(&blamed);
        match has_others {
            true => blamed.into_iter().collect(),
            false => Vec::new(),
        }
    }
}
