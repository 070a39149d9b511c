//! `/api/v1/workers`.

use axum::extract::State;
use paddlecloud_api::Envelope;
use paddlecloud_api::jobs::WorkerView;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Shared;
use super::query::Asked;
use super::reply::{Reply, envelope};
use super::request::job_ref;
use crate::auth::Caller;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct WorkerParams {
    /// Name or id of the job; left out: of all that run.
    jobname: Option<String>,
}

/// Trainers and parameter servers of a job.
#[utoipa::path(
    get, path = "/api/v1/workers", tag = "workers", params(WorkerParams),
    responses((status = 200, body = Envelope<Vec<WorkerView>>))
)]
pub(super) async fn worker_list(
    State(app): Shared,
    caller: Caller,
    Asked(params): Asked<WorkerParams>,
) -> Reply<Envelope<Vec<WorkerView>>> {
    let named = params.jobname.filter(|name| !name.is_empty());
    let target = named.as_deref().map(job_ref).transpose()?;
    Ok(envelope(app.worker_list(&caller, target.as_ref()).await?))
}
