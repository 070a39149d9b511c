//! The damage that a reader skipped, as Python sees it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use paddlecloud_recordio as recordio;
use paddlecloud_recordio::{LostRecords, Policy, ReadError, SkipBound};
use pyo3::prelude::*;

/// Bytes of a file that were skipped, and why.
#[pyclass(module = "recordio", frozen, get_all)]
pub struct LostRange {
    file: OsString,
    start: u64,
    stop: u64,
    /// how many records were there, where that is known
    records: Option<u64>,
    reason: String,
}

#[pymethods]
impl LostRange {
    fn __repr__(&self) -> String {
        let records = self
            .records
            .map_or("unknown".to_owned(), |count| count.to_string());
        format!(
            "LostRange(file='{}', start={}, stop={}, records={records}, reason='{}')",
            self.file.to_string_lossy(),
            self.start,
            self.stop,
            self.reason
        )
    }
}

/// Damage in several files, in the order in which it was found.
#[derive(Default)]
pub struct Losses {
    ranges: Vec<(PathBuf, recordio::LostRange)>,
    bytes: u64,
}

impl Losses {
    pub fn add(&mut self, file: &Path, ranges: &[recordio::LostRange]) {
        for range in ranges {
            self.bytes += range.bytes.end - range.bytes.start;
            self.ranges.push((file.to_owned(), range.clone()));
        }
    }

    /// Fails if these losses, together with `more` of them in `file`, exceed what `policy` allows.
    pub fn check(&self, file: &Path, more: &[recordio::LostRange], policy: Policy) -> Result<(), ReadError> {
        let Policy::Skip(bound) = policy else {
            return Ok(());
        };
        let bytes = self.bytes + more.iter().map(|r| r.bytes.end - r.bytes.start).sum::<u64>();
        let ranges = (self.ranges.len() + more.len()) as u64;
        if ranges <= bound.max_ranges && bytes <= bound.max_bytes {
            return Ok(());
        }
        Err(ReadError::TooMuchDamage {
            file: file.to_owned(),
            bound,
            ranges,
            bytes,
            offset: more.last().map_or(0, |last| last.bytes.end),
        })
    }

    pub fn to_python(&self) -> Vec<LostRange> {
        self.ranges
            .iter()
            .map(|(file, range)| to_python(file, range))
            .collect()
    }
}

pub fn to_python(file: &Path, range: &recordio::LostRange) -> LostRange {
    LostRange {
        file: file.as_os_str().to_owned(),
        start: range.bytes.start,
        stop: range.bytes.end,
        records: match range.records {
            LostRecords::Known(count) => Some(count),
            LostRecords::Unknown => None,
        },
        reason: range.fault.to_string(),
    }
}

/// What may be lost by default: a few of the largest usual chunks, not a whole data set.
pub const DEFAULT_BOUND: SkipBound = SkipBound {
    max_bytes: 256 << 20,
    max_ranges: 1000,
};
