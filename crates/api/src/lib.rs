//! The wire format between the server and its clients: wire types, error names, the log stream.
//!
//! Only this crate and `server::http` know JSON names and status codes.

pub mod admin;
pub mod certificate;
#[cfg(feature = "client")]
pub mod client;
pub mod der;
pub mod device_login;
pub mod error;
pub mod files;
pub mod jobs;
pub mod logs;
pub mod server;
mod submit;

/// Every path begins with this; a trailing slash is accepted everywhere.
pub const PREFIX: &str = "/api/v1";

/// Contains a submit's idempotency key: the same key never creates a second job.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// Every reply carries the server's version in this header.
pub const VERSION_HEADER: &str = "paddlecloud-version";

/// A reply with this header says that the caller's token is past half of its lifetime and can be exchanged for a new
/// one.
pub const RENEW_HEADER: &str = "paddlecloud-renew";

/// Every reply carries the id of its request in this header; the server's log and its audit log show it too.
pub const REQUEST_ID_HEADER: &str = "x-request-id";

/// A client that sends this header accepts a reply that begins before the work is done. That reply contains the header
/// too, has status 200, and sends spaces until the work is done; then comes the actual reply, whose `code` is the
/// status.
pub const ALIVE_HEADER: &str = "paddlecloud-alive";

/// The longest body that waits for no other one. Larger bodies wait for each other.
pub const SMALL_BODY: usize = 64 << 10;

/// The envelope of the client design: the HTTP status equals `code`, `msg` is the data.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Envelope<T> {
    pub code: u16,
    pub msg: T,
}
