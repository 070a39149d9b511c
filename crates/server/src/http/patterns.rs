//! The patterns of texts in the OpenAPI document. Every text that a handler accepts matches; one that does not match is refused.
//!
//! A pattern can be wider than the parser that decides, which also checks what a pattern cannot say. This module checks nothing.

use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::schema::{Components, Object, Schema};
use utoipa::openapi::{OpenApi, RefOr};

const DIGEST: &str = "^[0-9A-Fa-f]{64}$";
const IDEMPOTENCY_KEY: &str = "^[!-~]{1,128}$";
const JOB_NAME: &str = "^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$";
/// A name, an id, `last` or `-`, for administrators also `USER/NAME`.
const JOB: &str = "^([^/\\s]{1,128}/)?[A-Za-z0-9_.-]{1,63}$";
const PFS_PATH: &str = "^/[./]*pfs/";
/// The same where an empty text is like none.
const JOB_OR_EMPTY: &str = "^(([^/\\s]{1,128}/)?[A-Za-z0-9_.-]{1,63})?$";
/// Of groups, secrets and registries.
const NAME: &str = "^[A-Za-z0-9_.-]{1,63}$";
const NAME_OR_EMPTY: &str = "^[A-Za-z0-9_.-]{0,63}$";
const SHARE_ID: &str = "^[0-9A-Fa-f]{32}$";
const SHARE_TOKEN: &str = "^[0-9A-Fa-f]{32}\\.[0-9A-Fa-f]{64}$";
const TOKEN_ID: &str = "^[0-9a-f]{12}$";
/// Anything but spaces and control characters alone; what surrounds the name is removed.
const TOKEN_NAME: &str = "[^\\x00-\\x20\\x7f]";
const UPLOAD_ID: &str = "^[0-9a-f]{32}$";
/// At most 128 bytes.
const UPLOAD_KEY: &str = "^[\\s\\S]{1,128}$";
const USER_NAME: &str = "^[^/\\s]{1,128}$";

/// Of an operation, or of all, a parameter and its pattern.
const PARAMETERS: [(Option<&str>, ParameterIn, &str, &str); 27] = [
    (None, ParameterIn::Header, "idempotency-key", IDEMPOTENCY_KEY),
    (None, ParameterIn::Path, "job", JOB),
    (None, ParameterIn::Query, "path", PFS_PATH),
    (Some("job_list"), ParameterIn::Query, "name", JOB_NAME),
    (Some("job_rerun"), ParameterIn::Query, "name", JOB_NAME),
    (Some("log_show"), ParameterIn::Query, "jobname", JOB_OR_EMPTY),
    (Some("worker_list"), ParameterIn::Query, "jobname", JOB_OR_EMPTY),
    (Some("group_delete"), ParameterIn::Path, "name", NAME),
    (Some("group_set"), ParameterIn::Path, "name", NAME),
    (Some("registry_delete"), ParameterIn::Query, "name", NAME_OR_EMPTY),
    (Some("secret_delete"), ParameterIn::Path, "name", NAME),
    (Some("secret_set"), ParameterIn::Path, "name", NAME),
    (Some("share_read"), ParameterIn::Path, "token", SHARE_TOKEN),
    (Some("share_revoke"), ParameterIn::Path, "id", SHARE_ID),
    (Some("token_list"), ParameterIn::Query, "user", USER_NAME),
    (Some("token_revoke"), ParameterIn::Path, "id", TOKEN_ID),
    (Some("token_revoke"), ParameterIn::Query, "user", USER_NAME),
    (Some("upload_chunk"), ParameterIn::Path, "id", UPLOAD_ID),
    (Some("upload_chunk"), ParameterIn::Query, "name", DIGEST),
    (Some("upload_commit"), ParameterIn::Path, "id", UPLOAD_ID),
    (Some("upload_discard"), ParameterIn::Path, "id", UPLOAD_ID),
    (Some("upload_range"), ParameterIn::Path, "id", UPLOAD_ID),
    (Some("upload_reuse"), ParameterIn::Path, "id", UPLOAD_ID),
    (Some("upload_show"), ParameterIn::Path, "id", UPLOAD_ID),
    (Some("user_show"), ParameterIn::Path, "name", USER_NAME),
    (Some("user_set"), ParameterIn::Path, "name", USER_NAME),
    (Some("user_delete"), ParameterIn::Path, "name", USER_NAME),
];

/// Of a schema, a field and its pattern; without a field, the schema itself.
const FIELDS: [(&str, Option<&str>, &str); 12] = [
    ("WirePath", None, PFS_PATH),
    ("CommitRequest", Some("digest"), DIGEST),
    ("DeleteRequest", Some("name"), NAME_OR_EMPTY),
    ("JobRequest", Some("name"), JOB_NAME),
    ("JobRequest", Some("package_id"), DIGEST),
    ("JobRequest", Some("registry"), NAME_OR_EMPTY),
    ("KillRequest", Some("jobname"), JOB),
    ("NewTokenRequest", Some("name"), TOKEN_NAME),
    ("NewTokenRequest", Some("user"), USER_NAME),
    ("RegistryRequest", Some("name"), NAME),
    ("UploadRequest", Some("key"), UPLOAD_KEY),
    ("UserRequest", Some("name"), USER_NAME),
];

