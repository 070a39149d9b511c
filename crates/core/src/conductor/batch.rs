//! Collects the results of a batch of inputs. A job that changed ten times is written once, in its last state.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::job::{Action, Job};
use crate::names::JobId;
use crate::ports::{AttemptKey, EngineCommand};

use super::{Output, Refusal, Reply, Write};

#[derive(Default)]
pub(super) struct Batch {
    /// Jobs to write, in the order of their first change.
    marked: Vec<JobId>,
    seen: HashSet<JobId>,
    /// Jobs that have left the conductor: these writes no longer change.
    finished: HashMap<JobId, Write>,
    actions: Vec<(JobId, Action)>,
    /// Orders for attempts of jobs that the conductor does not know.
    strays: Vec<EngineCommand>,
    discarded: Vec<JobId>,
    pub(super) replies: Vec<Result<Reply, Refusal>>,
}

impl Batch {
    /// Records that the job must be written.
    pub(super) fn mark(&mut self, id: &JobId) {
        if self.seen.insert(id.clone()) {
            self.marked.push(id.clone());
        }
    }

    /// Records the last write of a job.
    pub(super) fn finish(&mut self, id: JobId, write: Write) {
        self.mark(&id);
        self.finished.insert(id, write);
    }

    pub(super) fn order(&mut self, id: &JobId, actions: Vec<Action>) {
        self.actions
            .extend(actions.into_iter().map(|action| (id.clone(), action)));
    }

    pub(super) fn clean_stray(&mut self, attempt: AttemptKey) {
        self.strays.push(EngineCommand::Clean { attempt });
    }

    pub(super) fn discard(&mut self, id: JobId) {
        self.discarded.push(id);
    }

    pub(super) fn close(self, jobs: &HashMap<JobId, Arc<Job>>, wake_at: Option<Timestamp>) -> Output {
        let Batch {
            marked,
            finished,
            actions,
            strays,
            discarded,
            replies,
            ..
        } = self;
        let job = |id: &JobId| match finished.get(id) {
            Some(Write::Save(job)) => Some(job),
            Some(Write::Remove(_)) => None,
            None => jobs.get(id),
        };
        let mut commands = strays;
        commands.extend(
            actions
                .into_iter()
                .filter_map(|(id, action)| command(&id, action, job(&id))),
        );
        commands.extend(discarded.into_iter().map(|job| EngineCommand::Discard { job }));
        let write = |id: &JobId| match finished.get(id) {
            Some(write) => Some(write.clone()),
            None => jobs.get(id).cloned().map(Write::Save),
        };
        Output {
            writes: marked.iter().filter_map(write).collect(),
            commands,
            replies,
            wake_at,
        }
    }
}

/// `launch` and `go` are pointless for a job that no longer exists; stopping it is not.
pub(super) fn command(id: &JobId, action: Action, job: Option<&Arc<Job>>) -> Option<EngineCommand> {
    let attempt = |worker, attempt| AttemptKey {
        job: id.clone(),
        worker,
        attempt,
    };
    Some(match action {
        Action::Launch { worker, attempt } => EngineCommand::Launch {
            job: Arc::clone(job?),
            worker,
            attempt,
        },
        Action::Go {
            worker,
            attempt: number,
        } => {
            job?;
            EngineCommand::Go {
                attempt: attempt(worker, number),
            }
        }
        Action::Stop {
            worker,
            attempt: number,
            grace,
        } => EngineCommand::Stop {
            attempt: attempt(worker, number),
            grace,
        },
        Action::Clean {
            worker,
            attempt: number,
        } => EngineCommand::Clean {
            attempt: attempt(worker, number),
        },
    })
}
