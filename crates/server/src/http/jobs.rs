//! `/api/v1/jobs` and `/api/v1/prune`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use jiff::SignedDuration;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::{
    JobDetail, JobPage, JobRequest, KillOptions, KillReply, PruneOptions, PruneReply, PruneRequest,
    SubmitReply, WhyView,
};
use paddlecloud_api::{Envelope, IDEMPOTENCY_HEADER};
use paddlecloud_core::job::IdempotencyKey;
use paddlecloud_core::names::{JobName, NameError};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::query::{QueryParams, bounded};
use super::reply::{OK, Refused, Reply, envelope};
use super::request::{Body, Target, flag, job_ref};
use super::{Shared, scope};
use crate::app::{JobList, ListQuery, SubmitOutcome};
use crate::reconcile::{KillEffect, Killed};

/// Longest wait that one request may ask for.
const MOST_WAIT: u64 = 24 * 60 * 60;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// Include ended jobs.
    #[serde(deserialize_with = "flag")]
    all: bool,
    /// Jobs of all users, for administrators.
    #[serde(deserialize_with = "flag")]
    all_users: bool,
    /// Only runs of this name.
    name: Option<String>,
    /// `next` of the previous page.
    after: Option<String>,
    /// Jobs per page: 100 by default.
    #[serde(deserialize_with = "bounded::<1, 1000, _, _>")]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Add to the message of each waiting job why it waits.
    #[serde(deserialize_with = "flag")]
    reasons: bool,
}

impl ListParams {
    fn query(self) -> Result<ListQuery, Refused> {
        let wrong = |problem: String| Refused(ErrorBody::new(ErrorName::BadRequest, problem));
        let name = self.name.as_deref().map(str::parse).transpose();
        let after = self.after.as_deref().map(str::parse).transpose();
        Ok(ListQuery {
            all: self.all,
            all_users: self.all_users,
            name: name.map_err(|error| wrong(format!("`name`: {error}")))?,
            after: after.map_err(|error| wrong(format!("`after`: {error}")))?,
            limit: self.limit,
            reasons: self.reasons,
        })
    }
}

/// Lists pending and running jobs, latest first; with `all`, the whole history.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", params(ListParams), responses((status = 200, body = JobPage)))]
pub(super) async fn job_list(
    State(app): Shared,
    scope::Read(caller): scope::Read,
    QueryParams(params): QueryParams<ListParams>,
) -> Reply<JobPage> {
    Ok(Json(app.job_list(&caller, &params.query()?).await?.into()))
}

/// Submits a job. The reply is durable; the same `idempotency-key` never creates a second job.
#[utoipa::path(
    post, path = "/api/v1/jobs", tag = "jobs", request_body = JobRequest,
    params(("idempotency-key" = Option<String>, Header)), responses((status = 200, body = SubmitReply))
)]
pub(super) async fn job_submit(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    headers: HeaderMap,
    Body(request): Body<JobRequest>,
) -> Reply<SubmitReply> {
    let key = idempotency_key(&headers)?;
    Ok(Json(app.job_submit(&caller, request, key).await?.into()))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct KillRequest {
    /// Name or id.
    jobname: String,
    /// Also remove it from the history.
    rm: bool,
}

/// Kills the job that the body names.
#[utoipa::path(
    delete, path = "/api/v1/jobs", tag = "jobs", request_body = KillRequest,
    responses((status = 200, body = KillReply))
)]
pub(super) async fn job_kill_named(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    Body(request): Body<KillRequest>,
) -> Reply<KillReply> {
    if request.jobname.is_empty() {
        return Err(Refused(ErrorBody::new(
            ErrorName::BadRequest,
            "`jobname` must name the job to kill",
        )));
    }
    let target = job_ref(&request.jobname)?;
    let options = KillOptions {
        remove: request.rm,
        now: false,
    };
    Ok(Json(app.job_kill(&caller, &target, options).await?.into()))
}

/// Returns a job by name (its latest run), by id, or `last`.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path)),
    responses((status = 200, body = Envelope<JobDetail>))
)]
pub(super) async fn job_show(
    State(app): Shared,
    scope::Read(caller): scope::Read,
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
    /// Kill its workers without waiting for the grace period.
    #[serde(deserialize_with = "flag")]
    now: bool,
}

/// Kills a job.
#[utoipa::path(
    delete, path = "/api/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path), KillParams),
    responses((status = 200, body = KillReply))
)]
pub(super) async fn job_kill(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    Target(target): Target,
    QueryParams(params): QueryParams<KillParams>,
) -> Reply<KillReply> {
    let options = KillOptions {
        remove: params.rm,
        now: params.now,
    };
    Ok(Json(app.job_kill(&caller, &target, options).await?.into()))
}

