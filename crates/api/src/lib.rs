//! What travels between the server and everyone who talks to it: wire types, error names, the log stream.
//!
//! JSON names and status codes are known here and in `server::http`, nowhere else.

#[cfg(feature = "client")]
pub mod client;
pub mod error;
pub mod files;
pub mod jobs;
pub mod logs;
pub mod server;

/// Every path begins with this; a trailing slash is accepted everywhere.
pub const PREFIX: &str = "/api/v1";

/// Carries a submit's idempotency key: the same key never makes a second job.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// Every reply carries the server's version in this header.
pub const VERSION_HEADER: &str = "paddlecloud-version";

/// Who sends this header takes a reply that begins before the work is done. It carries the header too, its status is 200,
/// and spaces come until the work is over; then comes what the reply would have been, and its `code` is the status.
pub const ALIVE_HEADER: &str = "paddlecloud-alive";

/// S4's envelope: the HTTP status equals `code`, `msg` is the data.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Envelope<T> {
    pub code: u16,
    pub msg: T,
}
