//! Replies: the envelope of the client design for successes, the error body for errors.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use paddlecloud_api::Envelope;
use paddlecloud_api::error::{ErrorBody, ErrorName};

/// Seconds after which something that is refused for now is worth another try.
const TRY_AGAIN: &str = "5";

/// What handlers reply with.
pub(super) type Reply<T> = Result<Json<T>, Refused>;

/// `{"code":200,"msg":…}` around the data.
pub(super) fn envelope<T>(msg: T) -> Json<Envelope<T>> {
    Json(Envelope { code: 200, msg })
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
        let is_temporary = matches!(self.0.error, ErrorName::TooManyRequests | ErrorName::Unavailable);
        let name = self.0.error;
        let mut response = (status, Json(self.0)).into_response();
        response.extensions_mut().insert(name);
        if asks_for_login {
            let scheme = HeaderValue::from_static("Token realm=\"paddlecloud\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        if is_temporary {
            let seconds = HeaderValue::from_static(TRY_AGAIN);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}
