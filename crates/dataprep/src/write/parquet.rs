//! Records as rows of a Parquet file. A first pass over all records finds the columns and types.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::{Sink, SinkError};
use crate::decimal::is_kept_by_float;
use crate::error::DataError;
use crate::json_row::{Cell, Row};
use crate::read::Dataset;
use crate::staged_file::StagedFile;

/// A row group is written when it has this many rows or bytes of text.
const GROUP_ROWS: usize = 64 << 10;
const GROUP_BYTES: usize = 64 << 20;
/// Up to here a 64-bit float represents every integer.
const EXACT_IN_FLOAT: i64 = 1 << 53;

/// The type of all values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Only nulls so far.
    Unknown,
    Bool,
    Int,
    Float,
    Text,
    Bytes,
}

impl Kind {
    fn of(cell: &Cell) -> Result<Self, String> {
        Ok(match cell {
            Cell::Null => Self::Unknown,
            Cell::Bool(_) => Self::Bool,
            Cell::Number(text) if text.contains(['.', 'e', 'E']) => match is_kept_by_float(text) {
                true => Self::Float,
                false => {
                    let problem = "which a 64-bit float would change: write it as text to keep it";
                    return Err(format!("has the number {text}, {problem}"));
                }
            },
            Cell::Number(text) => match text.parse::<i64>() {
                Ok(_) => Self::Int,
                Err(_) => return Err(format!("has the number {text}, too large for 64 bits")),
            },
            Cell::Text(_) | Cell::Nested(_) => Self::Text,
        })
    }

    /// The type that can represent both, if any.
    fn join(self, other: Self) -> Option<Self> {
        match (self, other) {
            (kind, Self::Unknown) | (Self::Unknown, kind) => Some(kind),
            (Self::Int, Self::Float) | (Self::Float, Self::Int) => Some(Self::Float),
            (one, two) => (one == two).then_some(one),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "nothing",
            Self::Bool => "true or false",
            Self::Int => "whole numbers",
            Self::Float => "numbers",
            Self::Text => "text",
            Self::Bytes => "bytes",
        }
    }

    fn schema(self, name: &str) -> Result<TypePtr, ParquetError> {
        let (physical, logical) = match self {
            Self::Bool => (Physical::BOOLEAN, None),
            Self::Int => (Physical::INT64, None),
            Self::Float => (Physical::DOUBLE, None),
            Self::Text | Self::Unknown => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Bytes => (Physical::BYTE_ARRAY, None),
        };
        let repetition = match self {
            Self::Bytes => Repetition::REQUIRED,
            _ => Repetition::OPTIONAL,
        };
        let column = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()?;
        Ok(Arc::new(column))
    }
}

/// A column and its values of the current row group.
struct Column {
    name: String,
    kind: Kind,
    cells: Vec<Cell>,
}

/// What is waiting to be written.
enum Waiting {
    Columns(Vec<Column>),
    /// One column with the records unchanged.
    Whole(Vec<ByteArray>),
}

pub(super) struct Rows {
    staged: StagedFile,
    path: PathBuf,
    file: File,
    writer: SerializedFileWriter<File>,
    waiting: Waiting,
    rows: usize,
    bytes: usize,
}

