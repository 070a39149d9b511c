//! Why a data set cannot be read, written or split: every message names the file, most also the record.

use std::io;
use std::path::{Path, PathBuf};

use paddlecloud_recordio::{ReadError, WriteError};

/// Why something about a data set failed.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("cannot read `{}`", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("cannot write `{}`", file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error(transparent)]
    RecordRead(#[from] ReadError),
    #[error(transparent)]
    RecordWrite(#[from] WriteError),
    /// The file as a whole cannot be used as requested.
    #[error("`{}` {problem}", file.display())]
    File { file: PathBuf, problem: String },
    #[error("line {line} of `{}` {problem}", file.display())]
    Line {
        file: PathBuf,
        line: u64,
        problem: String,
    },
    /// Counted from 0, as everywhere.
    #[error("record {record} of `{}` {problem}", file.display())]
    Record {
        file: PathBuf,
        record: u64,
        problem: String,
    },
    #[error("the format of `{}` cannot be determined from its name or contents", file.display())]
    UnknownFormat { file: PathBuf },
    #[error("`{}` already exists", file.display())]
    AlreadyThere { file: PathBuf },
    #[error("`{}` changed while it was read", file.display())]
    Changed { file: PathBuf },
}

impl DataError {
    pub(crate) fn read(file: &Path, source: io::Error) -> Self {
        Self::Read {
            file: file.to_owned(),
            source,
        }
    }

    pub(crate) fn write(file: &Path, source: io::Error) -> Self {
        Self::Write {
            file: file.to_owned(),
            source,
        }
    }

    pub(crate) fn file(file: &Path, problem: impl Into<String>) -> Self {
        Self::File {
            file: file.to_owned(),
            problem: problem.into(),
        }
    }

    pub(crate) fn line(file: &Path, line: u64, problem: impl Into<String>) -> Self {
        Self::Line {
            file: file.to_owned(),
            line,
            problem: problem.into(),
        }
    }

    pub(crate) fn record(file: &Path, record: u64, problem: impl Into<String>) -> Self {
        Self::Record {
            file: file.to_owned(),
            record,
            problem: problem.into(),
        }
    }
}
