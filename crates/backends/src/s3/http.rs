//! HTTP to an S3 service: hyper with rustls, as everywhere in this project.

use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};

/// Time limits for connecting and for the start of a reply.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// The lowest rates in bytes per second: to the service, and inside it.
const SLOWEST_SENT: u64 = 256 << 10;
const SLOWEST_MOVED: u64 = 8 << 20;

/// The time limit for work inside the service. The request does not say how many bytes that moves; callers who know may wait less.
const MOVES_WITHIN: Duration = Duration::from_secs(4 * 60 * 60);

/// The extra time of a request that sends bytes.
pub(super) fn time_to_send(bytes: u64) -> Duration {
    Duration::from_secs(bytes.div_ceil(SLOWEST_SENT))
}

/// The same for a request that makes the service copy bytes or join parts.
pub(super) fn time_to_move(bytes: u64) -> Duration {
    Duration::from_secs(bytes.div_ceil(SLOWEST_MOVED)).min(MOVES_WITHIN)
}

/// Creates the client for a store.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed = |source: std::io::Error| object_store::Error::Generic {
            store: "S3",
            source: Box::new(source),
        };
        let provider = rustls::crypto::ring::default_provider();
        let tls = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(std::io::Error::other(error)))?
            .with_native_roots()
            .map_err(failed)?
            .with_no_client_auth();
        let mut tcp = TcpConnector::new();
        tcp.set_connect_timeout(Some(CONNECTS_WITHIN));
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(https);
        Ok(HttpClient::new(Service(client)))
    }
}

#[derive(Debug)]
struct Service(Client<HttpsConnector<TcpConnector>, HttpRequestBody>);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answered = tokio::time::timeout(answers_within(&request), self.0.request(request)).await;
        let late = |_| HttpError::new(HttpErrorKind::Timeout, crate::waiting::timed_out());
        let response = answered.map_err(late)?.map_err(|error| {
            let kind = match error.is_connect() {
                true => HttpErrorKind::Connect,
                false => HttpErrorKind::Request,
            };
            HttpError::new(kind, error)
        })?;
        Ok(response.map(|body| {
            HttpResponseBody::new(body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error)))
        }))
    }
}

/// The time limit for the start of a reply.
fn answers_within(request: &HttpRequest) -> Duration {
    let copies = request.headers().contains_key("x-amz-copy-source");
    let completes = request.method() == "POST" && request.uri().query().is_some_and(has_upload);
    match copies || completes {
        true => ANSWERS_WITHIN + MOVES_WITHIN,
        false => ANSWERS_WITHIN + time_to_send(request.body().content_length() as u64),
    }
}

fn has_upload(query: &str) -> bool {
    query.split('&').any(|part| part.starts_with("uploadId="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str, body: usize) -> HttpRequest {
        let mut request = HttpRequest::new(vec![0; body].into());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = uri.parse().unwrap();
        request
    }

    #[test]
    fn large_requests_have_longer_timeouts() {
        let minutes = |request: &HttpRequest| answers_within(request).as_secs() / 60;
        assert_eq!(minutes(&request("GET", "http://s3/b/k", 0)), 1);
        assert_eq!(minutes(&request("POST", "http://s3/b/k?uploads", 0)), 1);
        assert_eq!(
            minutes(&request("PUT", "http://s3/b/k?partNumber=2&uploadId=x", 100)),
            1
        );
        let part = request("PUT", "http://s3/b/k?partNumber=2&uploadId=x", 30 << 20);
        assert_eq!(minutes(&part), 3, "30 MiB take two minutes more");
        assert!(minutes(&request("POST", "http://s3/b/k?uploadId=x", 100)) > 200);
        let mut copy = request("PUT", "http://s3/b/k", 0);
        copy.headers_mut()
            .insert("x-amz-copy-source", "b/k".parse().unwrap());
        assert!(minutes(&copy) > 200);
        assert_eq!(time_to_move(5 << 30), Duration::from_secs(640));
    }
}
