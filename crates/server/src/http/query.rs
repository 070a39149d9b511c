//! The query of a request: only known parameters are accepted, and errors name the parameter.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use paddlecloud_api::error::{ErrorBody, ErrorName};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize as _, Deserializer};
use utoipa::IntoParams;
use utoipa::openapi::path::ParameterIn;

use super::reply::Refused;
use crate::nearest::nearest;

/// The query of a request.
pub(super) struct QueryParams<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + IntoParams> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let sent = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let sent = sent.map(|Query(sent)| sent).unwrap_or_default();
        check_names(&sent, &names_of::<T>()).map_err(Refused)?;
        let query = Query::<T>::from_request_parts(parts, state).await;
        let Query(query) = query.map_err(|error| Refused(unreadable(&error.body_text(), &sent)))?;
        Ok(QueryParams(query))
    }
}

/// Reads a number in these bounds, which the parameter's `minimum` and `maximum` repeat for the document: another one would be replaced
/// silently.
pub(super) fn bounded<'de, const LEAST: u64, const MOST: u64, T, D>(
    deserializer: D,
) -> Result<Option<T>, D::Error>
where
    T: TryFrom<u64>,
    D: Deserializer<'de>,
{
    let number = u64::deserialize(deserializer)?;
    let fits = (LEAST..=MOST)
        .contains(&number)
        .then(|| T::try_from(number).ok())
        .flatten();
    let refused = || D::Error::custom(format!("{number} is not between {LEAST} and {MOST}"));
    fits.map(Some).ok_or_else(refused)
}

/// An ignored parameter would appear to work.
fn check_names(sent: &[(String, String)], known: &[String]) -> Result<(), ErrorBody> {
    let Some((unknown, _)) = sent.iter().find(|(name, _)| !known.contains(name)) else {
        return Ok(());
    };
    let problem = format!("unknown parameter `{}`", unknown.escape_debug());
    let hint = match nearest(unknown, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the parameters are {}", known.join(", ")),
    };
    Err(ErrorBody::new(ErrorName::BadRequest, problem).with_hint(hint))
}

/// The parser says `…: limit: invalid digit found in string`.
fn unreadable(words: &str, sent: &[(String, String)]) -> ErrorBody {
    let named = sent
        .iter()
        .find(|(name, _)| words.contains(&format!(": {name}: ")));
    let Some((name, value)) = named else {
        let problem = words.rsplit(": ").next().unwrap_or(words);
        return ErrorBody::new(
            ErrorName::BadRequest,
            format!("the query cannot be read: {problem}"),
        );
    };
    let (_, problem) = words.split_once(&format!(": {name}: ")).unwrap_or_default();
    let shown: String = value.chars().take(80).collect();
    let problem = match problem {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            format!("`{}` is not a whole number, 0 or more", shown.escape_debug())
        }
        "number too large to fit in target type" => format!("{} is too large", shown.escape_debug()),
        other => other.to_owned(),
    };
    ErrorBody::new(ErrorName::BadRequest, format!("`{name}`: {problem}"))
}

/// The names of a type's parameters, from the published document.
fn names_of<T: IntoParams>() -> Vec<String> {
    let all = T::into_params(|| Some(ParameterIn::Query));
    all.into_iter().map(|parameter| parameter.name).collect()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, IntoParams)]
    #[serde(default)]
    #[derive(Default)]
    #[allow(dead_code, reason = "only read from queries")]
    struct Params {
        all: bool,
        #[serde(deserialize_with = "bounded::<1, 1000, _, _>")]
        limit: Option<usize>,
    }

    async fn read(query: &str) -> Result<Params, String> {
        let request = Request::builder().uri(format!("/?{query}")).body(()).unwrap();
        let (mut parts, ()) = request.into_parts();
        let parsed = QueryParams::<Params>::from_request_parts(&mut parts, &()).await;
        let words = |Refused(body): Refused| [vec![body.msg], body.hints].concat().join("; ");
        parsed.map(|QueryParams(params)| params).map_err(words)
    }

    #[tokio::test]
    async fn query_errors_name_the_parameter() {
        assert_eq!(read("limit=7").await.unwrap().limit, Some(7));
        let mut messages = Vec::new();
        for query in [
            "limt=7",
            "colour=red",
            "limit=-1",
            "limit=",
            "limit=99999999999999999999999",
            "limit=0",
            "limit=1001",
            "all=maybe",
        ] {
            messages.push(read(query).await.err().unwrap());
        }
        insta::assert_snapshot!(messages.join("\n"), @"
        unknown parameter `limt`; did you mean `limit`?
        unknown parameter `colour`; the parameters are all, limit
        `limit`: `-1` is not a whole number, 0 or more
        `limit`: `` is not a whole number, 0 or more
        `limit`: 99999999999999999999999 is too large
        `limit`: 0 is not between 1 and 1000
        `limit`: 1001 is not between 1 and 1000
        `all`: provided string was not `true` or `false`
        ");
    }
}
