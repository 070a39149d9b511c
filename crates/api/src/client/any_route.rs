//! A call by method and path, for callers that name routes themselves.
//!
//! The caller must know what the route takes and returns; credentials, limits and errors are handled as everywhere.

use bytes::Bytes;
use hyper::{Method, Uri};

use super::call::{Call, Replay};
use super::{Client, ClientError};

/// A request to any route of the server.
#[derive(Debug, Clone)]
pub struct AnyRequest {
    method: Method,
    target: String,
    json: Option<Bytes>,
}

impl AnyRequest {
    /// `None` if the method is not a word, or the path does not begin with `/` or is not percent-encoded.
    pub fn new(method: &str, target: &str, json: Option<&serde_json::Value>) -> Option<AnyRequest> {
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        let is_path = target.starts_with('/') && target.parse::<Uri>().is_ok();
        is_path.then(|| AnyRequest {
            method,
            target: target.to_owned(),
            json: json.map(|json| json.to_string().into()),
        })
    }
}

impl Client {
    /// Sends the request and reads the whole reply. After a lost reply, only requests that change nothing are repeated.
    pub async fn send_any(&self, request: &AnyRequest) -> Result<Bytes, ClientError> {
        let replay = match request.method {
            Method::GET | Method::HEAD => Replay::Safe,
            _ => Replay::Never,
        };
        let mut call = Call::new(request.method.clone(), request.target.clone()).replay(replay);
        call.json = request.json.clone();
        self.bytes(&call).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_and_an_encoded_path_make_a_request() {
        assert!(AnyRequest::new("GET", "/api/v1/logs?jobname=a%20b", None).is_some());
        for (method, target) in [
            ("GET", "metrics"),
            ("GET", "/a b"),
            ("G T", "/metrics"),
            ("", "/"),
        ] {
            assert!(
                AnyRequest::new(method, target, None).is_none(),
                "{method} {target}"
            );
        }
    }
}
