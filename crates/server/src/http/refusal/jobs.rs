//! Errors about jobs and their logs.

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::conductor::Refusal;

use super::{disk_is_full, internal, store_failed};
use crate::logs::LogsError;
use crate::reconcile::{JobsError, Undone};

impl From<JobsError> for ErrorBody {
    fn from(error: JobsError) -> ErrorBody {
        let problem = error.to_string();
        match error {
            JobsError::Undone(undone) => undone_body(undone),
            JobsError::KeyUsed(_) => {
                ErrorBody::new(ErrorName::Conflict, problem).with_hint("use a new key for a new job")
            }
            JobsError::Removed(_) | JobsError::NoSuchJob => ErrorBody::new(ErrorName::NotFound, problem),
            JobsError::Store(error) => store_failed(error),
        }
    }
}

fn undone_body(undone: Undone) -> ErrorBody {
    let problem = undone.to_string();
    match undone {
        Undone::Refused(Refusal::NameTaken { name, free, .. }) => {
            ErrorBody::new(ErrorName::NameTaken, problem).with_hint(format!(
                "use `-jobname {free}`, or stop the other one with `paddlectl kill {name}`"
            ))
        }
        Undone::Refused(Refusal::TooBig(big)) => {
            let body = ErrorBody::new(ErrorName::TooBig, problem);
            match big.largest {
                // The message names the number of trainers that fits.
                Some(_) => body,
                None => body.with_hint(
                    "request less with `-parallelism`, `-pservers`, `-cpu`, `-gpu`, `-memory`, `-pscpu` or `-psmemory`",
                ),
            }
        }
        Undone::Refused(Refusal::Priority { most, .. }) => ErrorBody::new(ErrorName::QuotaExceeded, problem)
            .with_hint(format!("use `-priority {most}` or less")),
        Undone::Refused(Refusal::QueueFull { .. }) => ErrorBody::new(ErrorName::QuotaExceeded, problem)
            .with_hint("wait until some have started, or kill some"),
        Undone::Refused(Refusal::NotActive(_)) => ErrorBody::new(ErrorName::NotFound, problem),
        Undone::Refused(_) => ErrorBody::new(ErrorName::Conflict, problem),
        Undone::NotStored { full: true, .. } => disk_is_full(),
        Undone::NotStored { .. } => ErrorBody::new(ErrorName::Unavailable, problem)
            .with_hint("try again; the server's log has the cause"),
        Undone::Stopping => {
            ErrorBody::new(ErrorName::Unavailable, problem).with_hint("try again when it is back")
        }
    }
}

impl From<LogsError> for ErrorBody {
    fn from(error: LogsError) -> ErrorBody {
        let problem = error.to_string();
        let bad = |problem| ErrorBody::new(ErrorName::BadRequest, problem);
        match error {
            LogsError::NotARole(_) => bad(problem).with_hint("roles are `trainer` and `pserver`"),
            LogsError::NotATime(_) => bad(problem).with_hint("write it like 2026-01-31T12:00:00Z"),
            LogsError::BadCursors => bad(problem),
            LogsError::NoWorker { known, .. } => ErrorBody::new(ErrorName::NotFound, problem)
                .with_hint(format!("its workers are {}", known.join(", "))),
            LogsError::TooLong => ErrorBody::new(ErrorName::PayloadTooLarge, problem)
                .with_hint("ask for the last lines with `n`, or read the stream `/api/v1/jobs/{job}/logs`"),
            LogsError::Unreadable(_) => ErrorBody::new(ErrorName::Internal, problem),
            LogsError::StartingOver => ErrorBody::new(ErrorName::Unavailable, problem).with_hint("ask again"),
            LogsError::Jobs(error) => error.into(),
            LogsError::Thread => internal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_name_is_reported_with_a_free_one() {
        let refusal = Refusal::NameTaken {
            name: "emb".parse().unwrap(),
            holder: paddlecloud_core::names::JobId::new(1, 0),
            free: "emb-2".parse().unwrap(),
        };
        let error = JobsError::from(Undone::Refused(refusal));
        assert!(error.is_name_taken());
        let body = ErrorBody::from(error);
        assert_eq!((body.error, body.code), (ErrorName::NameTaken, 409));
        assert_eq!(
            body.hints,
            ["use `-jobname emb-2`, or stop the other one with `paddlectl kill emb`"]
        );
    }

    #[test]
    fn a_wrong_time_gets_an_example() {
        let body = ErrorBody::from(LogsError::NotATime("yester\nday".to_owned()));
        assert_eq!(body.msg, "`yester\\nday` is not a time");
        assert_eq!(body.hints, ["write it like 2026-01-31T12:00:00Z"]);
    }
}
