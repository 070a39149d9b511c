//! Goes through the records of a file from front to back, whatever its format.

mod csv;
mod jsonl;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod recordio;
mod tar;

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use paddlecloud_recordio::{DamageReport, Policy};

use crate::error::DataError;
use crate::format::Format;
use crate::input::{self, Input, Stamp};

/// How a file is read.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// Found out from the file when left out.
    pub format: Option<Format>,
    /// Only this part of every record: a column, a field, the file with this extension.
    pub field: Option<String>,
    /// CSV only: the first line is a row like the others, and rows become arrays.
    pub first_line_is_data: bool,
    /// RecordIO only: what to do about damage.
    pub policy: Policy,
}

/// A record on its way past.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// From 0 on.
    pub number: u64,
    pub bytes: &'a [u8],
    /// How much of the file, as it lies on the disk, has been read for it.
    pub position: u64,
}

/// What is called for every record; it may say that it has seen enough.
pub type Visit<'a> = dyn FnMut(Seen<'_>) -> Result<ControlFlow<()>, DataError> + 'a;

/// A file whose format is known.
#[derive(Debug)]
pub struct Dataset {
    path: PathBuf,
    format: Format,
    options: ReadOptions,
    stamp: Stamp,
    is_packed: bool,
}

impl Dataset {
    pub fn open(path: impl Into<PathBuf>, options: ReadOptions) -> Result<Self, DataError> {
        let path = path.into();
        input::check_regular(&path)?;
        let format = match options.format {
            Some(format) => format,
            None => Format::of_file(&path)?.ok_or_else(|| DataError::UnknownFormat { file: path.clone() })?,
        };
        if options.field.is_some() && !format.has_fields() {
            return Err(DataError::file(
                &path,
                format!("is read as {format}, whose records have no fields"),
            ));
        }
        let stamp = Stamp::of(&path)?;
        let is_packed = input::head(&path)?.is_gzip;
        Ok(Self {
            path,
            format,
            options,
            stamp,
            is_packed,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is inside gzip.
    pub fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// The bytes of the file on the disk.
    pub fn len(&self) -> u64 {
        self.stamp.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows every record to `visit`; gives the account of damage that was passed over.
    pub fn each(&self, visit: &mut Visit<'_>) -> Result<DamageReport, DataError> {
        self.each_in(0..u64::MAX, visit)
    }

    /// Shows the records with these numbers; there may be fewer.
    pub fn each_in(&self, records: Range<u64>, visit: &mut Visit<'_>) -> Result<DamageReport, DataError> {
        if self.format == Format::RecordIo && !self.is_packed {
            return recordio::each_in_file(self, records, visit);
        }
        let mut ended_early = false;
        let mut within = |seen: Seen<'_>| {
            let flow = match seen.number {
                before if before < records.start => ControlFlow::Continue(()),
                after if after >= records.end => ControlFlow::Break(()),
                _ => visit(seen)?,
            };
            ended_early |= flow.is_break();
            Ok(flow)
        };
        self.each_in_stream(&mut within)?;
        if !ended_early {
            self.stamp.check(&self.path)?;
        }
        Ok(DamageReport::default())
    }

    fn each_in_stream(&self, visit: &mut Visit<'_>) -> Result<(), DataError> {
        match self.format {
            Format::RecordIo => recordio::each_in_stream(self, self.input()?, visit),
            Format::Lines => lines::each(self, self.input()?, visit),
            Format::Csv => csv::each(self, self.input()?, visit),
            Format::Jsonl => jsonl::each(self, self.input()?, visit),
            Format::Tar => tar::each(self, self.input()?, visit),
            #[cfg(feature = "parquet")]
            Format::Parquet => parquet::each(self, visit),
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => Err(no_parquet(&self.path)),
        }
    }

    fn input(&self) -> Result<Input, DataError> {
        Input::open(&self.path)
    }

    fn field(&self) -> Option<&str> {
        self.options.field.as_deref()
    }
}

/// What a program built without Parquet says.
#[cfg(not(feature = "parquet"))]
pub(crate) fn no_parquet(path: &Path) -> DataError {
    DataError::file(
        path,
        "is Parquet, and this program was built without it (feature `parquet`)",
    )
}
