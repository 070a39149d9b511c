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
const USER_NAME: &str = "^[^/\\s]{1,128}$";

/// Of an operation, or of all, a parameter and its pattern.
const PARAMETERS: [(Option<&str>, ParameterIn, &str, &str); 9] = [
    (None, ParameterIn::Header, "idempotency-key", IDEMPOTENCY_KEY),
    (None, ParameterIn::Path, "job", JOB),
    (None, ParameterIn::Query, "path", PFS_PATH),
    (Some("job_list"), ParameterIn::Query, "name", JOB_NAME),
    (Some("job_rerun"), ParameterIn::Query, "name", JOB_NAME),
    (Some("upload_chunk"), ParameterIn::Query, "name", DIGEST),
    (Some("user_show"), ParameterIn::Path, "name", USER_NAME),
    (Some("user_set"), ParameterIn::Path, "name", USER_NAME),
    (Some("user_delete"), ParameterIn::Path, "name", USER_NAME),
];

/// Of a schema, a field and its pattern; without a field, the schema itself.
const FIELDS: [(&str, Option<&str>, &str); 4] = [
    ("WirePath", None, PFS_PATH),
    ("CommitRequest", Some("digest"), DIGEST),
    ("JobRequest", Some("name"), JOB_NAME),
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
    use super::*;

    #[test]
    fn every_pattern_is_in_the_document() {
        let document: serde_json::Value = serde_json::from_str(&super::super::openapi::document()).unwrap();
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
            let has_it =
                |(_, parameter): &(&str, &serde_json::Value)| parameter["schema"]["pattern"] == pattern;
            assert!(its.all(has_it), "{of:?} {name}");
        }
    }
}
