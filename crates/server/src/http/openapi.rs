//! The OpenAPI document, generated from the routes.

use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::patterns;

/// What the routes do not say.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "PaddleCloud",
        description = "Jobs, workers, logs, quotas and packages. Every path also works with a trailing slash. \
                       `/v1/submit`, `/v2/submit` and `/api/v2/jobs` are aliases of `/api/v1/jobs`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    security(("token" = []), ("basic" = [])),
    components(schemas(paddlecloud_api::admin::Dispose, paddlecloud_api::error::ErrorBody)),
    modifiers(&Logins)
)]
pub(super) struct Head;

struct Logins;

impl Modify for Logins {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let schemes = document.components.get_or_insert_default();
        let scheme = |kind| SecurityScheme::Http(HttpBuilder::new().scheme(kind).build());
        schemes.add_security_scheme("token", scheme(HttpAuthScheme::Bearer));
        schemes.add_security_scheme("basic", scheme(HttpAuthScheme::Basic));
    }
}

/// The OpenAPI document as JSON, in a stable order.
pub fn document() -> String {
    let mut document = super::routes().into_openapi();
    document.info.version = crate::VERSION.to_owned();
    for path in document.paths.paths.values_mut() {
        let operations = [
            &mut path.get,
            &mut path.put,
            &mut path.post,
            &mut path.delete,
            &mut path.patch,
            &mut path.head,
        ];
        for operation in operations.into_iter().flatten() {
            add_errors(operation);
            patterns::add_to_parameters(operation);
        }
    }
    patterns::add_to_schemas(&mut document);
    let mut text = document.to_pretty_json().expect("the document is plain data");
    text.push('\n');
    text
}

/// Adds the errors of an operation. All errors have the same body, and the parameters determine which ones are possible.
fn add_errors(operation: &mut Operation) {
    // Several ways to log in beside none: the configuration decides.
    let needs_login = operation.security.as_ref().is_none_or(|ways| ways.len() > 1);
    let parameters = operation.parameters.as_deref().unwrap_or_default();
    let names_something = |parameter: &RefOr<Parameter>| match parameter {
        RefOr::T(parameter) => {
            matches!(parameter.parameter_in, ParameterIn::Path) || parameter.name == "path"
        }
        RefOr::Ref(_) => false,
    };
    let has_path = parameters.iter().any(names_something);
    let has_body = operation.request_body.is_some();
    let takes_something = has_body || !parameters.is_empty();
    let possible = [
        (takes_something, 400, "The request is invalid; `msg` says why."),
        (needs_login, 401, "Not authenticated."),
        (needs_login, 403, "The caller may not do this."),
        (has_path || has_body, 404, "Not found, or not the caller's."),
        (has_body, 409, "It conflicts with the current state."),
        (has_body, 413, "The body is too large."),
        (true, 429, "Too many requests, connections or wrong passwords."),
        (true, 503, "The server cannot do this now; try again."),
        (
            has_body,
            507,
            "The server's disk, or the caller's quota, is full.",
        ),
    ];
    let responses = &mut operation.responses.responses;
    for (is_possible, status, what) in possible {
        if is_possible {
            let known = responses.entry(status.to_string());
            known.or_insert_with(|| RefOr::T(error(what)));
        }
    }
    let other = || RefOr::T(error("Any other error."));
    responses.entry("default".to_owned()).or_insert_with(other);
}

fn error(what: &str) -> Response {
    let schema = Ref::from_schema_name("ErrorBody");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new()
        .description(what)
        .content("application/json", content)
        .build()
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

    #[test]
    fn every_operation_lists_its_errors_and_bodies_are_objects() {
        let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        for (path, methods) in paths {
            for (method, operation) in methods.as_object().unwrap() {
                let responses = operation["responses"].as_object().unwrap();
                let body = |status: &str| &responses[status]["content"]["application/json"]["schema"]["$ref"];
                assert_eq!(
                    body("default"),
                    "#/components/schemas/ErrorBody",
                    "{method} {path}"
                );
                let ways = operation.get("security").and_then(|ways| ways.as_array());
                let login = ways.is_none_or(|ways| ways.len() > 1);
                assert_eq!(responses.contains_key("401"), login, "{method} {path}");
                let takes_path = path.contains('{');
                assert!(!takes_path || responses.contains_key("404"), "{method} {path}");
            }
        }
        let announce = &paths["/api/v1/packages"]["post"]["requestBody"]["content"]["application/json"];
        assert_eq!(announce["schema"]["type"], "object");
        let own = &paths["/openapi.json"]["get"]["responses"]["200"]["content"]["application/json"];
        assert_eq!(own["schema"]["type"], "object");
    }
}