/// Explains why a job waits, or how it ended.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}/why", tag = "jobs", params(("job" = String, Path)),
    responses((status = 200, body = Envelope<WhyView>))
)]
pub(super) async fn job_why(
    State(app): Shared,
    scope::Read(caller): scope::Read,
    Target(target): Target,
) -> Reply<Envelope<WhyView>> {
    Ok(envelope(app.job_why(&caller, &target).await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitParams {
    /// Seconds after which the reply is sent even if the job is not final.
    #[serde(deserialize_with = "bounded::<0, MOST_WAIT, _, _>")]
    #[param(maximum = 86400)]
    timeout: Option<u64>,
}

/// Replies when the job is final, or when the time is up.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}/wait", tag = "jobs", params(("job" = String, Path), WaitParams),
    responses((status = 200, body = Envelope<JobDetail>))
)]
pub(super) async fn job_wait(
    State(app): Shared,
    scope::Read(caller): scope::Read,
    Target(target): Target,
    QueryParams(params): QueryParams<WaitParams>,
) -> Reply<Envelope<JobDetail>> {
    let limit = params.timeout.map(Duration::from_secs);
    Ok(envelope(app.job_wait(&caller, &target, limit).await?.detail()))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct RerunParams {
    /// Another name for the new run; by default its own.
    name: Option<String>,
}

impl RerunParams {
    fn name(&self) -> Result<Option<JobName>, Refused> {
        let parsed = self.name.as_deref().map(str::parse).transpose();
        parsed.map_err(|error: NameError| Refused(ErrorBody::new(ErrorName::BadRequest, error.to_string())))
    }
}

/// Submits a job again unchanged.
#[utoipa::path(
    post, path = "/api/v1/jobs/{job}/rerun", tag = "jobs",
    params(("job" = String, Path), RerunParams, ("idempotency-key" = Option<String>, Header)),
    responses((status = 200, body = SubmitReply))
)]
pub(super) async fn job_rerun(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    Target(target): Target,
    QueryParams(params): QueryParams<RerunParams>,
    headers: HeaderMap,
) -> Reply<SubmitReply> {
    let key = idempotency_key(&headers)?;
    let submitted = app.job_rerun(&caller, &target, params.name()?, key).await?;
    Ok(Json(submitted.into()))
}

/// Removes ended jobs and their leftovers from the history; their outputs only if requested.
#[utoipa::path(
    post, path = "/api/v1/prune", tag = "jobs", request_body = PruneRequest,
    responses((status = 200, body = Envelope<PruneReply>))
)]
pub(super) async fn job_prune(
    State(app): Shared,
    scope::Submit(caller): scope::Submit,
    Body(request): Body<PruneRequest>,
) -> Reply<Envelope<PruneReply>> {
    let age = age_to_prune(&request)?;
    let options = PruneOptions {
        dry_run: request.dry_run,
        outputs: request.outputs,
    };
    Ok(envelope(app.job_prune(&caller, age, options).await?))
}

/// An empty request is more often a mistake than a request to remove everything.
fn age_to_prune(request: &PruneRequest) -> Result<SignedDuration, Refused> {
    match (request.older_than_seconds, request.all) {
        (Some(_), true) => Err("`older_than_seconds` and `all` cannot be combined"),
        (Some(seconds), false) => Ok(SignedDuration::from_secs(seconds.into())),
        (None, true) => Ok(SignedDuration::ZERO),
        (None, false) => {
            Err("say which jobs: `older_than_seconds`, or `\"all\": true` for all that have ended")
        }
    }
    .map_err(|problem| Refused(ErrorBody::new(ErrorName::BadRequest, problem)))
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

impl From<JobList> for JobPage {
    fn from(list: JobList) -> Self {
        JobPage {
            code: OK,
            msg: list.jobs,
            next: list.next.map(|job| job.to_string()),
        }
    }
}

impl From<SubmitOutcome> for SubmitReply {
    fn from(outcome: SubmitOutcome) -> Self {
        SubmitReply {
            code: OK,
            msg: "OK".to_owned(),
            id: outcome.id.map(|id| id.to_string()).unwrap_or_default(),
            job: outcome.job,
            engine: outcome.engine,
            notes: outcome.notes,
            manifests: outcome.manifests,
            python: outcome.python,
        }
    }
}

impl From<Killed> for KillReply {
    fn from(killed: Killed) -> Self {
        let (msg, ending) = match (killed.effect, killed.removed) {
            (KillEffect::Stops { workers }, _) => ("OK", workers),
            (KillEffect::HadEnded, true) => ("it had ended; removed from the history", 0),
            (KillEffect::HadEnded, false) => ("it had already ended", 0),
        };
        KillReply {
            code: OK,
            msg: msg.to_owned(),
            id: killed.id.to_string(),
            name: killed.name.to_string(),
            ending,
            removed: killed.removed,
            note: killed.note.map(str::to_owned),
        }
    }
}
