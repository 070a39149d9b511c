//! `/api/v1/workers`.

use axum::extract::State;
use paddlecloud_api::Envelope;
use paddlecloud_api::jobs::WorkerView;
use serde::Deserialize;
use utoipa::IntoParams;

use super::query::QueryParams;
use super::reply::{Reply, envelope};
use super::request::{flag, job_ref};
use super::{Shared, scope};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct WorkerParams {
    /// Name or id of the job; by default all running jobs.
    jobname: Option<String>,
    /// Workers of all users, for administrators.
    #[serde(deserialize_with = "flag")]
    all_users: bool,
}

/// Lists trainers and parameter servers of a job.
#[utoipa::path(
    get, path = "/api/v1/workers", tag = "workers", params(WorkerParams),
    responses((status = 200, body = Envelope<Vec<WorkerView>>))
)]
pub(super) async fn worker_list(
    State(app): Shared,
    scope::Read(caller): scope::Read,
    QueryParams(params): QueryParams<WorkerParams>,
) -> Reply<Envelope<Vec<WorkerView>>> {
    let named = params.jobname.filter(|name| !name.is_empty());
    let target = named.as_deref().map(job_ref).transpose()?;
    Ok(envelope(
        app.worker_list(&caller, target.as_ref(), params.all_users)
            .await?,
    ))
}
