//! What can go wrong with a call, told apart by what the caller can do about it.

use crate::error::ErrorBody;

/// Why a call brought no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server understood and said no.
    #[error(transparent)]
    Refused(ErrorBody),
    /// No connection was ever made.
    #[error("cannot reach the server at {endpoint}: {reason}")]
    Unreachable { endpoint: String, reason: String },
    /// A connection was made, but no whole and readable reply came back.
    #[error("the server at {endpoint} {problem}")]
    Broken { endpoint: String, problem: String },
    /// Certificates or keys on this side cannot be used.
    #[error(transparent)]
    Tls(#[from] super::TlsError),
    /// The caller's own stream of bytes failed.
    #[error("cannot send: {0}")]
    Upload(std::io::Error),
}

impl ClientError {
    /// The refusal's name, if it is one.
    pub fn refusal(&self) -> Option<crate::error::ErrorName> {
        match self {
            ClientError::Refused(body) => Some(body.error),
            _ => None,
        }
    }
}
