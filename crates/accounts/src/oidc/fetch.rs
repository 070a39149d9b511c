//! Calls of the provider: JSON over TLS, with a time limit and a size limit. Redirects are not followed.

use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use paddlecloud_core::error_chain::chain_of;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use super::{OidcError, is_safe_address};

/// How long a call may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest reply that is read.
const MOST_REPLY: usize = 256 << 10;

/// The client for the provider.
pub(super) struct Fetch(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// How a call authenticates.
pub(super) enum Proof<'a> {
    None,
    Basic { name: &'a str, secret: &'a str },
    Bearer(&'a str),
}

impl Fetch {
    /// Trusts the certificates of `ca`, or those that this system trusts.
    pub fn new(ca: Option<&Path>) -> Result<Fetch, OidcError> {
        let failed = |problem: String| OidcError::Setup(problem);
        let provider = rustls::crypto::ring::default_provider();
        let tls = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?;
        let tls = match ca {
            Some(path) => tls.with_root_certificates(authorities(path)?),
            None => tls
                .with_native_roots()
                .map_err(|error| failed(error.to_string()))?,
        };
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(REPLY_TIMEOUT));
        tcp.enforce_http(false);
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        // A kept connection that the provider closed meanwhile would fail the next call, which may not be repeated.
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(https);
        Ok(Fetch(client))
    }

    pub async fn get(&self, address: &str, proof: Proof<'_>) -> Result<Value, OidcError> {
        let (status, value) = self.call(Method::GET, address, proof, Bytes::new()).await?;
        match status {
            200 => Ok(value),
            status => Err(unreachable(address, format!("it replied with status {status}"))),
        }
    }

    /// Sends a form. Also returns replies with status 400 and 401, which name an error of the protocol.
    pub async fn post(
        &self,
        address: &str,
        proof: Proof<'_>,
        fields: &[(&str, &str)],
    ) -> Result<(u16, Value), OidcError> {
        let body = Bytes::from(form(fields));
        let (status, value) = self.call(Method::POST, address, proof, body).await?;
        match status {
            200 | 400 | 401 => Ok((status, value)),
            status => Err(unreachable(address, format!("it replied with status {status}"))),
        }
    }

    async fn call(
        &self,
        method: Method,
        address: &str,
        proof: Proof<'_>,
        body: Bytes,
    ) -> Result<(u16, Value), OidcError> {
        if !is_safe_address(address) {
            return Err(unreachable(
                address,
                "the address must begin with `https://`".to_owned(),
            ));
        }
        let mut request = Request::builder()
            .method(method)
            .uri(address)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(body))
            .map_err(|error| unreachable(address, error.to_string()))?;
        if let Some(mut value) = proof.header() {
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let replied = tokio::time::timeout(REPLY_TIMEOUT, self.reply(request)).await;
        let late = || format!("no reply within {} seconds", REPLY_TIMEOUT.as_secs());
        let (status, bytes) = replied
            .map_err(|_| unreachable(address, late()))?
            .map_err(|problem| unreachable(address, problem))?;
        // An error page is not JSON, and its status says enough.
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        match (status, &value) {
            (200, Value::Null) => Err(unreachable(address, "its reply is not JSON".to_owned())),
            _ => Ok((status, value)),
        }
    }

    async fn reply(&self, request: Request<Full<Bytes>>) -> Result<(u16, Bytes), String> {
        let response = self.0.request(request).await.map_err(|error| chain_of(&error))?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| chain_of(&error))?;
            let Ok(piece) = frame.into_data() else { continue };
            if bytes.len() + piece.len() > MOST_REPLY {
                return Err("its reply is too large".to_owned());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok((status, bytes.freeze()))
    }
}

impl Proof<'_> {
    fn header(&self) -> Option<HeaderValue> {
        use base64::Engine as _;
        let text = match self {
            Proof::None => return None,
            Proof::Bearer(token) => format!("Bearer {token}"),
            Proof::Basic { name, secret } => {
                // RFC 6749, section 2.3.1: both are form-encoded first.
                let pair = format!("{}:{}", encoded(name), encoded(secret));
                format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
            }
        };
        HeaderValue::try_from(text).ok()
    }
}

fn authorities(path: &Path) -> Result<rustls::RootCertStore, OidcError> {
    let failed = |problem: String| OidcError::Setup(format!("cannot read `{}`: {problem}", path.display()));
    let mut roots = rustls::RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| failed(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(failed("it has no certificate".to_owned())),
        false => Ok(roots),
    }
}

fn unreachable(address: &str, problem: String) -> OidcError {
    OidcError::Unreachable {
        address: address.to_owned(),
        problem,
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Text as a part of a form.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
