//! `/api/v1/jobs/{job}/logs`, a stream of frames, and `/api/v1/logs`, plain text in an envelope.

use axum::body::Body as Stream;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use paddlecloud_api::Envelope;
use paddlecloud_api::logs::{self, LogQuery};
use serde::Deserialize;
use utoipa::IntoParams;

use super::query::QueryParams;
use super::reply::{Refused, Reply, envelope};
use super::request::{Target, flag, job_ref};
use super::{Shared, scope};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct LogParams {
    /// Only the last lines of each worker.
    n: Option<u64>,
    /// One worker by name, or by `trainer-0`.
    w: Option<String>,
    role: Option<String>,
    /// Only what was written since then, RFC 3339.
    since: Option<String>,
    /// Continue until the job ends.
    #[serde(deserialize_with = "flag")]
    follow: bool,
    /// Where to resume: `<worker name>:<attempt>:<offset>`, separated by commas.
    from: Option<String>,
}

impl LogParams {
    fn query(self) -> LogQuery {
        LogQuery {
            n: self.n,
            w: named(self.w),
            role: self.role,
            since: self.since,
            follow: self.follow,
            from: self.from,
        }
    }
}

/// An empty `w=`, as the documents print it, names no worker.
fn named(worker: Option<String>) -> Option<String> {
    worker.filter(|name| !name.is_empty())
}

/// Returns the log of a job as frames, which can contain any bytes.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}/logs", tag = "logs", params(("job" = String, Path), LogParams),
    responses((status = 200, body = Vec<u8>, content_type = "application/vnd.paddlecloud.log"))
)]
pub(super) async fn log_stream(
    State(app): Shared,
    scope::Read(caller): scope::Read,
    Target(target): Target,
    QueryParams(params): QueryParams<LogParams>,
) -> Result<Response, Refused> {
    let frames = app.log_stream(&caller, &target, params.query()).await?;
    Ok(([(CONTENT_TYPE, logs::CONTENT_TYPE)], Stream::from_stream(frames)).into_response())
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct TextParams {
    /// Name or id; by default the latest job.
    jobname: Option<String>,
    /// Only the last lines of each worker.
    n: Option<u64>,
    /// One worker by name, or by `trainer-0`.
    w: Option<String>,
}

/// Returns a job's output so far as text: one worker after the other, each under its name if there are several.
#[utoipa::path(
    get, path = "/api/v1/logs", tag = "logs", params(TextParams), responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn log_show(
    State(app): Shared,
    scope::Read(caller): scope::Read,
    QueryParams(params): QueryParams<TextParams>,
) -> Reply<Envelope<String>> {
    let target = job_ref(
        params
            .jobname
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or("last"),
    )?;
    let query = LogQuery {
        n: params.n,
        w: named(params.w),
        ..LogQuery::default()
    };
    Ok(envelope(app.log_show(&caller, &target, query).await?))
}
