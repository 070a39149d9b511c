//! The phase of a job, and its outcome.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The phase of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for resources.
    Pending,
    /// Its workers are starting; no trainer runs yet.
    Starting,
    /// Its trainers were started.
    Running,
    /// There was no room for one of its workers, what it borrowed was reclaimed, or it lacked a worker for too long: all
    /// workers are withdrawn, and then it is queued again.
    Withdrawing,
    /// Its workers are being stopped; the outcome takes effect when the last one is gone.
    Stopping(Outcome),
    /// Ended. The job never changes again.
    Final(Outcome),
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every trainer succeeded.
    Succeeded,
    /// A worker failed, or a limit of time or storage was exceeded.
    Failed,
    /// A user killed it.
    Killed,
    /// Its workers were lost with the machine.
    Lost,
}

impl Phase {
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Final(_))
    }

    /// Whether the job's workers should be running.
    pub fn wants_workers(self) -> bool {
        matches!(self, Phase::Starting | Phase::Running)
    }

    /// Whether it holds resources of the machines.
    pub fn occupies(self) -> bool {
        matches!(
            self,
            Phase::Starting | Phase::Running | Phase::Withdrawing | Phase::Stopping(_)
        )
    }

    /// Its outcome, or the one it is about to have.
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Phase::Stopping(outcome) | Phase::Final(outcome) => Some(outcome),
            _ => None,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Phase::Pending => f.write_str("Pending"),
            Phase::Starting => f.write_str("Starting"),
            Phase::Running => f.write_str("Running"),
            Phase::Withdrawing => f.write_str("Withdrawing"),
            Phase::Stopping(_) => f.write_str("Stopping"),
            Phase::Final(outcome) => outcome.fmt(f),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Succeeded => "Succeeded",
            Outcome::Failed => "Failed",
            Outcome::Killed => "Killed",
            Outcome::Lost => "Lost",
        })
    }
}
