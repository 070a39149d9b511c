//! Errors of a call, distinguished by what the caller can do about them.

use std::time::Duration;

use crate::error::ErrorBody;
use crate::jobs::PackageReply;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server understood the request and refused it.
    #[error(transparent)]
    Refused(ErrorBody),
    /// No connection could be made.
    #[error("cannot reach the server at {endpoint}: {reason}")]
    Unreachable { endpoint: String, reason: String },
    /// A connection was made, but no complete and readable reply came back.
    #[error("the server at {endpoint} {problem}")]
    Broken { endpoint: String, problem: String },
    /// Local certificates or keys cannot be used.
    #[error(transparent)]
    Tls(#[from] super::TlsError),
    /// The caller's own stream of bytes failed.
    #[error("cannot send: {0}")]
    Upload(std::io::Error),
}

impl ClientError {
    /// Whether the server refused the request only for now.
    pub fn is_temporary(&self) -> bool {
        self.refusal().is_some_and(crate::error::ErrorName::is_temporary)
    }

    /// When the server allows the next attempt, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ClientError::Refused(body) => body.retry_after,
            _ => None,
        }
    }

    /// What to send of a package that the server lacks, if it said so.
    pub fn missing_package(&self) -> Option<&PackageReply> {
        match self {
            ClientError::Refused(body) => body.package.as_deref(),
            _ => None,
        }
    }

    /// The name of the refusal, if it is one.
    pub fn refusal(&self) -> Option<crate::error::ErrorName> {
        match self {
            ClientError::Refused(body) => Some(body.error),
            _ => None,
        }
    }
}
