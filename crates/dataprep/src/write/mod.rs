//! Writes records as a file of one format; the file appears when it is complete.

mod csv;
mod jsonl;
mod lines;
mod parquet;
mod recordio;
mod tar;

use std::path::Path;

use paddlecloud_recordio::{Compressor, DEFAULT_CHUNK_SIZE};

use crate::error::DataError;
use crate::format::Format;
use crate::packed::{PackedFile, Packing};
use crate::read::Dataset;
use crate::staged_file::StagedFile;

/// What to do about an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfExists {
    #[default]
    Refuse,
    Replace,
}

/// How a file is written.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// From the name if omitted.
    pub format: Option<Format>,
    /// The record becomes the only field, with this name, instead of being parsed.
    pub field: Option<String>,
    /// CSV only: no header; rows are arrays.
    pub first_line_is_data: bool,
    pub if_exists: IfExists,
    /// RecordIO only.
    pub compressor: Compressor,
    /// RecordIO only.
    pub chunk_size: u64,
    /// RecordIO only: write an index beside the file.
    pub with_index: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            format: None,
            field: None,
            first_line_is_data: false,
            if_exists: IfExists::default(),
            compressor: Compressor::default(),
            chunk_size: DEFAULT_CHUNK_SIZE,
            with_index: false,
        }
    }
}

/// Why a record was refused.
#[derive(Debug)]
pub(crate) enum SinkError {
    /// The format cannot represent it; follows "record 7 of `x`".
    Record(String),
    Failed(DataError),
}

impl From<DataError> for SinkError {
    fn from(error: DataError) -> Self {
        Self::Failed(error)
    }
}

/// Writes records one after the other. If it is dropped before `finish`, it leaves nothing behind.
pub(crate) trait Sink {
    fn write(&mut self, record: &[u8]) -> Result<(), SinkError>;

    /// Writes the rest, makes it durable and gives the file its name.
    fn finish(self: Box<Self>) -> Result<(), DataError>;
}

/// Opens `path` for the records of `input`, which some formats read first.
pub(crate) fn open(path: &Path, options: &WriteOptions, input: &Dataset) -> Result<Box<dyn Sink>, DataError> {
    let format =
        options
            .format
            .or_else(|| Format::of_name(path))
            .ok_or_else(|| DataError::UnknownFormat {
                file: path.to_owned(),
            })?;
    if options.if_exists == IfExists::Refuse && path.symlink_metadata().is_ok() {
        return Err(DataError::AlreadyThere {
            file: path.to_owned(),
        });
    }
    if path.is_dir() {
        return Err(DataError::file(path, "is a folder"));
    }
    let field = options.field.clone();
    Ok(match format {
        Format::RecordIo => Box::new(recordio::Records::create(path, options)?),
        Format::Lines => Box::new(lines::Lines::create(path)?),
        Format::Csv => Box::new(csv::Rows::create(path, options)?),
        Format::Jsonl => Box::new(jsonl::Values::create(path, field)?),
        Format::Tar => Box::new(tar::Samples::create(path, field)?),
        Format::Parquet => Box::new(parquet::Rows::create(path, field, input)?),
    })
}

/// A file that is compressed if its name says so.
pub(crate) struct Destination {
    staged: StagedFile,
    path: std::path::PathBuf,
}

impl Destination {
    fn create(path: &Path) -> Result<(Self, PackedFile), DataError> {
        let (staged, file) = StagedFile::create(path)?;
        let destination = Self {
            staged,
            path: path.to_owned(),
        };
        Ok((destination, PackedFile::new(file, packing_of(path))))
    }

    fn failed(&self, error: std::io::Error) -> DataError {
        DataError::write(&self.path, error)
    }

    fn publish(self, file: PackedFile) -> Result<(), DataError> {
        file.finish().map_err(|e| self.failed(e))?;
        self.staged.publish()
    }
}

fn packing_of(path: &Path) -> Packing {
    let packed = |end: &std::ffi::OsStr| end.eq_ignore_ascii_case("gz") || end.eq_ignore_ascii_case("tgz");
    match path.extension().is_some_and(packed) {
        true => Packing::Gzip,
        false => Packing::None,
    }
}
