//! `/api/v1/server` and `/api/v1/whoami`.

use axum::extract::State;
use paddlecloud_api::Envelope;
use paddlecloud_api::server::{ServerInfo, WhoAmI};

use super::reply::{Reply, envelope};
use super::{Shared, scope};

/// Returns the caller's user, home and rights.
#[utoipa::path(get, path = "/api/v1/whoami", tag = "server", responses((status = 200, body = Envelope<WhoAmI>)))]
pub(super) async fn whoami(State(app): Shared, scope::Any(caller): scope::Any) -> Reply<Envelope<WhoAmI>> {
    Ok(envelope(app.whoami(&caller)))
}

/// Returns version, folders and capacity of the server.
#[utoipa::path(get, path = "/api/v1/server", tag = "server", responses((status = 200, body = Envelope<ServerInfo>)))]
pub(super) async fn server_show(
    State(app): Shared,
    scope::Any(caller): scope::Any,
) -> Reply<Envelope<ServerInfo>> {
    Ok(envelope(app.server_show(&caller).await))
}

/// Stops the server once its replies are sent. Workers keep running.
#[utoipa::path(post, path = "/api/v1/server/stop", tag = "server", responses((status = 200, body = Envelope<String>)))]
pub(super) async fn server_stop(
    State(app): Shared,
    scope::Admin(caller): scope::Admin,
) -> Reply<Envelope<String>> {
    app.server_stop(&caller)?;
    Ok(envelope("stopping".to_owned()))
}
