//! `/api/v1/jobs` and `/api/v1/prune`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use jiff::SignedDuration;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::{JobDetail, JobPage, JobRequest, KillReply, PruneReply, SubmitReply, WhyView};
use paddlecloud_api::{Envelope, IDEMPOTENCY_HEADER};
use paddlecloud_core::job::IdempotencyKey;
use paddlecloud_core::names::{JobName, NameError};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::query::Asked;
use super::reply::{Refused, Reply, envelope};
use super::request::{Body, Target, flag, job_ref};
use crate::app::ListQuery;
use crate::auth::Caller;

/// Longest wait that one request may ask for.
const MOST_WAIT: u64 = 24 * 60 * 60;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// Also jobs that are over.
    #[serde(deserialize_with = "flag")]
    all: bool,
    /// Only runs of this name.
    name: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// Jobs of the page: 100 unless said otherwise, 1000 at most.
    limit: Option<usize>,
}

impl ListParams {
    fn query(self) -> Result<ListQuery, Refused> {
        let wrong = |problem: String| Refused(ErrorBody::new(ErrorName::BadRequest, problem));
        let name = self.name.as_deref().map(str::parse).transpose();
        let after = self.after.as_deref().map(str::parse).transpose();
        Ok(ListQuery {
            all: self.all,
            name: name.map_err(|error| wrong(format!("`name`: {error}")))?,
            after: after.map_err(|error| wrong(format!("`after`: {error}")))?,
            limit: self.limit,
        })
    }
}

/// Jobs that wait or run, latest first; with `all`, the whole history.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", params(ListParams), responses((status = 200, body = JobPage)))]
pub(super) async fn job_list(
    State(app): Shared,
    caller: Caller,
    Asked(params): Asked<ListParams>,
) -> Reply<JobPage> {
    Ok(Json(app.job_list(&caller, &params.query()?).await?))
}

/// Submits a job. The reply is durable; the same `idempotency-key` never makes a second job.
#[utoipa::path(
    post, path = "/api/v1/jobs", tag = "jobs", request_body = JobRequest,
    params(("idempotency-key" = Option<String>, Header)), responses((status = 200, body = SubmitReply))
)]
pub(super) async fn job_submit(
    State(app): Shared,
    caller: Caller,
    headers: HeaderMap,
    Body(request): Body<JobRequest>,
) -> Reply<SubmitReply> {
    let key = idempotency_key(&headers)?;
    Ok(Json(app.job_submit(&caller, request, key).await?))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct KillRequest {
    /// Name or id.
    jobname: String,
    /// Also remove it from the history.
    rm: bool,
}

/// Ends the job that the body names.
#[utoipa::path(
    delete, path = "/api/v1/jobs", tag = "jobs", request_body = KillRequest,
    responses((status = 200, body = KillReply))
)]
pub(super) async fn job_kill_named(
    State(app): Shared,
    caller: Caller,
    Body(request): Body<KillRequest>,
) -> Reply<KillReply> {
    if request.jobname.is_empty() {
        return Err(Refused(ErrorBody::new(
            ErrorName::BadRequest,
            "`jobname` must name the job to end",
        )));
    }
    let target = job_ref(&request.jobname)?;
    Ok(Json(app.job_kill(&caller, &target, request.rm).await?))
}

