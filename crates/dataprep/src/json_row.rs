//! A record that is a JSON object or array, parsed in order and without changing a number.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::surrogates;

/// One value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Bool(bool),
    /// As it is written.
    Number(String),
    Text(String),
    /// An array or object, as JSON.
    Nested(String),
}

impl Cell {
    fn of(raw: &RawValue) -> Self {
        let text = raw.get();
        match text.as_bytes()[0] {
            b'n' => Self::Null,
            b't' => Self::Bool(true),
            b'f' => Self::Bool(false),
            b'"' => {
                Self::Text(serde_json::from_str(text).expect("a raw value is valid JSON of whole characters"))
            }
            b'[' | b'{' => Self::Nested(text.to_owned()),
            _ => Self::Number(text.to_owned()),
        }
    }

    /// As written in a table; empty for null.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Bool(value) => value.to_string(),
            Self::Number(text) | Self::Text(text) | Self::Nested(text) => text,
        }
    }
}

/// A record as a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Row {
    Named(Vec<(String, Cell)>),
    Plain(Vec<Cell>),
}

impl Row {
    pub(crate) fn parse(record: &[u8]) -> Result<Self, String> {
        surrogates::check(record)?;
        let first = record.iter().find(|byte| !byte.is_ascii_whitespace());
        match first {
            Some(b'{') => {
                let fields: Fields = serde_json::from_slice(record).map_err(not_json)?;
                Ok(Self::Named(fields.0))
            }
            Some(b'[') => {
                let cells: Vec<&RawValue> = serde_json::from_slice(record).map_err(not_json)?;
                Ok(Self::Plain(cells.into_iter().map(Cell::of).collect()))
            }
            _ => Err("is not a JSON object or array, so it cannot be a row".to_owned()),
        }
    }
}

/// Checks that the bytes are one JSON value.
pub(crate) fn check(record: &[u8]) -> Result<(), String> {
    serde_json::from_slice::<&RawValue>(record).map_err(not_json)?;
    surrogates::check(record)
}

/// The value of one field of an object: text unchanged, everything else as JSON.
pub(crate) fn field(record: &[u8], name: &str) -> Result<Vec<u8>, String> {
    let Row::Named(fields) = Row::parse(record)? else {
        return Err("is an array, so it has no fields".to_owned());
    };
    match fields.into_iter().find(|(known, _)| known == name) {
        Some((_, Cell::Null)) | None => Err(format!("has no field `{name}`")),
        Some((_, cell)) => Ok(cell.into_text().into_bytes()),
    }
}

/// `{"a":"1","b":"2"}`.
pub(crate) fn object<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>, out: &mut Vec<u8>) {
    out.clear();
    let mut separator = b'{';
    for (name, value) in fields {
        out.push(separator);
        text(name, out);
        out.push(b':');
        text(value, out);
        separator = b',';
    }
    if separator == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}

/// `["1","2"]`.
pub(crate) fn array<'a>(values: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    out.clear();
    let mut separator = b'[';
    for value in values {
        out.push(separator);
        text(value, out);
        separator = b',';
    }
    if separator == b'[' {
        out.push(b'[');
    }
    out.push(b']');
}

/// A string as JSON.
pub(crate) fn text(value: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("a string always becomes JSON");
}

fn not_json(error: serde_json::Error) -> String {
    let words = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match words.strip_suffix(&place) {
        // The file's lines are counted elsewhere; inside a line only the column helps.
        Some(problem) if error.line() == 1 => {
            format!("is not JSON: {problem} at column {}", error.column())
        }
        _ => format!("is not JSON: {words}"),
    }
}

/// An object's fields in their order.
struct Fields(Vec<(String, Cell)>);

impl<'de> serde::Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        let mut seen = HashSet::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            if !seen.insert(name.clone()) {
                return Err(serde::de::Error::custom(format_args!(
                    "the field `{name}` appears twice"
                )));
            }
            fields.push((name, Cell::of(value)));
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_digits_are_kept() {
        let row = Row::parse(
            br#" {"z": 1.50, "a": 12345678901234567890123, "t": "x\ny", "n": null, "l": [1, 2]} "#,
        );
        let expected = [
            ("z", Cell::Number("1.50".into())),
            ("a", Cell::Number("12345678901234567890123".into())),
            ("t", Cell::Text("x\ny".into())),
            ("n", Cell::Null),
            ("l", Cell::Nested("[1, 2]".into())),
        ];
        let expected = expected.map(|(name, cell)| (name.to_owned(), cell)).to_vec();
        assert_eq!(row.unwrap(), Row::Named(expected));
    }

    #[test]
    fn a_field_that_appears_twice_is_refused() {
        let problem = Row::parse(br#"{"a":1,"a":2}"#).unwrap_err();
        assert!(problem.contains("`a` appears twice"), "{problem}");
    }

    #[test]
    fn an_invalid_row_is_explained() {
        assert!(Row::parse(b"5").unwrap_err().contains("cannot be a row"));
        assert!(Row::parse(b"{\"a\":").unwrap_err().starts_with("is not JSON: "));
        assert!(check(b"1 2").is_err());
        assert!(check(b"\xff").is_err());
        for half in [&br#"{"a":"\ud800"}"#[..], br#"[["\udc00"]]"#, br#"{"\ud800":1}"#] {
            assert!(check(half).unwrap_err().contains("half of a surrogate pair"));
            assert!(Row::parse(half).unwrap_err().contains("half of a surrogate pair"));
        }
    }

    #[test]
    fn objects_and_arrays_are_written_as_they_are_read() {
        let mut out = Vec::new();
        object([("a", "1\""), ("b", "")].into_iter(), &mut out);
        assert_eq!(out, br#"{"a":"1\"","b":""}"#);
        object(std::iter::empty(), &mut out);
        assert_eq!(out, b"{}");
        array(["x"].into_iter(), &mut out);
        assert_eq!(out, br#"["x"]"#);
        array(std::iter::empty(), &mut out);
        assert_eq!(out, b"[]");
    }
}
