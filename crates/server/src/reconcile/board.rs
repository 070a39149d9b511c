//! The unfinished jobs, readable by all modules; changed only after the change is durable.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddlecloud_core::conductor::Write;
use paddlecloud_core::job::Job;
use paddlecloud_core::names::JobId;
use tokio::sync::watch;

/// Watchers of a job see its latest state, and its final state last.
#[derive(Default)]
pub struct Board {
    jobs: Mutex<BTreeMap<JobId, watch::Sender<Arc<Job>>>>,
}

impl Board {
    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, watch::Sender<Arc<Job>>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces all jobs. Watchers of jobs that are not among them get no more notifications.
    pub fn fill(&self, jobs: impl Iterator<Item = Arc<Job>>) {
        let mut board = self.jobs();
        let mut fresh = BTreeMap::new();
        for job in jobs {
            let sender = match board.remove(&job.id) {
                Some(sender) => {
                    sender.send_replace(Arc::clone(&job));
                    sender
                }
                None => watch::Sender::new(Arc::clone(&job)),
            };
            fresh.insert(job.id.clone(), sender);
        }
        *board = fresh;
    }

    /// Publishes changes that have just become durable.
    pub fn publish(&self, writes: &[Write]) {
        let mut board = self.jobs();
        for write in writes {
            match write {
                Write::Save(job) if job.phase.is_final() => {
                    if let Some(sender) = board.remove(&job.id) {
                        sender.send_replace(Arc::clone(job));
                    }
                }
                Write::Save(job) => {
                    let sender = board
                        .entry(job.id.clone())
                        .or_insert_with(|| watch::Sender::new(Arc::clone(job)));
                    sender.send_replace(Arc::clone(job));
                }
                Write::Remove(id) => drop(board.remove(id)),
            }
        }
    }

    /// Subscribes to a job. Returns `None` if it is final or unknown. The sender is dropped after the last change.
    pub fn watch(&self, id: &JobId) -> Option<watch::Receiver<Arc<Job>>> {
        self.jobs().get(id).map(watch::Sender::subscribe)
    }

    pub fn get(&self, id: &JobId) -> Option<Arc<Job>> {
        self.jobs().get(id).map(|sender| Arc::clone(&sender.borrow()))
    }

    /// The latest jobs that `is_selected` accepts, at most `limit`; with `before`, only older ones.
    pub fn latest(
        &self,
        before: Option<&JobId>,
        limit: usize,
        is_selected: impl Fn(&Job) -> bool,
    ) -> Vec<Arc<Job>> {
        let upper = before.map_or(Bound::Unbounded, Bound::Excluded);
        let board = self.jobs();
        let newest_first = board.range::<JobId, _>((Bound::Unbounded, upper)).rev();
        let jobs = newest_first.map(|(_, sender)| Arc::clone(&sender.borrow()));
        jobs.filter(|job| is_selected(job)).take(limit).collect()
    }

    pub fn all(&self) -> Vec<Arc<Job>> {
        self.jobs()
            .values()
            .map(|sender| Arc::clone(&sender.borrow()))
            .collect()
    }

    /// The number of waiting jobs, and of jobs that hold resources.
    pub fn counts(&self) -> (u64, u64) {
        let board = self.jobs();
        let pending = board
            .values()
            .filter(|sender| !sender.borrow().phase.occupies())
            .count() as u64;
        (pending, board.len() as u64 - pending)
    }
}
