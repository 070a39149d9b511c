//! Rows of a Parquet file as JSON, in the order of its columns.

use std::io::BufReader;
use std::sync::Arc;

use bytes::Bytes;
use paddlecloud_recordio::ReadAt;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::record::{Field, Row};

use super::guarded::guarded;
use super::{Care, Dataset, Seen, Visit};
use crate::error::DataError;
use crate::json_row;
use crate::origin::FrontToBack;

pub(super) fn each(data: &Dataset, care: Care, visit: &mut Visit<'_>) -> Result<(), DataError> {
    let pieces = Pieces {
        bytes: data.origin.bytes()?,
        len: data.len(),
    };
    let failed = |problem| DataError::file(&data.path, format!("cannot be read as Parquet: {problem}"));
    let reader = attempt(|| SerializedFileReader::new(pieces)).map_err(failed)?;
    let groups = reader.metadata().row_groups();
    let all_rows: u64 = groups.iter().map(|group| group.num_rows().max(0) as u64).sum();
    let at_column = |problem| failed(located(&reader).unwrap_or(problem));
    let mut rows = attempt(|| reader.get_row_iter(None)).map_err(at_column)?;
    let (mut record, mut number) = (Vec::new(), 0);
    while let Some(row) = attempt(|| rows.next().transpose()).map_err(at_column)? {
        write_row(&row, data.field(), care, &mut record)
            .map_err(|problem| DataError::record(&data.path, number, problem))?;
        let seen = Seen {
            number,
            bytes: &record,
            // Columns are stored separately, so the share of the rows stands for the share of the bytes.
            position: (u128::from(data.len()) * u128::from(number + 1) / u128::from(all_rows.max(1)))
                .min(u128::from(data.len())) as u64,
        };
        if visit(seen)?.is_break() {
            return Ok(());
        }
        number += 1;
    }
    if number != all_rows {
        let problem = format!("claims {all_rows} rows, but contains {number}");
        return Err(DataError::file(&data.path, problem));
    }
    Ok(())
}

fn attempt<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    guarded(work)?.map_err(|error| error.to_string())
}

/// The first unreadable column, its offset, and the reason.
fn located(reader: &SerializedFileReader<Pieces>) -> Option<String> {
    for (number, group) in reader.metadata().row_groups().iter().enumerate() {
        for (at, column) in group.columns().iter().enumerate() {
            if let Err(problem) = attempt(|| read_pages(reader, number, at)) {
                let name = column.column_path().string();
                let start = attempt(|| Ok(column.byte_range().0));
                let place = start.map_or_else(|_| String::new(), |start| format!(" at offset {start}"));
                return Some(format!("column `{name}` of row group {number}{place}: {problem}"));
            }
        }
    }
    None
}

fn read_pages(
    reader: &SerializedFileReader<Pieces>,
    group: usize,
    column: usize,
) -> Result<(), ParquetError> {
    let mut pages = reader.get_row_group(group)?.get_column_page_reader(column)?;
    while pages.get_next_page()?.is_some() {}
    Ok(())
}

/// Columns are read in place, wherever the file is.
struct Pieces {
    bytes: Arc<dyn ReadAt>,
    len: u64,
}

impl Length for Pieces {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Pieces {
    type T = BufReader<FrontToBack>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::new(FrontToBack {
            bytes: Arc::clone(&self.bytes),
            at: start,
            len: self.len,
        }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF(
                "a column is beyond the end of the file".to_owned(),
            ));
        }
        let mut piece = vec![0; length];
        self.bytes.read_exact_at(&mut piece, start)?;
        Ok(piece.into())
    }
}

fn write_row(row: &Row, field: Option<&str>, care: Care, out: &mut Vec<u8>) -> Result<(), String> {
    out.clear();
    match field {
        Some(name) => write_field(row, name, care, out),
        None => write_object(row, care, out),
    }
}

fn write_field(row: &Row, name: &str, care: Care, out: &mut Vec<u8>) -> Result<(), String> {
    let found = row.get_column_iter().find(|(known, _)| known.as_str() == name);
    match found {
        None | Some((_, Field::Null)) => Err(format!("has no field `{name}`")),
        Some((_, Field::Bytes(bytes))) => {
            out.extend_from_slice(bytes.data());
            Ok(())
        }
        Some((_, Field::Str(text))) => {
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        Some((_, other)) => write_value(other, care, out),
    }
}

fn write_object(row: &Row, care: Care, out: &mut Vec<u8>) -> Result<(), String> {
    let mut separator = b'{';
    for (name, value) in row.get_column_iter() {
        out.push(separator);
        json_row::text(name, out);
        out.push(b':');
        write_value(value, care, out)?;
        separator = b',';
    }
    out.push(b'}');
    Ok(())
}

fn write_value(value: &Field, care: Care, out: &mut Vec<u8>) -> Result<(), String> {
    if care == Care::Records && !is_finite(value) {
        return Err("has a number that JSON cannot represent: NaN or infinite".to_owned());
    }
    serde_json::to_writer(out, &value.to_json_value()).expect("a JSON value is always written");
    Ok(())
}

/// Whether JSON can represent every number inside.
fn is_finite(value: &Field) -> bool {
    match value {
        Field::Float16(number) => number.is_finite(),
        Field::Float(number) => number.is_finite(),
        Field::Double(number) => number.is_finite(),
        Field::Group(row) => row.get_column_iter().all(|(_, value)| is_finite(value)),
        Field::ListInternal(list) => list.elements().iter().all(is_finite),
        Field::MapInternal(map) => map
            .entries()
            .iter()
            .all(|(key, value)| is_finite(key) && is_finite(value)),
        _ => true,
    }
}
