//! What the server reports about itself and about the caller.

use serde::{Deserialize, Serialize};

/// `GET /api/v1/server`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerInfo {
    pub version: String,
    pub pid: u32,
    pub embedded: bool,
    pub datacenter: String,
    pub engine: String,
    /// Where it listens.
    pub listen: String,
    /// Its folders, as paths on its own machine; users' files may be in a store elsewhere.
    pub storage: String,
    /// The limits of the storage, in words.
    #[serde(default)]
    pub storage_limits: String,
    pub data: String,
    pub log: Option<String>,
    pub database: String,
    pub started: String,
    pub cpu: String,
    pub memory: String,
    pub gpus: u32,
    /// What this machine does not permit, one sentence each.
    #[serde(default)]
    pub degraded: Vec<String>,
    pub jobs_pending: u64,
    pub jobs_running: u64,
}

/// `GET /api/v1/whoami`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WhoAmI {
    pub user: String,
    pub namespace: String,
    pub datacenter: String,
    pub home: String,
    pub admin: bool,
}

/// Body of `POST /api-token-auth`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenRequest {
    pub username: String,
    pub password: String,
}

/// Its reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenReply {
    pub token: String,
}
