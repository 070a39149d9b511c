//! Why a use case failed. Variants carry values; `http` chooses the wire's name, the status and the hints.

use std::fmt;
use std::io;

use paddlecloud_accounts::AccountError;
use paddlecloud_accounts::auth::AuthError;
use paddlecloud_accounts::authority::AuthorityError;
use paddlecloud_accounts::oidc::OidcError;
use paddlecloud_accounts::secrets::SecretsError;
use paddlecloud_accounts::users::Origin;
use paddlecloud_api::jobs::PackageReply;
use paddlecloud_core::names::{DatacenterName, JobId, JobName, JobRef, UserName};
use paddlecloud_core::ports::StoreError;
use paddlecloud_core::spec::SpecError;
use paddlecloud_files::homes::StorageError;
use paddlecloud_files::{Backend, FilesError};
use paddlecloud_k8s::manifests::PrintError;
use paddlecloud_pfs::staging::StagedIdError;

use super::accounts::UserRefusal;
use super::info::NotReady;
use super::provider_login::ProviderRefusal;
use super::resume::ResumeRefusal;
use super::tokens::TokenRefusal;
use crate::logs::LogsError;
use crate::reconcile::JobsError;

/// Why a use case failed: in a layer below, or by its own rules.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Jobs(#[from] JobsError),
    #[error(transparent)]
    Logs(#[from] LogsError),
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Accounts(#[from] AccountError),
    #[error(transparent)]
    Auth(#[from] AuthError),
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    #[error(transparent)]
    Oidc(#[from] OidcError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Spec(#[from] SpecError),

    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error(transparent)]
    User(#[from] UserRefusal),
    #[error(transparent)]
    Token(#[from] TokenRefusal),
    #[error(transparent)]
    Provider(#[from] ProviderRefusal),
    #[error(transparent)]
    Resume(#[from] ResumeRefusal),

    /// A thread panicked, or something happened that cannot.
    #[error("internal server error")]
    Internal,
    #[error("the server is stopping")]
    Stopping,
    #[error("the server's disk is full")]
    DiskFull,
    #[error(transparent)]
    NotAdministrator(#[from] AdminOnly),
    #[error("`{field}` {rule}")]
    BadField { field: &'static str, rule: FieldRule },
    #[error("`{}` is not a name: use letters, digits, `-`, `_` and `.`, at most 63", .0.escape_debug())]
    BadName(String),

    #[error("there is no {what} `{}`", .name.escape_debug())]
    NoSuch { what: What, name: String },
    #[error("{}", no_job(.target))]
    NoJob {
        target: JobRef,
        /// One of the caller's jobs with a similar name.
        near: Option<String>,
    },
    #[error("user `{0}` does not exist or is disabled")]
    NoEnabledUser(UserName),

    #[error("there is no registry")]
    NoRegistry,
    #[error("there are {0} registries: name one")]
    ManyRegistries(usize),
    #[error("a user has at most {most} secrets and {most} registries")]
    TooManySecrets { most: usize },
    #[error("client certificates need TLS, which this server does not offer")]
    NoTls,
    #[error("a user has at most {most} certificates")]
    TooManyCertificates { most: usize },

    #[error("no job can run here: `/pfs/{datacenter}` is on {backend}, which is not mounted on this machine")]
    OutOfReach {
        datacenter: DatacenterName,
        backend: Box<Backend>,
    },
    #[error(
        "the workers of `{user}` would run as the server's own system user and could read other users' files"
    )]
    SharedSystemUser { user: UserName, origin: Origin },
    #[error("the account has been disabled or deleted")]
    AccountEnded,
    #[error("the files of {name} ({id}) no longer exist")]
    FilesGone { name: JobName, id: JobId },
    #[error("{name} ran in the home of a deleted user, whose files were moved to `{place}`")]
    FilesMoved { name: JobName, place: String },
    #[error("cannot print manifests of `{job}`: {problem}")]
    NotPrinted { job: JobName, problem: PrintError },
    #[error("manifests contain no secret, so `{0}` cannot be in them")]
    SecretInManifests(String),
    #[error("you are reading too many logs at the same time")]
    TooManyLogReaders,
    #[error("the home of `{user}` cannot be moved or removed: {problem}")]
    HomeStays { user: UserName, problem: io::Error },

    #[error("`{}` is not a package id", .0.escape_debug())]
    BadPackageId(String),
    #[error("the list of files cannot be read: {0}")]
    PackageList(serde_json::Error),
    #[error("the package {} was not uploaded", .0.id)]
    PackageMissing(Box<PackageReply>),
    #[error("the package is already being uploaded")]
    PackageInUse,
    #[error("there is no such path: {0}")]
    NoSuchPath(String),
    #[error(transparent)]
    BadUploadId(#[from] StagedIdError),
    #[error("cannot publish: the embedded server has no address that others can reach")]
    NoAddress,
    /// Of the original file protocol.
    #[error("no such file or directory")]
    NothingMatches,
    #[error("the range is outside the file: `{0}`")]
    OutsideFile(String),
}

impl AppError {
    /// Whether a user's home belongs to another system user, so that nothing in it can be used.
    pub(super) fn is_foreign_home(&self) -> bool {
        match self {
            AppError::Storage(error) => matches!(error, StorageError::Foreign(_)),
            AppError::Files(FilesError::Owner(error)) => matches!(**error, StorageError::Foreign(_)),
            _ => false,
        }
    }
}

/// What only administrators may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdminOnly {
    #[error("only administrators may list the jobs and quotas of all users")]
    SeeAllUsers,
    #[error("only an administrator may stop the server")]
    StopServer,
    #[error("only administrators may manage tokens of other users")]
    TokensOfOthers,
}

/// What a request names and does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Job,
    User,
    Token,
    Secret,
    Registry,
    Certificate,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Job => "job",
            What::User => "user",
            What::Token => "token",
            What::Secret => "secret",
            What::Registry => "registry",
            What::Certificate => "certificate",
        })
    }
}

/// What a field of a request must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldRule {
    /// Not empty, and at most this many characters.
    Characters(usize),
    /// Not empty, and at most this many bytes without a 0.
    Bytes(usize),
    /// Not empty, and without control characters.
    PlainText,
    AtLeast(i64),
    Between(i64, i64),
    Smaller,
}

impl fmt::Display for FieldRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldRule::Characters(most) => write!(f, "must have 1 to {most} characters"),
            FieldRule::Bytes(most) => write!(f, "must have 1 to {most} bytes, none of them 0"),
            FieldRule::PlainText => f.write_str("must not be empty or have control characters"),
            FieldRule::AtLeast(least) => write!(f, "must be at least {least}"),
            FieldRule::Between(least, most) => write!(f, "must be {least} to {most}"),
            FieldRule::Smaller => f.write_str("is too large"),
        }
    }
}

fn no_job(target: &JobRef) -> String {
    match target {
        JobRef::Latest => "there are no jobs yet".to_owned(),
        other => format!("there is no job `{other}`"),
    }
}
