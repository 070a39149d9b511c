//! The OpenID Connect provider: device logins, ID tokens, and refresh tokens at renewals.
//!
//! The server talks to the provider, not the client, so that all secrets stay on one machine. Which account a subject has is
//! decided in `app`.

mod config;
mod fetch;
mod id_token;
mod pending;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::key_source::KeySource;
pub use config::{OidcConfig, is_safe_address};
use fetch::{Fetch, Proof};
use id_token::{Claims, Expected, Keys, TokenError};
pub use pending::{LoginId, Pending, PendingLogins, TooManyLogins};

/// How long the provider's description is used before it is read again.
const DESCRIPTION_AGE: Duration = Duration::from_secs(3600);
/// The provider's keys are read again for an unknown key, but not more often than this.
const KEYS_AGE: Duration = Duration::from_secs(60);
/// How long to wait between two polls unless the provider says otherwise (RFC 8628, section 3.2).
const USUAL_INTERVAL: u64 = 5;
/// The longest wait between two polls.
const LONGEST_INTERVAL: u64 = 60;
/// The longest time that a login may stay unconfirmed.
const LONGEST_LOGIN: u64 = 1800;
/// The most groups of a user that are considered.
const MOST_GROUPS: usize = 1000;

/// Why the provider did not do what was asked. Never contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("the connection to the login provider cannot be set up: {0}")]
    Setup(String),
    #[error("the login provider cannot be reached at {address}: {problem}")]
    Unreachable { address: String, problem: String },
    #[error("the login provider does not offer logins with a device code")]
    NoDeviceFlow,
    #[error("the login provider refused this server: {0}")]
    Refused(String),
    /// The provider no longer knows the user, or has ended their login.
    #[error("the login provider has ended this login")]
    Ended,
    #[error("the login provider's ID token is refused: {0}")]
    IdToken(#[from] TokenError),
    #[error("the login provider's reply is missing `{0}`")]
    Incomplete(&'static str),
    #[error("the client secret of `oidc` cannot be read from {place}: {problem}")]
    Secret { place: String, problem: String },
}

/// A started login, for the user's eyes.
#[derive(Debug, Clone, Deserialize)]
pub struct DeviceCode {
    pub device_code: String,
    pub user_code: String,
    pub verification_uri: String,
    pub verification_uri_complete: Option<String>,
    #[serde(default)]
    pub expires_in: u64,
    pub interval: Option<u64>,
}

/// A user whom the provider has authenticated.
#[derive(Debug, Clone)]
pub struct Identity {
    pub subject: String,
    /// The claim that names a new account, if the provider vouches for it.
    pub name: Option<String>,
    /// `None` unless the configuration names a claim.
    pub groups: Option<Vec<String>>,
    pub refresh_token: Option<String>,
}

/// What a poll found.
#[derive(Debug)]
pub enum Polled {
    /// The user has not confirmed yet. The next poll may come after this time.
    Waiting(Duration),
    Denied,
    Expired,
    LoggedIn(Box<Identity>),
}

/// The configured provider.
pub struct Oidc {
    pub config: OidcConfig,
    pub pending: PendingLogins,
    fetch: Fetch,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    description: Option<(Description, Instant)>,
    keys: Option<(Keys, Instant)>,
}

/// What the provider says about itself.
#[derive(Debug, Clone, Deserialize)]
struct Description {
    issuer: String,
    token_endpoint: String,
    jwks_uri: String,
    device_authorization_endpoint: Option<String>,
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

/// Tokens of the provider.
#[derive(Deserialize)]
struct Tokens {
    access_token: String,
    id_token: Option<String>,
    refresh_token: Option<String>,
}

impl Oidc {
    /// Makes no request: a provider that is down must not keep the server from starting.
    pub fn new(config: OidcConfig) -> Result<Oidc, OidcError> {
        let fetch = Fetch::new(config.ca.as_deref())?;
        if let Some(source) = &config.client_secret {
            client_secret(source)?;
        }
        Ok(Oidc {
            config,
            pending: PendingLogins::default(),
            fetch,
            known: Mutex::default(),
        })
    }

    /// Starts a login: the provider returns a code that its user confirms in a browser.
    pub async fn device_code(&self) -> Result<DeviceCode, OidcError> {
        let description = self.description().await?;
        let address = description.device_authorization_endpoint.clone();
        let address = address.ok_or(OidcError::NoDeviceFlow)?;
        let scopes = self.config.scopes.join(" ");
        let (status, reply) = self.ask(&description, &address, &[("scope", &scopes)]).await?;
        if status != 200 {
            return Err(refused(&reply));
        }
        let code: Result<DeviceCode, _> = serde_json::from_value(reply);
        let mut code = code.map_err(|_| OidcError::Incomplete("device_code"))?;
        let is_plain =
            |text: &str| !text.is_empty() && text.len() < 2000 && !text.chars().any(char::is_control);
        let is_address = |uri: &str| is_plain(uri) && is_safe_address(uri);
        let complete = code.verification_uri_complete.as_deref();
        if !is_plain(&code.user_code)
            || !is_address(&code.verification_uri)
            || !complete.is_none_or(is_address)
        {
            return Err(OidcError::Incomplete("verification_uri"));
        }
        code.expires_in = code.expires_in.clamp(1, LONGEST_LOGIN);
        let interval = code.interval.unwrap_or(USUAL_INTERVAL);
        code.interval = Some(interval.clamp(1, LONGEST_INTERVAL));
        Ok(code)
    }

    /// Asks once whether the user has confirmed.
    pub async fn poll(&self, device_code: &str, interval: Duration) -> Result<Polled, OidcError> {
        let description = self.description().await?;
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("device_code", device_code),
        ];
        let (status, reply) = self
            .ask(&description, &description.token_endpoint, &fields)
            .await?;
        if status == 200 {
            let identity = self.identity(&description, reply, None).await?;
            return Ok(Polled::LoggedIn(Box::new(identity)));
        }
        match reply["error"].as_str() {
            Some("authorization_pending") => Ok(Polled::Waiting(interval)),
            Some("slow_down") => {
                let longer = interval + Duration::from_secs(USUAL_INTERVAL);
                Ok(Polled::Waiting(longer.min(Duration::from_secs(LONGEST_INTERVAL))))
            }
            Some("access_denied") => Ok(Polled::Denied),
            Some("expired_token" | "invalid_grant") => Ok(Polled::Expired),
            _ => Err(refused(&reply)),
        }
    }

    /// Asks whether the user of a refresh token may still log in.
    pub async fn refresh(&self, subject: &str, refresh_token: &str) -> Result<Identity, OidcError> {
        let description = self.description().await?;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        let (status, reply) = self
            .ask(&description, &description.token_endpoint, &fields)
            .await?;
        match (status, reply["error"].as_str()) {
            (200, _) => self.identity(&description, reply, Some(subject)).await,
            (_, Some("invalid_grant")) => Err(OidcError::Ended),
            _ => Err(refused(&reply)),
        }
    }

    /// The user of a token reply. A reply to a refresh may come without an ID token; then `known` is the subject.
    async fn identity(
        &self,
        description: &Description,
        reply: Value,
        known: Option<&str>,
    ) -> Result<Identity, OidcError> {
        let tokens: Result<Tokens, _> = serde_json::from_value(reply);
        let tokens = tokens.map_err(|_| OidcError::Incomplete("access_token"))?;
        let mut claims = match (&tokens.id_token, known) {
            (Some(token), _) => self.verified(description, token).await?,
            (None, Some(subject)) => Claims::from_iter([("sub".to_owned(), Value::from(subject))]),
            (None, None) => return Err(OidcError::Incomplete("id_token")),
        };
        let subject = id_token::subject(&claims)?.to_owned();
        if known.is_some_and(|known| known != subject) {
            return Err(TokenError::Claim("sub").into());
        }
        let missing = |name: &String| !claims.contains_key(name);
        let wants_name = self.config.create_accounts && known.is_none() && missing(&self.config.name_claim);
        if wants_name || self.config.groups_claim.as_ref().is_some_and(missing) {
            self.add_userinfo(description, &tokens.access_token, &mut claims)
                .await?;
        }
        Ok(Identity {
            name: self.name(&claims),
            groups: self
                .config
                .groups_claim
                .as_ref()
                .map(|claim| groups(&claims, claim)),
            refresh_token: tokens.refresh_token,
            subject,
        })
    }

    async fn verified(&self, description: &Description, token: &str) -> Result<Claims, OidcError> {
        let expected = Expected {
            issuer: &self.config.issuer,
            client_id: &self.config.client_id,
            now: Timestamp::now().as_second(),
        };
        let (keys, age) = self.keys(description, KEYS_AGE * 60).await?;
        match id_token::verify(token, &keys, expected) {
            // The provider may have new keys.
            Err(TokenError::UnknownKey(_)) if age >= KEYS_AGE => {
                let (keys, _) = self.keys(description, KEYS_AGE).await?;
                Ok(id_token::verify(token, &keys, expected)?)
            }
            verified => Ok(verified?),
        }
    }

    /// Claims that are not in the ID token. They count only for the same subject (OpenID Connect Core, section 5.3.2).
    async fn add_userinfo(
        &self,
        description: &Description,
        access_token: &str,
        claims: &mut Claims,
    ) -> Result<(), OidcError> {
        let Some(address) = &description.userinfo_endpoint else {
            return Ok(());
        };
        let info = self.fetch.get(address, Proof::Bearer(access_token)).await?;
        let Value::Object(info) = info else {
            return Err(OidcError::Incomplete("sub"));
        };
        if info.get("sub") != claims.get("sub") {
            return Err(TokenError::Claim("sub").into());
        }
        for (name, value) in info {
            claims.entry(name).or_insert(value);
        }
        Ok(())
    }

    /// The name for a new account. An e-mail address counts only if the provider has verified it.
    fn name(&self, claims: &Claims) -> Option<String> {
        let claim = self.config.name_claim.as_str();
        let is_vouched_for = claim != "email" || claims.get("email_verified") == Some(&Value::Bool(true));
        let name = claims.get(claim).and_then(Value::as_str);
        name.filter(|_| is_vouched_for).map(str::to_owned)
    }

    async fn description(&self) -> Result<Description, OidcError> {
        if let Some((description, read)) = &self.known().description
            && read.elapsed() < DESCRIPTION_AGE
        {
            return Ok(description.clone());
        }
        let address = format!("{}/.well-known/openid-configuration", self.config.issuer);
        let reply = self.fetch.get(&address, Proof::None).await?;
        let description: Result<Description, _> = serde_json::from_value(reply);
        let description = description.map_err(|_| OidcError::Incomplete("token_endpoint"))?;
        if description.issuer.trim_end_matches('/') != self.config.issuer {
            return Err(OidcError::Refused(format!(
                "it calls itself `{}`",
                description.issuer.escape_debug()
            )));
        }
        self.known().description = Some((description.clone(), Instant::now()));
        Ok(description)
    }

    /// The provider's keys and their age, at most `oldest`.
    async fn keys(&self, description: &Description, oldest: Duration) -> Result<(Keys, Duration), OidcError> {
        if let Some((keys, read)) = &self.known().keys
            && read.elapsed() < oldest
        {
            return Ok((keys.clone(), read.elapsed()));
        }
        let reply = self.fetch.get(&description.jwks_uri, Proof::None).await?;
        let keys: Result<Keys, _> = serde_json::from_value(reply);
        let keys = keys.map_err(|_| OidcError::Incomplete("keys"))?;
        self.known().keys = Some((keys.clone(), Instant::now()));
        Ok((keys, Duration::ZERO))
    }

    /// Sends a form with this server's own credentials.
    async fn ask(
        &self,
        description: &Description,
        address: &str,
        fields: &[(&str, &str)],
    ) -> Result<(u16, Value), OidcError> {
        let id = self.config.client_id.as_str();
        let Some(source) = self.config.client_secret.clone() else {
            let fields: Vec<_> = [("client_id", id)]
                .into_iter()
                .chain(fields.iter().copied())
                .collect();
            return self.fetch.post(address, Proof::None, &fields).await;
        };
        let secret = tokio::task::spawn_blocking(move || client_secret(&source)).await;
        let secret =
            secret.map_err(|_| OidcError::Setup("the client secret cannot be read".to_owned()))??;
        let secret = secret.as_str();
        let methods = &description.token_endpoint_auth_methods_supported;
        let supports = |name: &str| methods.iter().any(|method| method == name);
        if supports("client_secret_post") && !supports("client_secret_basic") {
            let own = [("client_id", id), ("client_secret", secret)];
            let fields: Vec<_> = own.into_iter().chain(fields.iter().copied()).collect();
            return self.fetch.post(address, Proof::None, &fields).await;
        }
        let fields: Vec<_> = [("client_id", id)]
            .into_iter()
            .chain(fields.iter().copied())
            .collect();
        self.fetch
            .post(address, Proof::Basic { name: id, secret }, &fields)
            .await
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses bytes as each reply of a provider, for the fuzzer. A token is checked with the keys that the bytes contain.
#[doc(hidden)]
pub fn parse_every_reply(bytes: &[u8], token: &str) {
    let Ok(reply) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let _ = refused(&reply).to_string();
    let _ = serde_json::from_value::<Description>(reply.clone());
    let _ = serde_json::from_value::<DeviceCode>(reply.clone());
    let _ = serde_json::from_value::<Tokens>(reply.clone());
    if let Value::Object(claims) = &reply {
        let _ = groups(claims, "groups");
        id_token::check_claims(claims);
    }
    if let Ok(keys) = serde_json::from_value::<Keys>(reply) {
        let _ = id_token::verify(token, &keys, id_token::EXAMPLE);
    }
}

/// Checks bytes as an ID token, for the fuzzer.
#[doc(hidden)]
pub fn parse_id_token(bytes: &[u8], keys: &str) {
    let keys: Keys = serde_json::from_str(keys).expect("the fuzzer's keys are complete");
    if let Ok(claims) = id_token::verify(&String::from_utf8_lossy(bytes), &keys, id_token::EXAMPLE) {
        id_token::check_claims(&claims);
    }
}

/// This server's secret at the provider: the first line of its source.
fn client_secret(source: &KeySource) -> Result<String, OidcError> {
    let lines = source.lines().map_err(|problem| OidcError::Secret {
        place: source.to_string(),
        problem,
    })?;
    Ok(lines.into_iter().next().unwrap_or_default())
}

/// The groups of a claim: a list of names, or names separated by spaces or commas.
fn groups(claims: &Claims, claim: &str) -> Vec<String> {
    let mut groups: Vec<String> = match claims.get(claim) {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(Value::String(text)) => text
            .split([' ', ','])
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    };
    groups.truncate(MOST_GROUPS);
    groups
}

fn refused(reply: &Value) -> OidcError {
    let word = |name: &str| {
        reply[name]
            .as_str()
            .unwrap_or_default()
            .escape_debug()
            .to_string()
    };
    let text = [word("error"), word("error_description")].join(" ");
    let text: String = text.trim().chars().take(200).collect();
    OidcError::Refused(if text.is_empty() {
        "it gave no reason".to_owned()
    } else {
        text
    })
}
