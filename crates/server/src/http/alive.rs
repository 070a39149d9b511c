//! Replies to long work: a client that asks for it gets a keep-alive byte now and then.
//!
//! Copying terabytes, or sending a file to a storage behind the server, takes longer than clients and proxies wait in
//! silence.

use std::pin::Pin;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use paddlecloud_api::ALIVE_HEADER;
use paddlecloud_files::queue::KEEP_ALIVE_INTERVAL;
use tokio::time::timeout;

/// A reply that is not ready in time starts before its result is known, if the request allows that.
pub(in crate::http) async fn send_keep_alive(request: Request, next: Next) -> Response {
    if !is_requested(request.headers()) {
        return next.run(request).await;
    }
    reply_to_blocking(next.run(request)).await
}

/// Whether the client asked for keep-alive bytes.
pub(in crate::http) fn is_requested(headers: &HeaderMap) -> bool {
    headers.contains_key(ALIVE_HEADER)
}

/// The reply to blocking work, started early if it takes long.
pub(in crate::http) async fn reply_to_blocking(
    work: impl Future<Output = Response> + Send + 'static,
) -> Response {
    // Not on a thread that the work would block: the connection must continue meanwhile (see `paddlecloud_files::lane`).
    tokio::task::yield_now().await;
    reply(work).await
}

/// The same for work that never blocks the connection's own thread.
pub(in crate::http) async fn reply(work: impl Future<Output = Response> + Send + 'static) -> Response {
    let mut work: Work = Box::pin(work);
    match timeout(KEEP_ALIVE_INTERVAL, work.as_mut()).await {
        Ok(reply) => reply,
        Err(_) => early_reply(work),
    }
}

type Work = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A space means nothing before JSON.
const KEEP_ALIVE_BYTE: Bytes = Bytes::from_static(b" ");

fn early_reply(work: Work) -> Response {
    let pieces = stream::unfold((Some(work), true), |(work, is_first)| async move {
        let mut work = work?;
        if is_first {
            return Some((Ok(KEEP_ALIVE_BYTE), (Some(work), false)));
        }
        match timeout(KEEP_ALIVE_INTERVAL, work.as_mut()).await {
            Err(_) => Some((Ok(KEEP_ALIVE_BYTE), (Some(work), false))),
            Ok(reply) => Some((to_bytes(reply.into_body(), usize::MAX).await, (None, false))),
        }
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (
            HeaderName::from_static(ALIVE_HEADER),
            HeaderValue::from_static("1"),
        ),
    ];
    (headers, Body::from_stream(pieces)).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;
    use http_body_util::BodyExt;
    use paddlecloud_api::error::{ErrorBody, ErrorName};
    use tower::ServiceExt;

    use super::*;
    use crate::http::reply::Refused;

    /// Refuses after this many seconds.
    async fn ask(seconds: u64, headers: &[&str]) -> Response {
        let refuse = move || async move {
            let never = std::future::pending::<()>();
            let _ = timeout(Duration::from_secs(seconds), never).await;
            Refused(ErrorBody::new(ErrorName::Conflict, "no"))
        };
        let router: Router = Router::new()
            .route("/", get(refuse))
            .layer(axum::middleware::from_fn(send_keep_alive));
        let mut request = Request::builder().uri("/");
        for name in headers {
            request = request.header(*name, "1");
        }
        router
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap()
    }

    async fn text(reply: Response) -> String {
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn long_requests_send_keep_alive_bytes_and_then_the_result() {
        let reply = ask(3600, &[ALIVE_HEADER]).await;
        assert_eq!(reply.status(), StatusCode::OK);
        assert!(reply.headers().contains_key(ALIVE_HEADER));
        let text = text(reply).await;
        let spaces = text.find('{').unwrap();
        assert!((700..=720).contains(&spaces), "{spaces} in an hour");
        let body: ErrorBody = serde_json::from_str(&text).unwrap();
        assert_eq!((body.code, body.error), (409, ErrorName::Conflict));
    }

    #[tokio::test(start_paused = true)]
    async fn short_requests_and_those_without_the_header_get_a_plain_reply() {
        for (seconds, headers) in [(1, [ALIVE_HEADER].as_slice()), (3600, &[])] {
            let reply = ask(seconds, headers).await;
            assert_eq!(reply.status(), StatusCode::CONFLICT);
            assert!(!reply.headers().contains_key(ALIVE_HEADER));
            assert!(text(reply).await.starts_with('{'));
        }
    }
}