/// Adds the patterns of an operation's parameters.
pub(super) fn add_to_parameters(operation: &mut Operation) {
    let id = operation.operation_id.clone();
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        let found = PARAMETERS.iter().find(|(of, place, name, _)| {
            let is_its = of.is_none_or(|of| id.as_deref() == Some(of));
            is_its && *place == parameter.parameter_in && *name == parameter.name
        });
        if let (Some((_, _, _, pattern)), Some(RefOr::T(Schema::Object(text)))) =
            (found, &mut parameter.schema)
        {
            text.pattern = Some((*pattern).to_owned());
        }
    }
}

/// Adds the patterns of the document's schemas.
pub(super) fn add_to_schemas(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    for (schema, field, pattern) in FIELDS {
        if let Some(text) = text_of(components, schema, field) {
            text.pattern = Some(pattern.to_owned());
        }
    }
}

fn text_of<'a>(components: &'a mut Components, schema: &str, field: Option<&str>) -> Option<&'a mut Object> {
    let RefOr::T(Schema::Object(object)) = components.schemas.get_mut(schema)? else {
        return None;
    };
    let Some(field) = field else {
        return Some(object);
    };
    match object.properties.get_mut(field)? {
        RefOr::T(Schema::Object(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_pattern_is_in_the_document() {
        let document: Value = serde_json::from_str(&super::super::openapi::document()).unwrap();
        let schemas = &document["components"]["schemas"];
        for (schema, field, pattern) in FIELDS {
            let text = field.map_or(&schemas[schema], |field| &schemas[schema]["properties"][field]);
            assert_eq!(text["pattern"], pattern, "{schema} {field:?}");
        }
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.values().flat_map(|path| path.as_object().unwrap().values());
        let parameters: Vec<_> = operations
            .flat_map(|operation| {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                parameters.map(|parameter| (operation["operationId"].as_str().unwrap(), parameter))
            })
            .collect();
        for (of, _, name, pattern) in PARAMETERS {
            let mut its = parameters
                .iter()
                .filter(|(id, parameter)| of.is_none_or(|of| of == *id) && parameter["name"] == name)
                .peekable();
            assert!(its.peek().is_some(), "{of:?} {name}");
            let has_it = |(_, parameter): &(&str, &Value)| parameter["schema"]["pattern"] == pattern;
            assert!(its.all(has_it), "{of:?} {name}");
        }
    }

    /// Texts of requests that have no pattern: any text, or one whose parser says more than a pattern could.
    const WITHOUT: [&str; 37] = [
        "Amount",
        "CertificateRequest.request",
        "CertificateRequest.user",
        "DeviceLoginRequest.id",
        "JobRequest.comment",
        "JobRequest.datacenter",
        "JobRequest.entry",
        "JobRequest.gpu_type",
        "JobRequest.image",
        "JobRequest.job_package",
        "JobRequest.package_name",
        "JobRequest.psentry",
        "JobRequest.resume",
        "JobRequest.topology",
        "NewTokenRequest.scopes",
        "PasswordRequest.new",
        "PasswordRequest.old",
        "RegistryRequest.password",
        "RegistryRequest.server",
        "RegistryRequest.username",
        "SecretRequest.value",
        "TokenRequest.password",
        "TokenRequest.username",
        "UserRequest.oidc_subject",
        "UserRequest.password",
        "UserRequest.system_user",
        "certificate_revoke id",
        "file_glob pattern",
        "file_list after",
        "job_list after",
        "log_show w",
        "log_stream from",
        "log_stream role",
        "log_stream since",
        "log_stream w",
        "usage_list since",
        "user_delete to",
    ];

    /// The texts in a schema that have neither a pattern nor a list of values, each as `place.field`.
    fn plain_texts(document: &Value, place: &str, schema: &Value, found: &mut BTreeSet<String>) {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.rsplit('/').next().unwrap();
            return plain_texts(document, name, &document["components"]["schemas"][name], found);
        }
        let is_text = schema["type"] == "string" || schema["type"][0] == "string";
        if is_text && schema["pattern"].is_null() && schema["enum"].is_null() {
            found.insert(place.to_owned());
        }
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            plain_texts(document, &format!("{place}.{field}"), schema, found);
        }
        for one_of in ["oneOf", "allOf", "anyOf"] {
            for schema in schema[one_of].as_array().into_iter().flatten() {
                plain_texts(document, place, schema, found);
            }
        }
    }

    /// A new parameter or field needs a pattern, or a line in the list.
    #[test]
    fn every_text_of_a_request_has_a_pattern_or_is_listed() {
        let document: Value = serde_json::from_str(&super::super::openapi::document()).unwrap();
        let mut found = BTreeSet::new();
        let paths = document["paths"].as_object().unwrap();
        for operation in paths.values().flat_map(|path| path.as_object().unwrap().values()) {
            let id = operation["operationId"].as_str().unwrap();
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let place = format!("{id} {}", parameter["name"].as_str().unwrap());
                plain_texts(&document, &place, &parameter["schema"], &mut found);
            }
            for (_, content) in operation["requestBody"]["content"]
                .as_object()
                .into_iter()
                .flatten()
            {
                plain_texts(&document, id, &content["schema"], &mut found);
            }
        }
        let listed = WITHOUT
            .map(str::to_owned)
            .into_iter()
            .collect::<BTreeSet<String>>();
        assert_eq!(found, listed);
    }
}
