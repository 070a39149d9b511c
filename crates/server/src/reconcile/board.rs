//! The jobs that are not final, as everyone may read them; changed only after the change is durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddlecloud_core::conductor::Write;
use paddlecloud_core::job::Job;
use paddlecloud_core::names::JobId;
use tokio::sync::watch;

/// Who wants to know about a job gets its latest state, and its final one last.
#[derive(Default)]
pub struct Board {
    jobs: Mutex<HashMap<JobId, watch::Sender<Arc<Job>>>>,
}

impl Board {
    fn jobs(&self) -> MutexGuard<'_, HashMap<JobId, watch::Sender<Arc<Job>>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with these; watchers of others learn nothing more.
    pub fn fill(&self, jobs: impl Iterator<Item = Arc<Job>>) {
        let mut board = self.jobs();
        let mut fresh = HashMap::new();
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

    /// Shows what was just made durable.
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

    /// Follows a job; `None` if it is final or unknown. The sender goes away after the last change.
    pub fn watch(&self, id: &JobId) -> Option<watch::Receiver<Arc<Job>>> {
        self.jobs().get(id).map(watch::Sender::subscribe)
    }

    pub fn get(&self, id: &JobId) -> Option<Arc<Job>> {
        self.jobs().get(id).map(|sender| Arc::clone(&sender.borrow()))
    }

    pub fn all(&self) -> Vec<Arc<Job>> {
        self.jobs()
            .values()
            .map(|sender| Arc::clone(&sender.borrow()))
            .collect()
    }

    /// How many wait, and how many hold room.
    pub fn counts(&self) -> (u64, u64) {
        let board = self.jobs();
        let pending = board
            .values()
            .filter(|sender| !sender.borrow().phase.occupies())
            .count() as u64;
        (pending, board.len() as u64 - pending)
    }
}
