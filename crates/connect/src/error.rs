//! Why a server cannot be used, distinguished by what the caller can do about it.

use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;

use crate::config::ConfigError;

/// Why a server could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The request cannot be handled on this machine.
    #[error("{message}")]
    Refused { message: String, hints: Vec<String> },
    /// No server is configured, and the embedded one is unavailable.
    #[error("{message}")]
    NoServer { message: String, hints: Vec<String> },
}

impl ConnectError {
    pub(crate) fn refused(message: impl Into<String>) -> ConnectError {
        ConnectError::Refused {
            message: message.into(),
            hints: Vec::new(),
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> ConnectError {
        if let ConnectError::Refused { hints, .. } | ConnectError::NoServer { hints, .. } = &mut self {
            hints.push(hint.into());
        }
        self
    }

    /// What the user can do; `program` is the command they type.
    pub fn hints(&self, program: &str) -> Vec<String> {
        match self {
            ConnectError::Config(error) => error.hints(program),
            ConnectError::Client(error) => client_hints(program, error),
            ConnectError::Refused { hints, .. } | ConnectError::NoServer { hints, .. } => hints.clone(),
        }
    }
}

/// What the user can do about a failed call.
pub fn client_hints(program: &str, error: &ClientError) -> Vec<String> {
    match error {
        ClientError::Refused(body) => {
            let mut hints = body.hints.clone();
            if body.error == ErrorName::Unauthorized {
                // Headers are for authors of clients; users of a command log in.
                hints.retain(|hint| !hint.contains("`Authorization"));
                if hints.is_empty() {
                    hints.push(format!(
                        "`{program} login` asks for your password and stores a token"
                    ));
                }
            }
            hints
        }
        ClientError::Unreachable { endpoint, .. } | ClientError::Broken { endpoint, .. }
            if is_embedded(endpoint) =>
        {
            vec![format!(
                "`{program} server status` shows whether it runs and where its log is"
            )]
        }
        ClientError::Unreachable { reason, .. } if reason.contains("received fatal alert") => {
            vec![
                "the server does not accept the certificate in `usercert`: ask its administrator for a new one"
                    .to_owned(),
            ]
        }
        ClientError::Unreachable { reason, .. } if reason.contains("not valid for name") => {
            vec![
                "use one of these names as `endpoint`, or add this name to the server's `tls.names`"
                    .to_owned(),
            ]
        }
        ClientError::Unreachable { endpoint, reason } if reason.contains("InvalidContentType") => {
            let address = endpoint.trim_start_matches("https://");
            vec![format!(
                "if the server does not use TLS, write `endpoint: http://{address}` in your configuration"
            )]
        }
        ClientError::Unreachable { reason, .. } if reason.contains("invalid peer certificate") => {
            let mut hints = Vec::new();
            if reason.contains("UnknownIssuer") {
                hints.push(format!(
                    "`{program} login` shows the fingerprint of the server's CA and stores it if you trust it; \
                     in a script: `{program} login --fingerprint SHA256:…`"
                ));
            }
            hints.push(
                "set `cacert` in your configuration to the CA that signed the server's certificate"
                    .to_owned(),
            );
            hints
        }
        ClientError::Broken { endpoint, problem }
            if endpoint.starts_with("http://") && problem.starts_with("does not speak HTTP") =>
        {
            let address = endpoint.trim_start_matches("http://");
            vec![format!(
                "if the server uses TLS, write `endpoint: https://{address}` in your configuration"
            )]
        }
        ClientError::Unreachable { .. } => {
            vec![format!(
                "check `endpoint` in your configuration: `{program} config view`"
            )]
        }
        ClientError::Broken { .. } | ClientError::Tls(_) | ClientError::Upload(_) => Vec::new(),
    }
}

/// Whether it is the embedded server, whose socket is never configured.
fn is_embedded(endpoint: &str) -> bool {
    endpoint.starts_with("unix:") && endpoint.ends_with("/local/server.sock")
}

/// The error and its causes in one line: a message never repeats its source.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let words: Vec<String> = causes.map(ToString::to_string).collect();
    words.join(": ")
}

#[cfg(test)]
mod tests {
    use paddlecloud_api::error::ErrorBody;

    use super::*;

    #[test]
    fn a_missing_login_names_the_command_not_the_header() {
        let body = ErrorBody::new(ErrorName::Unauthorized, "this needs a login")
            .with_hint("send `Authorization: Token …`");
        let hints = client_hints("paddlectl", &ClientError::Refused(body)).join("\n");
        assert!(hints.starts_with("`paddlectl login` "), "{hints}");
        assert!(!hints.contains("Authorization"), "{hints}");
    }

    #[test]
    fn a_missing_scheme_of_a_tls_server_is_suggested() {
        let error = ClientError::Broken {
            endpoint: "http://localhost:8443".to_owned(),
            problem: "does not speak HTTP: invalid HTTP version parsed".to_owned(),
        };
        assert_eq!(
            client_hints("paddlectl", &error),
            ["if the server uses TLS, write `endpoint: https://localhost:8443` in your configuration"]
        );
    }

    #[test]
    fn a_certificate_for_other_names_is_not_a_matter_of_its_ca() {
        let error = ClientError::Unreachable {
            endpoint: "https://127.0.0.1:8443".to_owned(),
            reason: "invalid peer certificate: certificate not valid for name \"127.0.0.1\"; certificate is \
                     only valid for DnsName(\"cloud.example.org\")"
                .to_owned(),
        };
        assert_eq!(
            client_hints("paddlectl", &error),
            ["use one of these names as `endpoint`, or add this name to the server's `tls.names`"]
        );
    }

    #[test]
    fn hints_mention_the_configuration_only_if_it_names_the_server() {
        let unreachable = |endpoint: &str| ClientError::Unreachable {
            endpoint: endpoint.to_owned(),
            reason: "refused".to_owned(),
        };
        let hints = |endpoint: &str| client_hints("paddlectl", &unreachable(endpoint)).join("\n");
        assert!(!hints("unix:/home/me/.paddle/local/server.sock").contains("endpoint"));
        assert!(hints("unix:/run/other.sock").contains("endpoint"));
        assert!(hints("http://dc1.example.org").contains("endpoint"));
    }
}
