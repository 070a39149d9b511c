//! Events of a job and the actions it requests in return.
//!
//! Plain values; the rules that connect them are in `life`.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::names::NodeName;
use crate::scheduler::{Excess, Placement, StorageExcess};

use super::WorkerKey;

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The scheduler found room for all its workers together.
    Admitted {
        placement: Placement,
        /// One per worker, parameter servers first.
        addresses: Vec<String>,
        /// By how much it exceeds the machines, if it runs alone because of that.
        alone: Option<Excess>,
    },
    /// A report of the engine about one attempt.
    Worker {
        worker: WorkerKey,
        attempt: u32,
        news: News,
    },
    /// A worker was restarted on another node than its seat's.
    Moved {
        worker: WorkerKey,
        attempt: u32,
        node: NodeName,
    },
    /// A job within its owner's guarantee needs the room that this job borrowed: this job is stopped and queued again.
    Reclaimed,
    /// It lacked a worker for this long, and other jobs need the room that its other workers hold: it is stopped and queued
    /// again.
    Unrecovered(SignedDuration),
    /// A user asked to kill it.
    KillRequested(AfterKill),
    /// Its owner may no longer run jobs: it is killed and stays in the history.
    AccountEnded(AccountEnd),
    /// Its owner's files exceed the storage quota while it runs.
    StorageExceeded(StorageExcess),
    /// Kill its workers without waiting for the grace period (`kill --now`). Has no effect unless the job is stopping.
    SkipGrace,
    /// Time has passed.
    Tick,
    /// The machine's clock was changed by this much, although no time has passed.
    ClockSet(SignedDuration),
    /// The machine restarted: everything that ran on it is gone.
    Rebooted,
}

/// The progress of one attempt. Later reports imply earlier ones, which may be lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// The engine has accepted the order; nothing runs yet.
    Launched,
    /// It has no seat yet; the text says why. The start limit does not run until every worker has one.
    Unseated(String),
    /// It has a seat; the text says what it waits for there, if it does.
    Seated(#[serde(with = "stored_reason")] Option<String>),
    /// Its supervisor is running.
    Up,
    /// Its program is running.
    Started,
    /// It listens on all its ports (parameter servers).
    Ready,
    /// Its program exited, its log is complete, and no process of it is left.
    Exited(Exit),
    /// It is gone, and its exit was not observed; the text says what is known.
    Lost(String),
    /// It could not be placed and never ran; the text says why. A job whose workers were not all ready since it was admitted
    /// is queued again as a whole.
    NoRoom(String),
    /// It is gone through no fault of its own, for example with its node; the text says what happened. It is restarted
    /// without using a retry.
    Disrupted(String),
}

impl News {
    /// Whether no part of the attempt is running any longer.
    pub fn is_end(&self) -> bool {
        matches!(
            self,
            News::Exited(_) | News::Lost(_) | News::NoRoom(_) | News::Disrupted(_)
        )
    }
}

/// No reason is stored as an empty text, as servers of earlier versions read and write it.
mod stored_reason {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(reason: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
        reason.as_deref().unwrap_or_default().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
        let stored = String::deserialize(deserializer)?;
        Ok((!stored.is_empty()).then_some(stored))
    }
}

/// What happens to the record of a killed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterKill {
    KeepInHistory,
    /// Remove it when its last worker is gone (`kill -rm`).
    Remove,
}

/// How an account ended its owner's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountEnd {
    Disabled,
    Deleted,
}

/// Something the engine must do for a job, after the job was stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Start this attempt; a trainer's program waits for `Go`.
    Launch { worker: WorkerKey, attempt: u32 },
    /// Start the trainer's program.
    Go { worker: WorkerKey, attempt: u32 },
    /// Stop it: SIGTERM, then SIGKILL after the grace period.
    Stop {
        worker: WorkerKey,
        attempt: u32,
        grace: SignedDuration,
    },
    /// Its exit is stored: delete everything about it except the log.
    Clean { worker: WorkerKey, attempt: u32 },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_is_stored_as_earlier_versions_read_it() {
        let exit = Exit::with_code(1);
        let all = [
            (News::Launched, r#""launched""#),
            (News::Unseated("full".into()), r#"{"unseated":"full"}"#),
            (News::Seated(None), r#"{"seated":""}"#),
            (News::Seated(Some("why".into())), r#"{"seated":"why"}"#),
            (News::Up, r#""up""#),
            (News::Started, r#""started""#),
            (News::Ready, r#""ready""#),
            (
                News::Exited(exit),
                r#"{"exited":{"code":1,"signal":null,"oom":false,"clash":null,"log_end":0,"message":null,"at":null}}"#,
            ),
            (News::Lost("gone".into()), r#"{"lost":"gone"}"#),
            (News::NoRoom("full".into()), r#"{"no_room":"full"}"#),
            (News::Disrupted("evicted".into()), r#"{"disrupted":"evicted"}"#),
        ];
        for (news, text) in all {
            assert_eq!(serde_json::to_string(&news).unwrap(), text);
            assert_eq!(serde_json::from_str::<News>(text).unwrap(), news);
        }
    }
}
