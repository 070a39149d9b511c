//! Records as rows of a CSV file. The first record decides the columns.

use std::collections::HashMap;
use std::path::Path;

use csv::Writer;

use super::{Destination, Sink, SinkError, WriteOptions};
use crate::error::DataError;
use crate::json_row::{Cell, Row};
use crate::packed::PackedFile;

const ARRAY: &str = "is an array, so its columns have no names; `--no-header` writes rows without them";
const OBJECT: &str = "is an object, whose names would be lost without a header; omit `--no-header`";

pub(super) struct Rows {
    destination: Destination,
    writer: Writer<PackedFile>,
    columns: Columns,
    first_line_is_data: bool,
}

enum Columns {
    /// No record yet.
    Unknown,
    /// Every record is the text of the only column.
    Only,
    Named(HashMap<String, usize>),
    /// Rows without names, and how many values each has.
    Plain(usize),
}

impl Rows {
    pub(super) fn create(path: &Path, options: &WriteOptions) -> Result<Self, DataError> {
        let (destination, file) = Destination::create(path)?;
        let mut rows = Self {
            destination,
            writer: Writer::from_writer(file),
            columns: Columns::Unknown,
            first_line_is_data: options.first_line_is_data,
        };
        if let Some(field) = &options.field {
            if !rows.first_line_is_data {
                rows.put(std::slice::from_ref(field))?;
            }
            rows.columns = Columns::Only;
        }
        Ok(rows)
    }

    fn put(&mut self, values: &[String]) -> Result<(), DataError> {
        let written = self.writer.write_record(values);
        written.map_err(|e| self.destination.failed(std::io::Error::other(e)))
    }

    /// The columns of the first row; written immediately if they have names.
    fn begin(&mut self, row: &Row) -> Result<(), SinkError> {
        let is_empty = match row {
            Row::Named(fields) => fields.is_empty(),
            Row::Plain(cells) => cells.is_empty(),
        };
        if is_empty {
            return Err(SinkError::Record(
                "has no values, so it cannot be a row".to_owned(),
            ));
        }
        self.columns = match row {
            // Its names would be lost, or be written as a row.
            Row::Named(_) if self.first_line_is_data => return Err(SinkError::Record(OBJECT.to_owned())),
            // Its first row would be read as a header.
            Row::Plain(_) if !self.first_line_is_data => return Err(SinkError::Record(ARRAY.to_owned())),
            Row::Named(fields) => {
                let names: Vec<String> = fields.iter().map(|(name, _)| name.clone()).collect();
                self.put(&names)?;
                Columns::Named(names.into_iter().zip(0..).collect())
            }
            Row::Plain(cells) => Columns::Plain(cells.len()),
        };
        Ok(())
    }

    fn values(&self, row: Row) -> Result<Vec<String>, String> {
        match (&self.columns, row) {
            (Columns::Named(columns), Row::Named(fields)) => named_values(columns, fields),
            (Columns::Plain(len), Row::Plain(cells)) if cells.len() == *len => {
                Ok(cells.into_iter().map(Cell::into_text).collect())
            }
            (Columns::Plain(len), Row::Plain(cells)) => {
                Err(format!("has {} values where the first has {len}", cells.len()))
            }
            _ => Err("is an object where the first is an array, or vice versa".to_owned()),
        }
    }
}

/// Missing values stay empty; a field that the first record does not have has no column.
fn named_values(
    columns: &HashMap<String, usize>,
    fields: Vec<(String, Cell)>,
) -> Result<Vec<String>, String> {
    let mut values = vec![String::new(); columns.len()];
    for (name, cell) in fields {
        let column = columns
            .get(&name)
            .ok_or_else(|| format!("has a field `{name}` that the first record does not have"))?;
        values[*column] = cell.into_text();
    }
    Ok(values)
}

impl Sink for Rows {
    fn write(&mut self, record: &[u8]) -> Result<(), SinkError> {
        if let Columns::Only = self.columns {
            let text =
                std::str::from_utf8(record).map_err(|_| SinkError::Record("is not UTF-8 text".to_owned()))?;
            return Ok(self.put(&[text.to_owned()])?);
        }
        let row = Row::parse(record).map_err(SinkError::Record)?;
        if let Columns::Unknown = self.columns {
            self.begin(&row)?;
        }
        let values = self.values(row).map_err(SinkError::Record)?;
        Ok(self.put(&values)?)
    }

    fn finish(self: Box<Self>) -> Result<(), DataError> {
        let Self {
            destination, writer, ..
        } = *self;
        let file = writer
            .into_inner()
            .map_err(|e| destination.failed(e.into_error()))?;
        destination.publish(file)
    }
}
