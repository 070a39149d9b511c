//! Replies: the envelope of the client design for successes, the error body for errors.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use paddlecloud_api::Envelope;
use paddlecloud_api::error::{ErrorBody, ErrorName};

/// When to retry after a temporary refusal, if nothing better is known: a server that restarts is soon back.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// `code` of every successful reply.
pub(super) const OK: u16 = 200;

/// What handlers reply with.
pub(super) type Reply<T> = Result<Json<T>, Refused>;

/// `{"code":200,"msg":…}` around the data.
pub(super) fn envelope<T>(msg: T) -> Json<Envelope<T>> {
    Json(Envelope { code: OK, msg })
}

/// A reply that is not a success.
#[derive(Debug)]
pub struct Refused(pub ErrorBody);

impl From<ErrorBody> for Refused {
    fn from(body: ErrorBody) -> Self {
        Refused(body)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let asks_for_login = self.0.error == ErrorName::Unauthorized;
        let (wait, is_temporary) = (self.0.retry_after, self.0.error.is_temporary());
        let name = self.0.error;
        let mut response = (status, Json(self.0)).into_response();
        response.extensions_mut().insert(name);
        if asks_for_login {
            let scheme = HeaderValue::from_static("Token realm=\"paddlecloud\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        if is_temporary {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, whole_seconds(wait.unwrap_or(TRY_AGAIN)));
        }
        response
    }
}

/// The duration in whole seconds, rounded up, so that a client that waits this long does not retry too early.
fn whole_seconds(wait: Duration) -> HeaderValue {
    let part = u64::from(wait.subsec_nanos() > 0);
    HeaderValue::from(wait.as_secs().saturating_add(part).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(body: ErrorBody) -> Option<String> {
        let response = Refused(body).into_response();
        let value = response.headers().get(header::RETRY_AFTER)?;
        Some(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_temporary_refusal_has_a_retry_after_header() {
        let busy = || ErrorBody::new(ErrorName::TooManyRequests, "busy");
        assert_eq!(header(busy().after(Duration::from_millis(1))).unwrap(), "1");
        assert_eq!(header(busy().after(Duration::from_millis(2001))).unwrap(), "3");
        assert_eq!(header(busy().after(Duration::from_secs(60))).unwrap(), "60");
        assert_eq!(header(busy()).unwrap(), "1");
        assert_eq!(header(ErrorBody::new(ErrorName::Forbidden, "no")), None);
    }
}
