//! Reading requests: bodies, queries and paths, with errors that name what is wrong.

use std::fmt;
use std::time::Duration;

use axum::RequestExt;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http_body_util::LengthLimitError;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use paddlecloud_api::jobs::JobRequest;
use paddlecloud_api::{SMALL_BODY, admin, files, server};
use paddlecloud_core::names::JobRef;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::PartialSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use super::reply::Refused;
use super::session::SessionSlot;
use crate::nearest::nearest;

/// How long a body that is not a stream may take. It is small; a client that sends it very slowly only holds a connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The memory of a larger body is returned to the system when the request is answered.
const VERY_LARGE: usize = 1 << 20;

/// A JSON body, regardless of its content type. A missing body is an empty one.
pub(super) struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + PartialSchema> FromRequest<S> for Body<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let Raw(bytes) = Raw::from_request(request, state).await?;
        parse_body(&bytes).map(Body).map_err(Refused)
    }
}

/// The bytes of a body of bounded size.
pub(super) struct Raw(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Refused;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        let slot = request.extensions().get::<SessionSlot>().cloned();
        let body = request.with_limited_body().into_body();
        let collected = tokio::time::timeout(BODY_TIMEOUT, collect(body, slot)).await;
        collected.map_err(|_| Refused(too_slow()))?.map(Raw)
    }
}

/// The whole body, copied: frames would keep the buffers they came in (see [`super::gather`]).
async fn collect(body: axum::body::Body, slot: Option<SessionSlot>) -> Result<Bytes, Refused> {
    let mut frames = body.into_data_stream();
    let (mut whole, mut is_large) = (BytesMut::new(), false);
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|error| Refused(body_refused(&error)))?;
        whole.extend_from_slice(&frame);
        // Larger bodies wait for each other: what they are parsed into takes many times their size.
        if whole.len() <= SMALL_BODY || std::mem::replace(&mut is_large, true) {
            continue;
        }
        if let Some(slot) = &slot
            && !slot.take_memory().await
        {
            return Err(Refused(busy()));
        }
    }
    if whole.len() > VERY_LARGE
        && let Some(slot) = &slot
    {
        slot.return_memory();
    }
    Ok(whole.freeze())
}

fn busy() -> ErrorBody {
    let problem = "the server is reading other large requests";
    ErrorBody::new(ErrorName::Unavailable, problem).with_hint("try again, or send less at a time")
}

fn too_slow() -> ErrorBody {
    let problem = format!(
        "the body did not arrive within {} seconds",
        BODY_TIMEOUT.as_secs()
    );
    ErrorBody::new(ErrorName::RequestTimeout, problem).with_hint("send the complete body again")
}

fn body_refused(error: &axum::Error) -> ErrorBody {
    if is_too_large(error) {
        let problem = "the body is too large";
        return ErrorBody::new(ErrorName::PayloadTooLarge, problem);
    }
    ErrorBody::new(ErrorName::BadRequest, "the body did not arrive completely")
}

fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| cause.is::<LengthLimitError>())
}

fn parse_body<T: DeserializeOwned + PartialSchema>(bytes: &[u8]) -> Result<T, ErrorBody> {
    let text: &[u8] = if bytes.iter().all(u8::is_ascii_whitespace) {
        b"{}"
    } else {
        bytes
    };
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(ErrorBody::new(
            ErrorName::BadRequest,
            "the body must be a JSON object",
        ));
    }
    if let Some(refused) = misspelled(text, &fields_of::<T>()) {
        return Err(refused);
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = error.path().to_string();
        let problem = error.into_inner().to_string();
        json_refused(&field, &problem)
    })?;
    reader
        .end()
        .map_err(|error| json_refused(".", &error.to_string()))?;
    Ok(value)
}

/// Parses bytes as the body of every request, for the fuzzer; returns them as a job.
pub(super) fn parse_every_body(bytes: &[u8]) -> Option<JobRequest> {
    macro_rules! each {
        ($($body:ty),*) => {$( let _ = parse_body::<$body>(bytes); )*};
    }
    each!(
        admin::CertificateRequest,
        admin::GroupRequest,
        admin::NewTokenRequest,
        admin::PasswordRequest,
        admin::SecretRequest,
        admin::UserRequest,
        files::CommitRequest,
        files::MkdirRequest,
        files::MoveRequest,
        files::PackRequest,
        files::RemoveRequest,
        files::ReuseRequest,
        files::ShareRequest,
        files::StatsRequest,
        files::UploadRequest,
        server::TokenRequest
    );
    parse_body(bytes).ok()
}

fn json_refused(field: &str, problem: &str) -> ErrorBody {
    let problem = problem
        .replace("expected i64", "expected a whole number")
        .replace(
            "data did not match any variant of untagged enum Any",
            "expected a number or a text",
        );
    let problem = match field {
        "." | "?" => format!("the body is not the expected JSON: {problem}"),
        field => format!("`{field}`: {problem}"),
    };
    ErrorBody::new(ErrorName::BadRequest, problem)
}

/// The number of unknown fields that are examined: a body may consist of nothing else.
const MOST_UNKNOWN: usize = 32;

/// Clients of other versions may send fields this server does not know. One that looks like a misspelled field is
/// refused nevertheless: the job would run with a default that nobody asked for.
fn misspelled(text: &[u8], known: &[String]) -> Option<ErrorBody> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let sent = SentFields::of(known).deserialize(&mut reader).ok()?;
    let mut slips = sent.unknown.iter().filter_map(|field| {
        let free = sent.missing.iter().copied();
        Some((field, nearest(field, free)?))
    });
    let (field, near) = slips.next()?;
    let problem = format!("there is no field `{}`", field.escape_debug());
    Some(ErrorBody::new(ErrorName::BadRequest, problem).with_hint(format!("did you mean `{near}`?")))
}

