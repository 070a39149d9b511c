//! `/api/v1/quota`.

use axum::extract::State;
use paddlecloud_api::Envelope;
use paddlecloud_api::jobs::QuotaRow;
use serde::Deserialize;
use utoipa::IntoParams;

use super::query::QueryParams;
use super::reply::{Reply, envelope};
use super::request::flag;
use super::{Shared, scope};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct QuotaParams {
    /// The rows of all users, for administrators.
    #[serde(deserialize_with = "flag")]
    all_users: bool,
}

/// Returns limit, guarantee and use of cpu, memory, gpu, parallelism, jobs, storage and files.
#[utoipa::path(
    get, path = "/api/v1/quota", tag = "quota", params(QuotaParams),
    responses((status = 200, body = Envelope<Vec<QuotaRow>>))
)]
pub(super) async fn quota_show(
    State(app): Shared,
    scope::Read(caller): scope::Read,
    QueryParams(params): QueryParams<QuotaParams>,
) -> Reply<Envelope<Vec<QuotaRow>>> {
    let rows = match params.all_users {
        true => app.quota_list(&caller).await?,
        false => app.quota_show(&caller).await?,
    };
    Ok(envelope(rows))
}
