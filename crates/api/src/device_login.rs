//! Logins with a device code: the user confirms a code at the server's login provider, in any browser.

use serde::{Deserialize, Serialize};

/// `POST /api/v1/login/device`: a login that waits for its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceLogin {
    /// Secret: the client that has it gets the token.
    pub id: String,
    /// The login provider.
    pub issuer: String,
    /// Where the user enters the code.
    pub verification_uri: String,
    /// The same with the code in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification_uri_complete: Option<String>,
    pub user_code: String,
    /// Seconds until the code expires.
    pub expires_in: u64,
}

/// Body of `POST /api/v1/login/device/token`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceLoginRequest {
    /// The id of the login.
    pub id: String,
}

/// Its reply: the token, or why there is none yet. It comes when the provider has been asked, after some seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceLoginState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The user of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Why there is no token yet: ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
}