/// The names of an object's fields, in bounded memory.
struct SentFields<'a> {
    known: &'a [String],
    missing: Vec<&'a str>,
    unknown: Vec<String>,
}

impl<'a> SentFields<'a> {
    fn of(known: &'a [String]) -> SentFields<'a> {
        SentFields {
            known,
            missing: known.iter().map(String::as_str).collect(),
            unknown: Vec::new(),
        }
    }
}

impl<'de, 'a> DeserializeSeed<'de> for SentFields<'a> {
    type Value = SentFields<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, 'a> Visitor<'de> for SentFields<'a> {
    type Value = SentFields<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut fields: M) -> Result<Self::Value, M::Error> {
        while let Some(field) = fields.next_key::<String>()? {
            fields.next_value::<IgnoredAny>()?;
            self.missing.retain(|name| *name != field);
            if !self.known.contains(&field) && field != "jobPackage" && self.unknown.len() < MOST_UNKNOWN {
                self.unknown.push(field);
            }
        }
        Ok(self)
    }
}

/// The names of a type's fields, from the schema that is published.
fn fields_of<T: PartialSchema>() -> Vec<String> {
    match T::schema() {
        RefOr::T(Schema::Object(object)) => object.properties.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

/// What a path names. A path without such names does not exist.
pub(super) struct Named<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let names = Path::<T>::from_request_parts(parts, state).await;
        names.map(|Path(names)| Named(names)).map_err(|_| {
            let path = parts.uri.path().escape_debug();
            Refused(ErrorBody::new(
                ErrorName::NotFound,
                format!("there is nothing at `{path}`"),
            ))
        })
    }
}

/// The job a path names.
pub(super) struct Target(pub JobRef);

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let name = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) =
            name.map_err(|_| Refused(ErrorBody::new(ErrorName::BadRequest, "the path is not UTF-8")))?;
        job_ref(&name).map(Target)
    }
}

/// A text that refers to a job. A text that is not a valid name refers to none.
pub(super) fn job_ref(text: &str) -> Result<JobRef, Refused> {
    text.parse().map_err(|_| {
        let problem = format!("there is no job `{}`", text.escape_debug());
        let refused = ErrorBody::new(ErrorName::NotFound, problem);
        Refused(refused.with_hint("`paddlectl get jobs -a` lists all of them"))
    })
}

/// `true`, `1`, `yes`, and a name without a value.
pub(super) fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.to_ascii_lowercase().as_str() {
        "" | "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err(serde::de::Error::custom(format!(
            "`{}` is neither true nor false",
            text.escape_debug()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let error = parse_body::<JobRequest>(text.as_bytes()).expect_err(text);
        [error.msg]
            .into_iter()
            .chain(error.hints)
            .collect::<Vec<_>>()
            .join("\n  hint: ")
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_arrives_times_out() {
        let silent =
            axum::body::Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let Err(Refused(error)) = Raw::from_request(Request::new(silent), &()).await else {
            panic!("there was nothing to read");
        };
        assert_eq!((error.code, error.error), (408, ErrorName::RequestTimeout));
        assert_eq!(error.msg, "the body did not arrive within 60 seconds");
    }

    #[test]
    fn the_body_of_the_original_client_is_read_in_both_spellings() {
        let text =
            r#"{"name":"paddle-job","jobPackage":"/pfs/d/home/u/p","parallelism":3,"cpu":1,"memory":"1Gi"}"#;
        let request: JobRequest = parse_body(text.as_bytes()).unwrap();
        assert_eq!(request.job_package.as_deref(), Some("/pfs/d/home/u/p"));
        assert_eq!(request.parallelism, Some(3));
    }

    #[test]
    fn fields_of_other_versions_are_ignored() {
        let request: JobRequest = parse_body(br#"{"colour":"red"}"#).unwrap();
        assert_eq!(request, JobRequest::default());
        assert_eq!(parse_body::<JobRequest>(b" ").unwrap(), JobRequest::default());
    }

    #[test]
    fn a_server_that_does_not_know_lists_of_packages_ignores_them() {
        let mut known = fields_of::<JobRequest>();
        known.retain(|field| field != "package_list");
        let sent = br#"{"package_list":{},"package_id":"x","package_name":"p"}"#;
        assert!(misspelled(sent, &known).is_none());
        assert!(misspelled(br#"{"package_list":{}}"#, &known).is_none());
    }

    #[test]
    fn body_errors_name_the_field() {
        insta::assert_snapshot!(
            [
                refused(r#"{"paralelism":3}"#),
                refused(r#"{"parallelism":"many"}"#),
                refused(r#"{"envs":{"A":1}}"#),
                refused(r#"{"name":"#),
                refused(r#"{"cpu":[]}"#),
                refused(r#"[1]"#),
                refused(r#"{} {}"#),
            ]
            .join("\n"),
            @r#"
        there is no field `paralelism`
          hint: did you mean `parallelism`?
        `parallelism`: invalid type: string "many", expected a whole number at line 1 column 21
        `envs.A`: invalid type: integer `1`, expected a string at line 1 column 14
        `name`: EOF while parsing a value at line 1 column 8
        `cpu`: expected a number or a text at line 1 column 10
        the body must be a JSON object
        the body is not the expected JSON: trailing characters at line 1 column 4
        "#
        );
    }
}
