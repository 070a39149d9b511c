//! Errors as the wire carries them: a stable name for programs, a sentence and hints for people.

use serde::{Deserialize, Serialize};

/// The stable names. Programs match on these; the sentences may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorName {
    /// The request cannot be read, or a field is wrong.
    BadRequest,
    /// No token, a wrong one, or a wrong password.
    Unauthorized,
    /// Known, but not allowed to do this.
    Forbidden,
    /// No such job, worker, package or path, or not the caller's.
    NotFound,
    /// The request did not arrive whole in time.
    RequestTimeout,
    /// Too many wrong passwords: not now.
    TooManyRequests,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The job name is still in use.
    NameTaken,
    /// The job is in order so far, but the package it names was not uploaded: send it, then submit again.
    PackageMissing,
    /// The request contradicts what is there.
    Conflict,
    /// What it is about changed meanwhile. Nothing took effect, or the message says what did.
    Changing,
    /// More than this server can ever give.
    TooBig,
    /// More than the user may have.
    QuotaExceeded,
    /// The body is larger than the server takes.
    PayloadTooLarge,
    /// What arrived does not match its digest.
    Damaged,
    /// The disk is full.
    StorageFull,
    /// Part of the contract, but of a later version.
    NotThereYet,
    /// The server is starting, stopping or overloaded; try again.
    Unavailable,
    /// A mistake of the server's own; its log has the story.
    Internal,
}

impl ErrorName {
    /// The HTTP status that goes with the name.
    pub fn status(self) -> u16 {
        match self {
            ErrorName::BadRequest | ErrorName::TooBig | ErrorName::Damaged => 400,
            ErrorName::Unauthorized => 401,
            ErrorName::Forbidden | ErrorName::QuotaExceeded => 403,
            ErrorName::NotFound => 404,
            ErrorName::MethodNotAllowed => 405,
            ErrorName::NameTaken | ErrorName::PackageMissing | ErrorName::Conflict | ErrorName::Changing => {
                409
            }
            ErrorName::RequestTimeout => 408,
            ErrorName::PayloadTooLarge => 413,
            ErrorName::TooManyRequests => 429,
            ErrorName::Internal => 500,
            ErrorName::NotThereYet => 501,
            ErrorName::Unavailable => 503,
            ErrorName::StorageFull => 507,
        }
    }
}

/// The body of every reply that is not a success.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{msg}")]
pub struct ErrorBody {
    pub code: u16,
    pub msg: String,
    pub error: ErrorName,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

impl ErrorBody {
    pub fn new(error: ErrorName, msg: impl Into<String>) -> Self {
        ErrorBody {
            code: error.status(),
            msg: msg.into(),
            error,
            hints: Vec::new(),
        }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}
