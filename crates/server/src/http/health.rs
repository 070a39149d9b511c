//! Routes for monitoring: `/healthz`, `/readyz`, `/metrics`, `/openapi.json`. No login, unless `/metrics` needs one.

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use paddlecloud_api::Envelope;

use super::reply::{Reply, envelope};
use super::{Shared, scope};

/// The document is generated once: anyone may ask for it, and generating it takes long.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| super::openapi::document().into());

/// Replies while the process serves requests. Probes are not counted: a flood from their address must not restart the server.
#[utoipa::path(
    get, path = "/healthz", tag = "health", security(()), responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn health_show() -> Reply<Envelope<String>> {
    Ok(envelope("OK".to_owned()))
}

/// Replies whether the server can accept jobs: its database answers and has not reported damage, `data` and `storage` can be written
/// to, and it is not stopping.
#[utoipa::path(
    get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, body = Envelope<String>), (status = 503, body = paddlecloud_api::error::ErrorBody))
)]
pub(super) async fn ready_show(State(app): Shared) -> Reply<Envelope<String>> {
    app.ready_check().await?;
    Ok(envelope("OK".to_owned()))
}

/// Returns metrics in Prometheus' format. Needs a login only with `metrics_login: true`.
#[utoipa::path(
    get, path = "/metrics", tag = "health", security((), ("token" = []), ("basic" = [])),
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub(super) async fn metrics_show(State(app): Shared, _: scope::Metrics) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics_text())
}

/// Returns this document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "health", security(()),
    responses((status = 200, body = Object, content_type = "application/json"))
)]
pub(super) async fn openapi_show(_: scope::Public) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}
