//! Refuses requests that do not name their host, or that name several: a proxy and the server could understand them differently.

use axum::extract::Request;
use axum::http::Version;
use axum::http::header::HOST;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use paddlecloud_api::error::{ErrorBody, ErrorName};

use super::reply::Refused;

/// HTTP/1.1 requires exactly one `Host`; older requests may lack it.
pub(super) async fn check(request: Request, next: Next) -> Response {
    let hosts = request.headers().get_all(HOST).iter().count();
    let may_lack_it = request.version() < Version::HTTP_11;
    if hosts == 1 || (hosts == 0 && may_lack_it) {
        return next.run(request).await;
    }
    let problem = match hosts {
        0 => "the header `Host` is missing",
        _ => "there are several headers `Host`",
    };
    Refused(ErrorBody::new(ErrorName::BadRequest, problem)).into_response()
}
