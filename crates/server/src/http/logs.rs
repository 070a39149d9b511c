//! `/api/v1/jobs/{job}/logs`, a stream of frames, and `/api/v1/logs`, plain text in an envelope.

use axum::body::Body as Stream;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use paddlecloud_api::Envelope;
use paddlecloud_api::logs::{self, LogQuery};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Shared;
use super::query::Asked;
use super::reply::{Refused, Reply, envelope};
use super::request::{Target, flag, job_ref};
use crate::auth::Caller;

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
    /// Go on until the job ends.
    #[serde(deserialize_with = "flag")]
    follow: bool,
    /// Where to go on: `<worker name>:<attempt>:<offset>`, separated by commas.
    from: Option<String>,
}

impl LogParams {
    fn query(self) -> LogQuery {
        LogQuery {
            n: self.n,
            w: self.w,
            role: self.role,
            since: self.since,
            follow: self.follow,
            from: self.from,
        }
    }
}

/// The log of a job as frames, so that any bytes pass unharmed.
#[utoipa::path(
    get, path = "/api/v1/jobs/{job}/logs", tag = "logs", params(("job" = String, Path), LogParams),
    responses((status = 200, body = Vec<u8>, content_type = "application/vnd.paddlecloud.log"))
)]
pub(super) async fn log_stream(
    State(app): Shared,
    caller: Caller,
    Target(target): Target,
    Asked(params): Asked<LogParams>,
) -> Result<Response, Refused> {
    let frames = app.log_stream(&caller, &target, params.query()).await?;
    Ok(([(CONTENT_TYPE, logs::CONTENT_TYPE)], Stream::from_stream(frames)).into_response())
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct TextParams {
    /// Name or id; left out: the latest job.
    jobname: Option<String>,
    /// Only the last lines of each worker.
    n: Option<u64>,
    /// One worker by name, or by `trainer-0`.
    w: Option<String>,
}

/// What a job has written until now, as text: one worker after the other, each under its name where there are several.
#[utoipa::path(
    get, path = "/api/v1/logs", tag = "logs", params(TextParams), responses((status = 200, body = Envelope<String>))
)]
pub(super) async fn log_show(
    State(app): Shared,
    caller: Caller,
    Asked(params): Asked<TextParams>,
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
        w: params.w,
        ..LogQuery::default()
    };
    Ok(envelope(app.log_show(&caller, &target, query).await?))
}
