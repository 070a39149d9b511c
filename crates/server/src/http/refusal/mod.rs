//! Errors for the caller: the one place that gives an error of the use cases its name on the wire, a message and hints.

mod accounts;
mod files;
mod jobs;

use std::time::Duration;

use paddlecloud_accounts::users::Origin;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_core::error_chain::chain_of;
use paddlecloud_core::names::JobRef;
use paddlecloud_core::ports::StoreError;

use super::reply::Refused;
use crate::app::{AdminOnly, AppError, NotReady, What};

pub(super) use files::{files_failed, mkdir_refused, removal_refused};

/// When to ask again for logs: how long the others read is not known.
const READERS_END: Duration = Duration::from_secs(5);

/// What helps when a disk of the server is full, also on an embedded server, which has no administrator.
const FREE_SPACE: &str = "free some space: `paddlectl du` shows the largest entries, `paddlectl rm` removes files, \
     `paddlectl prune --all --outputs` removes ended jobs and their outputs; on a shared server, an administrator can help";

impl From<AppError> for Refused {
    fn from(error: AppError) -> Refused {
        Refused(error.into())
    }
}

impl From<AppError> for ErrorBody {
    fn from(error: AppError) -> ErrorBody {
        let problem = error.to_string();
        let refused = |name: ErrorName| ErrorBody::new(name, problem);
        match error {
            AppError::Jobs(error) => error.into(),
            AppError::Logs(error) => error.into(),
            AppError::Files(error) => files_failed(error),
            AppError::Storage(error) => files::storage_failed(error),
            AppError::Accounts(error) => accounts::account_failed(error),
            AppError::Auth(error) => accounts::token_failed(error),
            AppError::Secrets(error) => accounts::secrets_failed(error),
            AppError::Oidc(error) => accounts::provider_failed(error),
            AppError::Authority(error) => accounts::authority_failed(error),
            AppError::Store(error) => store_failed(error),
            AppError::Spec(error) => error.into(),
            AppError::User(refusal) => refusal.into(),
            AppError::Token(refusal) => refusal.into(),
            AppError::Provider(refusal) => refusal.into(),
            AppError::Resume(refusal) => refusal.into(),
            AppError::NotReady(NotReady::DiskFull) | AppError::DiskFull => disk_is_full(),
            AppError::NotReady(NotReady::Thread) | AppError::Internal => internal(),
            AppError::NotReady(NotReady::Damaged) => {
                refused(ErrorName::Unavailable).with_hint(DAMAGED)
            }
            AppError::NotReady(NotReady::Stopping | NotReady::Disk) => refused(ErrorName::Unavailable),
            AppError::Stopping => refused(ErrorName::Unavailable).with_hint("try again when it is back"),
            AppError::NotAdministrator(AdminOnly::SeeAllUsers) => {
                refused(ErrorName::Forbidden).with_hint("leave out `--all-users` to see your own")
            }
            AppError::NotAdministrator(AdminOnly::StopServer | AdminOnly::TokensOfOthers) => {
                refused(ErrorName::Forbidden)
            }
            AppError::NoSuch { what, name } => no_such(what, &name, refused(ErrorName::NotFound)),
            AppError::NoJob { target, near } => {
                refused(ErrorName::NotFound).with_hint(job_hint(&target, near.as_deref()))
            }
            AppError::NoRegistry => {
                refused(ErrorName::NotFound).with_hint("`paddlectl registry` stores one")
            }
            AppError::FilesGone { .. } => refused(ErrorName::NotFound).with_hint("submit the folder again"),
            AppError::FilesMoved { .. } => {
                refused(ErrorName::Conflict).with_hint("submit the package from there as a new job")
            }
            AppError::NoEnabledUser(_)
            | AppError::NoSuchPath(_)
            | AppError::BadUploadId(_)
            | AppError::NothingMatches => refused(ErrorName::NotFound),
            AppError::BadField { .. }
            | AppError::BadName(_)
            | AppError::BadPackageId(_)
            | AppError::PackageList(_)
            | AppError::OutsideFile(_) => refused(ErrorName::BadRequest),
            AppError::ManyRegistries(_) => {
                refused(ErrorName::BadRequest).with_hint("`paddlectl get registry` lists all of them")
            }
            AppError::NotPrinted { problem, .. } => {
                refused(ErrorName::BadRequest).with_hint(problem.hint())
            }
            AppError::SecretInManifests(_) => refused(ErrorName::BadRequest)
                .with_hint("leave `-secret` out, and refer to a Secret of the cluster in the printed manifests"),
            AppError::TooManySecrets { .. } => refused(ErrorName::QuotaExceeded),
            AppError::TooManyCertificates { .. } => refused(ErrorName::QuotaExceeded)
                .with_hint("revoke some: `paddlectl admin cert list` lists them"),
            AppError::TooManyLogReaders => refused(ErrorName::TooManyRequests)
                .with_hint("stop some of the commands that follow logs")
                .after(READERS_END),
            AppError::NoTls => {
                refused(ErrorName::Conflict).with_hint("set `tls` in its configuration")
            }
            AppError::OutOfReach { .. } => refused(ErrorName::Conflict)
                .with_hint("ask an administrator to mount it and set `storage` to the mounted folder"),
            AppError::PackageMissing(reply) => refused(ErrorName::PackageMissing)
                .with_package(*reply)
                .with_hint("send the files that `missing` names into `folder`, then submit again"),
            AppError::PackageInUse => refused(ErrorName::Conflict).with_hint("stop that `submit` first"),
            AppError::SharedSystemUser { origin, .. } => refused(ErrorName::Forbidden).with_hint(match origin {
                Origin::Configuration => {
                    "ask an administrator to set your `system_user` in the server's configuration, or to delete all other accounts"
                }
                Origin::Database => {
                    "ask an administrator to set `system_uids` in the server's configuration, or to give each account a system user"
                }
            }),
            AppError::NoAddress => refused(ErrorName::Forbidden)
                .with_hint("download the file with `paddlectl cp` and send it from this machine")
                .with_hint("links need a shared server, which other machines can reach"),
            AppError::AccountEnded => refused(ErrorName::Unauthorized),
            AppError::HomeStays { .. } => refused(ErrorName::Internal)
                .with_hint("the account is disabled; repair the storage and delete it again"),
        }
    }
}

