//! The document that describes the API, made from the routes themselves.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

/// What is not said by the routes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "PaddleCloud",
        description = "Jobs, workers, logs, quotas and packages. Every path also answers with a slash at its end. \
                       `/v1/submit`, `/v2/submit` and `/api/v2/jobs` are other names of `/api/v1/jobs`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    security(("token" = []), ("basic" = [])),
    components(schemas(paddlecloud_api::error::ErrorBody)),
    modifiers(&Logins)
)]
pub(crate) struct Head;

struct Logins;

impl Modify for Logins {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let schemes = document.components.get_or_insert_default();
        let scheme = |kind| SecurityScheme::Http(HttpBuilder::new().scheme(kind).build());
        schemes.add_security_scheme("token", scheme(HttpAuthScheme::Bearer));
        schemes.add_security_scheme("basic", scheme(HttpAuthScheme::Basic));
    }
}

/// The OpenAPI document as JSON, always in the same order.
pub fn document() -> String {
    let mut document = crate::http::routes().into_openapi();
    document.info.version = crate::VERSION.to_owned();
    let mut text = document.to_pretty_json().expect("the document is plain data");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_named_and_says_how_to_log_in() {
        let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        assert!(paths.contains_key("/api/v1/jobs/{job}/why"), "{paths:?}");
        let operations = paths.values().flat_map(|path| path.as_object().unwrap().values());
        for operation in operations {
            let id = operation["operationId"].as_str().unwrap();
            assert!(id.contains('_') || id == "whoami", "{id}");
        }
        assert!(document["components"]["securitySchemes"]["token"].is_object());
    }
}
