//! The way to an S3 service: hyper with rustls, as everywhere in this house.

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

/// How long a connection may take to be made, and an answer to begin.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// Makes the client for a store.
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
        let answered = tokio::time::timeout(ANSWERS_WITHIN, self.0.request(request)).await;
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
