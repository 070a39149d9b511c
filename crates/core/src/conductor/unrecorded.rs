//! Orders that stop something, carried out although the store refuses writes: it must be possible to stop a job that
//! fills the disk.
//!
//! Everything else follows "store, then act". Stopping a job's workers, or deleting the logs of an ended job, frees the
//! space that its record needs, so here the action comes first. A restored conductor is given these orders again and
//! stores them. If the server stops before that, the order is lost, and the job looks as if its workers had ended by
//! themselves. The reply says that the order is not recorded yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::job::{AfterKill, Event, Job};
use crate::names::JobId;
use crate::ports::EngineCommand;

use super::batch::command;

/// Orders that were carried out but are not stored.
#[derive(Debug, Clone, Default)]
pub struct Unrecorded {
    pub(super) kills: BTreeMap<JobId, AfterKill>,
    pub(super) removals: BTreeSet<JobId>,
}

impl Unrecorded {
    pub fn is_empty(&self) -> bool {
        self.kills.is_empty() && self.removals.is_empty()
    }

    /// Jobs that were killed but whose record does not say so.
    pub fn killed(&self) -> impl Iterator<Item = &JobId> {
        self.kills.keys()
    }

    /// Whether the logs of this job may be deleted although it is still in the history.
    pub fn removes(&self, job: &JobId) -> bool {
        self.removals.contains(job)
    }

    /// Kills a job that is stored as given here. Returns the commands that stop its workers.
    pub fn kill(&mut self, job: &Arc<Job>, after: AfterKill, now: Timestamp) -> Vec<EngineCommand> {
        let kept = self.kills.entry(job.id.clone()).or_insert(after);
        if after == AfterKill::Remove {
            *kept = after;
        }
        self.stop_again(job, now)
    }

    /// The commands that stop the workers of a killed job again, because a command may have been lost.
    pub fn stop_again(&self, job: &Arc<Job>, now: Timestamp) -> Vec<EngineCommand> {
        let Some(after) = self.kills.get(&job.id) else {
            return Vec::new();
        };
        let mut killed = Job::clone(job);
        let actions = killed.on_event(Event::KillRequested(*after), now);
        actions
            .into_iter()
            .filter_map(|action| command(&job.id, action, Some(job)))
            .collect()
    }

    /// Removes an ended job. Returns the command that deletes its logs.
    pub fn remove(&mut self, job: JobId) -> EngineCommand {
        self.removals.insert(job.clone());
        EngineCommand::Discard { job }
    }
}
