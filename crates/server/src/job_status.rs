//! The status of a job, as the API spells it.

use paddlecloud_api::jobs::JobStatus;
use paddlecloud_core::job::{Outcome, Phase};

pub(crate) fn job_status(phase: Phase) -> JobStatus {
    match phase {
        Phase::Pending | Phase::Withdrawing => JobStatus::Pending,
        Phase::Starting => JobStatus::Starting,
        Phase::Running => JobStatus::Running,
        Phase::Stopping(_) => JobStatus::Stopping,
        Phase::Final(Outcome::Succeeded) => JobStatus::Succeeded,
        Phase::Final(Outcome::Failed) => JobStatus::Failed,
        Phase::Final(Outcome::Killed) => JobStatus::Killed,
        Phase::Final(Outcome::Lost) => JobStatus::Lost,
    }
}
