//! `/api/v1/quota`.

use axum::extract::State;
use paddlecloud_api::Envelope;
use paddlecloud_api::jobs::QuotaRow;

use super::reply::{Reply, envelope};
use super::{Shared, scope};

/// Returns limit and use of cpu, memory, gpu, parallelism and storage.
#[utoipa::path(
    get, path = "/api/v1/quota", tag = "quota", responses((status = 200, body = Envelope<Vec<QuotaRow>>))
)]
pub(super) async fn quota_show(
    State(app): Shared,
    scope::Read(caller): scope::Read,
) -> Reply<Envelope<Vec<QuotaRow>>> {
    Ok(envelope(app.quota_show(&caller).await?))
}
