//! Where a job is on its way, and how it ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a job is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for room.
    Pending,
    /// Its workers come up; no trainer runs yet.
    Starting,
    /// Its trainers were let go.
    Running,
    /// Its workers are being ended; this is what it will be when the last one is gone.
    Stopping(Outcome),
    /// Over. Nothing changes it any more.
    Final(Outcome),
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every trainer ended well.
    Succeeded,
    /// A worker failed, or a time limit passed.
    Failed,
    /// Somebody ended it.
    Killed,
    /// Its workers vanished with the machine.
    Lost,
}

impl Phase {
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Final(_))
    }

    /// Whether its workers should be running.
    pub fn wants_workers(self) -> bool {
        matches!(self, Phase::Starting | Phase::Running)
    }

    /// Whether it takes up room on the machines.
    pub fn occupies(self) -> bool {
        matches!(self, Phase::Starting | Phase::Running | Phase::Stopping(_))
    }

    /// How it ended or is about to end.
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
