//! Accounts, groups, tokens and the audit log, as administrators and their users see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An account. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserView {
    pub name: String,
    /// Never reused for another account; 0 for all accounts of the configuration.
    pub id: u64,
    pub admin: bool,
    /// A program's account: it has tokens and no password.
    pub service: bool,
    pub disabled: bool,
    /// Defined in the server's configuration, and changed only there.
    pub configured: bool,
    pub groups: Vec<String>,
    /// The system user of the account's workers: the name it was given, or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_user: Option<String>,
    /// The login provider of the account, if it logs in there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc_issuer: Option<String>,
    /// Its subject at that provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc_subject: Option<String>,
    /// The limits of the account itself.
    pub limits: BTreeMap<String, String>,
    /// The effective limits: with those of the groups and the server's defaults.
    pub effective: BTreeMap<String, String>,
    /// In the reply to a request that disabled the account: its queued jobs, which were killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed_jobs: Option<usize>,
    /// In the same reply: its jobs that still run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_jobs: Option<usize>,
}

/// `POST /api/v1/admin/users` and `PATCH /api/v1/admin/users/{name}`, where omitted fields stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct UserRequest {
    /// Only for a new account: names do not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Omitted for a service account, and for a user who logs in with a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<bool>,
    /// Only for a new account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// All groups of the account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// Limits by name; `none` removes one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// The system user of the account's workers; empty: none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_user: Option<String>,
    /// The subject of the server's login provider that has this account, instead of a password; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_subject: Option<String>,
}

/// What happens to a deleted user's jobs and home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Dispose {
    /// They stay, owned by an account that cannot log in.
    Keep,
    /// Another user gets them.
    GiveTo,
    /// They are removed.
    Purge,
}

/// How a user was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserDeleted {
    pub name: String,
    /// Jobs that were stopped.
    pub stopped: usize,
    /// The new owner of the jobs; empty if they were removed.
    pub jobs: Option<String>,
    /// Where the home is now, as a path of the server's storage.
    pub home: Option<String>,
}

/// A group: limits for members who have none of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupView {
    pub name: String,
    /// Limits of each member.
    pub limits: BTreeMap<String, String>,
    /// Limits of all members together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub total: BTreeMap<String, String>,
    pub members: Vec<String>,
}

/// `PUT /api/v1/admin/groups/{name}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct GroupRequest {
    /// Limits of each member by name; `none` removes one, omitted ones stay unchanged.
    pub limits: BTreeMap<String, String>,
    /// Limits of all members together: `cpu`, `memory`, `gpu`, `parallelism`, `running_jobs`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub total: BTreeMap<String, String>,
}

/// `POST /api/v1/admin/certificates`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct CertificateRequest {
    pub user: String,
    /// A certificate request (PKCS #10) in PEM. Only its key is used.
    pub request: String,
    /// How long the certificate is valid; omitted: a year.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_seconds: Option<i64>,
}

/// A certificate of a user, signed by the server's own authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CertificateView {
    /// Its serial number.
    pub id: String,
    pub user: String,
    /// RFC 3339.
    pub created: String,
    pub expires: String,
}

/// A certificate that was signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CertificateIssued {
    /// In PEM, for `usercert`.
    pub certificate: String,
    #[serde(flatten)]
    pub view: CertificateView,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenView {
    pub id: String,
    pub name: String,
    pub user: String,
    /// `read`, `submit`, `files`, `admin`, separated by commas.
    pub scopes: String,
    /// RFC 3339.
    pub created: String,
    pub expires: String,
}

/// `POST /api/v1/tokens`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct NewTokenRequest {
    pub name: String,
    /// Omitted: those of the requesting login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<String>,
    /// Omitted: the server's `tokens.lifetime`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_seconds: Option<i64>,
    /// Another user, for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A new token; the secret is shown only once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewTokenReply {
    pub token: String,
    #[serde(flatten)]
    pub view: TokenView,
}

/// `POST /api/v1/password`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PasswordRequest {
    pub old: String,
    pub new: String,
}

/// One row of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditView {
    pub seq: i64,
    /// RFC 3339.
    pub time: String,
    /// Who did it; empty if unknown.
    pub actor: String,
    /// What was done, as `noun.verb`.
    pub action: String,
    pub subject: String,
    pub detail: String,
    /// The id that the reply's `x-request-id` had.
    pub request: String,
}

/// What the verification of the audit log found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditCheck {
    pub sound: bool,
    /// Rows of the log; of a broken one the number of the first row that is missing or altered.
    pub rows: i64,
    /// Of the last row. Store it elsewhere: a log that was restored to an earlier state ends with an earlier one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretView {
    pub name: String,
    /// RFC 3339.
    pub created: String,
}

/// `PUT /api/v1/secrets/{name}`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SecretRequest {
    pub value: String,
}

/// A registry, without its password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegistryView {
    pub name: String,
    pub server: String,
    pub username: String,
}

/// `POST /api/v1/registry`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct RegistryRequest {
    /// What `submit -registry` names.
    pub name: String,
    /// The registry's address.
    pub server: String,
    pub username: String,
    pub password: String,
}

/// What one user's jobs have used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageView {
    pub user: String,
    pub jobs: u64,
    pub core_hours: f64,
    pub gib_hours: f64,
    pub card_hours: f64,
}
