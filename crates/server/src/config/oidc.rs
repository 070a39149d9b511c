//! The section `oidc`: the OpenID Connect provider whose users may log in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use paddlecloud_accounts::key_source::KeySource;
use paddlecloud_accounts::oidc::{OidcConfig, is_safe_address};
use serde::Deserialize;

use super::ConfigError;
use super::values::{Span, parsed_option};

/// Scopes that are asked for unless the configuration names others.
const USUAL_SCOPES: [&str; 3] = ["openid", "email", "offline_access"];
/// How long a token is valid before the provider is asked again.
const USUAL_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OidcEntry {
    issuer: String,
    client_id: String,
    client_secret_file: Option<PathBuf>,
    client_secret_env: Option<String>,
    client_secret_command: Option<String>,
    scopes: Option<Vec<String>>,
    groups_claim: Option<String>,
    #[serde(default)]
    allowed_groups: Vec<String>,
    #[serde(default)]
    create_accounts: bool,
    name_claim: Option<String>,
    #[serde(default, deserialize_with = "parsed_option")]
    token_lifetime: Option<Span>,
    ca: Option<PathBuf>,
}

impl OidcEntry {
    pub fn check(self, path: &Path) -> Result<OidcConfig, ConfigError> {
        let base = path.parent().unwrap_or(Path::new("."));
        let wrong = |problem: String| ConfigError::in_file(path, problem);
        let issuer = self.issuer.trim_end_matches('/').to_owned();
        if !is_safe_address(&issuer) {
            let problem = format!("`oidc.issuer`: `{issuer}` must begin with `https://`");
            return Err(wrong(problem).with_hint("`http://` is accepted for 127.0.0.1, [::1] and localhost"));
        }
        if self.client_id.is_empty() {
            return Err(wrong("`oidc.client_id` is empty".to_owned()));
        }
        let client_secret = match (
            self.client_secret_file,
            self.client_secret_env,
            self.client_secret_command,
        ) {
            (None, None, None) => None,
            (Some(file), None, None) => Some(KeySource::File(base.join(file))),
            (None, Some(name), None) => Some(KeySource::Variable(name)),
            (None, None, Some(command)) => Some(KeySource::Command(command)),
            _ => {
                let problem = "`oidc`: `client_secret_file`, `client_secret_env` and `client_secret_command` are mutually exclusive";
                return Err(wrong(problem.to_owned()));
            }
        };
        if !self.allowed_groups.is_empty() && self.groups_claim.is_none() {
            let problem = "`oidc.allowed_groups` needs `groups_claim`";
            return Err(wrong(problem.to_owned()));
        }
        let mut scopes = self
            .scopes
            .unwrap_or_else(|| USUAL_SCOPES.map(str::to_owned).to_vec());
        if !scopes.iter().any(|scope| scope == "openid") {
            scopes.insert(0, "openid".to_owned());
        }
        Ok(OidcConfig {
            issuer,
            client_id: self.client_id,
            client_secret,
            scopes,
            groups_claim: self.groups_claim,
            allowed_groups: self.allowed_groups,
            create_accounts: self.create_accounts,
            name_claim: self.name_claim.unwrap_or_else(|| "email".to_owned()),
            token_lifetime: self.token_lifetime.map_or(USUAL_LIFETIME, |span| span.0),
            ca: self.ca.map(|file| base.join(file)),
        })
    }
}
