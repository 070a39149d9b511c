//! What can happen to a job and what it can ask for in return.
//!
//! Plain values; the rules that connect them are in `life`.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::scheduler::Placement;

use super::WorkerKey;

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The scheduler gave it room for all its workers at once.
    Admitted {
        placement: Placement,
        /// One per worker, parameter servers first.
        addresses: Vec<String>,
        note: Option<String>,
    },
    /// The engine has news of one attempt.
    Worker {
        worker: WorkerKey,
        attempt: u32,
        news: News,
    },
    /// Somebody asked for its end.
    KillRequested(AfterKill),
    /// Time has passed.
    Tick,
    /// The machine's clock was set by this much; no time has passed by it.
    ClockSet(SignedDuration),
    /// The machine restarted: whatever ran on it is gone.
    Rebooted,
}

/// What one attempt of a worker has come to. Later news implies the earlier ones, which may be lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// The engine has taken the order; nothing runs yet.
    Launched,
    /// Its supervisor is there.
    Up,
    /// Its program runs.
    Started,
    /// It listens on all its ports (parameter servers).
    Ready,
    /// Its program ended, its log is complete, nothing of it is left.
    Exited(Exit),
    /// It is gone and nobody saw how; the text says what is known.
    Lost(String),
}

impl News {
    /// Whether nothing of the attempt runs any more.
    pub fn is_end(&self) -> bool {
        matches!(self, News::Exited(_) | News::Lost(_))
    }
}

/// What becomes of the record of a killed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterKill {
    KeepInHistory,
    /// Remove it once its last worker is gone (`kill -rm`).
    Remove,
}

/// Something the engine must do for a job, after the job was stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Start this attempt; a trainer's program waits for `Go`.
    Launch { worker: WorkerKey, attempt: u32 },
    /// Let the trainer's program begin.
    Go { worker: WorkerKey, attempt: u32 },
    /// End it: politely, then after the grace period by force.
    Stop {
        worker: WorkerKey,
        attempt: u32,
        grace: SignedDuration,
    },
    /// Its end is stored: drop everything of it except the log.
    Clean { worker: WorkerKey, attempt: u32 },
}
