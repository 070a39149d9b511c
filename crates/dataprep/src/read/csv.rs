//! Rows of a CSV file as JSON, all values as text: CSV knows no other kind.

use std::collections::HashSet;

use csv::{Reader, ReaderBuilder, StringRecord};

use super::{Dataset, Seen, Visit};
use crate::error::DataError;
use crate::input::Input;
use crate::json_row;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

pub(super) fn each(data: &Dataset, mut input: Input, visit: &mut Visit<'_>) -> Result<(), DataError> {
    skip_mark(&mut input).map_err(|e| DataError::read(&data.path, e))?;
    let has_names = !data.options.first_line_is_data;
    let mut reader = ReaderBuilder::new()
        .has_headers(has_names)
        .from_reader(input.reader);
    let shape = match has_names {
        true => Shape::named(data, &mut reader)?,
        false => Shape::unnamed(data)?,
    };
    let mut row = StringRecord::new();
    let mut record = Vec::new();
    let mut number = 0;
    while reader.read_record(&mut row).map_err(|e| failed(data, e))? {
        shape.write(&row, &mut record);
        let seen = Seen {
            number,
            bytes: &record,
            position: input.position.get(),
        };
        if visit(seen)?.is_break() {
            return Ok(());
        }
        number += 1;
    }
    Ok(())
}

/// What a row becomes.
enum Shape {
    Object(StringRecord),
    Array,
    Column(usize),
}

impl Shape {
    fn named<R: std::io::Read>(data: &Dataset, reader: &mut Reader<R>) -> Result<Self, DataError> {
        let names = reader.headers().map_err(|e| failed(data, e))?.clone();
        let mut seen = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(DataError::file(
                &data.path,
                format!("has two columns called `{twice}`"),
            ));
        }
        match data.field() {
            None => Ok(Self::Object(names)),
            Some(field) => match names.iter().position(|name| name == field) {
                Some(column) => Ok(Self::Column(column)),
                None => Err(DataError::file(&data.path, format!("has no column `{field}`"))),
            },
        }
    }

    fn unnamed(data: &Dataset) -> Result<Self, DataError> {
        match data.field() {
            None => Ok(Self::Array),
            Some(field) => Err(DataError::file(
                &data.path,
                format!("has no names for its columns, so there is no `{field}`"),
            )),
        }
    }

    fn write(&self, row: &StringRecord, out: &mut Vec<u8>) {
        match self {
            Self::Object(names) => json_row::object(names.iter().zip(row), out),
            Self::Array => json_row::array(row.iter(), out),
            Self::Column(column) => {
                out.clear();
                out.extend_from_slice(row[*column].as_bytes());
            }
        }
    }
}

/// Some programs write a mark before the first name; it is no part of it.
fn skip_mark(input: &mut Input) -> std::io::Result<()> {
    if input.reader.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
        input.reader.consume(BYTE_ORDER_MARK.len());
    }
    Ok(())
}

/// The csv crate's finding, with the line where it has one.
fn failed(data: &Dataset, error: csv::Error) -> DataError {
    let line = error.position().map(csv::Position::line);
    let problem = match error.into_kind() {
        csv::ErrorKind::Io(source) => return DataError::read(&data.path, source),
        csv::ErrorKind::Utf8 { .. } => "is not UTF-8".to_owned(),
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("has {len} values where the lines before it have {expected_len}"),
        other => format!("cannot be read: {other:?}"),
    };
    match line {
        Some(line) => DataError::line(&data.path, line, problem),
        None => DataError::file(&data.path, problem),
    }
}
