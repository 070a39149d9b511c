//! Which provider to use, and what may be sent where.

use std::path::PathBuf;
use std::time::Duration;

use crate::key_source::KeySource;

/// The OpenID Connect provider whose users may log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcConfig {
    /// Without a slash at its end.
    pub issuer: String,
    pub client_id: String,
    /// The source of the client's secret; `None` for a public client.
    pub client_secret: Option<KeySource>,
    pub scopes: Vec<String>,
    /// The claim that lists a user's groups; `None`: groups are set by administrators.
    pub groups_claim: Option<String>,
    /// Only members of one of these groups may log in; empty: everybody may.
    pub allowed_groups: Vec<String>,
    /// Whether the first login of an unknown subject creates an account.
    pub create_accounts: bool,
    /// The claim that becomes the name of a created account.
    pub name_claim: String,
    /// The longest lifetime of the users' tokens: a renewal asks the provider.
    pub token_lifetime: Duration,
    /// The provider's CA, if this system does not trust it.
    pub ca: Option<PathBuf>,
}

/// Whether secrets may be sent to this address: by TLS, or to this machine.
pub fn is_safe_address(address: &str) -> bool {
    if address.starts_with("https://") {
        return true;
    }
    let Some(rest) = address.strip_prefix("http://") else {
        return false;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let host = host.map_or_else(
        || rest.split(['/', '?', '#']).next().unwrap_or_default(),
        |(host, _)| host,
    );
    ["127.0.0.1", "[::1]", "localhost"].contains(&host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_travel_by_tls_or_on_this_machine() {
        for (address, expected) in [
            ("https://login.example.org", true),
            ("http://127.0.0.1:8000/x", true),
            ("http://[::1]:8000", true),
            ("http://localhost", true),
            ("http://login.example.org", false),
            ("http://127.0.0.1.example.org", false),
            ("http://127.0.0.1@example.org", false),
            ("file:///etc/passwd", false),
        ] {
            assert_eq!(is_safe_address(address), expected, "{address}");
        }
    }
}
