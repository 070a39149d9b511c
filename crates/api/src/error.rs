//! Errors on the wire: a stable name for programs, a sentence and hints for people.

use std::time::Duration;

use paddlecloud_core::spec::SpecError;
use serde::{Deserialize, Serialize};

use crate::jobs::PackageReply;

/// The stable names. Programs match on these; the sentences may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorName {
    /// The request cannot be parsed, or a field is invalid.
    BadRequest,
    /// No token, an invalid one, or a wrong password.
    Unauthorized,
    /// Authenticated, but not allowed to do this.
    Forbidden,
    /// No such job, worker, package or path, or not the caller's.
    NotFound,
    /// The request did not arrive completely in time.
    RequestTimeout,
    /// A limit was reached: requests, connections, wrong passwords, logs being read. Try again after `Retry-After`.
    TooManyRequests,
    /// The path exists, but does not support the method.
    MethodNotAllowed,
    /// The job name is still in use.
    NameTaken,
    /// The job is valid so far, but the package it names was not uploaded: upload it, then submit again.
    PackageMissing,
    /// The request conflicts with the current state.
    Conflict,
    /// The object changed meanwhile. Nothing took effect, or the message says what did.
    Changing,
    /// More than this server can ever provide.
    TooBig,
    /// More than the user's quota.
    QuotaExceeded,
    /// The body is too large.
    PayloadTooLarge,
    /// The received bytes do not match their digest.
    Damaged,
    /// The disk is full.
    StorageFull,
    /// Not supported yet.
    NotThereYet,
    /// The server is starting, stopping or overloaded; try again.
    Unavailable,
    /// An internal error; see the server's log.
    Internal,
}

impl ErrorName {
    /// Whether the same request may succeed later. Nothing was done for it.
    pub fn is_temporary(self) -> bool {
        matches!(self, ErrorName::TooManyRequests | ErrorName::Unavailable)
    }

    /// The HTTP status of the name.
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

/// The body of every error reply.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{msg}")]
pub struct ErrorBody {
    pub code: u16,
    pub msg: String,
    pub error: ErrorName,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// With `package-missing`, if the request had the package's list: what to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<Box<PackageReply>>,
    /// When a retry may succeed, if the server knows; travels as the header `Retry-After`.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

impl ErrorBody {
    pub fn new(error: ErrorName, msg: impl Into<String>) -> Self {
        ErrorBody {
            code: error.status(),
            msg: msg.into(),
            error,
            hints: Vec::new(),
            package: None,
            retry_after: None,
        }
    }

    /// Says when a retry may succeed.
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Says which files of a package to send.
    pub fn with_package(mut self, package: PackageReply) -> Self {
        self.package = Some(Box::new(package));
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

impl From<SpecError> for ErrorBody {
    /// Fields have the names of the wire.
    fn from(error: SpecError) -> Self {
        let body = ErrorBody::new(ErrorName::BadRequest, error.to_string());
        error.hint.into_iter().fold(body, ErrorBody::with_hint)
    }
}
