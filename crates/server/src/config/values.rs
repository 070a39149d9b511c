//! Values of the configuration file that are written in a form of their own, with the sentences that refuse them.
//!
//! Which keys have them is in `file`.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use paddlecloud_accounts::users::{UidRange, UidRangeError};
use paddlecloud_core::duration;
use paddlecloud_core::quantity::Bytes;
use paddlecloud_store::{DatabaseUrl, DatabaseUrlError};
use serde::{Deserialize, Deserializer};

/// A text, a number or a truth value: YAML parses `cpu: 2` as a number and `reclaim: off` as false.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Flag(bool),
    Number(u64),
    Decimal(f64),
    Text(String),
}

impl Word {
    fn parse<T: FromStr<Err: Display>, E: serde::de::Error>(self) -> Result<T, E> {
        let text = match self {
            Word::Flag(flag) => flag.to_string(),
            Word::Number(number) => number.to_string(),
            Word::Decimal(number) => number.to_string(),
            Word::Text(text) => text,
        };
        text.parse().map_err(E::custom)
    }
}

/// A word as it was written, even if YAML parses it as a number.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Word::deserialize(deserializer)?.parse()
}

pub(super) fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Word::deserialize(deserializer)?.parse()
}

pub(super) fn parsed_option<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let word = Option::<Word>::deserialize(deserializer)?;
    word.map(Word::parse).transpose()
}

/// `off`, or how long a job within its owner's guarantee waits before jobs that borrow are stopped for it.
#[derive(Debug)]
pub(super) struct Reclaim(pub(super) Option<SignedDuration>);

impl FromStr for Reclaim {
    type Err = String;

    fn from_str(text: &str) -> Result<Reclaim, String> {
        // YAML 1.1 parsers read `off` as false.
        if ["off", "false"].contains(&text) {
            return Ok(Reclaim(None));
        }
        let span = duration::parse(text);
        let span = span.map_err(|error| format!("`reclaim` is `off` or a time: {error}"))?;
        Ok(Reclaim(Some(span)))
    }
}

/// A duration of at least a second.
#[derive(Debug)]
pub(super) struct Span(pub(super) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let span = duration::parse(text).map_err(|error| error.to_string())?;
        let span = Duration::try_from(span).map_err(|error| error.to_string())?;
        match span.is_zero() {
            true => Err(format!("`{}` is too short", text.escape_debug())),
            false => Ok(Span(span)),
        }
    }
}

/// A size in the same form as memory, with its own error message.
#[derive(Debug)]
pub(super) struct LogSize(pub(super) Bytes);

impl FromStr for LogSize {
    type Err = String;

    fn from_str(text: &str) -> Result<LogSize, String> {
        let parsed = text.parse().map(LogSize);
        parsed.map_err(|_| {
            let text = text.escape_debug();
            format!("`logs`: `{text}` is not a log size: write a whole number and one of Ki Mi Gi Ti, for example `16Mi`")
        })
    }
}

#[derive(Debug)]
pub(super) struct Address(pub(super) DatabaseUrl);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = text.parse().map(Address);
        url.map_err(|error: DatabaseUrlError| format!("`database` {error}"))
    }
}

#[derive(Debug)]
pub(super) struct SystemUids(pub(super) UidRange);

impl FromStr for SystemUids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = text.parse().map(SystemUids);
        range.map_err(|error: UidRangeError| format!("`system_uids`: {error}"))
    }
}