impl Rows {
    pub(super) fn create(path: &Path, field: Option<String>, input: &Dataset) -> Result<Self, DataError> {
        let failed = |e: ParquetError| DataError::write(path, std::io::Error::other(e));
        let (waiting, schema) = match field {
            Some(name) => (
                Waiting::Whole(Vec::new()),
                vec![Kind::Bytes.schema(&name).map_err(failed)?],
            ),
            None => {
                let columns = find_columns(input)?;
                let schema: Result<_, _> = columns.iter().map(|c| c.kind.schema(&c.name)).collect();
                (Waiting::Columns(columns), schema.map_err(failed)?)
            }
        };
        let schema = Type::group_type_builder("schema")
            .with_fields(schema)
            .build()
            .map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .build();
        let (staged, file) = StagedFile::create(path)?;
        let handle = file.try_clone().map_err(|e| DataError::write(path, e))?;
        let writer =
            SerializedFileWriter::new(handle, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
        Ok(Self {
            staged,
            path: path.to_owned(),
            file,
            writer,
            waiting,
            rows: 0,
            bytes: 0,
        })
    }

    fn add(&mut self, record: &[u8]) -> Result<(), String> {
        match &mut self.waiting {
            Waiting::Whole(values) => values.push(ByteArray::from(record.to_vec())),
            Waiting::Columns(columns) => {
                let Row::Named(fields) = Row::parse(record)? else {
                    return Err("is an array, so its values have no names".to_owned());
                };
                let mut given: std::collections::HashMap<String, Cell> = fields.into_iter().collect();
                for column in columns {
                    column
                        .cells
                        .push(given.remove(&column.name).unwrap_or(Cell::Null));
                }
            }
        }
        self.rows += 1;
        self.bytes += record.len();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DataError> {
        if self.rows == 0 {
            return Ok(());
        }
        let written = write_group(&mut self.writer, &mut self.waiting);
        written.map_err(|e| DataError::write(&self.path, std::io::Error::other(e)))?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl Sink for Rows {
    fn write(&mut self, record: &[u8]) -> Result<(), SinkError> {
        self.add(record).map_err(SinkError::Record)?;
        if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), DataError> {
        self.flush()?;
        let Self {
            staged,
            path,
            file,
            writer,
            ..
        } = *self;
        writer
            .close()
            .map_err(|e| DataError::write(&path, std::io::Error::other(e)))?;
        file.sync_all().map_err(|e| DataError::write(&path, e))?;
        staged.publish()
    }
}

/// Reads all records for names and types, in the order of their first appearance.
fn find_columns(input: &Dataset) -> Result<Vec<Column>, DataError> {
    let mut columns: Vec<Column> = Vec::new();
    let mut known = std::collections::HashMap::new();
    input.each(&mut |seen| {
        let refuse = |problem: String| DataError::record(input.path(), seen.number, problem);
        let Row::Named(fields) = Row::parse(seen.bytes).map_err(refuse)? else {
            return Err(refuse("is an array, so its values have no names".to_owned()));
        };
        for (name, cell) in fields {
            let kind = Kind::of(&cell).map_err(refuse)?;
            let at = *known.entry(name.clone()).or_insert_with(|| {
                columns.push(Column {
                    name: name.clone(),
                    kind: Kind::Unknown,
                    cells: Vec::new(),
                });
                columns.len() - 1
            });
            let column = &mut columns[at];
            column.kind = column.kind.join(kind).ok_or_else(|| {
                let (before, now) = (column.kind.name(), kind.name());
                refuse(format!(
                    "has {now} in `{name}`, where earlier records have {before}"
                ))
            })?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match columns.is_empty() {
        true => Err(DataError::file(input.path(), "has no fields to make columns of")),
        false => Ok(columns),
    }
}

fn write_group(writer: &mut SerializedFileWriter<File>, waiting: &mut Waiting) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    match waiting {
        Waiting::Whole(values) => {
            let mut column = group.next_column()?.expect("the schema has this column");
            column.typed::<ByteArrayType>().write_batch(values, None, None)?;
            column.close()?;
            values.clear();
        }
        Waiting::Columns(columns) => {
            for column in columns {
                let mut out = group.next_column()?.expect("the schema has this column");
                column.write(&mut out)?;
                out.close()?;
                column.cells.clear();
            }
        }
    }
    group.close()?;
    Ok(())
}

impl Column {
    fn write(&self, out: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let present: Vec<i16> = self
            .cells
            .iter()
            .map(|cell| i16::from(*cell != Cell::Null))
            .collect();
        let present = Some(present.as_slice());
        match self.kind {
            Kind::Bool => {
                let values: Vec<bool> = self
                    .cells
                    .iter()
                    .filter_map(|cell| match cell {
                        Cell::Bool(value) => Some(*value),
                        _ => None,
                    })
                    .collect();
                out.typed::<BoolType>().write_batch(&values, present, None)?;
            }
            Kind::Int => {
                let values: Vec<i64> = self.numbers()?;
                out.typed::<Int64Type>().write_batch(&values, present, None)?;
            }
            Kind::Float => {
                self.check_exact()?;
                let values: Vec<f64> = self.numbers()?;
                out.typed::<DoubleType>().write_batch(&values, present, None)?;
            }
            Kind::Text | Kind::Unknown | Kind::Bytes => {
                let values: Vec<ByteArray> = self
                    .cells
                    .iter()
                    .filter_map(|cell| match cell {
                        Cell::Text(text) | Cell::Nested(text) => Some(ByteArray::from(text.as_str())),
                        _ => None,
                    })
                    .collect();
                out.typed::<ByteArrayType>().write_batch(&values, present, None)?;
            }
        }
        Ok(())
    }

    fn numbers<T: std::str::FromStr>(&self) -> Result<Vec<T>, ParquetError> {
        let texts = self.cells.iter().filter_map(|cell| match cell {
            Cell::Number(text) => Some(text),
            _ => None,
        });
        texts
            .map(|text| {
                text.parse()
                    .map_err(|_| ParquetError::General(format!("{text} in `{}` is not a number", self.name)))
            })
            .collect()
    }

    /// A column of whole numbers and fractions is stored as floats; numbers that a float would change are refused.
    fn check_exact(&self) -> Result<(), ParquetError> {
        let changed = self.cells.iter().find_map(|cell| match cell {
            Cell::Number(text) => text
                .parse::<i64>()
                .ok()
                .filter(|whole| whole.abs_diff(0) > EXACT_IN_FLOAT.unsigned_abs()),
            _ => None,
        });
        match changed {
            None => Ok(()),
            Some(whole) => Err(ParquetError::General(format!(
                "{whole} in `{}` would lose digits, because that column also has fractions",
                self.name
            ))),
        }
    }
}
