//! Errors of operations, before they become exceptions of `paddlecloud.errors`.

use paddlecloud_api::client::ClientError;
use paddlecloud_connect::{ConnectError, chain};
use pyo3::prelude::*;

/// The program that hints name.
const PROGRAM: &str = "paddlectl";

/// Why an operation has no reply.
#[derive(Debug)]
pub struct Failure(Box<ConnectError>);

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        Failure(Box::new(error))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure(Box::new(error.into()))
    }
}

impl Failure {
    /// Whether no connection was ever made, so that nothing can have happened.
    pub fn is_unreachable(&self) -> bool {
        matches!(&*self.0, ConnectError::Client(ClientError::Unreachable { .. }))
    }

    /// The exception: Python chooses its class by the kind and, for a refusal, by the error's name.
    pub fn into_error(self, py: Python<'_>) -> PyErr {
        let error = &*self.0;
        let kind = match error {
            ConnectError::Config(_) | ConnectError::Client(ClientError::Tls(_)) => "config",
            ConnectError::NoServer { .. } => "no-server",
            ConnectError::Refused { .. } => "local",
            ConnectError::Client(ClientError::Refused(_)) => "refused",
            ConnectError::Client(ClientError::Unreachable { .. }) => "unreachable",
            ConnectError::Client(ClientError::Broken { .. } | ClientError::Upload(_)) => "broken",
        };
        let (code, name) = match error {
            ConnectError::Client(ClientError::Refused(body)) => {
                let name = serde_json::to_value(body.error).ok();
                let name = name.and_then(|name| name.as_str().map(str::to_owned));
                (Some(body.code), name)
            }
            _ => (None, None),
        };
        let made = py
            .import("paddlecloud.errors")
            .and_then(|errors| errors.getattr("_made"))
            .and_then(|made| made.call1((kind, code, name, chain(error), error.hints(PROGRAM))));
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    }
}
