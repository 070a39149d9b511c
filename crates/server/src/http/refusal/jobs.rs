//! Errors about jobs and their logs.

use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::conductor::Refusal;
use paddlecloud_core::scheduler::{Excess, LimitKind, ResourceKind, TooMuch, Unmatched};

use super::{disk_is_full, internal, store_failed};
use crate::app::{NoCheckpoints, ResumeRefusal};
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
            if let TooMuch::Machines(Excess::NoNode(Unmatched::Untyped { .. })) = &big.problem {
                return body.with_hint("name one with `-gpu-type`");
            }
            match big.largest {
                // The message names the number of trainers that fits.
                Some(_) => body,
                None => match flags(&big.problem) {
                    Some(flags) => body.with_hint(format!("request less with {flags}")),
                    None => body,
                },
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

/// The flags of `submit` that make a request smaller which does not fit even with one trainer; `None` if none helps.
fn flags(problem: &TooMuch) -> Option<&'static str> {
    let kind = match problem {
        TooMuch::Machines(excess) => match excess.on_its_own() {
            Excess::OneWorker(short) => short.kind,
            Excess::Together(short) => short.first()?.kind,
            Excess::NoNode(_) | Excess::Among { .. } => return None,
            Excess::OneByOne => return Some("`-cpu`, `-memory`, `-gpu` or `-pservers`"),
        },
        TooMuch::Quota(limit) => match limit.kind {
            LimitKind::Resource(kind) => kind,
            LimitKind::Trainers | LimitKind::Jobs => return None,
        },
    };
    Some(match kind {
        ResourceKind::Cpu => "`-cpu` or `-pscpu`",
        ResourceKind::Memory => "`-memory` or `-psmemory`",
        ResourceKind::Gpu => "`-gpu`",
    })
}

impl From<ResumeRefusal> for ErrorBody {
    fn from(refusal: ResumeRefusal) -> ErrorBody {
        let body = ErrorBody::new(ErrorName::Conflict, refusal.to_string());
        match refusal {
            ResumeRefusal::NoneEnded => body.with_hint("`paddlectl get jobs` lists them"),
            ResumeRefusal::NotEnded { id, stopping: true, .. } => {
                body.with_hint(format!("`paddlectl wait {id}` waits for its end"))
            }
            ResumeRefusal::NotEnded { id, .. } => body.with_hint(format!(
                "stop it with `paddlectl kill {id}`, or wait for its end with `paddlectl wait {id}`"
            )),
            ResumeRefusal::NoServers { .. } => body.with_hint("leave out `-resume`"),
            ResumeRefusal::NoCheckpoints { before: Some(id), .. } => {
                body.with_hint(format!("it continued {id}: try `-resume {id}`"))
            }
            ResumeRefusal::NoCheckpoints { why, .. } => match why {
                NoCheckpoints::NotStarted | NoCheckpoints::Removed => body.with_hint("leave out `-resume`"),
                NoCheckpoints::NoneWritten => {
                    body.with_hint("`ps.connect(checkpoint_every=100)` writes them; leave out `-resume` to train from the start")
                }
            },
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
    use paddlecloud_core::scheduler::{ExceededLimit, Shortage, TooBig};

    use super::*;

    #[test]
    fn a_taken_name_is_reported_with_a_free_one() {
        let refusal = Refusal::NameTaken {
            name: "emb".parse().unwrap(),
            holder: paddlecloud_core::names::JobId::new(1, 0),
            free: "emb-2".parse().unwrap(),
        };
        let error = JobsError::from(Undone::Refused(refusal));
        let body = ErrorBody::from(error);
        assert_eq!((body.error, body.code), (ErrorName::NameTaken, 409));
        assert_eq!(
            body.hints,
            ["use `-jobname emb-2`, or stop the other one with `paddlectl kill emb`"]
        );
    }

    #[test]
    fn only_flags_of_the_exceeded_resource_are_suggested() {
        let short = |kind| Shortage {
            kind,
            asked: 4,
            there: 2,
        };
        let hints = |problem| {
            let big = TooBig {
                problem,
                largest: None,
            };
            ErrorBody::from(JobsError::from(Undone::Refused(big.into()))).hints
        };
        let machine = |kind| hints(TooMuch::Machines(Excess::OneWorker(short(kind))));
        assert_eq!(machine(ResourceKind::Gpu), ["request less with `-gpu`"]);
        assert_eq!(
            machine(ResourceKind::Cpu),
            ["request less with `-cpu` or `-pscpu`"]
        );
        let quota = |kind| {
            hints(TooMuch::Quota(ExceededLimit {
                group: None,
                kind,
                limit: 2,
                used: 0,
                asked: 4,
            }))
        };
        assert_eq!(
            quota(LimitKind::Resource(ResourceKind::Memory)),
            ["request less with `-memory` or `-psmemory`"]
        );
        assert!(quota(LimitKind::Jobs).is_empty());
    }

    #[test]
    fn a_wrong_time_gets_an_example() {
        let body = ErrorBody::from(LogsError::NotATime("yester\nday".to_owned()));
        assert_eq!(body.msg, "`yester\\nday` is not a time");
        assert_eq!(body.hints, ["write it like 2026-01-31T12:00:00Z"]);
    }
}