fn no_such(what: What, name: &str, body: ErrorBody) -> ErrorBody {
    match what {
        What::Job | What::User => body,
        What::Token => body.with_hint("`paddlectl token list` lists all of them"),
        What::Secret => body.with_hint(format!(
            "`paddlectl secret set {}` stores one",
            name.escape_debug()
        )),
        What::Registry => body.with_hint("`paddlectl get registry` lists all of them"),
        What::Certificate => body.with_hint("`paddlectl admin cert list` lists all of them"),
    }
}

fn job_hint(target: &JobRef, near: Option<&str>) -> String {
    match (target, near) {
        (JobRef::Latest, _) => "`paddlectl submit` starts one".to_owned(),
        (_, Some(near)) => format!("did you mean `{near}`?"),
        (_, None) => "`paddlectl get jobs -a` lists all of them".to_owned(),
    }
}

/// An internal error.
pub(super) fn internal() -> ErrorBody {
    ErrorBody::new(ErrorName::Internal, "internal server error").with_hint("see the server's log")
}

/// What to do about a damaged database.
const DAMAGED: &str = "ask an administrator: the server's log names the file and how to recover";

/// A failure of the store; the log gets the details.
pub(super) fn store_failed(error: StoreError) -> ErrorBody {
    let chain = chain_of(&error);
    if paddlecloud_store::is_full(&error) {
        tracing::error!(error = chain, "the disk is full");
        return disk_is_full();
    }
    tracing::error!(error = chain, "the job store failed");
    if let Some(damaged) = paddlecloud_store::damage(&error) {
        tracing::error!(hint = damaged.hint(), "the server should be stopped");
        return ErrorBody::new(ErrorName::Internal, "the server's database is damaged").with_hint(DAMAGED);
    }
    ErrorBody::new(ErrorName::Unavailable, "the server cannot reach its job store")
        .with_hint("try again; the server's log has the cause")
}

fn disk_is_full() -> ErrorBody {
    ErrorBody::new(ErrorName::StorageFull, "the server's disk is full").with_hint(FREE_SPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_job_is_suggested() {
        let error = AppError::NoJob {
            target: "wordemb".parse().unwrap(),
            near: Some("word-emb".to_owned()),
        };
        let body = ErrorBody::from(error);
        assert_eq!((body.error, body.code), (ErrorName::NotFound, 404));
        assert_eq!(body.msg, "there is no job `wordemb`");
        assert_eq!(body.hints, ["did you mean `word-emb`?"]);
    }

    #[test]
    fn a_refused_log_reader_gets_a_retry_time() {
        let body = ErrorBody::from(AppError::TooManyLogReaders);
        assert_eq!(body.error, ErrorName::TooManyRequests);
        assert_eq!(body.retry_after, Some(READERS_END));
    }
}