/// One job by name (its latest run), by id, or `last`.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path)),
    responses((status = 200, body = Envelope<JobDetail>))
)]
pub(super) async fn job_show(
    State(app): Shared,
    caller: Caller,
    Target(target): Target,
) -> Reply<Envelope<JobDetail>> {
    Ok(envelope(app.job_show(&caller, &target).await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct KillParams {
    /// Also remove it from the history.
    #[serde(deserialize_with = "flag")]
    rm: bool,
}

/// Ends a job.
#[utoipa::path(
    delete, path = "/api/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path), KillParams),
    responses((status = 200, body = KillReply))
)]
pub(super) async fn job_kill(
    State(app): Shared,
    caller: Caller,
    Target(target): Target,
    Asked(params): Asked<KillParams>,
) -> Reply<KillReply> {
    Ok(Json(app.job_kill(&caller, &target, params.rm).await?))
}

/// Why a job waits, or how it ended.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}/why", tag = "jobs", params(("job" = String, Path)),
    responses((status = 200, body = Envelope<WhyView>))
)]
pub(super) async fn job_why(
    State(app): Shared,
    caller: Caller,
    Target(target): Target,
) -> Reply<Envelope<WhyView>> {
    Ok(envelope(app.job_why(&caller, &target).await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitParams {
    /// Seconds after which the reply comes even if the job is not final.
    timeout: Option<u64>,
}

/// Replies when the job is final, or when the time is over.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}/wait", tag = "jobs", params(("job" = String, Path), WaitParams),
    responses((status = 200, body = Envelope<JobDetail>))
)]
pub(super) async fn job_wait(
    State(app): Shared,
    caller: Caller,
    Target(target): Target,
    Asked(params): Asked<WaitParams>,
) -> Reply<Envelope<JobDetail>> {
    let limit = params
        .timeout
        .map(|seconds| Duration::from_secs(seconds.min(MOST_WAIT)));
    Ok(envelope(app.job_wait(&caller, &target, limit).await?.detail()))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct RerunParams {
    /// Another name for the new run; its own when left out.
    name: Option<String>,
}

impl RerunParams {
    fn name(&self) -> Result<Option<JobName>, Refused> {
        let parsed = self.name.as_deref().map(str::parse).transpose();
        parsed.map_err(|error: NameError| Refused(ErrorBody::new(ErrorName::BadRequest, error.to_string())))
    }
}

/// Submits a job again, as it was.
#[utoipa::path(
    post, path = "/api/v1/jobs/{job}/rerun", tag = "jobs",
    params(("job" = String, Path), RerunParams, ("idempotency-key" = Option<String>, Header)),
    responses((status = 200, body = SubmitReply))
)]
pub(super) async fn job_rerun(
    State(app): Shared,
    caller: Caller,
    Target(target): Target,
    Asked(params): Asked<RerunParams>,
    headers: HeaderMap,
) -> Reply<SubmitReply> {
    let key = idempotency_key(&headers)?;
    Ok(Json(app.job_rerun(&caller, &target, params.name()?, key).await?))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct PruneRequest {
    /// Only jobs that ended longer ago.
    older_than_seconds: Option<u32>,
    /// All jobs that have ended. One of the two must be given.
    all: bool,
    /// Say what would go, remove nothing.
    dry_run: bool,
}

impl PruneRequest {
    /// An empty request is more often a mistake than the wish to remove everything.
    fn age(&self) -> Result<SignedDuration, Refused> {
        match (self.older_than_seconds, self.all) {
            (Some(_), true) => Err("`older_than_seconds` and `all` exclude each other"),
            (Some(seconds), false) => Ok(SignedDuration::from_secs(seconds.into())),
            (None, true) => Ok(SignedDuration::ZERO),
            (None, false) => {
                Err("say which jobs: `older_than_seconds`, or `\"all\": true` for all that have ended")
            }
        }
        .map_err(|problem| Refused(ErrorBody::new(ErrorName::BadRequest, problem)))
    }
}

/// Removes jobs that are over from the history, and what they left behind except their output.
#[utoipa::path(
    post, path = "/api/v1/prune", tag = "jobs", request_body = PruneRequest,
    responses((status = 200, body = Envelope<PruneReply>))
)]
pub(super) async fn job_prune(
    State(app): Shared,
    caller: Caller,
    Body(request): Body<PruneRequest>,
) -> Reply<Envelope<PruneReply>> {
    let age = request.age()?;
    Ok(envelope(app.job_prune(&caller, age, request.dry_run).await?))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Refused> {
    let Some(value) = headers.get(IDEMPOTENCY_HEADER) else {
        return Ok(None);
    };
    let parsed = value.to_str().unwrap_or_default().parse();
    let refused =
        |error: paddlecloud_core::job::KeyError| ErrorBody::new(ErrorName::BadRequest, error.to_string());
    parsed.map(Some).map_err(|error| Refused(refused(error)))
}
