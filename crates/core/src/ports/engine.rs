//! The port for engines, which run workers.

use std::future::Future;
use std::sync::Arc;

use jiff::SignedDuration;

use super::{AttemptKey, PreparedRun, SecretEnv};
use crate::conductor::Addresses;
use crate::job::{Boot, Job, News, WorkerKey};
use crate::names::{JobId, NodeName};
use crate::scheduler::{Node, NodeChange};

/// A report of the engine about one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub attempt: AttemptKey,
    pub news: News,
}

/// An event of the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineEvent {
    Worker(Report),
    /// A restarted worker runs on another node than its seat's. The seat follows it.
    Moved {
        attempt: AttemptKey,
        node: NodeName,
    },
    Node(NodeChange),
}

/// An order for a job. Orders are idempotent.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineCommand {
    Launch {
        job: Arc<Job>,
        worker: WorkerKey,
        attempt: u32,
    },
    Go {
        attempt: AttemptKey,
    },
    Stop {
        attempt: AttemptKey,
        grace: SignedDuration,
    },
    Clean {
        attempt: AttemptKey,
    },
    /// The job was removed from the history: its logs and folders may be deleted.
    Discard {
        job: JobId,
    },
}

/// One attempt to start, with everything prepared for it.
#[derive(Debug, Clone)]
pub struct Assignment {
    pub job: Arc<Job>,
    pub run: Arc<PreparedRun>,
    pub worker: WorkerKey,
    pub attempt: u32,
    /// Variables that must not be stored or shown.
    pub secrets: SecretEnv,
}

impl Assignment {
    pub fn key(&self) -> AttemptKey {
        AttemptKey {
            job: self.job.id.clone(),
            worker: self.worker,
            attempt: self.attempt,
        }
    }
}

/// The state of the engine, read when the server starts.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineState {
    /// Every attempt that was launched and not cleaned, with its latest report.
    pub attempts: Vec<Report>,
    /// The current nodes. Later changes come as [`EngineEvent::Node`].
    pub nodes: Vec<Node>,
    /// Whether the machine restarted. Stays `Changed` until the result of the restore is durable.
    pub boot: Boot,
}

/// Why the engine cannot return its state.
#[derive(Debug, thiserror::Error)]
#[error("the engine cannot be reached")]
pub struct EngineError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// Runs workers. Workers outlive the server.
///
/// Orders for one worker are carried out in the order they were given. An order has no result: its outcome, including a
/// failure, is reported by [`Engine::next_events`].
pub trait Engine: Send + Sync {
    /// Starts an attempt; a trainer's program waits for [`Engine::go`].
    ///
    /// An existing attempt, dead or alive, is not touched. One that cannot be started is reported as exited, with the
    /// reason as its message. From now on the attempt is in [`Engine::state`].
    fn launch(&self, assignment: &Assignment) -> impl Future<Output = ()> + Send;

    /// Starts the program of a trainer. No effect if it has started, has exited, or is unknown.
    fn go(&self, attempt: &AttemptKey) -> impl Future<Output = ()> + Send;

    /// Stops an attempt: SIGTERM, then SIGKILL after `grace`. No effect if it is gone or unknown.
    fn stop(&self, attempt: &AttemptKey, grace: SignedDuration) -> impl Future<Output = ()> + Send;

    /// Forgets an attempt whose exit is stored: only its log remains.
    ///
    /// Kills any processes of it that are still running. The worker's next attempt starts after that.
    fn clean(&self, attempt: &AttemptKey) -> impl Future<Output = ()> + Send;

    /// Deletes what the engine itself still stores about a job that was removed from the history. Logs and run folders
    /// are not the engine's.
    fn discard(&self, job: &JobId) -> impl Future<Output = ()> + Send;

    /// Every attempt that was launched and not cleaned, and the nodes.
    fn state(&self) -> impl Future<Output = Result<EngineState, EngineError>> + Send;

    /// Waits for events. Each is reported at least once while the server lives; duplicates and delays are allowed.
    ///
    /// An exit is reported only when the last byte of the log can be read.
    fn next_events(&self) -> impl Future<Output = Vec<EngineEvent>> + Send;

    /// The addresses that workers use for each other, for a server without jobs.
    fn addresses(&self) -> Box<dyn Addresses>;

    /// Notes for the server's status, one sentence each: what the machine or the cluster does not enforce.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many nodes may not be used now, although they are meant for jobs.
    fn closed_nodes(&self) -> usize {
        0
    }

    /// Whether it can start and delete workers now. While it cannot, running jobs are not stopped for the sake of others.
    fn can_start_workers(&self) -> bool {
        true
    }

    /// What hinders the live workers of a job, one sentence each, for `why` and `describe`: a right that the server has lost, a node that
    /// does not answer.
    fn obstacles(&self, _job: &JobId) -> Vec<String> {
        Vec::new()
    }

    /// Live attempts of a job whose output does not arrive now, for example because the server has just restarted: what they
    /// wrote last is not in their logs yet.
    fn unlinked(&self, _job: &JobId) -> Vec<AttemptKey> {
        Vec::new()
    }

    /// Changes when all workers, and files that were written but not synced, may have been lost: runs are then prepared
    /// again. An engine whose nodes are not the server's own machine always returns the same value.
    fn era(&self) -> String {
        "always".to_owned()
    }
}
