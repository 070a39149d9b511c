//! Rows of a CSV file as JSON, all values as text: CSV has no other type.

use std::collections::HashSet;
use std::io::BufRead;

use super::{Dataset, Seen, Visit};
use crate::csv_row::{Row, Rows};
use crate::error::DataError;
use crate::input::Input;
use crate::json_row;

pub(super) fn each(data: &Dataset, input: Input, visit: &mut Visit<'_>) -> Result<(), DataError> {
    let mut rows = Rows::new(input.reader);
    let shape = match data.options.first_line_is_data {
        false => Shape::named(data, &mut rows)?,
        true => Shape::unnamed(data)?,
    };
    let mut width = match &shape {
        Shape::Named { names, .. } => Some(names.len()),
        Shape::Array => None,
    };
    let (mut record, mut number) = (Vec::new(), 0);
    while let Some(row) = rows.next_row().map_err(|e| e.of(&data.path))? {
        let cells = text_of(data, &row)?;
        let expected = *width.get_or_insert(cells.len());
        if cells.len() != expected {
            let problem = format!(
                "has {} values where the lines before it have {expected}",
                cells.len()
            );
            return Err(DataError::line(&data.path, row.line, problem));
        }
        shape.write(&cells, &mut record);
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
    Named {
        names: Vec<String>,
        /// The only selected column.
        only: Option<usize>,
    },
    Array,
}

impl Shape {
    fn named(data: &Dataset, rows: &mut Rows<impl BufRead>) -> Result<Self, DataError> {
        let first = rows.next_row().map_err(|e| e.of(&data.path))?;
        let names = match &first {
            Some(row) => text_of(data, row)?,
            None => Vec::new(),
        };
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let mut seen = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(DataError::file(
                &data.path,
                format!("has two columns called `{twice}`"),
            ));
        }
        let only = data
            .field()
            .map(|field| column(data, &names, field))
            .transpose()?;
        Ok(Self::Named { names, only })
    }

    fn unnamed(data: &Dataset) -> Result<Self, DataError> {
        match data.field() {
            None => Ok(Self::Array),
            Some(field) => Err(DataError::file(
                &data.path,
                format!("has no column names, so there is no `{field}`"),
            )),
        }
    }

    fn write(&self, cells: &[&str], out: &mut Vec<u8>) {
        match self {
            Self::Named {
                only: Some(column), ..
            } => {
                out.clear();
                out.extend_from_slice(cells[*column].as_bytes());
            }
            Self::Named { names, only: None } => {
                json_row::object(names.iter().map(String::as_str).zip(cells.iter().copied()), out);
            }
            Self::Array => json_row::array(cells.iter().copied(), out),
        }
    }
}

fn column(data: &Dataset, names: &[String], field: &str) -> Result<usize, DataError> {
    let found = names.iter().position(|name| name == field);
    found.ok_or_else(|| DataError::file(&data.path, format!("has no column `{field}`")))
}

fn text_of<'a>(data: &Dataset, row: &Row<'a>) -> Result<Vec<&'a str>, DataError> {
    let cells: Result<_, _> = row.cells().map(std::str::from_utf8).collect();
    cells.map_err(|_| DataError::line(&data.path, row.line, "is not UTF-8"))
}
