//! The default unit of a file, and whether the file matches its name.
//!
//! A damaged file must not be treated as another kind: its pieces would be damaged too, without an error.

use std::ops::ControlFlow;
use std::path::Path;

use super::By;
use crate::error::DataError;
use crate::format::Format;
use crate::input::Head;
use crate::read::{Dataset, ReadOptions};

/// The first bytes override the name; if they say nothing, the contents must match the name's format.
pub(super) fn unit(path: &Path, head: &Head) -> Result<By, DataError> {
    if head.is_recordio() {
        return Ok(By::Record);
    }
    let whole_or_lines = match head.is_text() {
        true => By::Line,
        false => By::File,
    };
    match Format::of_name(path) {
        // Splitting it reads every chunk, and reports damage.
        Some(Format::RecordIo) => Ok(By::Record),
        Some(Format::Csv) if head.is_text() => Ok(By::Row),
        Some(format @ Format::Csv) => check(path, format).map(|()| By::Row),
        Some(format @ Format::Jsonl) => check(path, format).map(|()| By::Line),
        Some(format @ Format::Tar) => check(path, format).map(|()| By::File),
        // Gzip around Parquet is a file like any other: nothing reads it as Parquet.
        Some(format @ Format::Parquet) if !head.is_gzip => check(path, format).map(|()| By::File),
        Some(Format::Parquet | Format::Lines) | None => Ok(whole_or_lines),
    }
}

/// Reads all of it, as `verify` does, and fails with the same message.
fn check(path: &Path, format: Format) -> Result<(), DataError> {
    let options = ReadOptions {
        format: Some(format),
        // The column names do not matter for a split.
        first_line_is_data: true,
        ..ReadOptions::default()
    };
    let data = Dataset::open(path, options)?;
    data.review(&mut |_| Ok(ControlFlow::Continue(()))).map(drop)
}
