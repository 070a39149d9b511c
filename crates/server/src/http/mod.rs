//! HTTP: routes, who may call them, and replies. A file per resource.
//!
//! Handlers hold no logic: they parse, call one use case of `app`, and reply. This module and `api` are
//! the only ones that know JSON names and status codes.

mod accounts;
mod alive;
mod client_address;
mod files;
mod gather;
mod health;
mod host;
mod jobs;
mod logs;
pub mod openapi;
mod packages;
mod patterns;
mod query;
mod quota;
mod refusal;
mod registry;
mod reply;
mod request;
mod scope;
mod secrets;
pub mod serve;
mod server;
mod session;
mod silence;
mod tokens;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use paddlecloud_accounts::auth::request_id;
use paddlecloud_accounts::refusals::Limit;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::{REQUEST_ID_HEADER, VERSION_HEADER};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use refusal::internal;
use reply::Refused;

/// Largest body that is not a stream: a request with ten thousand environment variables fits.
const MOST_BODY: usize = 4 << 20;
/// Largest body of a request that needs no login: a user name and a password.
const MOST_BODY_BEFORE_LOGIN: usize = 16 << 10;

type Shared = State<Arc<App>>;

/// Every route, and the document that describes them, from one list.
pub fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::Head::openapi())
        .merge(login())
        .routes(routes!(jobs::job_list, jobs::job_kill_named))
        .routes(routes!(jobs::job_show, jobs::job_kill))
        .routes(routes!(jobs::job_why))
        .routes(routes!(jobs::job_wait))
        .routes(routes!(logs::log_stream))
        .routes(routes!(logs::log_show))
        .routes(routes!(workers::worker_list))
        .routes(routes!(
            registry::registry_list,
            registry::registry_create,
            registry::registry_delete
        ))
        .routes(routes!(secrets::secret_list))
        .routes(routes!(secrets::secret_set, secrets::secret_delete))
        .routes(routes!(secrets::secrets_rotate))
        .routes(routes!(packages::package_announce))
        .merge(files::routes())
        .merge(lasting())
        .merge(accounts::routes())
        .routes(routes!(tokens::token_list, tokens::token_issue))
        .routes(routes!(tokens::token_revoke))
        .routes(routes!(tokens::token_renew))
        .routes(routes!(tokens::token_logout))
        .routes(routes!(tokens::password_change))
        .routes(routes!(server::whoami))
        .routes(routes!(server::server_show))
        .routes(routes!(server::server_stop))
        .routes(routes!(health::health_show))
        .routes(routes!(health::ready_show))
        .routes(routes!(health::metrics_show))
        .routes(routes!(health::openapi_show))
}

/// Parses bytes as the body of every request, for the fuzzer; returns them as a job.
pub(crate) fn parse_every_body(bytes: &[u8]) -> Option<paddlecloud_api::jobs::JobRequest> {
    request::parse_every_body(bytes)
}

/// The only routes that read a body before they know the caller.
fn login() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(tokens::token_create))
        .routes(routes!(tokens::device_login))
        .routes(routes!(tokens::device_login_poll))
        .layer(DefaultBodyLimit::max(MOST_BODY_BEFORE_LOGIN))
}

/// Routes that walk through homes, or have one measured first, and may wait for their turn.
fn lasting() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(jobs::job_submit))
        .routes(routes!(jobs::job_rerun))
        .routes(routes!(jobs::job_prune))
        .routes(routes!(quota::quota_show))
        .routes(routes!(accounts::user_delete))
        .layer(middleware::from_fn(alive::send_keep_alive))
}

/// The client design versions the API by the kind of job; here they are the same jobs.
fn old_names() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/submit", post(jobs::job_submit))
        .route("/v2/submit", post(jobs::job_submit))
        .route(
            "/api/v2/jobs",
            get(jobs::job_list)
                .post(jobs::job_submit)
                .delete(jobs::job_kill_named),
        )
        .route("/api/v2/jobs/{job}", get(jobs::job_show).delete(jobs::job_kill))
        .merge(files::old::routes())
}

/// The whole service, ready to be called.
pub fn router(app: Arc<App>) -> Router {
    let (router, _) = routes().split_for_parts();
    let router = router
        .merge(old_names())
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method);
    harden(router)
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            session::end_with_it,
        ))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            client_address::set,
        ))
        .layer(middleware::from_fn(host::check))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), observe))
        .with_state(app)
}

/// Replies in the envelope, whatever fails in the inner layers.
fn harden<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .layer(CatchPanicLayer::custom(|_| panicked()))
}

/// Counts and traces every request and stamps every reply with the version.
async fn observe(State(app): Shared, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    // The route, not the path: the link of a share is its secret.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let in_flight = app.metrics.begin_request();
    let (id, mut response) = request_id::with_new(next.run(request)).await;
    drop(in_flight);
    let status = response.status().as_u16();
    app.metrics.count_request(status);
    if let Some(limit) = limit_of(status) {
        app.metrics.refusals.count(limit);
    }
    let route = route.as_ref().map_or("no such path", MatchedPath::as_str);
    tracing::debug!(%method, route, status, id, "request");
    let version = HeaderValue::from_static(crate::VERSION);
    response
        .headers_mut()
        .insert(HeaderName::from_static(VERSION_HEADER), version);
    if let Ok(id) = HeaderValue::from_str(&id) {
        let name = HeaderName::from_static(REQUEST_ID_HEADER);
        response.headers_mut().insert(name, id);
    }
    response
}

/// The limit that a reply of this status reports, if the status alone says it.
fn limit_of(status: u16) -> Option<Limit> {
    match status {
        408 => Some(Limit::SlowBody),
        413 => Some(Limit::BodySize),
        _ => None,
    }
}

async fn no_such_path(_: scope::Public, request: Request) -> Refused {
    let path = request.uri().path().escape_debug();
    let refused = ErrorBody::new(ErrorName::NotFound, format!("there is nothing at `{path}`"));
    Refused(refused.with_hint("`GET /openapi.json` lists every path"))
}

async fn no_such_method(_: scope::Public, request: Request) -> Refused {
    let (method, path) = (request.method(), request.uri().path());
    Refused(ErrorBody::new(
        ErrorName::MethodNotAllowed,
        format!("`{}` does not support the method {method}", path.escape_debug()),
    ))
}

fn panicked() -> Response {
    Refused(internal()).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered_in_the_envelope_without_its_words() {
        let broken: Router =
            Router::new().route("/", get(async || -> &'static str { panic!("secret words") }));
        let request = Request::builder().uri("/").body(Body::empty()).unwrap();
        let response = harden(broken).oneshot(request).await.unwrap();
        assert_eq!(response.status(), 500);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let error: ErrorBody = serde_json::from_slice(&body).unwrap();
        assert_eq!((error.code, error.error), (500, ErrorName::Internal));
        assert!(!error.msg.contains("secret"), "{error}");
    }
}
